import io.jafka.producer.Producer;
import io.jafka.producer.ProducerConfig;
import io.jafka.producer.ProducerData;
import io.jafka.producer.serializer.StringEncoder;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;

/** Sends all lines of its input at once, with upstream's producer: BROKERS TOPIC CODEC (0, 1). */
public class ProduceLines {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("broker.list", arguments[0]);
        settings.put("serializer.class", StringEncoder.class.getName());
        settings.put("compression.codec", arguments[2]);
        InputStreamReader input = new InputStreamReader(System.in, StandardCharsets.UTF_8);
        List<String> lines = new BufferedReader(input).lines().collect(Collectors.toList());
        Producer<String, String> producer = new Producer<>(new ProducerConfig(settings));
        producer.send(new ProducerData<>(arguments[1], lines));
        producer.close();
    }
}
