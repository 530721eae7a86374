"""One version of a table as loaded by Delta Kernel, requests to commit to it, and the possible
results of a commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rangeland.delta.java_bridge.java_errors import translate_java_errors
from rangeland.delta.table_metadata import AddedFile, TableMetadata
from rangeland.delta.table_schema.table_constraints import TableConstraint
from rangeland.model import DataFile

if TYPE_CHECKING:
    from rangeland.delta.transaction_log.delta_kernel import DeltaKernel


@dataclass(frozen=True)
class Snapshot:
    """One version of a table, and Delta Kernel's handle on it. Appending to an older snapshot is
    safe: Delta Kernel checks the commits made since then and refuses an append that conflicts."""

    path: str
    version: int
    _delta_kernel: DeltaKernel = field(repr=False)
    _java: Any = field(repr=False)
    is_own: bool = field(default=False, repr=False)
    """Whether our own commit made this version: then its checksum is known before it is written."""

    @cached_property
    def metadata(self) -> TableMetadata:
        """Schema, features and so on. Loading them takes dozens of py4j calls, so it happens only
        on demand."""
        with translate_java_errors(f"could not read the metadata of {self.path}"):
            return self._delta_kernel.metadata_of(self._java)

    @cached_property
    def table_id(self) -> str:
        """Delta's own id of the table: a table that is dropped and created again gets a new one."""
        with translate_java_errors(f"could not read the metadata of {self.path}"):
            return str(self._java.getMetadata().getId())

    @cached_property
    def schema_json(self) -> str:
        """Delta's ``schemaString``."""
        with translate_java_errors(f"could not read the metadata of {self.path}"):
            return str(self._java.getMetadata().getSchemaString())

    def property(self, name: str) -> str | None:
        """A property of the table; None if it is not set."""
        with translate_java_errors(f"could not read the metadata of {self.path}"):
            value = self._java.getMetadata().getConfiguration().get(name)
            return None if value is None else str(value)

    def transaction_version(self, application: str) -> int | None:
        """The newest transaction version of an application id; None if there is none."""
        with translate_java_errors(f"could not read the transactions of {self.path}"):
            version = self._java.getLatestTransactionVersion(self._delta_kernel.engine, application)
            return int(version.get()) if version.isPresent() else None

    def files(self) -> Iterator[AddedFile]:
        """The files of this version, in no particular order, with their statistics."""
        return self._delta_kernel.files_of(self)


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """One commit: ``files`` are added with the transaction (application, sequence), which a table
    accepts once."""

    application: str
    sequence: int
    files: Sequence[DataFile] = ()
    more_transactions: Mapping[str, int] = field(default_factory=dict)
    """Further transactions to record in the table. They are safe only in a commit with an
    ``expected_version``, because concurrent commits are not searched for them."""
    removed: Sequence[AddedFile] = ()
    """Files whose rows can no longer be read, or that the commit replaces."""
    moves_rows: bool = False
    """Whether the files have the same rows as the removed ones: then the actions say
    dataChange=false."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties to set on the table."""
    schema_json: str = ""
    """The table's new schema; empty if it keeps its own."""
    checked: Sequence[TableConstraint] = ()
    """The constraints that all rows of the files satisfy; a table with any others is refused."""
    expected_version: int | None = None
    """If given, any commit after this version is a ``Conflict``. Otherwise concurrent commits are
    accepted, unless they changed the schema or protocol, or contain this transaction."""


@dataclass(frozen=True, slots=True)
class Committed:
    """This call made table version ``version``. Its maintenance may still be running. ``snapshot``
    is that version; None if others made commits just before it."""

    version: int
    snapshot: Snapshot | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The table has this transaction, or a later one of the same application.

    ``transaction_version`` is the newest one; ``version`` is the version at which the table was
    read, not the one that the transaction made.
    """

    version: int
    transaction_version: int


@dataclass(frozen=True, slots=True)
class NotReady:
    """The check right before the commit failed: nothing was committed."""
