import java.util.HashMap;
import java.util.Map;

import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The official producer of transactions, one for each group.
 *
 * What it is told to do with a message counts for its local transaction (`state`) and, whoever sent the half message,
 * for the checks of the broker (`check`, of the whole group): COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW.
 */
final class Transactions {
    private final String nameServers;
    private final Map<String, TransactionMQProducer> producers = new HashMap<>();
    private final Map<String, LocalTransactionState> checks = new HashMap<>();

    Transactions(String nameServers) {
        this.nameServers = nameServers;
    }

    SendResult send(Map<String, String> options, Message message) throws Exception {
        String group = options.get("group");
        checks.put(group, LocalTransactionState.valueOf(options.getOrDefault("check", "UNKNOW")));
        if (!producers.containsKey(group)) {
            producers.put(group, started(group));
        }
        return producers.get(group).sendMessageInTransaction(message, LocalTransactionState.valueOf(options.get("state")));
    }

    private TransactionMQProducer started(String group) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(group, Peer.signs());
        producer.setNamesrvAddr(nameServers);
        producer.setInstanceName(group);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                Peer.say("checked " + group + " " + message.getMsgId() + " " + message.getTransactionId());
                return checks.get(group);
            }
        });
        producer.start();
        return producer;
    }
}
