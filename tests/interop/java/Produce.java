import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * The official producer, to be driven by a test.
 *
 * <pre>
 * Produce NAMESRV TOPIC COUNT   sends TOPIC-0, TOPIC-1, ... and ends
 * Produce NAMESRV               sends one message for each line "topic body" of its input and ends with it
 * </pre>
 *
 * Each message gives one line: "sent ID BROKER" or, if it failed, "failed CLASS".
 */
public final class Produce {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("interop-producer");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        try {
            if (args.length > 1) {
                for (int i = 0; i < Integer.parseInt(args[2]); i++) {
                    send(producer, args[1], args[1] + "-" + i);
                }
            } else {
                BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
                say("ready");
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    String[] words = line.split(" ", 2);
                    send(producer, words[0], words[1]);
                }
            }
        } finally {
            producer.shutdown();
        }
    }

    private static void send(DefaultMQProducer producer, String topic, String body) {
        try {
            SendResult result = producer.send(new Message(topic, body.getBytes(StandardCharsets.UTF_8)));
            say("sent " + result.getMsgId() + " " + result.getMessageQueue().getBrokerName());
        } catch (Exception e) {
            say("failed " + e.getClass().getSimpleName());
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
