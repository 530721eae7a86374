import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/**
 * Remote storage of a broker in a folder, as slow as an archive: a segment is there as many
 * milliseconds after it is first asked for as the file "delay_ms" says at each moment, and at
 * once from then on. Indexes come without delay.
 */
public class ColdStorage implements RemoteStorageManager {
    private final Map<String, Long> askedAt = new ConcurrentHashMap<>();
    private Path folder;

    @Override
    public void configure(Map<String, ?> configs) {
        folder = Path.of((String) configs.get("folder"));
    }

    @Override
    public Optional<RemoteLogSegmentMetadata.CustomMetadata> copyLogSegmentData(
            RemoteLogSegmentMetadata segment, LogSegmentData data) throws RemoteStorageException {
        try {
            Files.write(file(segment, "log"), Files.readAllBytes(data.logSegment()));
            Files.write(file(segment, "OFFSET"), Files.readAllBytes(data.offsetIndex()));
            Files.write(file(segment, "TIMESTAMP"), Files.readAllBytes(data.timeIndex()));
            Files.write(file(segment, "PRODUCER_SNAPSHOT"),
                    Files.readAllBytes(data.producerSnapshotIndex()));
            if (data.transactionIndex().isPresent()) {
                Files.write(file(segment, "TRANSACTION"),
                        Files.readAllBytes(data.transactionIndex().get()));
            }
            ByteBuffer epochs = data.leaderEpochIndex().duplicate();
            byte[] bytes = new byte[epochs.remaining()];
            epochs.get(bytes);
            Files.write(file(segment, "LEADER_EPOCH"), bytes);
            return Optional.empty();
        } catch (IOException e) {
            throw new RemoteStorageException(e);
        }
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start)
            throws RemoteStorageException {
        thaw(segment);
        InputStream stream = open(segment, "log");
        try {
            stream.skipNBytes(start);
            return stream;
        } catch (IOException e) {
            throw new RemoteStorageException(e);
        }
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start, int end)
            throws RemoteStorageException {
        return fetchLogSegment(segment, start);
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type)
            throws RemoteStorageException {
        return open(segment, type.name());
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) {
    }

    @Override
    public void close() {
    }

    private void thaw(RemoteLogSegmentMetadata segment) throws RemoteStorageException {
        long asked = askedAt.computeIfAbsent(name(segment), x -> System.currentTimeMillis());
        try {
            while (System.currentTimeMillis()
                    < asked + Long.parseLong(Files.readString(folder.resolve("delay_ms")).trim())) {
                Thread.sleep(50);
            }
        } catch (IOException | InterruptedException e) {
            throw new RemoteStorageException(e);
        }
    }

    private InputStream open(RemoteLogSegmentMetadata segment, String what)
            throws RemoteStorageException {
        try {
            return Files.newInputStream(file(segment, what));
        } catch (NoSuchFileException e) {
            throw new RemoteResourceNotFoundException(e);
        } catch (IOException e) {
            throw new RemoteStorageException(e);
        }
    }

    private Path file(RemoteLogSegmentMetadata segment, String what) {
        return folder.resolve(name(segment) + "." + what);
    }

    private static String name(RemoteLogSegmentMetadata segment) {
        return segment.remoteLogSegmentId().id().toString();
    }
}
