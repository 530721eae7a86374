"""A committer for Delta Kernel whose commits say that they are blind appends.

Kernel writes ``isBlindAppend: false`` into every commit. Other writers must then assume that
the commit has read the table, so their concurrent UPDATE, DELETE or MERGE fails although the
two do not touch the same rows. Kernel lets a caller supply a ``Committer``; this one corrects
that field and leaves the rest to Kernel's own. Janino, which comes with Spark, compiles it
in the driver's JVM.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

_SOURCE = """
package rangeland;

import io.delta.kernel.commit.CommitFailedException;
import io.delta.kernel.commit.CommitMetadata;
import io.delta.kernel.commit.CommitResponse;
import io.delta.kernel.commit.Committer;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.internal.actions.CommitInfo;
import io.delta.kernel.internal.actions.SingleAction;
import io.delta.kernel.internal.util.Utils;
import io.delta.kernel.utils.CloseableIterator;
import java.util.Optional;

public class BlindCommitter implements Committer {
  private final Committer committer;

  public BlindCommitter(Committer committer) {
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
"""


@lru_cache(maxsize=1)
def blind_committer(gateway: Any) -> Any | None:
    """The committer, as an object in the JVM of this py4j gateway. None if its Delta Kernel
    has other classes: commits are then just as safe, but not marked as blind appends. Compiled once
    per JVM, since compiling takes as long as a commit."""
    try:
        return _compiled(gateway)
    except (Py4JJavaError, Py4JError, TypeError):  # the last: py4j found no such class
        return None


def _compiled(gateway: Any) -> Any:
    jvm = gateway.jvm
    own = jvm.io.delta.kernel.internal.commit.DefaultFileSystemManagedTableOnlyCommitter.INSTANCE
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(own.getClass().getClassLoader())
    compiler.cook(_SOURCE)
    made = compiler.getClassLoader().loadClass("rangeland.BlindCommitter")
    arguments = gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = own
    return made.getConstructors()[0].newInstance(arguments)
