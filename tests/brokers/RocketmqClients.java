import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Upstream's own clients, for tests: produce NS TOPIC KIND COUNT, or consume NS TOPIC GROUP COUNT
 * [TAGS], or fail NS TOPIC GROUP: a consumer that gives a message back and takes it a second later.
 *
 * <p>KIND is plain, large (bodies of 6,000 bytes, which the client packs), batch, batches (of one
 * message, two, three and so on, with one that is sent by itself before each), transaction (the
 * first third is committed, the second rolled back, the rest left open), delayed (by a second) or
 * tags=A,B,... (message n has the tag at place n, in turn; a tag "-" is none).
 * Body n begins with "KIND-n". A consumer prints queue, offset, body, and properties by name.
 */
public class RocketmqClients {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("produce")) produce(args[1], args[2], args[3], Integer.parseInt(args[4]));
        else if (args[0].equals("fail")) fail(args[1], args[2], args[3]);
        else
            consume(
                    args[1],
                    args[2],
                    args[3],
                    Integer.parseInt(args[4]),
                    args.length > 5 ? args[5] : "*");
        System.exit(0);
    }

    static RPCHook hook() {
        String key = System.getProperty("access.key");
        if (key == null) return null;
        return new AclClientRPCHook(new SessionCredentials(key, System.getProperty("secret.key")));
    }

    static Message message(String topic, String kind, int n) {
        String body = kind + "-" + n + (kind.equals("large") ? "x".repeat(6000) : "");
        Message made = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
        if (n % 3 != 2) made.setTags(n % 2 == 0 ? "even" : "odd");
        if (kind.startsWith("tags=")) {
            String[] tags = kind.substring(5).split(",");
            made = new Message(topic, ("value-" + n).getBytes(StandardCharsets.UTF_8));
            if (!tags[n % tags.length].equals("-")) made.setTags(tags[n % tags.length]);
        }
        if (n % 3 != 1) made.setKeys(List.of("key-" + n, "other"));
        made.putUserProperty("größe", "ü" + n);
        if (kind.equals("delayed")) made.setDelayTimeLevel(1);
        return made;
    }

    static void produce(String server, String topic, String kind, int count) throws Exception {
        DefaultMQProducer producer =
                kind.equals("transaction")
                        ? transactional(count)
                        : new DefaultMQProducer("testing-producers", hook());
        producer.setNamesrvAddr(server);
        producer.setVipChannelEnabled(false);
        producer.setSendMsgTimeout(10000);
        producer.start();
        long before = held(producer, topic);
        List<Message> batch = new ArrayList<>();
        int size = 0;
        for (int n = 0; n < count; n++) {
            Message made = message(topic, kind, n);
            if (kind.equals("batch")) batch.add(made);
            else if (kind.equals("batches") && batch.size() <= size) batch.add(made);
            else if (kind.equals("transaction")) producer.sendMessageInTransaction(made, n);
            else print(producer.send(made));
            if (kind.equals("batches") && batch.size() > size && batch.get(size) != made) {
                print(producer.send(batch));
                batch.clear();
                size++;
            }
        }
        if (!batch.isEmpty()) print(producer.send(batch));
        // A broker says that it has a message before it enters it in its queue.
        int due = kind.equals("transaction") ? count / 3 : kind.equals("delayed") ? 0 : count;
        long deadline = System.currentTimeMillis() + 150_000;
        while (held(producer, topic) < before + due) {
            if (System.currentTimeMillis() > deadline) throw new Exception("not all can be pulled");
            Thread.sleep(10);
        }
        producer.shutdown();
    }

    static long held(DefaultMQProducer producer, String topic) throws Exception {
        long sum = 0;
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic))
            sum += producer.maxOffset(queue);
        return sum;
    }

    static void print(SendResult sent) {
        System.out.println("@\t" + sent.getMessageQueue().getQueueId() + "\t" + sent.getQueueOffset());
    }

    static TransactionMQProducer transactional(int count) {
        TransactionMQProducer made = new TransactionMQProducer("testing-transactions");
        made.setTransactionListener(
                new TransactionListener() {
                    public LocalTransactionState executeLocalTransaction(Message message, Object n) {
                        if ((Integer) n < count / 3) return LocalTransactionState.COMMIT_MESSAGE;
                        if ((Integer) n < 2 * count / 3)
                            return LocalTransactionState.ROLLBACK_MESSAGE;
                        return LocalTransactionState.UNKNOW;
                    }

                    public LocalTransactionState checkLocalTransaction(MessageExt message) {
                        return LocalTransactionState.UNKNOW;
                    }
                });
        return made;
    }

    static void fail(String server, String topic, String group) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(server);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        CountDownLatch again = new CountDownLatch(1);
        consumer.registerMessageListener(
                (MessageListenerConcurrently)
                        (messages, context) -> {
                            if (messages.get(0).getReconsumeTimes() > 0) {
                                again.countDown();
                                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                            }
                            context.setDelayLevelWhenNextConsume(1);
                            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                        });
        consumer.start();
        if (!again.await(60, TimeUnit.SECONDS)) throw new Exception("nothing came again");
        consumer.shutdown();
    }

    static void consume(String server, String topic, String group, int count, String tags)
            throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group, hook());
        consumer.setNamesrvAddr(server);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(topic, tags);
        consumer.start();
        long deadline = System.currentTimeMillis() + 150_000;
        for (int got = 0; got < count && System.currentTimeMillis() < deadline; ) {
            for (MessageExt each : consumer.poll(1000)) {
                got++;
                String body = new String(each.getBody(), StandardCharsets.UTF_8);
                System.out.println(
                        "@\t"
                                + each.getQueueId()
                                + "\t"
                                + each.getQueueOffset()
                                + "\t"
                                + body
                                + "\t"
                                + new TreeMap<>(each.getProperties()));
            }
        }
        consumer.commit();
        consumer.shutdown();
    }
}
