import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;

import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The official allocation strategies by their names.
 *
 * A consumer's room is what stands between the last '@' and the first '-' of its client id, so the start of its name. For
 * NEARBY the rooms of the queues are r0 and r1, by turns. MACHINE_ROOM wants a broker named ROOM@NAME, `rooms=ROOM`;
 * CONFIG wants `topic`, `broker` and `ids=0,1,...`.
 */
final class Strategies {
    private Strategies() {
    }

    static AllocateMessageQueueStrategy named(String name, Map<String, String> options) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash();
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                byRoom.setConsumeridcs(new HashSet<>(Arrays.asList(options.get("rooms").split(","))));
                return byRoom;
            case "CONFIG":
                AllocateMessageQueueByConfig byConfig = new AllocateMessageQueueByConfig();
                byConfig.setMessageQueueList(queues(options));
                return byConfig;
            case "MACHINE_ROOM_NEARBY-AVG":
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new Rooms());
            default:
                throw new IllegalArgumentException("no such strategy: " + name);
        }
    }

    private static List<MessageQueue> queues(Map<String, String> options) {
        List<MessageQueue> queues = new ArrayList<>();
        for (String id : options.get("ids").split(",")) {
            queues.add(new MessageQueue(options.get("topic"), options.get("broker"), Integer.parseInt(id)));
        }
        return queues;
    }

    private static final class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return "r" + queue.getQueueId() % 2;
        }

        @Override
        public String consumerDeployIn(String clientId) {
            String name = clientId.substring(clientId.lastIndexOf('@') + 1);
            return name.substring(0, name.indexOf('-'));
        }
    }
}
