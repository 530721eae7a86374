import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Prints who gets which queues by upstream's own rule, over 1 to 8 queues and 1 to 4 clients.
 *
 * <p>Queues lie on two brokers, and are put in order as upstream's rebalancing does it, from an
 * order that is not theirs; so are the clients. One line of JSON each: queues as [broker, number].
 */
public class AllocateAveragely {
    static final String[] CLIENTS = {"10.0.0.9@7#1", "10.0.0.10@88#2", "a@1#rangeland.j#f", "Z@1#2"};
    static final String[] BROKERS = {"broker-b", "broker-10"};

    public static void main(String[] args) {
        for (int queues = 1; queues <= 8; queues++)
            for (int clients = 1; clients <= CLIENTS.length; clients++) print(queues, clients);
    }

    static void print(int queueCount, int clientCount) {
        List<MessageQueue> queues = new ArrayList<>();
        for (int n = queueCount - 1; n >= 0; n--)
            queues.add(new MessageQueue("orders", BROKERS[n % 2], 2 + 5 * (n / 2)));
        List<String> clients = new ArrayList<>(List.of(CLIENTS).subList(0, clientCount));
        List<String> given = new ArrayList<>(clients);
        List<String> listed = listed(queues);
        Collections.sort(queues);
        Collections.sort(clients);
        AllocateMessageQueueAveragely rule = new AllocateMessageQueueAveragely();
        List<String> found = new ArrayList<>();
        for (String client : given)
            found.add(
                    "\"" + client + "\": " + listed(rule.allocate("g", client, queues, clients)));
        System.out.println("{\"queues\": " + listed + ", \"found\": {" + String.join(", ", found) + "}}");
    }

    static List<String> listed(List<MessageQueue> queues) {
        List<String> found = new ArrayList<>();
        for (MessageQueue queue : queues)
            found.add("[\"" + queue.getBrokerName() + "\", " + queue.getQueueId() + "]");
        return found;
    }
}
