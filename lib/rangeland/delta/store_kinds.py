"""What kind of store a table is on, and what that means for concurrent drivers.

Pure: depends on the URI and on the log store that is configured for its scheme. A Delta
commit is safe if the store refuses to create a file that already exists. HDFS, Azure and
Google storage do; S3 does with a log store made for it; a local disk does not the way Hadoop
uses it, so local commits take a lock.
"""

from __future__ import annotations

from rangeland.delta.table_metadata import StoreCapabilities, StoreKind
from rangeland.delta.table_path import TablePath

_SAFE_SCHEMES = frozenset(
    ["hdfs", "viewfs", "abfs", "abfss", "wasb", "wasbs", "adl", "gs", "oss", "cosn"]
)
S3_SCHEMES = frozenset(["s3", "s3a", "s3n"])


def scheme_of(uri: str) -> str:
    """The scheme of a table's URI, ``file`` where it has none."""
    return TablePath.parse(uri).scheme or "file"


def store_capabilities(uri: str, log_store: str = "") -> StoreCapabilities:
    """``log_store`` is the class configured for the URI's scheme, empty for the default."""
    scheme = scheme_of(uri)
    if scheme == "file":
        return StoreCapabilities(
            StoreKind.LOCAL,
            scheme,
            log_store,
            "On a local path our commits take a file lock; Spark's own writers do not know it, "
            "so let nothing else write to this table while a run lands.",
        )
    if scheme in S3_SCHEMES:
        return _s3(scheme, log_store)
    if scheme in _SAFE_SCHEMES:
        return StoreCapabilities(StoreKind.PUT_IF_ABSENT, scheme, log_store)
    return StoreCapabilities(
        StoreKind.UNKNOWN,
        scheme,
        log_store,
        f"It is not known whether {scheme} refuses to overwrite a file; run one driver at a time.",
    )


def _s3(scheme: str, log_store: str) -> StoreCapabilities:
    # Hadoop's S3A can refuse to overwrite, but only if that is requested when a file is
    # created, and Delta's log store does not: it checks first, and then writes.
    if log_store and "SingleDriver" not in log_store:
        return StoreCapabilities(StoreKind.PUT_IF_ABSENT, scheme, log_store)
    return StoreCapabilities(
        StoreKind.SINGLE_DRIVER,
        scheme,
        log_store,
        "With Delta's default log store for S3 two drivers that commit at the same moment can "
        f"lose a commit. Set spark.delta.logStore.{scheme}.impl to a store with mutual exclusion "
        "(such as io.delta.storage.S3DynamoDBLogStore), or run one driver at a time.",
    )
