"""Checks, before an outcome is prepared, that the logs are still the ones that were planned.

One metadata request is enough if brokers have topic ids and no leader has been elected since;
otherwise the ends and epochs of the uncertain logs are surveyed, twice if something looks odd.
Where topics have no ids, one batch of each log is fetched before and after reading, and compared.
A log that no broker confirms counts as changed.

A plan whose logs have changed is read again by one driver alone: the parts of the others are from
the logs as they were. Its tasks get no leaders, so they look them up first, and notice a recreated
topic. Offsets that were truncated and written again are a loss beside the outcome, with the leader
epoch of the records landed in their place: the next checkpoint has that epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from rangeland.connection.pool import ConnectionPool
from rangeland.deadline import Deadline
from rangeland.errors import Conflict, Unreachable
from rangeland.fetch.read_settings import ReadSettings
from rangeland.job import Job
from rangeland.loss import Action, DecidedLoss, Loss, LossKind
from rangeland.model import Cluster, Leader, LogState, Partition, Survey
from rangeland.planning.incarnation import LogMark
from rangeland.planning.lagging_ends import LAGGING_S, RESURVEY_POLL_S, may_lag
from rangeland.planning.log_identity import find_changes, marks_of, unconfirmed_partitions
from rangeland.planning.loss_errors import range_lost_error
from rangeland.planning.plan import Plan
from rangeland.planning.read_options import with_known_addresses
from rangeland.planning.slice_receipt import Receipt
from rangeland.survey.batch_fetch import batch_checksums
from rangeland.survey.cluster_survey import take_survey
from rangeland.survey.leaders import ask_leaders
from rangeland.survey.survey_attempt import SurveyAttempt
from rangeland.survey.survey_request import SurveyRequest
from rangeland.survey.wanted_partitions import UnknownTopic

Fingerprints = Mapping[Partition, int | None]
"""Checksums as ``batch_checksums`` returns them."""


class FinalLogCheck:
    """Checks the logs of one job's plans. ``known`` returns the clusters of earlier landings."""

    def __init__(self, job: Job, known: Callable[[], Iterable[Cluster]]) -> None:
        self._job = job
        self._known = known

    def fingerprint(self, settings: ReadSettings, plan: Plan) -> Fingerprints:
        """Checksums of one batch of each log before it is read, where topics have no ids. Logs for
        which no broker answers in time have none."""
        nameless = {r.partition for r in plan.ranges if r.topic_id is None}
        slices = sorted(plan.slices, key=lambda s: s.from_offset)
        leaders = {s.partition: Leader(s.leader) for s in slices if s.partition in nameless}
        if not leaders:
            return {}
        with ConnectionPool(settings.cluster) as brokers:
            return _checksums(brokers, leaders, _offsets_to_compare(brokers, plan, leaders))

    def changes(
        self,
        settings: ReadSettings,
        plan: Plan,
        receipts: Iterable[Receipt],
        fingerprints: Fingerprints,
        after: LogChange | None = None,
    ) -> dict[Loss, int | None]:
        """The losses in the logs of a plan, each with the leader epoch that its log has now.

        The logs are compared with their state when the plan was made. If they changed while it was
        being read, and it was read again for that reason, ``after`` is that change, and they are
        compared with their state then. ``fingerprints`` were taken before reading.

        Raises Conflict if the logs belong to another cluster, Unreachable if that is unknown for
        now, and LogChange if a fingerprint differs or a log cannot be asked about: its broker may
        have changed it before it went down, and no receipt has bytes that would show it. If the
        broker stays down, the second reading fails, or holds the partition if the policy says so.
        """
        epochs = {} if after is None else after.epochs
        marks = {
            p: replace(mark, epoch=epochs.get(p, mark.epoch))
            for p, mark in marks_of(plan, receipts).items()
        }
        if not marks:
            return {}
        with ConnectionPool(settings.cluster) as brokers:
            is_own = brokers.dialect.capabilities.numbered_per_broker
            tolerates_missing = is_own or settings.policy.tolerates_missing_leaders
            try:
                return self._changes(brokers, tolerates_missing, plan, marks, fingerprints)
            except UnknownTopic as error:
                raise _unknown_log_error(error.what) from error

    def check_same_logs(
        self, plan: Plan, changes: Mapping[Loss, int | None], after: LogChange | None = None
    ) -> None:
        """Raises LogChange if the policy allows the losses and the plan should be read once more.
        Raises RangeLost if it does not, if a second reading, ``after`` a change, found the same
        losses, or if the plan is a replacement."""
        losses = list(changes)
        if not losses:
            return
        is_same = after is not None and list(after.losses) == losses
        if plan.replaces or is_same or not all(map(self._job.policies.reads_again, losses)):
            raise range_lost_error(losses)
        raise LogChange(
            f"{losses[0]} while it was read: {losses[0].evidence}",
            why="the policy goes on without them, and the log has changed again since",
            losses=changes,
        )

    def check_same_cluster(self, settings: ReadSettings, plan: Plan) -> None:
        """Raises Conflict if a plan was made for a cluster other than the job's."""
        marks = {r.partition: LogMark(r.until_offset, r.topic_id) for r in plan.ranges}
        if plan.cluster is None or not marks:
            return
        with ConnectionPool(settings.cluster) as brokers:
            tolerates_missing = settings.policy.tolerates_missing_leaders
            attempt = SurveyAttempt(brokers, _request_for_marks(marks, tolerates_missing))
            with suppress(UnknownTopic):
                attempt.find_leaders()
            self._check_planned_cluster(plan, attempt.cluster())

    def _check_planned_cluster(self, plan: Plan, surveyed: Cluster) -> None:
        cluster, planned_for = self._job.source.name_cluster(surveyed), plan.cluster
        if cluster is None or planned_for is None or not cluster.is_other(planned_for):
            return
        if not with_known_addresses(cluster, [*self._known(), planned_for]).is_other(planned_for):
            return
        raise Conflict(
            f"the plan {plan.id} belongs to another cluster",
            why=f"it was made for the cluster {planned_for}, and source leads to {cluster} now",
            do="apply it to that cluster, or make a new plan; if it is the same cluster, say so "
            f"with `source.cluster: {planned_for.id or planned_for.addresses[0]}`",
        )

    def _changes(
        self,
        brokers: ConnectionPool,
        tolerates_missing: bool,
        plan: Plan,
        marks: Mapping[Partition, LogMark],
        fingerprints: Fingerprints,
    ) -> dict[Loss, int | None]:
        attempt = SurveyAttempt(brokers, _request_for_marks(marks, tolerates_missing))
        attempt.find_leaders()
        self._check_planned_cluster(plan, attempt.cluster())
        metadata = attempt.partitions
        unconfirmed = unconfirmed_partitions(marks, metadata.reachable)
        served = {p: marks[p] for p in unconfirmed if metadata.absent.why_unreachable(p) is None}
        if served:
            survey = self._survey_until_settled(brokers, tolerates_missing, served)
            absent = [p for p in served if p not in survey.logs]
            if deleted := [p for p in absent if survey.absent.why_unreachable(p) is None]:
                raise UnknownTopic(f"{deleted[0]} was read and no longer exists")
            if losses := find_changes(served, survey):
                return {loss: survey.logs[loss.partition].leader.epoch for loss in losses}
            nameless = {p: log for p, log in survey.logs.items() if marks[p].topic_id is None}
            _check_same_bytes(brokers, plan, nameless, fingerprints)
            unconfirmed -= survey.logs.keys()
        if unconfirmed:
            raise _unconfirmed_log_error(min(unconfirmed), "its broker does not answer")
        return {}

    def _survey_until_settled(
        self, brokers: ConnectionPool, tolerates_missing: bool, marks: Mapping[Partition, LogMark]
    ) -> Survey:
        """A survey of these logs. Waits for the high watermark of a newly elected leader, which
        may lag for a moment."""
        deadline = Deadline(LAGGING_S)
        while True:
            survey = take_survey(brokers, _request_for_marks(marks, tolerates_missing))
            may_pass = may_lag(find_changes(marks, survey), marks, survey)
            if not may_pass or deadline.has_passed:
                return survey
            time.sleep(RESURVEY_POLL_S)


class LogChange(Unreachable):
    """A log is not, or cannot be shown to be, the one that was planned, and can be read as it is
    now. ``losses`` are its losses, each with the current leader epoch of its log; there are none
    if only its bytes differ, or are unknown."""

    def __init__(
        self, what: str, *, why: str = "", losses: Mapping[Loss, int | None] | None = None
    ) -> None:
        super().__init__(what, why=f"{why}; nothing is committed", do="run again")
        self.losses = dict(losses or {})

    def final_error(self) -> Unreachable:
        """The same error for callers that do not read the log again."""
        return Unreachable(self.what, why=self.why, do=self.do, **self.facts)

    @property
    def epochs(self) -> dict[Partition, int]:
        return {loss.partition: e for loss, e in self.losses.items() if e is not None}

    def regrown_offsets(self, plan: Plan, receipts: Iterable[Receipt]) -> dict[DecidedLoss, int]:
        """The truncated offsets at which these receipts, of a later reading, have other records,
        each with the leader epoch they were read in."""
        ends = {p: mark.until_offset for p, mark in marks_of(plan, receipts).items()}
        return {
            replace(loss, until_offset=ends[loss.partition]).with_action(Action.SKIP): epoch
            for loss, epoch in self.losses.items()
            if loss.kind is LossKind.TRUNCATED and loss.is_sure and epoch is not None
            if ends.get(loss.partition, 0) > loss.from_offset
        }


def _check_same_bytes(
    brokers: ConnectionPool,
    plan: Plan,
    logs: Mapping[Partition, LogState],
    fingerprints: Fingerprints,
) -> None:
    """Raises LogChange for a log whose bytes differ from its fingerprint, or are not known both
    before and after reading. There is nothing to compare if the log had no complete batch small
    enough to fetch, or if its bytes have expired since. A replica's bytes are as good as its
    leader's, but it may not have them yet."""
    offsets = _offsets_to_compare(brokers, plan, logs)
    checksums = _checksums(brokers, {p: log.leader for p, log in logs.items()}, offsets)
    check_same_checksums(fingerprints, checksums)
    for partition, log in sorted(logs.items()):
        if partition not in fingerprints:
            raise _unconfirmed_log_error(partition, "its broker did not answer before it was read")
        expired = log.start_offset > offsets[partition] and not log.leader.is_replica
        if fingerprints[partition] is not None and checksums.get(partition) is None and not expired:
            raise _unconfirmed_log_error(partition, "its broker does not return what was read")


def check_same_checksums(before: Fingerprints, now: Fingerprints) -> None:
    """Raises LogChange if a log has another checksum now."""
    for partition, checksum in now.items():
        if checksum is not None and before.get(partition) not in (None, checksum):
            raise LogChange(
                f"the log of {partition} has changed while it was read",
                why="the topic was created again, or its log was cut off or compacted: topics "
                "of these brokers have no ids that would show which",
            )


def _unconfirmed_log_error(partition: Partition, why: str) -> LogChange:
    return LogChange(f"it is unknown whether {partition} has changed while it was read", why=why)


def _checksums(
    brokers: ConnectionPool, leaders: Mapping[Partition, Leader], offsets: Mapping[Partition, int]
) -> dict[Partition, int | None]:
    """``batch_checksums``, looking up leaders that do not answer again for a while."""
    checksums = batch_checksums(brokers, leaders, offsets)
    deadline = Deadline(LAGGING_S)
    while (unanswered := leaders.keys() - checksums.keys()) and not deadline.has_passed:
        time.sleep(RESURVEY_POLL_S)
        with suppress(Unreachable):
            topics = sorted({p.topic for p in unanswered})
            view = ask_leaders(brokers, topics, brokers.settings.seeds)
            current_leaders = {
                p: leader
                for topic in view.topics.values()
                for p, leader in topic.leaders.items()
                if p in unanswered
            }
            checksums |= batch_checksums(brokers, current_leaders, offsets)
    return checksums


def _offsets_to_compare(
    brokers: ConnectionPool, plan: Plan, partitions: Container[Partition]
) -> dict[Partition, int]:
    """The offset in each partition at which bytes are compared: the last one read, or, if offsets
    are bytes, where the last slice begins, since not every byte begins an entry."""
    if brokers.dialect.capabilities.offsets_are_bytes:
        ends = sorted((s.partition, s.from_offset) for s in plan.slices)
    else:
        ends = sorted((r.partition, r.until_offset - 1) for r in plan.ranges)
    return {p: offset for p, offset in ends if p in partitions}


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
