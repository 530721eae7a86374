"""Judges whether the logs that were read for a plan are still the logs that it was made for.

A topic may be recreated while it is read, and an unclean election may replace the end of a log.
Rows read before and after that belong to different logs. Topic ids, if brokers have them, reveal a
recreated topic, and leader epochs reveal an unclean election; older brokers at least report where a
log ends.

``judge_logs`` judges by metadata first. That is enough if brokers have topic ids and no leader has
been elected since. Otherwise it returns a question, and judges again with the answer: the ends and
epochs of the uncertain logs and, if topics have no ids, fingerprints of each log from before the
reading and from now. If several drivers share a plan, there are fingerprints from before each of
them read its part. ``survey/log_comparison`` asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rangeland.grouping import by_partition
from rangeland.loss import Action, DecidedLoss, Loss, LossKind
from rangeland.model import AbsentPartitions, Leader, LogState, Partition, Range, Survey
from rangeland.planning.incarnation import (
    LogMark,
    changes_since,
    is_known,
    is_recreated,
    recreation_loss,
)
from rangeland.planning.intervals import subtract
from rangeland.planning.lagging_ends import may_lag
from rangeland.planning.plan import Plan
from rangeland.planning.slice_receipt import Receipt, later_epoch

Fingerprints = Mapping[Partition, int | None]
"""The checksum of one batch of each log; None for a log that has no complete one at its offset.
Logs for which no broker answered are left out."""


@dataclass(frozen=True, slots=True)
class PartRead:
    """The partitions that a driver has read for its part of a shared plan, and the fingerprints
    that their logs had before."""

    partitions: frozenset[Partition]
    fingerprints: Fingerprints


@dataclass(frozen=True, slots=True)
class LogEvidence:
    """What is known about the logs of a plan after they were read: first what metadata says, then
    also the answers to the questions that were asked."""

    leaders: Mapping[Partition, Leader]
    absent: AbsentPartitions
    fingerprints_before: Fingerprints | None
    """Fingerprints from before the logs were read; None if bytes are not compared."""
    compared_at: Mapping[Partition, int] = field(default_factory=dict)
    """The offset in each log at which fingerprints are taken."""
    survey: Survey | None = None
    leader_has_time: bool = True
    """Whether a newly elected leader still has time to catch up."""
    fingerprints: Fingerprints | None = None
    parts: tuple[PartRead, ...] = ()
    """The parts that were handed in earlier, by this driver or others."""
    known_epochs: Mapping[Partition, int] = field(default_factory=dict)
    """The latest leader epochs in which the logs were read. What a leader of an earlier epoch says
    is out of date, even if it is the one that the plan names."""


# --- judgements ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unchanged:
    """All logs are the ones that the plan was made for."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Some logs have lost what was read from them, or were recreated. ``losses``: each with the
    leader epoch that its log has now."""

    losses: Mapping[Loss, int | None] = field(default_factory=dict)

    def marks_since(self, marks: Mapping[Partition, LogMark]) -> dict[Partition, LogMark]:
        """The marks of logs that were read again after this change, in their new leader epochs."""
        epochs = {loss.partition: e for loss, e in self.losses.items() if e is not None}
        return {p: replace(mark, epoch=epochs.get(p, mark.epoch)) for p, mark in marks.items()}

    def regrown_offsets(self, plan: Plan, receipts: Iterable[Receipt]) -> dict[DecidedLoss, int]:
        """The truncated offsets at which these receipts, from a later reading, have other records,
        each with the leader epoch in which they were read."""
        ends = {p: mark.until_offset for p, mark in marks_of(plan, receipts).items()}
        return {
            replace(loss, until_offset=ends[loss.partition]).with_action(Action.SKIP): epoch
            for loss, epoch in self.losses.items()
            if loss.kind is LossKind.TRUNCATED and loss.is_sure and epoch is not None
            if ends.get(loss.partition, 0) > loss.from_offset
        }


@dataclass(frozen=True, slots=True)
class OtherBytes:
    """The log has other bytes at an offset than it had there before it was read."""

    partition: Partition


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """It is unknown whether the log has changed: its broker may have changed it before going down,
    and no receipt has bytes that would show it."""

    partition: Partition
    why: str


@dataclass(frozen=True, slots=True)
class Deleted:
    """The partition no longer exists."""

    partition: Partition


@dataclass(frozen=True, slots=True)
class AskSurvey:
    """Survey the logs with these marks, because metadata does not confirm them; or survey them
    again, because the high watermark of a newly elected leader may lag for a moment."""

    marks: Mapping[Partition, LogMark]


@dataclass(frozen=True, slots=True)
class AskFingerprints:
    """Take the fingerprints of the logs of these leaders: their topics have no ids, so another log
    may have the same ends and epochs."""

    leaders: Mapping[Partition, Leader]


FinalJudgement = Unchanged | Changed | OtherBytes | Unconfirmed | Deleted
LogJudgement = FinalJudgement | AskSurvey | AskFingerprints


# --- judging ------------------------------------------------------------------------------


def judge_logs(marks: Mapping[Partition, LogMark], evidence: LogEvidence) -> LogJudgement:
    """Whether the logs with these marks are still the same. A log only counts as the same
    if there is evidence that it is."""
    leaders, absent = evidence.leaders, evidence.absent
    unconfirmed = unconfirmed_partitions(marks, leaders, evidence.known_epochs)
    # A replica may be read although its broker, as a whole, did not list its partitions.
    served = {
        p: marks[p]
        for p in sorted(unconfirmed)
        if p in leaders or absent.why_unreachable(p) is None
    }
    if served:
        if (survey := evidence.survey) is None:
            return AskSurvey(served)
        judgement = _judge_survey(served, survey, evidence)
        if not isinstance(judgement, Unchanged):
            return judgement
        unconfirmed -= survey.logs.keys()
    if unconfirmed:
        return Unconfirmed(min(unconfirmed), "its broker does not answer")
    return Unchanged()


def _judge_survey(
    marks: Mapping[Partition, LogMark], survey: Survey, evidence: LogEvidence
) -> LogJudgement:
    """The judgement of the logs that the survey has."""
    losses = find_changes(marks, survey)
    if evidence.leader_has_time and may_lag(losses, marks, survey):
        return AskSurvey(marks)
    for partition in sorted(marks.keys() - survey.logs.keys()):
        if survey.absent.why_unreachable(partition) is None:
            return Deleted(partition)
    if losses:
        return Changed({loss: survey.logs[loss.partition].leader.epoch for loss in losses})
    for partition, log in sorted(survey.logs.items()):
        if _is_deposed(log, evidence.known_epochs.get(partition)):
            why = f"its leader of epoch {log.leader.epoch} answers, but it was read in a later one"
            return Unconfirmed(partition, why)
    nameless = {p: log for p, log in survey.logs.items() if marks[p].topic_id is None}
    if evidence.fingerprints_before is None:
        return _judge_replicas(marks, nameless)
    if not nameless:
        return Unchanged()
    if (fingerprints := evidence.fingerprints) is None:
        return AskFingerprints({p: log.leader for p, log in nameless.items()})
    return _judge_bytes(nameless, evidence.fingerprints_before, fingerprints, evidence)


def _is_deposed(log: LogState, known_epoch: int | None) -> bool:
    """Whether the survey asked the leader of an earlier epoch than the known one. Epochs that were
    read from the last batch of a log are not its leader's."""
    epoch = log.leader.epoch
    if epoch is None or known_epoch is None or log.epoch_is_read:
        return False
    return epoch < known_epoch


def _judge_replicas(
    marks: Mapping[Partition, LogMark], logs: Mapping[Partition, LogState]
) -> FinalJudgement:
    """The judgement of these logs if their bytes are not compared. A replica that ends before the
    mark does not even have the records that were read."""
    for partition, log in sorted(logs.items()):
        if log.leader.is_replica and log.end_offset < marks[partition].until_offset:
            return Unconfirmed(partition, "its leader is down, and the replica may lag")
    return Unchanged()


def _judge_bytes(
    logs: Mapping[Partition, LogState],
    before: Fingerprints,
    fingerprints: Fingerprints,
    evidence: LogEvidence,
) -> FinalJudgement:
    """The judgement by the present fingerprints of these logs, compared with those from before this
    driver read them, and from before each handed-in part was read."""
    compared_at = evidence.compared_at
    why_none = "its broker did not answer before it was read"
    judgement = _compare_bytes(logs, before, fingerprints, compared_at, why_none)
    for part in evidence.parts:
        if not isinstance(judgement, Unchanged):
            break
        of_part = {p: log for p, log in logs.items() if p in part.partitions}
        why_none = "part of it was read, but no fingerprint was kept"
        judgement = _compare_bytes(of_part, part.fingerprints, fingerprints, compared_at, why_none)
    return judgement


def _compare_bytes(
    logs: Mapping[Partition, LogState],
    before: Fingerprints,
    fingerprints: Fingerprints,
    compared_at: Mapping[Partition, int],
    why_none: str,
) -> FinalJudgement:
    """The judgement by earlier and present fingerprints of these logs. There is nothing to compare
    if a log had no complete batch small enough to fetch, or if its bytes have expired since. A
    replica's bytes are as good as its leader's, but it may not have them yet; they are all that it
    can confirm a log with. ``why_none``: why there may be no earlier fingerprint."""
    for partition in logs:
        checksum = fingerprints.get(partition)
        if checksum is not None and before.get(partition) not in (None, checksum):
            return OtherBytes(partition)
    for partition, log in sorted(logs.items()):
        if partition not in before:
            return Unconfirmed(partition, why_none)
        if before[partition] is None and log.leader.is_replica:
            why = "its leader is down, and a replica may lag: there were no bytes to compare"
            return Unconfirmed(partition, why)
        is_there = log.leader.is_replica or log.start_offset <= compared_at[partition]
        if before[partition] is not None and fingerprints.get(partition) is None and is_there:
            return Unconfirmed(partition, "its broker does not return what was read")
    return Unchanged()


# --- what judgements are made of ----------------------------------------------------------


def offsets_to_compare(plan: Plan, offsets_are_bytes: bool) -> dict[Partition, int]:
    """The offset in each partition at which bytes are compared: the last one read, or, if offsets
    are bytes, where the last slice begins, since not every byte begins an entry."""
    if offsets_are_bytes:
        ends = sorted((s.partition, s.from_offset) for s in plan.slices)
    else:
        ends = sorted((r.partition, r.until_offset - 1) for r in plan.ranges)
    return dict(ends)


def marks_of(plan: Plan, receipts: Iterable[Receipt]) -> dict[Partition, LogMark]:
    """The marks up to which partitions were read, each with the incarnation of the topic and the
    leader epoch that it had when planned. Lost offsets were not read, and a receipt ends where the
    rest of its slice is held."""
    ends: dict[Partition, int] = {}
    for receipt in receipts:
        lost = [x.interval for x in receipt.losses_by(Action.SKIP)]
        for _, until in subtract(receipt.interval, lost):
            ends[receipt.partition] = max(until, ends.get(receipt.partition, until))
    ranges = by_partition(plan.ranges)
    return {
        partition: _mark(
            until, _id_before(until, ranges.get(partition, ())), plan.checkpoint.get(partition)
        )
        for partition, until in ends.items()
    }


def _id_before(until: int, ranges: Sequence[Range]) -> str | None:
    """The topic id of the range that was read up to ``until``: a plan of missing rows may also have
    ranges of an earlier incarnation, which are lost."""
    containing = [r for r in ranges if r.from_offset < until <= r.until_offset]
    return next((r.topic_id for r in containing or ranges), None)


def _mark(until: int, topic_id: str | None, planned: LogMark | None) -> LogMark:
    is_same = planned is not None and topic_id in (None, planned.topic_id)
    if planned is None or planned.epoch is None or not (is_same or planned.topic_id is None):
        return LogMark(until, topic_id)
    is_later = planned.epoch_is_later or planned.until_offset > until
    return LogMark(until, topic_id, planned.epoch, is_later)


def known_epochs_of(receipts: Iterable[Receipt]) -> dict[Partition, int]:
    """The latest leader epochs that tasks knew of while they read."""
    epochs: dict[Partition, int] = {}
    for receipt in receipts:
        epoch = later_epoch(receipt.leader_epoch, epochs.get(receipt.partition))
        if epoch is not None:
            epochs[receipt.partition] = epoch
    return epochs


def unconfirmed_partitions(
    marks: Mapping[Partition, LogMark],
    leaders: Mapping[Partition, Leader],
    known_epochs: Mapping[Partition, int],
) -> set[Partition]:
    """The partitions that metadata alone does not confirm: their topic id or leader epoch is
    unknown or has changed, or they were read in a later epoch."""
    return {
        p
        for p, mark in marks.items()
        if not _is_the_same(mark, leaders.get(p), known_epochs.get(p, 0))
    }


def _is_the_same(mark: LogMark, leader: Leader | None, known_epoch: int) -> bool:
    if leader is None or mark.topic_id is None or mark.epoch is None or mark.epoch < known_epoch:
        return False
    return (leader.topic_id, leader.epoch) == (mark.topic_id, mark.epoch)


def find_changes(marks: Mapping[Partition, LogMark], survey: Survey) -> list[Loss]:
    """The losses in these logs since they were read. Partitions without a leader are left out."""
    losses = []
    for partition, mark in sorted(marks.items()):
        log = survey.logs.get(partition)
        if log is None or log.leader.is_replica:
            continue
        if is_recreated(mark, log):
            losses.append(recreation_loss(mark, log))
            continue
        changes = changes_since(mark, survey, log)[1]
        losses += changes
        if log.end_offset < mark.until_offset:
            evidence = f"the log ends at {log.end_offset} on {log.leader.address}, and was read "
            evidence += f"up to {mark.until_offset}"
            ends = (log.end_offset, mark.until_offset)
            short = Loss(partition, *ends, LossKind.TRUNCATED, evidence, is_sure=False)
            if not is_known(short, changes):
                losses.append(short)
    return losses
