"""What a task needs to read slices, as picklable values: the cluster, and what to do with records.

Connections see only the cluster. They do not know which records a job omits, how payloads become
columns, or what the policy does about records that cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rangeland.cluster_settings import ClusterSettings
from rangeland.decode.columns import PLAIN_COLUMNS, LogColumns
from rangeland.decode.payload.row_format import RowFormat
from rangeland.loss import QuarantinedBytes
from rangeland.model import Address, Isolation, Survey
from rangeland.planning.policy import Policy
from rangeland.schema_registry.registry_settings import RegistrySettings, WrittenBefore


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings with which the slices of one plan are read."""

    cluster: ClusterSettings
    policy: Policy = field(default_factory=Policy)
    tags: tuple[str, ...] = ()
    """Only messages with one of these are read; all if empty."""
    rates: tuple[tuple[Address, int], ...] = ()
    """The bytes per second that one task may read from a broker, if limited."""
    row_format: RowFormat | None = None
    """How keys and values become typed columns; None leaves them as bytes."""
    registry: RegistrySettings | None = None
    """The schema registry to ask for schemas that are not in the row format's catalogue."""
    written: WrittenBefore | None = None
    """What is known about when the records were written."""
    omitted: Mapping[int, Mapping[int, str]] = field(default_factory=dict, repr=False)
    """Records without a row because the transform fails on them, by slice and offset, with the
    reason."""
    quarantined_bytes: Mapping[int, QuarantinedBytes] = field(default_factory=dict, repr=False)
    """Bytes in quarantine, by slice, to be read instead of a log; then no broker is asked."""
    compacted: tuple[str, ...] = ()
    """Topics, or patterns, whose logs may have gaps by compaction, whatever brokers report."""
    asks_zookeeper: bool = False
    """Whether ZooKeeper may know the cleanup policy of topics, where brokers do not report it."""
    zookeeper_cleanup: tuple[tuple[str, str], ...] | None = None
    """The policies that ZooKeeper has, by topic; None if it could not be asked."""

    @property
    def dialect(self) -> str:
        return self.cluster.dialect

    @property
    def isolation(self) -> Isolation:
        return self.cluster.isolation

    @property
    def columns(self) -> LogColumns:
        """The names of the log's own columns in rows that are read."""
        return PLAIN_COLUMNS if self.row_format is None else self.row_format.columns

    def with_filter(self, isolation: Isolation, tags: tuple[str, ...]) -> ReadSettings:
        """These settings, for a different selection of messages."""
        return replace(self, cluster=replace(self.cluster, isolation=isolation), tags=tags)

    def with_versions_of(self, survey: Survey) -> ReadSettings:
        """These settings with the broker versions that a survey has found."""
        return replace(self, cluster=self.cluster.with_versions_of(survey))
