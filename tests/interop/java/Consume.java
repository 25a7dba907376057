import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The official push consumer, to be driven by a test.
 *
 * <pre>
 * Consume NAMESRV TOPIC GROUP COUNT SECONDS   ends with 0 after COUNT messages, with 3 when SECONDS have passed
 * </pre>
 *
 * Each message gives one line: "got BODY".
 */
public final class Consume {
    public static void main(String[] args) throws Exception {
        CountDownLatch missing = new CountDownLatch(Integer.parseInt(args[3]));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                say("got " + new String(message.getBody(), StandardCharsets.UTF_8));
                missing.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        say("ready");
        boolean all = missing.await(Long.parseLong(args[4]), TimeUnit.SECONDS);
        consumer.shutdown();
        System.exit(all ? 0 : 3);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
