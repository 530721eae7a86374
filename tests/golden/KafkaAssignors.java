// Asks Kafka's own client how it assigns and what it writes, and prints a line of JSON for each
// case. Run by capture_assignors.py; the cases are random, and the same every time.

import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.clients.consumer.internals.*;
import org.apache.kafka.common.TopicPartition;

public class KafkaAssignors {
    static final Random RANDOM = new Random(20);

    public static void main(String[] arguments) {
        for (int index = 0; index < 60; index++) {
            assignments(index % 2 == 0);
        }
        bytes();
    }

    static void assignments(boolean alike) {
        Map<String, Integer> counts = new TreeMap<>();
        for (int topic = 0; topic <= RANDOM.nextInt(3); topic++) {
            counts.put("topic-" + topic, 1 + RANDOM.nextInt(9));
        }
        Map<String, List<String>> topics = new TreeMap<>();
        Map<String, String> instances = new TreeMap<>();
        for (int member = 0; member <= RANDOM.nextInt(5); member++) {
            String id = Integer.toHexString(RANDOM.nextInt(1 << 20)) + "-" + member;
            List<String> wanted = new ArrayList<>(counts.keySet());
            if (!alike) {
                wanted.removeIf(topic -> RANDOM.nextInt(3) == 0);
            }
            topics.put(id, wanted);
            if (RANDOM.nextInt(4) == 0) {
                instances.put(id, "instance-" + RANDOM.nextInt(100) + member);
            }
        }
        print("range", new RangeAssignor().assign(counts, plain(topics, instances)), counts, topics, instances, null);
        print("roundrobin", new RoundRobinAssignor().assign(counts, plain(topics, instances)), counts, topics, instances, null);
        if (alike) {
            Map<String, List<TopicPartition>> held = someHeld(counts, topics.keySet());
            Map<String, Subscription> said = new TreeMap<>();
            topics.forEach((id, wanted) -> said.put(id, new Subscription(wanted, userData(held.get(id), 4))));
            print("sticky", new StickyAssignor().assign(counts, said), counts, topics, Map.of(), held);
        }
    }

    static Map<String, Subscription> plain(Map<String, List<String>> topics, Map<String, String> instances) {
        Map<String, Subscription> said = new TreeMap<>();
        topics.forEach((id, wanted) -> {
            Subscription one = new Subscription(wanted);
            one.setGroupInstanceId(Optional.ofNullable(instances.get(id)));
            said.put(id, one);
        });
        return said;
    }

    static Map<String, List<TopicPartition>> someHeld(Map<String, Integer> counts, Set<String> members) {
        List<String> holders = new ArrayList<>(members);
        Map<String, List<TopicPartition>> held = new TreeMap<>();
        holders.forEach(id -> held.put(id, new ArrayList<>()));
        int few = 1 + RANDOM.nextInt(holders.size());
        counts.forEach((topic, count) -> {
            for (int number = 0; number < count; number++) {
                if (RANDOM.nextInt(4) > 0) {
                    held.get(holders.get(RANDOM.nextInt(few))).add(new TopicPartition(topic, number));
                }
            }
        });
        return held;
    }

    static ByteBuffer userData(List<TopicPartition> held, int generation) {
        StickyAssignor assignor = new StickyAssignor();
        assignor.onAssignment(new Assignment(held), new ConsumerGroupMetadata("g", generation, "m", Optional.empty()));
        return assignor.subscriptionUserData(Set.of());
    }

    static void bytes() {
        List<TopicPartition> held = List.of(new TopicPartition("orders", 0), new TopicPartition("orders", 2));
        for (short version = 0; version <= 3; version++) {
            Subscription said = new Subscription(
                List.of("clicks", "orders"), userData(held, 7), held, 7, Optional.of("rack-1"));
            ByteBuffer written = ConsumerProtocol.serializeSubscription(said, version);
            System.out.println("{\"kind\": \"subscription\", \"version\": " + version + ", \"hex\": \"" + hex(written) + "\"}");
            ByteBuffer shares = ConsumerProtocol.serializeAssignment(new Assignment(held), version);
            System.out.println("{\"kind\": \"assignment\", \"version\": " + version + ", \"hex\": \"" + hex(shares) + "\"}");
        }
    }

    static String hex(ByteBuffer buffer) {
        StringBuilder text = new StringBuilder();
        while (buffer.hasRemaining()) {
            text.append(String.format("%02x", buffer.get()));
        }
        return text.toString();
    }

    static void print(
            String strategy, Map<String, List<TopicPartition>> found, Map<String, Integer> counts,
            Map<String, List<String>> topics, Map<String, String> instances, Map<String, List<TopicPartition>> held) {
        System.out.println("{\"kind\": \"" + strategy + "\", \"counts\": " + json(counts) + ", \"topics\": " + json(topics)
            + ", \"instances\": " + json(instances) + ", \"held\": " + json(held) + ", \"found\": " + json(found) + "}");
    }

    static String json(Object value) {
        if (value == null || value instanceof Integer) {
            return String.valueOf(value);
        }
        StringJoiner joined;
        if (value instanceof Map) {
            joined = new StringJoiner(", ", "{", "}");
            new TreeMap<>((Map<?, ?>) value).forEach((key, inner) -> joined.add(json(key) + ": " + json(inner)));
        } else if (value instanceof List) {
            joined = new StringJoiner(", ", "[", "]");
            ((List<?>) value).forEach(inner -> joined.add(json(inner)));
        } else if (value instanceof TopicPartition) {
            TopicPartition place = (TopicPartition) value;
            return "[\"" + place.topic() + "\", " + place.partition() + "]";
        } else {
            return "\"" + value + "\"";
        }
        return joined.toString();
    }
}
