"""Resolves the bounds of a request to ranges of the logs that the cluster has.

Pure arithmetic on a survey and a checkpoint. The result has a range, a loss or a held partition for
every partition. A request that makes no sense (``from`` is after ``until``, a partition does not
exist) is an error here, rather than an empty success later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from rangeland.errors import JobFileError, Unreachable
from rangeland.loss import Action, DecidedLoss, Loss, LossKind
from rangeland.model import (
    AtOffset,
    AtTime,
    Bound,
    Bounds,
    Earliest,
    FromCheckpoint,
    GroupOffset,
    Latest,
    LogState,
    Partition,
    Range,
    Survey,
)
from rangeland.planning.absent_partitions import (
    absent_partition_losses,
    as_lagging_replica,
    as_open_transaction,
    is_end_unknown,
    unknown_ends,
    with_confirmation,
)
from rangeland.planning.coverage import Coverage
from rangeland.planning.incarnation import (
    LogMark,
    changes_since,
    is_known,
    why_indistinguishable,
)
from rangeland.planning.intervals import subtract
from rangeland.planning.job_position import JobPosition
from rangeland.planning.loss_errors import FailingLosses
from rangeland.planning.policy import Policy
from rangeland.wording import utc_time


@dataclass(frozen=True, slots=True)
class ResolvedRequest:
    """The ranges to read, the losses that a policy allows, and held partitions; or only the losses
    that end the run. ``notes`` are warnings about uncertainties."""

    ranges: tuple[Range, ...]
    losses: tuple[DecidedLoss, ...] = ()
    held: tuple[DecidedLoss, ...] = ()
    notes: tuple[str, ...] = ()
    failing: FailingLosses | None = None


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """The request for a range: both bounds, and the bound to use before there is a checkpoint."""

    from_bounds: Bounds
    until_bounds: Bounds
    first_run: Bound
    policy: Policy
    topic_pattern: str = ""
    """A missing topic that matches it was not removed from the job."""
    topics: tuple[str, ...] = ()
    """The topics that the job names: a missing one that has a checkpoint is not a typo."""
    partitions: Mapping[str, Sequence[int | str]] = field(default_factory=dict)
    """For each topic of which the job reads only some partitions: the ones it lists."""

    @property
    def every_bound(self) -> tuple[Bound, ...]:
        return self.first_run, *self.from_bounds.every, *self.until_bounds.every


def times_asked(request: RangeRequest) -> list[int]:
    """All distinct instants, in ms, that a survey must look up for this request."""
    return sorted({bound.time_ms for bound in request.every_bound if isinstance(bound, AtTime)})


def groups_asked(request: RangeRequest) -> list[str]:
    """All distinct consumer groups whose offsets a survey must look up."""
    return sorted({bound.group for bound in request.every_bound if isinstance(bound, GroupOffset)})


def resolve(
    request: RangeRequest,
    survey: Survey,
    position: JobPosition,
    overwritten: Sequence[Loss] = (),
) -> ResolvedRequest:
    """The ranges of all requested partitions, sorted by partition. Offsets that have landed are not
    lost, even if the log no longer has them. Partitions that the first run held, because it could
    not read them, begin where that run would have begun. ``overwritten`` are losses of landed
    offsets that a survey of the checkpoint does not show.

    Raises JobFileError for a request that makes no sense."""
    covered = position.covered
    absent = absent_partition_losses(request, survey, position)
    _check_range_partitions_exist(request, survey, {loss.partition for loss in absent})
    ranges: list[Range] = []
    losses: list[Loss] = []
    begins: dict[Partition, Bound | None] = {}
    for partition in sorted(survey.logs):
        log = survey.logs[partition]
        begins[partition] = _lower_bound(request, partition, position)
        resolved = _resolve_one(request, survey, position, log, begins[partition])
        if resolved is None:
            continue
        if isinstance(resolved, FailingLosses):
            return ResolvedRequest((), failing=resolved)
        ranges.append(resolved[0])
        losses += _uncovered_losses(resolved[1], log.leader.topic_id, covered)
    losses += (*absent, *overwritten, *unknown_ends(request, survey, losses))
    notes = _expiry_notes(begins, survey, ranges, covered)
    notes += _inexact_notes(begins, request.until_bounds, survey, ranges)
    losses = [with_confirmation(loss, survey) for loss in losses]
    return replace(apply_policy(request.policy, ranges, losses), notes=tuple(notes))


def _lower_bound(
    request: RangeRequest, partition: Partition, position: JobPosition
) -> Bound | None:
    """The requested bound, or the one that replaces a missing checkpoint."""
    bound = request.from_bounds.of(partition)
    if not isinstance(bound, FromCheckpoint) or partition in position.checkpoint:
        return bound
    # A partition that is created after the first landing has only newer records.
    is_first_run = not position.checkpoint or partition in position.held_at_first
    return request.first_run if is_first_run else Earliest()


def _expiry_notes(
    begins: Mapping[Partition, Bound | None],
    survey: Survey,
    ranges: list[Range],
    covered: Coverage,
) -> list[str]:
    """Notes for logs that begin at or after the requested time: nothing shows whether earlier
    records of that time have expired."""
    notes = []
    for r in ranges:
        log = survey.logs[r.partition]
        at_start = r.from_offset == log.start_offset > 0
        timed = isinstance(begins[r.partition], AtTime)
        last_expired = (log.start_offset - 1, log.start_offset)
        if timed and at_start and subtract(last_expired, covered.of(r.partition, r.topic_id)):
            notes.append(
                f"{r.partition} begins at {log.start_offset}, not before the requested time: "
                "earlier records of that time may have expired"
            )
    return notes


def _resolve_one(
    request: RangeRequest,
    survey: Survey,
    position: JobPosition,
    log: LogState,
    lower: Bound | None,
) -> tuple[Range, list[Loss]] | FailingLosses | None:
    """The range of one log, with its losses, since the checkpoint and outside what the log has.
    None if the request leaves its partition out."""
    mark: LogMark | None = None
    upper = request.until_bounds.of(log.partition)
    if lower is None or upper is None:
        return None
    if isinstance(lower, AtTime) and isinstance(upper, AtTime) and lower.time_ms > upper.time_ms:
        _check_from_is_not_after_until(log, lower, upper, lower.time_ms, upper.time_ms, None)
    losses: list[Loss] = []
    if isinstance(lower, FromCheckpoint):
        mark, losses = changes_since(position.checkpoint[log.partition], survey, log)
        for loss in losses:
            skips = request.policy.action_for(loss) is Action.SKIP
            if skips and (reason := why_indistinguishable(loss, log, position.covered)):
                return FailingLosses((loss.with_action(Action.FAIL),), why_same_offsets=reason)
        lower = AtOffset(mark.until_offset)
    for bound in (lower, upper):
        _check_entry_begins(bound, survey, log)
    from_offset = _resolve_bound(lower, survey, log)
    until_offset = _resolve_bound(upper, survey, log)
    if from_offset > until_offset and not is_end_unknown(upper, survey, log):
        _check_from_is_not_after_until(log, lower, upper, from_offset, until_offset, mark)
    last = until_offset if isinstance(upper, AtOffset) else from_offset
    outside = losses_outside(log, from_offset, until_offset, last)
    outside = [as_open_transaction(loss, survey) for loss in outside]
    outside = [loss for loss in outside if not is_known(loss, losses)]
    losses += [as_lagging_replica(loss) for loss in outside] if log.leader.is_replica else outside
    until_offset = max(from_offset, min(until_offset, log.end_offset))
    return Range(log.partition, from_offset, until_offset, log.leader.topic_id), losses


def _uncovered_losses(losses: list[Loss], topic_id: str | None, covered: Coverage) -> list[Loss]:
    """The losses, without covered offsets that have expired since. Truncated offsets are kept:
    their losses also serve as warnings."""
    remaining: list[Loss] = []
    for loss in losses:
        if not loss.kind.traits.is_before_log_start:
            remaining.append(loss)
            continue
        for start, end in subtract(loss.interval, covered.of(loss.partition, topic_id)):
            remaining.append(replace(loss, from_offset=start, until_offset=end))
    return remaining


def _resolve_bound(bound: Bound, survey: Survey, log: LogState) -> int:
    match bound:
        case Earliest():
            return log.start_offset
        case Latest():
            return log.end_offset
        case AtOffset(offset):
            return offset
        case AtTime(time_ms):
            at_time = survey.lookups.for_times.get((log.partition, time_ms))
            within = log.end_offset if at_time is None else min(at_time, log.end_offset)
            return max(log.start_offset, within)
        case GroupOffset(group):
            committed = survey.lookups.of_groups.get((log.partition, group))
            if committed is None:
                raise JobFileError(
                    f"group {group} has no committed offset for {log.partition}",
                    do="commit one with the group's own tools, or ask for earliest, latest, "
                    "a time or an offset",
                    group=group,
                    partition=str(log.partition),
                )
            return committed
        case FromCheckpoint():
            raise JobFileError(
                "'checkpoint' can only be the beginning of a range",
                do="use latest, a time or an offset for until",
            )


def _check_entry_begins(bound: Bound, survey: Survey, log: LogState) -> None:
    """Raises JobFileError for an offset inside an entry: no range can begin or end there."""
    if isinstance(bound, GroupOffset):
        offset = survey.lookups.of_groups.get((log.partition, bound.group))
    else:
        offset = bound.offset if isinstance(bound, AtOffset) else None
    if offset is None or (log.partition, offset) not in survey.lookups.entries:
        return
    start, end = survey.lookups.entries[log.partition, offset]
    if start != offset:
        raise JobFileError(
            f"{log.partition}: no entry begins at {describe_bound(bound)}",
            why=f"{offset} is inside the entry [{start}, {end}); the offsets of this log are the "
            "positions of its entries in bytes",
            do=f"use {start} or {end}",
            partition=str(log.partition),
            offset=offset,
            nearest=[start, end],
        )


def _check_from_is_not_after_until(
    log: LogState,
    lower: Bound,
    upper: Bound,
    from_offset: int,
    until_offset: int,
    mark: LogMark | None,
) -> None:
    """Raises JobFileError if ``from`` is after ``until``, unless the log itself moved back or is
    empty. Raises Unreachable if the times are in order, and only their offsets are not."""
    past_the_end = from_offset > log.end_offset and not isinstance(upper, AtOffset | AtTime)
    already_passed = mark is not None and from_offset == mark.until_offset
    if past_the_end or already_passed:
        return
    begin, end = str(from_offset), str(until_offset)
    if isinstance(lower, AtTime) and isinstance(upper, AtTime):
        if lower.time_ms <= upper.time_ms:
            raise Unreachable(
                f"{log.partition}: {describe_bound(lower)} is at offset {begin}, "
                f"{describe_bound(upper)} at {end}",
                why="a later time cannot have an earlier offset: the log changed meanwhile, or "
                "an answer was wrong",
                do="run again",
                partition=str(log.partition),
            )
        begin, end = describe_bound(lower), describe_bound(upper)
    raise JobFileError(
        f"{log.partition}: the range begins at {begin}, after its end at {end}",
        why=f"from is {describe_bound(lower)}, until is {describe_bound(upper)}; "
        f"the log holds [{log.start_offset}, {log.end_offset})",
        do="swap the two, or ask for a later end",
        partition=str(log.partition),
        from_offset=from_offset,
        until_offset=until_offset,
    )


def losses_outside(
    log: LogState, from_offset: int, until_offset: int, needed_until: int
) -> list[Loss]:
    """The offsets of a range that its log no longer has, or does not have although they are before
    ``needed_until``."""
    losses = []
    if from_offset < log.start_offset and from_offset < until_offset:
        expired_until = min(log.start_offset, until_offset)
        evidence = f"the log begins at {log.start_offset} on {log.leader.address}"
        losses.append(Loss(log.partition, from_offset, expired_until, LossKind.EXPIRED, evidence))
    last = max(from_offset, needed_until)
    if last > log.end_offset:
        evidence = f"the log ends at {log.end_offset} on {log.leader.address}"
        first = max(from_offset, log.end_offset) if from_offset < last else log.end_offset
        losses.append(Loss(log.partition, first, last, LossKind.TRUNCATED, evidence))
    return losses


def _inexact_notes(
    begins: Mapping[Partition, Bound | None], until: Bounds, survey: Survey, ranges: list[Range]
) -> list[str]:
    """Notes for bounds by time, if the offset of a time is known only roughly."""
    notes = []
    inexact = survey.lookups.inexact_times
    for r in ranges:
        for word, bound in (("begins", begins[r.partition]), ("ends", until.of(r.partition))):
            if isinstance(bound, AtTime) and (r.partition, bound.time_ms) in inexact:
                offset = r.from_offset if word == "begins" else r.until_offset
                notes.append(
                    f"{r.partition} {word} at {offset}, which is at or before the time "
                    "requested: its broker only knows when segments of its log were written"
                )
    return notes


def _check_range_partitions_exist(
    request: RangeRequest, survey: Survey, missing: Set[Partition]
) -> None:
    for side in (request.from_bounds, request.until_bounds):
        do = "correct the range in the job file or on the command line"
        check_partitions_are_known(side, survey, "the range", do, missing)
    if not survey.logs and not missing:
        raise JobFileError(
            "there is no partition to read", do="name at least one topic that exists"
        )


def check_partitions_are_known(
    side: Bounds, survey: Survey, name: str, do: str, missing: Set[Partition] = frozenset()
) -> None:
    """Raises JobFileError for a listed partition that is neither in the survey nor ``missing``."""
    existing = {*survey.logs, *survey.absent.unreachable}
    names = named_in({*existing, *missing})
    for partition in (listed for listed in side.listed if listed not in names):
        of_topic = [p for p in sorted(existing) if p.topic == partition.topic]
        numbers = ", ".join(str(p).rpartition("/")[2] for p in of_topic)
        raise JobFileError(
            f"{name} names {partition}, which does not exist",
            why=f"topic {partition.topic} has partitions {numbers}"
            if numbers
            else f"topic {partition.topic} is not among this job's topics",
            do=do,
            partition=str(partition),
        )


def named_in(partitions: Set[Partition]) -> Set[Partition]:
    """All names that a request may use for these partitions: with and without their broker."""
    return partitions | {partition.of_any_broker for partition in partitions}


def apply_policy(
    policy: Policy, ranges: Sequence[Range], losses: Iterable[Loss]
) -> ResolvedRequest:
    """Applies the policy to the losses. If some of them fail, nothing is to be read."""
    decided = [policy.decide_loss(loss) for loss in losses]
    if failing := tuple(loss for loss in decided if loss.action is Action.FAIL):
        return ResolvedRequest((), failing=FailingLosses(failing))
    held = [loss for loss in decided if loss.action is Action.HOLD]
    held_partitions = {loss.partition for loss in held}
    skipped = [loss for loss in decided if loss.partition not in held_partitions]
    to_read = [r for r in ranges if r.partition not in held_partitions]
    return ResolvedRequest(tuple(to_read), tuple(skipped), tuple(held))


def describe_bound(bound: Bound) -> str:
    """The bound in the words of a job file."""
    match bound:
        case Earliest():
            return "earliest"
        case Latest():
            return "latest"
        case AtOffset(offset):
            return f"offset {offset}"
        case AtTime(time_ms):
            return utc_time(time_ms)
        case FromCheckpoint():
            return "checkpoint"
        case GroupOffset(group):
            return f"group:{group}"
