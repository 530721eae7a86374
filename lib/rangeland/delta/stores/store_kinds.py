"""The kind of store that a table is on, and its guarantees to concurrent drivers.

Pure: the result depends on the URI, on the log store configured for its scheme, and on what Hadoop
can ask of the store. A Delta commit is safe if the store refuses to create a file that already
exists. HDFS, Azure and Google storage do refuse. S3 does so on request, but Delta's own log stores
never make that request, so our commits bypass them (``ExclusiveFiles.java``). A local disk, used as
Hadoop uses it, does not refuse, so local commits take a lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rangeland.delta.stores.table_path import TablePath

_SAFE_SCHEMES = frozenset(
    ["hdfs", "viewfs", "abfs", "abfss", "wasb", "wasbs", "adl", "gs", "oss", "cosn"]
)
LOCAL_SCHEME = "file"
S3_SCHEMES = frozenset(["s3", "s3a", "s3n"])
# Delta's own log stores; the last one chooses among the others. With any of them, two drivers can
# replace each other's commits on S3.
_DELTAS_OWN = frozenset(
    f"{name}LogStore"
    for name in (
        "S3SingleDriver",
        "HDFS",
        "HadoopFileSystem",
        "Azure",
        "GCS",
        "Local",
        "Delegating",
    )
)
AZURE_SCHEMES = frozenset(["abfs", "abfss"])
HDFS_SCHEMES = frozenset(["hdfs", "viewfs"])


class StoreKind(StrEnum):
    """The kind of a store, by what happens if two drivers create the same file."""

    LOCAL = "local"
    PUT_IF_ABSENT = "put-if-absent"
    SINGLE_DRIVER = "single-driver"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class StoreCapabilities:
    """How safe commits are if several drivers make them at the same time. ``note`` is a warning for
    the user; it is empty if none is needed."""

    kind: StoreKind
    log_store: str
    note: str = ""


def scheme_of(uri: str) -> str:
    """The scheme of a table's URI; ``file`` if it has none."""
    return TablePath.parse(uri).scheme or LOCAL_SCHEME


def is_replaceable_log_store(log_store: str) -> bool:
    """Whether commits may bypass this log store, on a local path, and on S3 if Hadoop can ask it
    not to replace a file. They may bypass Delta's own log stores. A log store of the user's own
    excludes other writers in its own way, so all writers must use it."""
    return not log_store or log_store.rpartition(".")[2] in _DELTAS_OWN


def store_capabilities(
    uri: str, log_store: str = "", *, has_conditions: bool = False
) -> StoreCapabilities:
    """The kind of a table's store, and how safe commits are there. ``log_store`` is the class
    configured for the URI's scheme, empty for the default. ``has_conditions``: on S3, Hadoop can
    ask the store not to replace a file."""
    scheme = scheme_of(uri)
    if scheme == LOCAL_SCHEME:
        return StoreCapabilities(
            StoreKind.LOCAL,
            log_store,
            "On a local path our commits take a file lock; Spark's own writers do not use it, so "
            "let nothing else write to this table while a run lands.",
        )
    if scheme in S3_SCHEMES:
        return _s3(scheme, log_store, has_conditions)
    if scheme in _SAFE_SCHEMES:
        return StoreCapabilities(StoreKind.PUT_IF_ABSENT, log_store)
    return StoreCapabilities(
        StoreKind.UNKNOWN,
        log_store,
        f"It is not known whether {scheme} refuses to overwrite a file; run one driver at a time.",
    )


def _s3(scheme: str, log_store: str, has_conditions: bool) -> StoreCapabilities:
    setting = f"spark.delta.logStore.{scheme}.impl"
    exclusive = "a store with mutual exclusion (such as io.delta.storage.S3DynamoDBLogStore)"
    if not is_replaceable_log_store(log_store):
        return StoreCapabilities(StoreKind.PUT_IF_ABSENT, log_store)
    if has_conditions:
        return StoreCapabilities(
            StoreKind.PUT_IF_ABSENT,
            log_store,
            "Any number of our drivers may commit at once. Spark's own writers (OPTIMIZE, MERGE, "
            "--replace) do not ask S3 to keep existing files: let nothing land while they run, or "
            f"set {setting} to {exclusive} for all writers.",
        )
    return StoreCapabilities(
        StoreKind.SINGLE_DRIVER,
        log_store,
        "Two drivers that commit at the same moment can lose a commit on S3: this Hadoop does not "
        "ask the store to keep existing files. Use Hadoop 3.4.2 or later (Spark 4.1) and leave "
        f"fs.s3a.create.conditional.enabled true, set {setting} to {exclusive}, or run one driver "
        "at a time.",
    )
