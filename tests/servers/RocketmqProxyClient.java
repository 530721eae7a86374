import apache.rocketmq.v2.Code;
import apache.rocketmq.v2.Encoding;
import apache.rocketmq.v2.Message;
import apache.rocketmq.v2.MessageType;
import apache.rocketmq.v2.MessagingServiceGrpc;
import apache.rocketmq.v2.Resource;
import apache.rocketmq.v2.SendMessageRequest;
import apache.rocketmq.v2.SendMessageResponse;
import apache.rocketmq.v2.SystemProperties;
import com.google.protobuf.ByteString;
import com.google.protobuf.util.Timestamps;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.MetadataUtils;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.zip.GZIPOutputStream;

/** A client of a proxy, for tests: PORT TOPIC BODY ... sends each body, compressed with gzip. */
public class RocketmqProxyClient {
    public static void main(String[] args) throws Exception {
        ManagedChannel channel =
                NettyChannelBuilder.forAddress("127.0.0.1", Integer.parseInt(args[0]))
                        .usePlaintext()
                        .build();
        MessagingServiceGrpc.MessagingServiceBlockingStub stub =
                MessagingServiceGrpc.newBlockingStub(channel)
                        .withInterceptors(MetadataUtils.newAttachHeadersInterceptor(headers()));
        for (int n = 2; n < args.length; n++) {
            SendMessageResponse sent = stub.sendMessage(request(args[1], args[n], n));
            if (sent.getStatus().getCode() != Code.OK) throw new Exception(sent.toString());
        }
        channel.shutdownNow();
        System.exit(0);
    }

    static Metadata headers() {
        Metadata made = new Metadata();
        put(made, "x-mq-client-id", "testing");
        put(made, "x-mq-language", "CPP");
        put(made, "x-mq-client-version", "5.0.0");
        put(made, "x-mq-protocol", "v2");
        return made;
    }

    static void put(Metadata headers, String name, String value) {
        headers.put(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER), value);
    }

    static SendMessageRequest request(String topic, String body, int n) throws Exception {
        ByteArrayOutputStream packed = new ByteArrayOutputStream();
        try (GZIPOutputStream stream = new GZIPOutputStream(packed)) {
            stream.write(body.getBytes(StandardCharsets.UTF_8));
        }
        SystemProperties properties =
                SystemProperties.newBuilder()
                        .setMessageId("message-" + n)
                        .setMessageType(MessageType.NORMAL)
                        .setBodyEncoding(Encoding.GZIP)
                        .setBornTimestamp(Timestamps.fromMillis(System.currentTimeMillis()))
                        .build();
        Message message =
                Message.newBuilder()
                        .setTopic(Resource.newBuilder().setName(topic))
                        .setSystemProperties(properties)
                        .setBody(ByteString.copyFrom(packed.toByteArray()))
                        .build();
        return SendMessageRequest.newBuilder().addMessages(message).build();
    }
}
