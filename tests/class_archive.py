"""Options with which the ordinary run starts the JVMs of Spark: compiled quickly, and with the
classes of a short session from an archive (the JVM's class-data sharing).

Sessions of tests live for seconds, and loading and compiling classes is two thirds of their work.
Without these options, as in the slow run, everything works as well and takes longer. The archive
holds for one JVM and one installation of Spark, so it is made once per Python environment and kept
in it. A JVM that it does not fit, or that finds none yet, goes on without it.

``python -m tests.class_archive`` makes it, in half a minute; ``tests.download`` does so, too.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from rangeland.jvm.class_archive import QUIET
from rangeland.jvm.java import SMALL_JVM, find_java

TRAINING_TIMEOUT_S = 600
CODE_CACHE = "-XX:ReservedCodeCacheSize=240m"
"""The usual 48 MB of quickly compiled code fill up in a session of many tests, and are then swept
again and again."""


def submit_options() -> dict[str, str]:
    """The variables that spark-submit and its launcher read."""
    archive = f"-XX:SharedArchiveFile={archive_path()}"
    return {
        "SPARK_SUBMIT_OPTS": " ".join([*SMALL_JVM, CODE_CACHE, archive, *QUIET]),
        "SPARK_LAUNCHER_OPTS": " ".join(SMALL_JVM),
    }


def archive_path() -> Path:
    """Where the archive is, or will be."""
    java = Path(find_java()).resolve()
    made_of = f"{java} {java.stat().st_mtime_ns} {pyspark.__file__} {pyspark.__version__}"
    name = hashlib.sha256(made_of.encode()).hexdigest()[:12]
    return Path(sys.prefix) / f"spark-classes-{name}.jsa"


def make_archive() -> Path:
    """Trains a session, which writes the archive as it ends. Raises AssertionError if none is
    there then."""
    target = archive_path()
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(prefix="rangeland-classes-") as folder:
        made = target.with_name(f".{target.name}.{os.getpid()}")
        done = subprocess.run(
            [sys.executable, "-m", "tests.class_archive", "train", folder],
            env={**os.environ, "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={made}"},
            stdin=subprocess.DEVNULL,
            # The JVM ends after Python, and holds these pipes until it has written the archive.
            capture_output=True,
            text=True,
            timeout=TRAINING_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert made.exists(), f"the JVM has written no archive:\n{done.stdout}\n{done.stderr}"
        made.rename(target)
    return target


def train(folder: Path) -> None:
    """Loads the classes of an ordinary landing and of those who judge it."""
    from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
    from tests.spark_sessions import open_session

    # Without the options of other tests' sessions: an archive is of no use to a JVM that verifies
    # more than the one that wrote it.
    plain = {"spark.driver.extraJavaOptions": f"-Duser.home={folder}"}
    session = open_session(folder, "local[2]", plain)
    table = str(folder / "table")
    session.range(100).selectExpr("id", "CAST(id AS STRING) AS text").write.format("delta").save(
        table
    )
    read = session.read.format("delta").load(table)
    read.groupBy("text").count().orderBy("text").limit(5).collect()
    session.sparkContext.parallelize([1, 2], 2).map(str).collect()
    kernel = DeltaKernel(session)
    snapshot = kernel.load(table)
    assert snapshot is not None
    assert list(kernel.files_of(snapshot))
    session.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(Path(sys.argv[2]))
    else:
        print(make_archive())
