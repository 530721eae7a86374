package rangeland;

import io.delta.kernel.defaults.engine.fileio.OutputFile;
import io.delta.kernel.defaults.engine.hadoopio.HadoopFileIO;
import io.delta.kernel.defaults.engine.hadoopio.HadoopOutputFile;
import io.delta.kernel.utils.CloseableIterator;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessDeniedException;
import java.nio.file.CopyOption;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.Set;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.IOUtils;

/**
 * Files as Kernel reads and writes them. If the store can refuse to replace an object, files of a
 * log are created in that way instead of through a log store. On a local path this is done with a
 * link: Hadoop's own way starts up to ten processes for each file, and replaces what another writer
 * has just created.
 *
 * <p>Spark's own Janino compiles this when a driver starts. Janino does not support generics.
 */
public class ExclusiveFiles extends HadoopFileIO {
  /** Hadoop's option to create a file only if it does not exist: If-None-Match on S3. */
  public static final String CONDITION = "fs.option.create.conditional.overwrite";
  private static final String LOCAL = "file";
  /** Followed by a scheme: set if Delta's own log store may be bypassed for that scheme. */
  public static final String SETTING = "rangeland.exclusive.";

  private final Configuration configuration;

  public ExclusiveFiles(Configuration configuration) {
    super(configuration);
    this.configuration = configuration;
  }

  public OutputFile newOutputFile(String path) {
    return new ExclusiveFile(configuration, path);
  }

  /** Whether files at this path are created in this way. */
  public static boolean canCreate(Configuration configuration, Path path) throws IOException {
    String scheme = path.toUri().getScheme();
    return scheme != null
        && configuration.getBoolean(SETTING + scheme, false)
        && (isLocal(path)
            || path.getFileSystem(configuration).hasPathCapability(path, CONDITION));
  }

  public static boolean isLocal(Path path) {
    return LOCAL.equals(path.toUri().getScheme());
  }
}

class ExclusiveFile extends HadoopOutputFile {
  private static final int ATTEMPTS = 4;
  private static final long FIRST_PAUSE_MS = 200;
  /** Sorts before the versions of a log, so no listing of those includes it. */
  private static final String PROBE = ".rangeland-put-if-absent";
  private static final byte[] PROBE_CONTENT =
      "Written twice, to see that the store refuses the second.\n".getBytes(StandardCharsets.UTF_8);
  private static final Set PROBED = Collections.synchronizedSet(new HashSet());

  private final Configuration configuration;
  private final Path path;

  ExclusiveFile(Configuration configuration, String path) {
    super(configuration, path);
    this.configuration = configuration;
    this.path = new Path(path);
  }

  public void writeAtomically(CloseableIterator lines, boolean overwrite) throws IOException {
    if (overwrite || !ExclusiveFiles.canCreate(configuration, path)) {
      super.writeAtomically(lines, overwrite);
      return;
    }
    byte[] content = joined(lines);
    try {
      if (ExclusiveFiles.isLocal(path)) {
        link(content);
      } else {
        FileSystem store = path.getFileSystem(configuration);
        probe(store);
        create(store, content);
      }
    } catch (FileAlreadyExistsException exists) {
      throw exists;
    } catch (IOException failure) {
      // After an IOException, Kernel would try 200 more times; this has already been retried.
      throw new UncheckedIOException(failure);
    }
  }

  /** Writes the file under another name and links it to its own, which never replaces a file. */
  private void link(byte[] content) throws IOException {
    File target = new File(path.toUri().getPath());
    File folder = target.getParentFile();
    File written = new File(folder, "." + target.getName() + "." + UUID.randomUUID() + ".tmp");
    if (target.exists()) {
      throw new FileAlreadyExistsException(target.getPath());
    }
    OpenOption[] create = {StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE};
    try {
      Files.write(written.toPath(), content, create);
      // Hadoop's checksum of an earlier file with this name would make the new one unreadable.
      Files.deleteIfExists(new File(folder, "." + target.getName() + ".crc").toPath());
      if (!hasLinked(written, target)) {
        move(written, target);
      }
    } finally {
      Files.deleteIfExists(written.toPath());
    }
  }

  /** Links the file; false if the file system or Java does not support links. */
  private static boolean hasLinked(File written, File target) throws IOException {
    boolean has = false;
    try {
      Files.createLink(target.toPath(), written.toPath());
      has = true;
    } catch (FileAlreadyExistsException exists) {
      throw exists;
    } catch (FileSystemException noLinks) {
      has = false;
    } catch (UnsupportedOperationException noLinks) {
      has = false;
    }
    return has;
  }

  /** Safe against our other drivers only, which the table's lock keeps away. */
  private static void move(File written, File target) throws IOException {
    if (target.exists()) {
      throw new FileAlreadyExistsException(target.getPath());
    }
    CopyOption[] atomically = {StandardCopyOption.ATOMIC_MOVE};
    Files.move(written.toPath(), target.toPath(), atomically);
  }

  private static byte[] joined(CloseableIterator lines) throws IOException {
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    try {
      while (lines.hasNext()) {
        content.write((((String) lines.next()) + "\n").getBytes(StandardCharsets.UTF_8));
      }
    } finally {
      lines.close();
    }
    return content.toByteArray();
  }

  /**
   * Creates the file, or throws FileAlreadyExistsException if another writer has.
   *
   * <p>A response may be lost, even when Hadoop itself sends the request again: then the store
   * refuses to replace what this writer has created. So after each failure, the content of the file
   * decides. It includes an id that is unique to the commit, so equal content is our own.
   */
  private void create(FileSystem store, byte[] content) throws IOException {
    for (int attempt = 1; ; attempt++) {
      try {
        put(store, path, content);
        return;
      } catch (IOException failure) {
        byte[] found = read(store, failure);
        if (found != null && Arrays.equals(found, content)) {
          return;
        }
        if (found != null) {
          FileAlreadyExistsException exists = new FileAlreadyExistsException(path.toString());
          exists.initCause(failure);
          throw exists;
        }
        // Nothing has been created, at least not yet: a request may still be under way. Sending it
        // again is safe, and only the response to that tells.
        pauseOrThrow(failure, attempt);
      }
    }
  }

  /** The content after a failure; null if there is none or it cannot be read. */
  private byte[] read(FileSystem store, IOException failure) {
    try {
      FSDataInputStream source = store.open(path);
      try {
        ByteArrayOutputStream found = new ByteArrayOutputStream();
        IOUtils.copyBytes(source, found, 8192, false);
        return found.toByteArray();
      } finally {
        source.close();
      }
    } catch (FileNotFoundException nothing) {
      return null;
    } catch (IOException unknown) {
      failure.addSuppressed(unknown);
      return null;
    }
  }

  private static void pauseOrThrow(IOException failure, int attempt) throws IOException {
    if (attempt == ATTEMPTS || failure instanceof AccessDeniedException) {
      throw failure;
    }
    try {
      Thread.sleep(FIRST_PAUSE_MS << attempt);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw failure;
    }
  }

  private static void put(FileSystem store, Path path, byte[] content) throws IOException {
    FSDataOutputStreamBuilder builder = store.createFile(path);
    builder.create();
    builder.recursive();
    builder.must(ExclusiveFiles.CONDITION, true);
    FSDataOutputStream sink = (FSDataOutputStream) builder.build();
    try {
      sink.write(content);
    } catch (IOException failure) {
      sink.abort();  // closing it would create the file
      throw failure;
    }
    sink.close();
  }

  /**
   * Makes sure, once per bucket, that the store honours the condition: some stores ignore what they
   * do not know. An object with a fixed name can be created only by the first driver. If a driver
   * can create it twice, somebody may have cleaned it up in between, so an object with a name that
   * nobody else knows decides.
   */
  private void probe(FileSystem store) throws IOException {
    String bucket = store.getUri().toString();
    if (PROBED.contains(bucket)) {
      return;
    }
    if (!refuses(store, new Path(path.getParent(), PROBE))) {
      Path own = new Path(path.getParent(), PROBE + "-" + UUID.randomUUID());
      try {
        if (!refuses(store, own)) {
          throw new ConditionIgnoredException(bucket);
        }
      } finally {
        deleteIfAllowed(store, own);
      }
    }
    PROBED.add(bucket);
  }

  /** Whether the store refuses to create an object twice. */
  private static boolean refuses(FileSystem store, Path target) throws IOException {
    int created = 0;
    for (int attempt = 1; created < 2; attempt++) {
      try {
        put(store, target, PROBE_CONTENT);
        created++;
      } catch (IOException failure) {
        if (isRefusal(failure)) {
          return true;
        }
        pauseOrThrow(failure, attempt);
      }
    }
    return false;
  }

  /** Deletes the object if possible; one that remains does no harm. */
  private static void deleteIfAllowed(FileSystem store, Path target) {
    try {
      store.delete(target, false);
    } catch (IOException stays) {
      return;
    }
  }

  private static boolean isRefusal(IOException failure) {
    String name = failure.getClass().getSimpleName();
    return name.equals("RemoteFileChangedException") || name.equals("FileAlreadyExistsException");
  }
}

/** The store has replaced an object although it was asked not to. */
class ConditionIgnoredException extends IOException {
  ConditionIgnoredException(String bucket) {
    super(bucket + " replaces objects although requests say If-None-Match: *");
  }
}
