import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullCallback;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Upstream's clients in the benchmark: fill NS TOPIC QUEUES COUNT, or read NS TOPIC.
 *
 * <p>A reader stays up, so that its code is warm. For each line "lite" or "ahead" it reads the
 * topic once from its beginning to the ends that were found at the start of the round, and prints
 * seconds, messages and bytes of bodies. "lite" is DefaultLitePullConsumer, with answers as large
 * as brokers give and queues in memory as long as it takes not to wait; "ahead" pulls by
 * DefaultMQPullConsumer with many pulls of each queue on their way.
 */
public class RocketmqPull {
    static final int MOST_A_PULL = 32;
    static final int AHEAD = 64;

    public static void main(String[] args) throws Exception {
        if (args[0].equals("fill")) {
            fill(args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]));
        } else {
            BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
            DefaultMQPullConsumer puller = puller(args[1]);
            System.out.println("@\tready");
            for (String order = orders.readLine(); order != null; order = orders.readLine()) {
                long[] found = new long[2];
                long[] started = new long[1];
                if (order.equals("lite")) lite(args[1], puller, args[2], found, started);
                else ahead(puller, args[2], found, started);
                double seconds = (System.nanoTime() - started[0]) / 1e9;
                System.out.println("@\t" + seconds + "\t" + found[0] + "\t" + found[1]);
            }
        }
        System.exit(0);
    }

    static void fill(String server, String topic, int queues, int count) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench-producers");
        producer.setNamesrvAddr(server);
        producer.setSendMsgTimeout(30000);
        producer.start();
        List<MessageQueue> places = producer.fetchPublishMessageQueues(topic);
        places.sort(null);
        Random random = new Random(1);
        List<Message> batch = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            int k = random.nextInt(1_000_000_000);
            String body =
                    String.format(
                            "{\"id\":%d,\"user\":\"u%06d\",\"event\":\"view\",\"url\":\"https://example.com"
                                    + "/p/%d?ref=%x\",\"price\":%d.5,\"agent\":\"Mozilla/5.0 (X11) %d\"}",
                            n, k % 1_000_000, k % 5000, k, k % 900, k % 97);
            Message made = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
            made.setKeys("k" + k % 10_000_000);
            batch.add(made);
            if (batch.size() == 500 || n == count - 1) {
                producer.send(batch, places.get(n / 500 % queues));
                batch.clear();
            }
        }
        producer.shutdown();
    }

    static DefaultMQPullConsumer puller(String server) throws Exception {
        DefaultMQPullConsumer puller = new DefaultMQPullConsumer("bench-pullers");
        puller.setNamesrvAddr(server);
        puller.start();
        return puller;
    }

    static long[] ends(DefaultMQPullConsumer puller, Collection<MessageQueue> queues)
            throws Exception {
        long[] found = new long[queues.size()];
        int place = 0;
        for (MessageQueue queue : queues) found[place++] = puller.maxOffset(queue);
        return found;
    }

    static void take(List<MessageExt> messages, long[] found) {
        found[0] += messages.size();
        for (MessageExt each : messages) found[1] += each.getBody().length;
    }

    static void lite(
            String server, DefaultMQPullConsumer puller, String topic, long[] found, long[] started)
            throws Exception {
        List<MessageQueue> queues =
                new ArrayList<>(puller.fetchSubscribeMessageQueues(topic));
        long wanted = 0;
        for (long end : ends(puller, queues)) wanted += end;
        // Of a group that has read nothing yet: to seek costs what was pulled until then.
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("bench-" + System.nanoTime());
        consumer.setNamesrvAddr(server);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(MOST_A_PULL);
        consumer.setPullThresholdForQueue(100_000);
        consumer.setPullThresholdForAll(1_000_000);
        consumer.setPullThresholdSizeForQueue(1024);
        consumer.setConsumeMaxSpan(1_000_000_000);
        consumer.start();
        started[0] = System.nanoTime();
        consumer.assign(queues);
        while (found[0] < wanted) {
            List<MessageExt> messages = consumer.poll(10_000);
            if (messages.isEmpty()) throw new Exception(found[0] + " of " + wanted + " came");
            take(messages, found);
        }
        consumer.shutdown();
    }

    static void ahead(DefaultMQPullConsumer puller, String topic, long[] found, long[] started)
            throws Exception {
        List<MessageQueue> queues =
                new ArrayList<>(puller.fetchSubscribeMessageQueues(topic));
        long[] ends = ends(puller, queues);
        started[0] = System.nanoTime();
        for (int n = 0; n < ends.length; n++) readAhead(puller, queues.get(n), ends[n], found);
    }

    static void readAhead(DefaultMQPullConsumer puller, MessageQueue queue, long end, long[] found)
            throws Exception {
        Deque<CompletableFuture<PullResult>> asked = new ArrayDeque<>();
        long next = 0;
        for (long position = 0; position < end; ) {
            while (next < end && asked.size() < AHEAD) {
                asked.add(pull(puller, queue, next));
                next += MOST_A_PULL;
            }
            PullResult result = asked.poll().get();
            take(result.getMsgFoundList(), found);
            position += result.getMsgFoundList().size();
            boolean isShort = position < end && result.getNextBeginOffset() % MOST_A_PULL != 0;
            if (isShort) throw new Exception("an answer brought less than " + MOST_A_PULL);
        }
    }

    static CompletableFuture<PullResult> pull(
            DefaultMQPullConsumer puller, MessageQueue queue, long offset) throws Exception {
        CompletableFuture<PullResult> found = new CompletableFuture<>();
        PullCallback callback =
                new PullCallback() {
                    public void onSuccess(PullResult result) {
                        found.complete(result);
                    }

                    public void onException(Throwable trouble) {
                        found.completeExceptionally(trouble);
                    }
                };
        puller.pull(queue, "*", offset, MOST_A_PULL, callback);
        return found;
    }
}
