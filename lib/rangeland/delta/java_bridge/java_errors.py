"""Turns Java exceptions from py4j calls into errors, by class name and message.

The chain of causes comes as (class name, message) pairs, outermost first. The order of the checks
matters: a full disk or a missing permission deep in the chain says more than the exception that
Delta Kernel wraps around it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from rangeland.errors import (
    WITH_ROOM,
    Bug,
    Conflict,
    RangelandError,
    StorageFailed,
    TableRefused,
    UsageError,
)

Chain = Sequence[tuple[str, str]]
MAX_CAUSES = 12

_FULL = ("no space left on device", "disk quota exceeded", "file too large")
_DENIED = (
    "permission denied",
    "operation not permitted",
    "accessdenied",
    "access denied",
    "not authorized",
    "read-only file",
)
_DENIED_CLASSES = {"AccessControlException", "AccessDeniedException"}
_AMAZON = "software.amazon.awssdk."
_REFUSED = {"UnsupportedTableFeatureException", "UnsupportedProtocolVersionException"}
_MOVED = {"MetadataChangedException", "ProtocolChangedException"}
_RACED = {"MaxCommitRetryLimitReachedException", "ConcurrentWriteException"}
_LOG_CUT = "should be less than or equal to LogSegment version"
"""Delta Kernel's message for a log whose newest entries are gone, while their checksum files are
still there."""
_BY_CATALOG = "Must provide maxCatalogVersion"
"""Delta Kernel's message when it is given only the path of a table whose commits are managed by a
catalog."""
_UNCONDITIONAL = {"ConditionIgnoredException", "AWSUnsupportedFeatureException"}
"""Exceptions that mean that a store ignores or rejects If-None-Match."""
_IO = {"IOException", "FileNotFoundException", "EOFException", "ChecksumException"}
_IO |= {"UncheckedIOException", "KernelEngineException", "CommitStateUnknownException"}


class NoTable(Exception):
    """There is no Delta table at the path. Handled in ``delta_kernel``."""


class TableExists(Exception):
    """There is already a Delta table. Handled in ``delta_kernel``."""


class StaleTransaction(Exception):
    """The table has this transaction, or a later one. Handled in ``delta_kernel``."""


Raised = RangelandError | NoTable | TableExists | StaleTransaction
_HANDLED: dict[str, type[NoTable | TableExists | StaleTransaction]] = {
    "TableNotFoundException": NoTable,
    "TableAlreadyExistsException": TableExists,
    "ConcurrentTransactionException": StaleTransaction,
}


@contextlib.contextmanager
def translate_java_errors(what: str) -> Iterator[None]:
    """Turns Java exceptions raised in the block into errors whose text begins with ``what``, the
    name of the failed operation."""
    try:
        yield
    except Exception as error:
        if chain := java_chain(error):
            raise translate(what, chain) from None
        if isinstance(error, Py4JError):
            raise Bug(what, why=str(error).strip().splitlines()[0]) from None
        raise


def java_chain(error: Exception) -> Chain:
    """The Java exception that py4j or Spark has wrapped in this error, with its causes; empty if
    there is none."""
    java: Any = getattr(error, "_origin", None)
    if isinstance(error, Py4JJavaError):
        java = error.java_exception
    chain: list[tuple[str, str]] = []
    while java is not None and len(chain) < MAX_CAUSES:
        chain.append((str(java.getClass().getName()), str(java.getMessage() or "")))
        java = java.getCause()
    return chain


def innermost_message(chain: Chain) -> str:
    """The innermost non-empty message, on one line."""
    for name, message in reversed(chain):
        line = (message or "").strip().splitlines()[0:1]
        if line and line[0]:
            return line[0].rstrip(".")
        if name:
            return name
    return "no reason given"


def translate(what: str, chain: Chain) -> Raised:
    """The error to raise for a Java exception while doing ``what``."""
    names = _names(chain)
    reason = innermost_message(chain)
    for name, handled in _HANDLED.items():
        if name in names:
            return handled(reason)
    if refusal := _store_refusal_error(what, reason, chain):
        return refusal
    if names & _REFUSED:
        do = "drop the feature from the table, or land in another table"
        return TableRefused(what, why=reason, do=do)
    if _BY_CATALOG in reason:
        return TableRefused(
            what,
            why="it has the feature catalogManaged: commits must go through its catalog, which a "
            "path does not name",
            do="land in a table without it",
        )
    if names & _MOVED:
        why = "another writer has changed the table's schema or protocol"
        return Conflict(what, why=why, do="run again")
    if names & _RACED:
        return Conflict(what, why=reason, do="run again")
    if "InvalidTableException" in names or _LOG_CUT in reason:
        return TableRefused(what, why=reason, do="the table's log is damaged: restore or repair it")
    if names & _IO:
        do = "check that the table's store is up, then run again"
        return StorageFailed(what, why=reason, do=do)
    if "KernelException" in names:
        do = "change the table as the reason says, or land in another table"
        return TableRefused(what, why=reason, do=do)
    innermost = chain[-1][0].rpartition(".")[2] if chain else "Java"
    return Bug(what, why=f"{innermost}: {reason}")


def _names(chain: Chain) -> set[str]:
    return {name.rpartition(".")[2] for name, _ in chain}


def _store_refusal_error(what: str, reason: str, chain: Chain) -> RangelandError | None:
    """The error if the store is full, denies access, has no such bucket, or is of a kind that no
    file system here supports; None for any other failure."""
    names = _names(chain)
    text = " ".join(message.lower() for _, message in chain if message)
    if any(phrase in text for phrase in _FULL):
        failure = StorageFailed(what, why=reason, do="make room in the table's store and run again")
        return failure.with_answers(retry=WITH_ROOM)
    if names & _DENIED_CLASSES or any(phrase in text for phrase in _DENIED):
        return TableRefused(what, why=reason, do=_remedy_for_denial(chain))
    if "UnknownStoreException" in names:
        do = "check that the bucket exists and that fs.s3a.endpoint is its store"
        return TableRefused(what, why=reason, do=do)
    if names & _UNCONDITIONAL:
        return TableRefused(
            what,
            why=reason,
            do="run one driver at a time and set fs.s3a.create.conditional.enabled to false, or "
            "set spark.delta.logStore.s3a.impl to a store with mutual exclusion",
        )
    if "UnsupportedFileSystemException" in names or "filesystem not found" in text:
        return UsageError(
            what,
            why=reason,
            do="start Spark with the store's Hadoop file system: --packages with "
            "org.apache.hadoop:hadoop-aws for s3a, hadoop-azure for abfss or hadoop-gcp for gs, in "
            "the version of Spark's own Hadoop",
        )
    return None


def _remedy_for_denial(chain: Chain) -> str:
    if any(name.startswith(_AMAZON) for name, _ in chain):
        return "check that the keys in fs.s3a.* are right and may read and write the table's folder"
    return "grant write permission on the table's folder"
