import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * The official Java client, told over its input what to do. The commands are described in drivers.py.
 */
public final class Peer {
    private static final String[] NAMES = {"a", "b", "c", "d", "e", "f", "g", "h"};
    // How often routes are asked for, in milliseconds: what the client does by itself, if nothing is said.
    private static final int POLL = Integer.getInteger("peer.poll", 30_000);
    // Whatever the locale is, what is said is UTF-8, as what is read.
    private static final PrintStream OUT = utf8(FileDescriptor.out);

    private final String nameServers;
    private final Map<String, DefaultMQPushConsumer> consumers = new HashMap<>();
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private final Transactions transactions;

    private Peer(String nameServers) {
        this.nameServers = nameServers;
        this.transactions = new Transactions(nameServers);
    }

    /** Signs requests with the account in the environment; null if there is none. */
    static RPCHook signs() {
        String key = System.getenv("PEER_ACCESS_KEY");
        return key == null ? null : new AclClientRPCHook(new SessionCredentials(key, System.getenv("PEER_SECRET_KEY")));
    }

    public static void main(String[] args) throws Exception {
        Peer peer = new Peer(args[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        say("ready");
        int number = 0;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            number++;
            String[] words = line.split(" ");
            Map<String, String> options = new HashMap<>();
            for (int i = 1; i < words.length; i++) {
                String[] pair = words[i].split("=", 2);
                options.put(pair[0], pair[1]);
            }
            try {
                peer.obey(words[0], options);
                say("done " + number);
            } catch (InvocationTargetException e) {
                say("failed " + number + " " + String.valueOf(e.getCause()).replace('\n', ' '));
            } catch (Throwable e) {
                // The client says how often it tried, and its causes why that failed.
                StringBuilder reason = new StringBuilder(e.toString());
                for (Throwable cause = e.getCause(); cause != null; cause = cause.getCause()) {
                    reason.append(" because of ").append(cause);
                }
                say("failed " + number + " " + reason.toString().replace('\n', ' '));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private void obey(String command, Map<String, String> options) throws Exception {
        switch (command) {
            case "send":
                send(options);
                break;
            case "request":
                Message reply = producer(options).request(message(options, options.get("body")), 10_000);
                say("reply " + new String(reply.getBody(), StandardCharsets.UTF_8));
                break;
            case "transaction":
                sent(transactions.send(options, message(options, options.get("body"))));
                break;
            case "recall":
                recall(options);
                break;
            case "id":
                String id = options.get("id");
                say("id " + MessageClientIDSetter.getNearlyTimeFromID(id).getTime() + " "
                    + MessageClientIDSetter.getPidFromID(id));
                break;
            case "async":
                async(options);
                break;
            case "oneway":
                for (int i = 0; i < count(options); i++) {
                    producer(options).sendOneway(message(options, options.get("topic") + "-" + i));
                }
                break;
            case "batch":
                List<Message> messages = new ArrayList<>();
                for (int i = 0; i < count(options); i++) {
                    messages.add(message(options, options.get("topic") + "-" + i));
                }
                sent(producer(options).send(messages));
                break;
            case "ordered":
                ordered(options);
                break;
            case "push":
                push(options);
                break;
            case "queues":
                queues(options.get("name"));
                break;
            case "leave":
                consumers.remove(options.get("name")).shutdown();
                break;
            case "lite":
                lite(options);
                break;
            default:
                throw new IllegalArgumentException("no such command: " + command);
        }
    }

    // Sending

    /** One producer for each way of sending that is settled before its start. Consumers reply with one, too. */
    private synchronized DefaultMQProducer producer(Map<String, String> options) throws Exception {
        String compression = options.getOrDefault("compression", "");
        boolean traces = options.containsKey("trace");
        String kind = options.containsKey("vip") ? "vip" : (traces ? "traced" : "interop") + compression;
        if (!producers.containsKey(kind)) {
            DefaultMQProducer made = traces
                ? new DefaultMQProducer(kind + "-producer", signs(), true, null)
                : new DefaultMQProducer(kind + "-producer", signs());
            made.setNamesrvAddr(nameServers);
            // Replies go to the client of that id, and other processes have producers of this kind, too.
            made.setInstanceName(kind + "-" + ProcessHandle.current().pid());
            made.setVipChannelEnabled(kind.equals("vip"));
            made.setPollNameServerInterval(POLL);
            if (!compression.isEmpty()) {
                set(made, "setCompressType", compression);
            }
            made.start();
            producers.put(kind, made);
        }
        return producers.get(kind);
    }

    private void send(Map<String, String> options) throws Exception {
        Message message = message(options, options.get("body"));
        if (options.containsKey("shard")) {
            sent(producer(options).send(message, new SelectMessageQueueByHash(), options.get("shard")));
        } else {
            SendResult result = producer(options).send(message);
            sent(result);
            if (options.containsKey("timer")) {
                Object handle = result.getClass().getMethod("getRecallHandle").invoke(result);
                say("handle " + result.getMsgId() + " " + handle);
            }
        }
    }

    /** Takes a timer back. Only 5.x can, as only 5.x has timers. */
    private void recall(Map<String, String> options) throws Exception {
        DefaultMQProducer by = producer(options);
        Method recall = by.getClass().getMethod("recallMessage", String.class, String.class);
        say("recalled " + recall.invoke(by, options.get("topic"), options.get("handle")));
    }

    private static int count(Map<String, String> options) {
        return Integer.parseInt(options.get("count"));
    }

    private static Message message(Map<String, String> options, String body) throws Exception {
        byte[] bytes = options.containsKey("size")
            ? String.join("", Collections.nCopies(Integer.parseInt(options.get("size")), "x")).getBytes(StandardCharsets.UTF_8)
            : body.getBytes(StandardCharsets.UTF_8);
        Message message = new Message(options.get("topic"), options.getOrDefault("tags", ""), bytes);
        if (options.containsKey("keys")) {
            message.setKeys(options.get("keys").replace(',', ' '));
        }
        if (options.containsKey("property")) {
            String[] pair = options.get("property").split(":", 2);
            message.putUserProperty(pair[0], pair[1]);
        }
        if (options.containsKey("delay")) {
            message.setDelayTimeLevel(Integer.parseInt(options.get("delay")));
        }
        if (options.containsKey("timer")) {
            Message.class.getMethod("setDelayTimeMs", long.class).invoke(message, Long.parseLong(options.get("timer")));
        }
        return message;
    }

    private void async(Map<String, String> options) throws Exception {
        CountDownLatch missing = new CountDownLatch(count(options));
        for (int i = 0; i < count(options); i++) {
            producer(options).send(message(options, options.get("topic") + "-" + i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent(result);
                    missing.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    say("unsent " + e);
                    missing.countDown();
                }
            });
        }
        if (!missing.await(20, TimeUnit.SECONDS)) {
            throw new IllegalStateException(missing.getCount() + " callbacks are missing");
        }
    }

    /** COUNT messages of each order, the orders taking turns; all of one order go to one queue. */
    private void ordered(Map<String, String> options) throws Exception {
        for (int step = 0; step < count(options); step++) {
            for (int order = 0; order < Integer.parseInt(options.get("orders")); order++) {
                sent(producer(options).send(message(options, NAMES[order] + "-" + step),
                    (queues, message, key) -> queues.get((Integer) key % queues.size()), order));
            }
        }
    }

    static void sent(SendResult result) {
        say("sent " + result.getSendStatus() + " " + result.getMsgId() + " " + result.getOffsetMsgId() + " "
            + result.getMessageQueue().getBrokerName() + " " + result.getMessageQueue().getQueueId() + " "
            + result.getQueueOffset());
    }

    // Receiving

    private void push(Map<String, String> options) throws Exception {
        String name = options.get("name");
        int failures = Integer.parseInt(options.getOrDefault("fail", "0"));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.get("group"), signs(),
            new AllocateMessageQueueAveragely(), options.containsKey("trace"), null);
        consumer.setNamesrvAddr(nameServers);
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setPollNameServerInterval(POLL);
        consumer.setSuspendCurrentQueueTimeMillis(50);
        if (options.containsKey("max")) {
            consumer.setMaxReconsumeTimes(Integer.parseInt(options.get("max")));
        }
        if (options.containsKey("broadcast")) {
            set(consumer, "setMessageModel", "BROADCASTING");
        }
        if (options.containsKey("pop")) {
            // Only 5.x can let the broker assign queues, and then be told to pop.
            consumer.getClass().getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
            consumer.getClass().getMethod("setPopInvisibleTime", long.class)
                .invoke(consumer, Long.parseLong(options.get("pop")));
        }
        if (options.containsKey("strategy")) {
            consumer.setAllocateMessageQueueStrategy(Strategies.named(options.get("strategy"), options));
        }
        if (options.containsKey("sql")) {
            consumer.subscribe(options.get("topic"), MessageSelector.bySql(options.get("sql").replace('+', ' ')));
        } else {
            consumer.subscribe(options.get("topic"), options.getOrDefault("tags", "*"));
        }
        if (options.containsKey("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                for (MessageExt message : messages) {
                    got(name, message);
                    if (message.getReconsumeTimes() < failures) {
                        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                    }
                }
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    got(name, message);
                    if (options.containsKey("show")) {
                        say("shown " + name + " " + message.getUserProperty(options.get("show")));
                    }
                    if (options.containsKey("reply")) {
                        reply(message);
                    }
                    if (message.getReconsumeTimes() < failures) {
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        consumers.put(name, consumer);
        say("client " + name + " " + consumer.buildMQClientId());
    }

    private void reply(MessageExt message) {
        try {
            byte[] body = ("re:" + new String(message.getBody(), StandardCharsets.UTF_8)).getBytes(StandardCharsets.UTF_8);
            producer(Collections.emptyMap()).send(MessageUtil.createReplyMessage(message, body));
        } catch (Exception e) {
            say("unsent " + e);
        }
    }

    /** Some enums moved to other packages in 5.x, or are new there, so no import fits both. */
    private static void set(Object object, String setter, String value) throws Exception {
        for (Method method : object.getClass().getMethods()) {
            if (method.getName().equals(setter)) {
                for (Object each : method.getParameterTypes()[0].getEnumConstants()) {
                    if (each.toString().equals(value)) {
                        method.invoke(object, each);
                        return;
                    }
                }
            }
        }
        throw new IllegalArgumentException(object.getClass().getSimpleName() + " has no " + setter + " " + value);
    }

    private void queues(String name) {
        DefaultMQPushConsumer consumer = consumers.get(name);
        say("queues " + consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> !queue.getTopic().startsWith("%RETRY%"))
            .map(queue -> queue.getBrokerName() + ":" + queue.getQueueId()).sorted().collect(Collectors.joining(" ")));
    }

    /** Reads one queue from an offset on, without a group's help in finding it, and commits what was read. */
    private void lite(Map<String, String> options) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(options.get("group"), signs());
        consumer.setNamesrvAddr(nameServers);
        consumer.setInstanceName(options.get("name"));
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(count(options));
        consumer.start();
        try {
            int wanted = Integer.parseInt(options.get("queue"));
            List<MessageQueue> queues = consumer.fetchMessageQueues(options.get("topic")).stream()
                .filter(queue -> queue.getQueueId() == wanted).collect(Collectors.toList());
            consumer.assign(queues);
            if (options.containsKey("offset")) {
                consumer.seek(queues.get(0), Long.parseLong(options.get("offset")));
            }
            long end = System.currentTimeMillis() + 1000 * Long.parseLong(options.getOrDefault("seconds", "15"));
            int left = count(options);
            while (left > 0 && System.currentTimeMillis() < end) {
                for (MessageExt message : consumer.poll(500)) {
                    if (left-- > 0) {
                        got(options.get("name"), message);
                    }
                }
            }
            consumer.commitSync();
            say("committed " + consumer.committed(queues.get(0)));
        } finally {
            consumer.shutdown();
        }
    }

    private static void got(String name, MessageExt message) {
        String tags = message.getTags() == null || message.getTags().isEmpty() ? "-" : message.getTags();
        say("got " + name + " " + message.getTopic() + " " + message.getQueueId() + " " + message.getQueueOffset() + " "
            + message.getReconsumeTimes() + " " + tags + " " + new String(message.getBody(), StandardCharsets.UTF_8));
    }

    static synchronized void say(String line) {
        OUT.println(line);
        OUT.flush();
    }

    private static PrintStream utf8(FileDescriptor descriptor) {
        try {
            return new PrintStream(new FileOutputStream(descriptor), false, "UTF-8");
        } catch (java.io.UnsupportedEncodingException e) {
            throw new IllegalStateException(e);
        }
    }
}
