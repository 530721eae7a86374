"""Confirms, before an outcome is prepared, that the logs are still those that were planned.

One metadata request is enough where brokers have topic ids and no leader was elected meanwhile;
otherwise the ends and epochs of the uncertain logs are surveyed, twice where something is odd.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace

from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.delta.ledger.events import FileEntry
from rangeland.errors import Conflict, Unreachable
from rangeland.job import Job
from rangeland.model import Cluster, Leader, Partition, Survey
from rangeland.planning.incarnation import LogMark, may_be_behind
from rangeland.planning.log_identity import changed, doubtful, marks_of
from rangeland.planning.loss_errors import range_lost
from rangeland.planning.plan import Plan
from rangeland.planning.policy import Action, Loss, LossKind
from rangeland.planning.read_options import known_as
from rangeland.planning.slice_receipt import Receipt
from rangeland.survey.attempt import SurveyAttempt, UnknownTopic
from rangeland.survey.cluster_survey import SurveyRequest, take_survey
from rangeland.survey.fingerprints import fingerprints

BEHIND_SECONDS = 10
Seen = dict[Partition, int]
Receipts = dict[int, Receipt]
Files = list[FileEntry]


class Confirmation:
    """Confirms plans of one job. ``known`` returns the clusters of earlier landings."""

    def __init__(self, job: Job, known: Callable[[], Iterable[Cluster]]) -> None:
        self._job = job
        self._known = known
        self._seen_epochs: dict[Partition, int | None] = {}
        """The leader epochs in which logs were found to have changed."""
        self._read_epochs: dict[Partition, int] = {}
        """The leader epochs of logs that are read once more, after a truncation was skipped."""

    def before(self, settings: ClusterSettings, plan: Plan) -> dict[Partition, int]:
        """Fingerprints of the logs before they are read, where topics have no ids."""
        nameless = {r.partition for r in plan.ranges if r.topic_id is None}
        last = {s.partition: s for s in sorted(plan.slices, key=lambda s: s.from_offset)}
        leaders = {p: Leader(s.leader) for p, s in last.items() if p in nameless and s.leader}
        if not leaders:
            return {}
        with ConnectionPool(settings) as brokers:
            return fingerprints(brokers, leaders, _known_by(brokers, plan, leaders))

    def changes(
        self,
        settings: ClusterSettings,
        plan: Plan,
        receipts: Iterable[Receipt],
        before: Mapping[Partition, int],
    ) -> list[Loss]:
        """The losses in the logs of a plan since it was made. Raises Conflict where they belong to
        another cluster, and Unreachable where that is unknown for now, or a log is not the one
        fingerprinted ``before``; except where each partition belongs to one broker and that is
        down: nothing can have written to it meanwhile."""
        marks = {
            p: replace(mark, epoch=self._read_epochs[p]) if p in self._read_epochs else mark
            for p, mark in marks_of(plan, receipts).items()
        }
        if not marks:
            return []
        with ConnectionPool(settings) as brokers:
            is_own = brokers.dialect.capabilities.numbered_per_broker
            try:
                return self._changes(brokers, plan, marks, before)
            except UnknownTopic as error:
                raise _untold(error.what) from error
            except Unreachable as error:
                if is_own and not isinstance(error, RewrittenLog):
                    return []
                raise

    def refuse(self, losses: Iterable[Loss]) -> None:
        """Raises RangeLost for these losses."""
        if found := list(losses):
            raise range_lost(found)

    def confirmed(
        self,
        read: Callable[[bool], tuple[Receipts, Files]],
        before: Callable[[], Seen],
        changes: Callable[[Receipts, Seen], list[Loss]],
        warn: Callable[[str], None],
    ) -> tuple[Receipts, Files]:
        """What ``read`` returns, from logs that have not changed meanwhile. Where one has, and the
        policy does not fail, all is read once ``again``: readers then see the loss before they
        begin. Raises RangeLost for losses, and Unreachable where a log keeps changing."""
        self._read_epochs = {}
        seen = before()
        receipts, files = read(False)
        losses: list[Loss] = []
        try:
            losses = changes(receipts, seen)
            again = f"{losses[0]} while it was read: {losses[0].evidence}" if losses else ""
        except RewrittenLog as error:
            again = str(error)
        if again and self._goes_on_without(losses):
            warn(f"{again}; it is read once more")
            found = ((loss.partition, self._seen_epochs.get(loss.partition)) for loss in losses)
            self._read_epochs = {p: epoch for p, epoch in found if epoch is not None}
            seen = before()
            receipts, files = read(True)
            losses = changes(receipts, seen)
        self.refuse(losses)
        return receipts, files

    def _goes_on_without(self, losses: Iterable[Loss]) -> bool:
        """True if readers that see these losses from the beginning can apply the policy. Where a
        log was truncated and written again, there is nothing to hold: what it has now is read."""
        allowed = {
            LossKind.RECREATED: (Action.SKIP, Action.HOLD),
            LossKind.TRUNCATED: (Action.SKIP,),
        }
        policies = self._job.policies
        return all(
            policies.of(loss.verdict, loss.partition.topic) in allowed.get(loss.verdict, ())
            for loss in losses
        )

    def refuse_other_cluster(self, settings: ClusterSettings, plan: Plan) -> None:
        """Raises Conflict where a plan was made for another cluster than the job's."""
        wanted = {r.partition: LogMark(r.until_offset, r.topic_id) for r in plan.ranges}
        if plan.cluster is None or not wanted:
            return
        with ConnectionPool(settings) as brokers:
            attempt = SurveyAttempt(brokers, _wanted(wanted))
            try:
                leaders = attempt.leaders()
            except UnknownTopic:
                leaders = {}
            self._refuse_other(plan, attempt, leaders)

    def _refuse_other(
        self, plan: Plan, attempt: SurveyAttempt, leaders: Mapping[Partition, Leader]
    ) -> None:
        now, then = self._job.source.called(attempt.cluster(leaders.values())), plan.cluster
        if now is None or then is None or not now.is_other(then):
            return
        if not known_as(now, [*self._known(), then]).is_other(then):
            return
        raise Conflict(
            f"the plan {plan.application} {plan.sequence} belongs to another cluster",
            why=f"it was made for the cluster {then}, and source leads to {now} now",
            do="apply it to that cluster, or make a new plan; if it is the same cluster, say so "
            f"with `source.cluster: {then.id or then.addresses[0]}`",
        )

    def _changes(
        self,
        brokers: ConnectionPool,
        plan: Plan,
        marks: Mapping[Partition, LogMark],
        before: Mapping[Partition, int],
    ) -> list[Loss]:
        attempt = SurveyAttempt(brokers, _wanted(marks))
        leaders = attempt.leaders()
        self._refuse_other(plan, attempt, leaders)
        odd = {p: marks[p] for p in doubtful(marks, leaders)}
        if not odd:
            return []
        survey = self._settled(brokers, odd)
        missing = [p for p in odd if p not in survey.logs]
        if missing and not brokers.dialect.capabilities.numbered_per_broker:
            raise _untold(f"{missing[0]} was read and no longer exists")
        if losses := changed(odd, survey):
            self._seen_epochs = {p: log.leader.epoch for p, log in survey.logs.items()}
            return losses
        led = {p: log.leader for p, log in survey.logs.items() if not log.leader.is_replica}
        now = fingerprints(brokers, led, _known_by(brokers, plan, before))
        for p, crc in now.items():
            if p in marks and crc != before[p]:
                raise RewrittenLog(p)
        return []

    def _settled(self, brokers: ConnectionPool, marks: Mapping[Partition, LogMark]) -> Survey:
        """A survey of these logs. Waits for the high watermark of a newly elected leader, which
        may lag for a moment."""
        deadline = time.monotonic() + BEHIND_SECONDS
        while True:
            survey = take_survey(brokers, _wanted(marks))
            is_behind = any(may_be_behind(marks[p], log) for p, log in survey.logs.items())
            if not is_behind or not changed(marks, survey) or time.monotonic() > deadline:
                return survey
            time.sleep(0.5)


class RewrittenLog(Unreachable):
    """The log of a topic without an id has other bytes than before reading."""

    def __init__(self, partition: Partition) -> None:
        super().__init__(
            f"the log of {partition} has changed while it was read",
            why="the topic was created again, or its log was cut off or compacted: topics of "
            "these brokers have no ids that would show which; nothing is committed",
            do="run again",
        )


def _known_by(
    brokers: ConnectionPool, plan: Plan, partitions: Container[Partition]
) -> dict[Partition, int]:
    """The offset of each partition whose bytes are compared: the last one read, or where the last
    slice begins if offsets are bytes, since not every byte begins an entry."""
    if brokers.dialect.capabilities.offsets_are_bytes:
        ends = sorted((s.partition, s.from_offset) for s in plan.slices)
    else:
        ends = sorted((r.partition, r.until_offset - 1) for r in plan.ranges)
    return {p: at for p, at in ends if p in partitions}


def _untold(what: str) -> Unreachable:
    return Unreachable(
        what,
        why="it is unknown whether all of it was read from one log; nothing is committed",
        do="run again: the next run decides what happened to it",
    )


def _wanted(marks: Mapping[Partition, LogMark]) -> SurveyRequest:
    topics = tuple(sorted({p.topic for p in marks}))
    only: dict[str, list[int | str]] = {topic: [] for topic in topics}
    for p in marks:
        only[p.topic].append(f"{p.broker}-{p.number}" if p.broker else p.number)
    return SurveyRequest(topics, partitions=only, known=frozenset(topics), checkpoint=dict(marks))
