import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;

import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Everything that the official client shows of the messages of a topic, a line for each: NAME:VALUE of every field, both in Base64.
 *
 * Properties are called property.NAME.
 */
public final class ShowRows {
    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("show-rows");
        consumer.setNamesrvAddr(args[0]);
        consumer.start();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(args[1])) {
            long end = consumer.maxOffset(queue);
            for (long offset = consumer.minOffset(queue); offset < end; ) {
                PullResult result = consumer.pull(queue, "*", offset, 32);
                if (result.getPullStatus() == PullStatus.FOUND) {
                    for (MessageExt message : result.getMsgFoundList()) {
                        out.println("row " + line(queue, message));
                    }
                }
                offset = result.getNextBeginOffset();
            }
        }
        out.println("all shown");
        Runtime.getRuntime().halt(0);
    }

    private static String line(MessageQueue queue, MessageExt message) {
        Map<String, byte[]> fields = new TreeMap<>();
        fields.put("body", message.getBody());
        put(fields, "topic", message.getTopic());
        put(fields, "brokerName", queue.getBrokerName());
        put(fields, "queueId", message.getQueueId());
        put(fields, "queueOffset", message.getQueueOffset());
        put(fields, "physicalOffset", message.getCommitLogOffset());
        put(fields, "msgId", message.getMsgId());
        put(fields, "offsetMsgId", ((MessageClientExt) message).getOffsetMsgId());
        put(fields, "keys", message.getKeys());
        put(fields, "tags", message.getTags());
        put(fields, "flag", message.getFlag());
        put(fields, "sysFlag", message.getSysFlag());
        put(fields, "bodyCRC", message.getBodyCRC());
        put(fields, "bornTimestamp", message.getBornTimestamp());
        put(fields, "storeTimestamp", message.getStoreTimestamp());
        put(fields, "bornHost", host(message.getBornHost()));
        put(fields, "storeHost", host(message.getStoreHost()));
        put(fields, "reconsumeTimes", message.getReconsumeTimes());
        put(fields, "preparedTransactionOffset", message.getPreparedTransactionOffset());
        put(fields, "storeSize", message.getStoreSize());
        for (Map.Entry<String, String> property : message.getProperties().entrySet()) {
            put(fields, "property." + property.getKey(), property.getValue());
        }
        StringBuilder text = new StringBuilder();
        for (Map.Entry<String, byte[]> field : fields.entrySet()) {
            text.append(Base64.getEncoder().encodeToString(field.getKey().getBytes(StandardCharsets.UTF_8)))
                .append(':').append(Base64.getEncoder().encodeToString(field.getValue())).append(' ');
        }
        return text.toString();
    }

    private static void put(Map<String, byte[]> fields, String name, Object value) {
        if (value != null) {
            fields.put(name, value.toString().getBytes(StandardCharsets.UTF_8));
        }
    }

    private static String host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return host.getAddress().getHostAddress() + ":" + host.getPort();
    }
}
