"""What a task needs to read slices, as picklable values: the cluster, and what becomes of records.

The connection knows none of the rest: which records a job omits, how their payloads become
columns, and what a policy does about those that cannot be read.
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
    """The known age of the records."""
    omitted: Mapping[int, Mapping[int, str]] = field(default_factory=dict, repr=False)
    """Records without a row because the transform fails on them, by slice and offset, with the
    reason."""
    quarantined_bytes: Mapping[int, QuarantinedBytes] = field(default_factory=dict, repr=False)
    """Bytes in quarantine to read instead of a log, by slice; then no broker is asked."""
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
        """These settings for other messages of the logs."""
        return replace(self, cluster=replace(self.cluster, isolation=isolation), tags=tags)

    def with_versions_of(self, survey: Survey) -> ReadSettings:
        """These settings with the broker versions that a survey has found."""
        return replace(self, cluster=self.cluster.with_versions_of(survey))
