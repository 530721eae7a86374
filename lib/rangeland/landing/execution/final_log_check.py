"""Checks, before an outcome is prepared, that the logs are still the ones that were planned.

``planning.log_identity`` judges, and ``survey.log_comparison`` asks its questions. This module
returns or raises what a judgement means for the plan. A log that no broker confirms counts as
changed.

A plan whose logs have changed is read again by one driver alone, since the others' parts are from
the logs as they were before. Its tasks are given no leaders, so they look them up first, and notice
a recreated topic. Offsets that were truncated and written again are a loss beside the outcome, with
the leader epoch of the records that were landed in their place; the next checkpoint has that epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from rangeland.connection.pool import ConnectionPool
from rangeland.errors import Unreachable
from rangeland.fetch.read_settings import ReadSettings
from rangeland.job import Job
from rangeland.landing.execution.plan_cluster_check import (
    KnownClusters,
    check_plan_is_of_cluster,
)
from rangeland.loss import Loss
from rangeland.model import Leader, Partition
from rangeland.planning.incarnation import LogMark
from rangeland.planning.log_identity import (
    Changed,
    Deleted,
    FinalJudgement,
    Fingerprints,
    LogEvidence,
    OtherBytes,
    PartRead,
    Unchanged,
    Unconfirmed,
    known_epochs_of,
    marks_of,
    offsets_to_compare,
)
from rangeland.planning.loss_errors import range_lost_error
from rangeland.planning.plan import Plan
from rangeland.planning.slice_receipt import Receipt
from rangeland.survey.log_comparison import attempt_for_marks, judge_finally, take_fingerprints
from rangeland.survey.wanted_partitions import UnknownTopic


@dataclass(frozen=True, slots=True)
class LogsChanged:
    """Some logs are not the planned ones, or cannot be shown to be, but can be read as they are
    now. ``change`` has their losses; there are none if bytes merely differ, or are unknown."""

    what: str
    why: str
    change: Changed = field(default_factory=Changed)


def logs_changed_error(changed: LogsChanged) -> Unreachable:
    """The error if the logs are not read again."""
    why = f"{changed.why}; nothing is committed"
    return Unreachable(changed.what, why=why, do="run again")


@dataclass(frozen=True, slots=True)
class LogsBefore:
    """The logs of a plan before they were read. If they are read again ``after`` a change, they are
    compared with their state then. ``parts`` of the plan were handed in earlier."""

    plan: Plan
    fingerprints: Fingerprints = field(default_factory=dict)
    after: Changed | None = None
    parts: tuple[PartRead, ...] = ()


class FinalLogCheck:
    """Checks the logs of one job's plans. ``settings_of`` looks up the settings for asking brokers
    about a plan's logs, and ``known_clusters`` returns the clusters of earlier landings."""

    def __init__(
        self,
        job: Job,
        settings_of: Callable[[Plan], ReadSettings],
        known_clusters: KnownClusters,
    ) -> None:
        self._job = job
        self._settings_of = settings_of
        self._known_clusters = known_clusters

    def logs_before(
        self, settings: ReadSettings, plan: Plan, after: Changed | None = None
    ) -> LogsBefore:
        """The logs before they are read, with the fingerprints of those whose topics have no ids.
        Logs for which no broker answers in time have no fingerprint. Neither do bytes in
        quarantine, which cannot change."""
        nameless = {r.partition for r in plan.ranges if r.topic_id is None}
        slices = sorted(plan.slices, key=lambda s: s.from_offset)
        leaders = {s.partition: Leader(s.leader) for s in slices if s.partition in nameless}
        if not leaders or not plan.kind.traits.reads_log:
            return LogsBefore(plan, after=after)
        with ConnectionPool(settings.cluster) as brokers:
            offsets = _offsets_to_compare(brokers, plan)
            return LogsBefore(plan, take_fingerprints(brokers, leaders, offsets), after)

    def find_change(self, before: LogsBefore, receipts: Iterable[Receipt]) -> LogsChanged | None:
        """The change, if the plan should be read once more because a log has changed, or because no
        broker can say whether it has. If the broker stays down, the second reading fails, or holds
        the partition if the policy says so. Raises RangeLost if the policy does not allow the
        losses, if a second reading found the same losses as the first, or if the plan is a
        replacement. Raises Conflict if the logs belong to another cluster, and Unreachable if that
        is unknown for now or a topic no longer exists."""
        if not before.plan.kind.traits.reads_log:
            return None
        # Reading may have taken hours, and brokers may have moved since.
        judgement = self.judge(self._settings_of(before.plan), before, receipts)
        match judgement:
            case Unchanged():
                return None
            case Changed():
                losses = list(judgement.losses)
                if not self._reads_again(losses, before):
                    raise range_lost_error(losses)
                return LogsChanged(
                    f"{losses[0]} while it was being read: {losses[0].evidence}",
                    "the policy goes on without them, and the log has changed again since",
                    judgement,
                )
            case OtherBytes(partition):
                return LogsChanged(
                    f"the log of {partition} changed while it was being read",
                    "the topic was created again, or its log was cut off or compacted: topics "
                    "of these brokers have no ids that would show which",
                )
            case Unconfirmed(partition, why):
                what = f"it is unknown whether {partition} changed while it was being read"
                return LogsChanged(what, why)
            case Deleted(partition):
                raise _unknown_log_error(f"{partition} was read but no longer exists")
            case _:
                assert_never(judgement)

    def _reads_again(self, losses: Sequence[Loss], before: LogsBefore) -> bool:
        """Whether a plan is read once more because of these losses in its logs."""
        after = before.after
        if before.plan.replaces or (after is not None and list(after.losses) == losses):
            return False
        return all(map(self._job.policies.reads_again, losses))

    def judge(
        self, settings: ReadSettings, before: LogsBefore, receipts: Iterable[Receipt]
    ) -> FinalJudgement:
        """Whether the logs are as they were when the plan was made."""
        receipts = list(receipts)
        marks, known_epochs = marks_of(before.plan, receipts), known_epochs_of(receipts)
        if before.after is not None:
            marks = before.after.marks_since(marks)
        if not marks:
            return Unchanged()
        with ConnectionPool(settings.cluster) as brokers:
            numbered_per_broker = brokers.dialect.capabilities.numbered_per_broker
            tolerates_missing = numbered_per_broker or settings.policy.tolerates_missing_leaders
            try:
                evidence = self._evidence_of_metadata(
                    brokers, before, marks, known_epochs, tolerates_missing
                )
                return judge_finally(brokers, marks, evidence, tolerates_missing)
            except UnknownTopic as error:
                raise _unknown_log_error(error.what) from error

    def _evidence_of_metadata(
        self,
        brokers: ConnectionPool,
        before: LogsBefore,
        marks: Mapping[Partition, LogMark],
        known_epochs: Mapping[Partition, int],
        tolerates_missing: bool,
    ) -> LogEvidence:
        """The evidence from metadata. Raises Conflict if the metadata is another cluster's."""
        attempt = attempt_for_marks(brokers, marks, tolerates_missing, known_epochs)
        attempt.find_leaders()
        cluster = self._job.source.name_cluster(attempt.cluster())
        check_plan_is_of_cluster(before.plan, cluster, self._known_clusters)
        metadata = attempt.partitions
        offsets = _offsets_to_compare(brokers, before.plan)
        return LogEvidence(
            metadata.reachable,
            metadata.absent,
            before.fingerprints,
            offsets,
            parts=before.parts,
            known_epochs=known_epochs,
        )


def _offsets_to_compare(brokers: ConnectionPool, plan: Plan) -> dict[Partition, int]:
    return offsets_to_compare(plan, brokers.dialect.capabilities.offsets_are_bytes)


def _unknown_log_error(what: str) -> Unreachable:
    return Unreachable(
        what,
        why="it is unknown whether all of it was read from one log; nothing is committed",
        do="run again: the next run decides what happened to it",
    )
