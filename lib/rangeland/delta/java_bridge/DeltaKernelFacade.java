package rangeland;

import io.delta.kernel.CommitRangeBuilder;
import io.delta.kernel.Meta;
import io.delta.kernel.Operation;
import io.delta.kernel.Snapshot;
import io.delta.kernel.SnapshotBuilder;
import io.delta.kernel.TableManager;
import io.delta.kernel.Transaction;
import io.delta.kernel.commit.CommitFailedException;
import io.delta.kernel.commit.CommitMetadata;
import io.delta.kernel.commit.CommitResponse;
import io.delta.kernel.commit.Committer;
import io.delta.kernel.data.ColumnarBatch;
import io.delta.kernel.data.FilteredColumnarBatch;
import io.delta.kernel.defaults.engine.DefaultEngine;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.exceptions.TableNotFoundException;
import io.delta.kernel.expressions.Column;
import io.delta.kernel.internal.DeltaErrors;
import io.delta.kernel.internal.DeltaLogActionUtils;
import io.delta.kernel.internal.ScanImpl;
import io.delta.kernel.internal.SnapshotImpl;
import io.delta.kernel.internal.TransactionImpl;
import io.delta.kernel.internal.actions.CommitInfo;
import io.delta.kernel.internal.actions.Metadata;
import io.delta.kernel.internal.actions.SetTransaction;
import io.delta.kernel.internal.actions.SingleAction;
import io.delta.kernel.internal.commit.DefaultFileSystemManagedTableOnlyCommitter;
import io.delta.kernel.internal.tablefeatures.TableFeature;
import io.delta.kernel.internal.tablefeatures.TableFeatures;
import io.delta.kernel.internal.types.DataTypeJsonSerDe;
import io.delta.kernel.internal.util.Clock;
import io.delta.kernel.internal.util.Utils;
import io.delta.kernel.internal.util.VectorUtils;
import io.delta.kernel.transaction.CreateTableTransactionBuilder;
import io.delta.kernel.transaction.DataLayoutSpec;
import io.delta.kernel.types.StringType;
import io.delta.kernel.types.StructType;
import io.delta.kernel.utils.CloseableIterable;
import io.delta.kernel.utils.CloseableIterator;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.StringTokenizer;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkConf;
import scala.Tuple2;

/**
 * Offers Delta Kernel's static methods and constructors as methods of an object.
 *
 * <p>Spark's own Janino compiles this when a driver starts. Janino does not support generics.
 */
public class DeltaKernelFacade {
  private final Committer blind =
      new BlindCommitter(DefaultFileSystemManagedTableOnlyCommitter.INSTANCE);

  public String version() {
    return Meta.KERNEL_VERSION;
  }

  public Engine engine(Configuration configuration) {
    return DefaultEngine.create(new ExclusiveFiles(configuration));
  }

  /** A copy with all of Spark's settings added, under the names that they have in Spark. */
  public Configuration withSettings(Configuration configuration, SparkConf settings) {
    Configuration all = new Configuration(configuration);
    Tuple2[] pairs = settings.getAll();
    for (int number = 0; number < pairs.length; number++) {
      all.set((String) pairs[number]._1(), (String) pairs[number]._2());
    }
    return all;
  }

  public String resolvePath(Engine engine, String path) {
    return Utils.resolvePath(engine, path);
  }

  /**
   * The newest version; null if there is no table. Commits on it are marked as blind appends if
   * {@code isBlind}.
   */
  public Snapshot snapshot(Engine engine, String path, boolean isBlind) {
    SnapshotBuilder builder = TableManager.loadSnapshot(path);
    try {
      return isBlind ? builder.withCommitter(blind).build(engine) : builder.build(engine);
    } catch (TableNotFoundException none) {
      return null;
    }
  }

  public CreateTableTransactionBuilder newTable(String path, String schema, String engineInfo) {
    return TableManager.buildCreateTableTransaction(path, this.schema(schema), engineInfo);
  }

  public DataLayoutSpec partitionedBy(List names) {
    List columns = new ArrayList();
    for (Iterator each = names.iterator(); each.hasNext(); ) {
      columns.add(new Column((String) each.next()));
    }
    return DataLayoutSpec.partitioned(columns);
  }

  public Operation write() {
    return Operation.WRITE;
  }

  /**
   * A transaction whose rows are known to satisfy the table's constraints, invariants and generated
   * columns. Kernel cannot evaluate them, so its own transaction builder refuses such tables; all
   * other checks of the builder are made here too.
   */
  public Transaction transactionOfCheckedRows(
      Engine engine, Snapshot snapshot, String engineInfo, String application, long version,
      Map properties, boolean isTriedAgain) {
    SnapshotImpl table = (SnapshotImpl) snapshot;
    Metadata metadata = table.getMetadata();
    Set refused = new HashSet();
    Set features = table.getProtocol().getImplicitlyAndExplicitlySupportedFeatures();
    for (Iterator each = features.iterator(); each.hasNext(); ) {
      TableFeature feature = (TableFeature) each.next();
      boolean isChecked = feature == TableFeatures.CONSTRAINTS_W_FEATURE
          || feature == TableFeatures.INVARIANTS_W_FEATURE
          || feature == TableFeatures.GENERATED_COLUMNS_W_FEATURE;
      if (!isChecked && !feature.hasKernelWriteSupport(metadata)) {
        refused.add(feature.featureName());
      }
    }
    if (!refused.isEmpty()) {
      throw DeltaErrors.unsupportedWriterFeatures(table.getPath(), refused);
    }
    Optional seen = table.getLatestTransactionVersion(engine, application);
    if (seen.isPresent() && ((Long) seen.get()).longValue() >= version) {
      throw DeltaErrors.concurrentTransaction(
          application, version, ((Long) seen.get()).longValue());
    }
    Clock clock = new Clock() {
      public long getTimeMillis() {
        return System.currentTimeMillis();
      }
    };
    Optional changed = properties.isEmpty()
        ? Optional.empty()
        : Optional.of(metadata.withMergedConfiguration(properties));
    Optional retries = isTriedAgain ? Optional.empty() : Optional.of(Integer.valueOf(0));
    SetTransaction transaction = new SetTransaction(
        application, Long.valueOf(version), Optional.of(Long.valueOf(clock.getTimeMillis())));
    return new TransactionImpl(
        false, table.getDataPath(), Optional.of(table), engineInfo, Operation.WRITE,
        Optional.empty(), changed, table.getCommitter(), Optional.of(transaction),
        Optional.empty(), retries, 0, clock);
  }

  public StructType schema(String json) {
    return DataTypeJsonSerDe.deserializeStructType(json);
  }

  public CloseableIterable noActions() {
    return CloseableIterable.emptyIterable();
  }

  /** The actions in these lines of JSON. */
  public CloseableIterable actions(Engine engine, String text) {
    List lines = new ArrayList();
    StringTokenizer tokens = new StringTokenizer(text, "\n");
    while (tokens.hasMoreTokens()) {
      lines.add(tokens.nextToken());
    }
    ColumnarBatch batch = engine.getJsonHandler().parseJson(
        VectorUtils.buildColumnVector(lines, StringType.STRING),
        SingleAction.FULL_SCHEMA,
        Optional.empty());
    return CloseableIterable.inMemoryIterable(batch.getRows());
  }

  /**
   * Writes the list of a table's files, with statistics, to Parquet files in a folder. A Parquet
   * file has one schema, while Kernel's batches have several if a checkpoint has several files.
   */
  public void writeFiles(Engine engine, Snapshot snapshot, String folder) throws IOException {
    ScanImpl scan = (ScanImpl) snapshot.getScanBuilder().build();
    BatchesOfOneSchema batches = new BatchesOfOneSchema(scan.getScanFiles(engine, true));
    try {
      for (int number = 0; batches.hasOtherSchema(); number++) {
        String target = folder + "/" + number + ".parquet";
        engine.getParquetHandler().writeParquetFileAtomically(target, batches);
      }
    } finally {
      batches.closeAll();
    }
  }

  /** Writes the commits since a version to a file of JSON lines. */
  public void writeCommits(Engine engine, String path, long earliest, String target)
      throws IOException {
    Set wanted = new HashSet();
    wanted.add(DeltaLogActionUtils.DeltaAction.COMMITINFO);
    wanted.add(DeltaLogActionUtils.DeltaAction.TXN);
    CloseableIterator batches = TableManager
        .loadCommitRange(path, CommitRangeBuilder.CommitBoundary.atVersion(earliest))
        .build(engine)
        .getActions(engine, wanted);
    List kept = new ArrayList();
    try {
      while (batches.hasNext()) {
        kept.add(new FilteredColumnarBatch((ColumnarBatch) batches.next(), Optional.empty()));
      }
    } finally {
      batches.close();
    }
    CloseableIterator rows = Utils.intoRows(Utils.toCloseableIterator(kept.iterator()));
    engine.getJsonHandler().writeJsonFileAtomically(target, rows, true);
  }
}

/**
 * A committer whose commits say that they are blind appends.
 *
 * <p>Kernel writes {@code isBlindAppend: false} into every commit. Other writers must then assume
 * that the commit has read the table, so a concurrent UPDATE, DELETE or MERGE of theirs fails even
 * if it touches other rows. This class corrects that field and leaves the rest to Kernel's own.
 */
class BlindCommitter implements Committer {
  private final Committer committer;

  BlindCommitter(Committer committer) {
    this.committer = committer;
  }

  public CommitResponse commit(Engine engine, CloseableIterator actions, CommitMetadata metadata)
      throws CommitFailedException {
    CommitInfo info = metadata.getCommitInfo();
    CommitInfo blind = new CommitInfo(
        info.getInCommitTimestamp(), info.getTimestamp(), info.getEngineInfo(),
        info.getOperation(), info.getOperationParameters(), Optional.of(Boolean.TRUE),
        info.getTxnId(), info.getOperationMetrics());
    actions.next();  // Kernel's own commitInfo, which always comes first
    CloseableIterator first = Utils.singletonCloseableIterator(
        SingleAction.createCommitInfoSingleAction(blind.toRow()));
    return committer.commit(engine, first.combine(actions), metadata);
  }
}

/** Iterates over batches until the next one has another schema. */
class BatchesOfOneSchema implements CloseableIterator {
  private final CloseableIterator all;
  private FilteredColumnarBatch following;
  private StructType schema;

  BatchesOfOneSchema(CloseableIterator all) {
    this.all = all;
  }

  /** Continues with the batches of the next schema; false if there are none. */
  boolean hasOtherSchema() {
    schema = isAny() ? following.getData().getSchema() : null;
    return schema != null;
  }

  public boolean hasNext() {
    return isAny() && following.getData().getSchema().equals(schema);
  }

  public Object next() {
    FilteredColumnarBatch found = following;
    following = null;
    return found;
  }

  public void close() {
    // Called by the writer of a file once it has written its batches; others may follow.
  }

  void closeAll() throws IOException {
    all.close();
  }

  private boolean isAny() {
    if (following == null && all.hasNext()) {
      following = (FilteredColumnarBatch) all.next();
    }
    return following != null;
  }
}
