"""Checks, before an outcome is prepared, that the logs are still the ones that were planned.

``planning.log_identity`` judges; this module asks its questions, and returns or raises what a
judgement means for the plan. A log that no broker confirms counts as changed.

A plan whose logs have changed is read again by one driver alone: the parts of the others are from
the logs as they were. Its tasks get no leaders, so they look them up first, and notice a recreated
topic. Offsets that were truncated and written again are a loss beside the outcome, with the leader
epoch of the records landed in their place: the next checkpoint has that epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import assert_never

from rangeland.connection.pool import ConnectionPool
from rangeland.deadline import Deadline
from rangeland.errors import Conflict, Unreachable
from rangeland.fetch.read_settings import ReadSettings
from rangeland.job import Job
from rangeland.loss import Loss
from rangeland.model import Cluster, Leader, Partition
from rangeland.planning.incarnation import LogMark
from rangeland.planning.lagging_ends import LAGGING_S, RESURVEY_POLL_S
from rangeland.planning.log_identity import (
    AskFingerprints,
    AskSurvey,
    Changed,
    Deleted,
    FinalJudgement,
    Fingerprints,
    LogEvidence,
    OtherBytes,
    Unchanged,
    Unconfirmed,
    judge_logs,
    marks_of,
    offsets_to_compare,
)
from rangeland.planning.loss_errors import range_lost_error
from rangeland.planning.plan import Plan
from rangeland.planning.read_options import with_known_addresses
from rangeland.planning.slice_receipt import Receipt
from rangeland.survey.batch_fetch import batch_checksums
from rangeland.survey.cluster_survey import take_survey
from rangeland.survey.metadata_lookup import ask_metadata
from rangeland.survey.survey_attempt import SurveyAttempt
from rangeland.survey.survey_request import SurveyRequest
from rangeland.survey.wanted_partitions import UnknownTopic


@dataclass(frozen=True, slots=True)
class LogsChanged:
    """Logs are not, or cannot be shown to be, those that were planned, and can be read as they are
    now. ``change`` has their losses; there are none if only bytes differ, or are unknown."""

    what: str
    why: str
    change: Changed = field(default_factory=Changed)


def logs_changed_error(changed: LogsChanged) -> Unreachable:
    """The error if the logs are not read again."""
    why = f"{changed.why}; nothing is committed"
    return Unreachable(changed.what, why=why, do="run again")


class FinalLogCheck:
    """Checks the logs of one job's plans. ``known`` returns the clusters of earlier landings."""

    def __init__(self, job: Job, known: Callable[[], Iterable[Cluster]]) -> None:
        self._job = job
        self._known_clusters = known

    def fingerprint(self, settings: ReadSettings, plan: Plan) -> Fingerprints:
        """The fingerprints of logs before they are read, where topics have no ids. Logs for which
        no broker answers in time have none."""
        nameless = {r.partition for r in plan.ranges if r.topic_id is None}
        slices = sorted(plan.slices, key=lambda s: s.from_offset)
        leaders = {s.partition: Leader(s.leader) for s in slices if s.partition in nameless}
        if not leaders:
            return {}
        with ConnectionPool(settings.cluster) as brokers:
            return _take_fingerprints(brokers, leaders, _offsets_to_compare(brokers, plan))

    def find_change(
        self,
        settings: ReadSettings,
        plan: Plan,
        receipts: Iterable[Receipt],
        fingerprints: Fingerprints,
        after: Changed | None = None,
    ) -> LogsChanged | None:
        """The change if a log has changed, or nobody can say whether it has, and the plan should be
        read once more. If its broker stays down, the second reading fails, or holds the partition
        if the policy says so. Raises RangeLost if the policy does not allow the losses, if a second
        reading, ``after`` a change, found the same ones, or if the plan is a replacement. Raises
        Conflict if the logs belong to another cluster, and Unreachable if that is unknown for now
        or a topic no longer exists."""
        judgement = self.judge(settings, plan, receipts, fingerprints, after)
        match judgement:
            case Unchanged():
                return None
            case Changed():
                losses = list(judgement.losses)
                if not self._reads_again(losses, plan, after):
                    raise range_lost_error(losses)
                return LogsChanged(
                    f"{losses[0]} while it was read: {losses[0].evidence}",
                    "the policy goes on without them, and the log has changed again since",
                    judgement,
                )
            case OtherBytes(partition):
                return LogsChanged(
                    f"the log of {partition} has changed while it was read",
                    "the topic was created again, or its log was cut off or compacted: topics "
                    "of these brokers have no ids that would show which",
                )
            case Unconfirmed(partition, why):
                what = f"it is unknown whether {partition} has changed while it was read"
                return LogsChanged(what, why)
            case Deleted(partition):
                raise _unknown_log_error(f"{partition} was read and no longer exists")
            case _:
                assert_never(judgement)

    def _reads_again(self, losses: Sequence[Loss], plan: Plan, after: Changed | None) -> bool:
        """Whether a plan is read once more because its logs have lost this."""
        if plan.replaces or (after is not None and list(after.losses) == losses):
            return False
        return all(map(self._job.policies.reads_again, losses))

    def judge(
        self,
        settings: ReadSettings,
        plan: Plan,
        receipts: Iterable[Receipt],
        fingerprints: Fingerprints,
        after: Changed | None = None,
    ) -> FinalJudgement:
        """Whether the logs are as they were when the plan was made. If they changed while it was
        being read, and it was read again ``after`` that change, they are compared with their state
        then. ``fingerprints`` were taken before reading."""
        marks = marks_of(plan, receipts)
        if after is not None:
            marks = after.marks_since(marks)
        if not marks:
            return Unchanged()
        with ConnectionPool(settings.cluster) as brokers:
            is_own = brokers.dialect.capabilities.numbered_per_broker
            tolerates_missing = is_own or settings.policy.tolerates_missing_leaders
            try:
                return self._judge(brokers, tolerates_missing, plan, marks, fingerprints)
            except UnknownTopic as error:
                raise _unknown_log_error(error.what) from error

    def check_plan_is_of_cluster(self, settings: ReadSettings, plan: Plan) -> None:
        """Raises Conflict if a plan was made for a cluster other than the job's."""
        marks = {r.partition: LogMark(r.until_offset, r.topic_id) for r in plan.ranges}
        if plan.cluster is None or not marks:
            return
        with ConnectionPool(settings.cluster) as brokers:
            tolerates_missing = settings.policy.tolerates_missing_leaders
            attempt = SurveyAttempt(brokers, _request_for_marks(marks, tolerates_missing))
            with suppress(UnknownTopic):
                attempt.find_leaders()
            self._check_is_of_cluster(plan, attempt.cluster())

    def _check_is_of_cluster(self, plan: Plan, surveyed: Cluster) -> None:
        cluster = self._job.source.name_cluster(surveyed)
        planned_for = plan.cluster
        if cluster is None or planned_for is None or not cluster.is_other(planned_for):
            return
        if not with_known_addresses(cluster, [*self._known_clusters(), planned_for]).is_other(
            planned_for
        ):
            return
        raise Conflict(
            f"the plan {plan.id} belongs to another cluster",
            why=f"it was made for the cluster {planned_for}, and source leads to {cluster} now",
            do="apply it to that cluster, or make a new plan; if it is the same cluster, say so "
            f"with `source.cluster: {planned_for.id or planned_for.addresses[0]}`",
        )

    def _judge(
        self,
        brokers: ConnectionPool,
        tolerates_missing: bool,
        plan: Plan,
        marks: Mapping[Partition, LogMark],
        fingerprints: Fingerprints,
    ) -> FinalJudgement:
        attempt = SurveyAttempt(brokers, _request_for_marks(marks, tolerates_missing))
        attempt.find_leaders()
        self._check_is_of_cluster(plan, attempt.cluster())
        metadata = attempt.partitions
        offsets = _offsets_to_compare(brokers, plan)
        evidence = LogEvidence(metadata.reachable, metadata.absent, fingerprints, offsets)
        caught_up_by = Deadline(LAGGING_S)
        while True:
            match judge_logs(marks, evidence):
                case AskSurvey(uncertain):
                    if evidence.survey is not None:
                        time.sleep(RESURVEY_POLL_S)
                    survey = take_survey(brokers, _request_for_marks(uncertain, tolerates_missing))
                    may_lag = not caught_up_by.has_passed
                    evidence = replace(evidence, survey=survey, may_lag=may_lag)
                case AskFingerprints(leaders):
                    now = _take_fingerprints(brokers, leaders, offsets)
                    evidence = replace(evidence, fingerprints=now)
                case judgement:
                    return judgement


def _take_fingerprints(
    brokers: ConnectionPool, leaders: Mapping[Partition, Leader], offsets: Mapping[Partition, int]
) -> dict[Partition, int | None]:
    """``batch_checksums``, looking up leaders that do not answer again for a while."""
    checksums = batch_checksums(brokers, leaders, offsets)
    deadline = Deadline(LAGGING_S)
    while (unanswered := leaders.keys() - checksums.keys()) and not deadline.has_passed:
        time.sleep(RESURVEY_POLL_S)
        with suppress(Unreachable):
            topics = sorted({p.topic for p in unanswered})
            view = ask_metadata(brokers, topics, brokers.settings.seeds)
            current_leaders = {
                p: leader
                for topic in view.topics.values()
                for p, leader in topic.leaders.items()
                if p in unanswered
            }
            checksums |= batch_checksums(brokers, current_leaders, offsets)
    return checksums


def _offsets_to_compare(brokers: ConnectionPool, plan: Plan) -> dict[Partition, int]:
    return offsets_to_compare(plan, brokers.dialect.capabilities.offsets_are_bytes)


def _unknown_log_error(what: str) -> Unreachable:
    return Unreachable(
        what,
        why="it is unknown whether all of it was read from one log; nothing is committed",
        do="run again: the next run decides what happened to it",
    )


def _request_for_marks(
    marks: Mapping[Partition, LogMark], tolerates_missing: bool
) -> SurveyRequest:
    topics = tuple(sorted({p.topic for p in marks}))
    only: dict[str, list[int | str]] = {topic: [] for topic in topics}
    for p in marks:
        only[p.topic].append(f"{p.broker}-{p.number}" if p.broker else p.number)
    return SurveyRequest(
        topics,
        partitions=only,
        known=frozenset(topics),
        checkpoint=dict(marks),
        tolerates_missing_leaders=tolerates_missing,
    )
