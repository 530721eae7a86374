"""Decides whether a log has reached the end of a range: arithmetic on a survey, without a clock.

An offset is reached when the log ends at or after it. A time is reached when the log has a record
at or after it. From then on, later records no longer change the first offset at or after this time,
where a range by time ends. Compaction and retention still change it if they remove that record: the
next range then begins later, and older records between the two are in neither range. A partition
without writes never reaches a time, so a caller may accept it as complete some time later; this is
a guess, and is called ``idle``, not ``reached``. Some brokers only know when segments were written.
If they report where segments begin, a later segment proves that a time was reached; otherwise, a
caller can only wait until the partition counts as idle. A partition that is read from a replica
while its leader is down never does: the leader may have records that the replica lacks.

A partition that a survey could not ask is waited for, even where a policy lets runs go on without
it: nothing is known of its log.

None of this proves that nothing older will come: producers may write any timestamp.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from typing import Literal

from rangeland.grouping import group_by
from rangeland.model import (
    AbsentPartitions,
    AtOffset,
    AtTime,
    Bounds,
    LogState,
    Partition,
    Survey,
)
from rangeland.planning.bound_resolution import check_partitions_are_known, named_in

ReachState = Literal["reached", "idle", "waiting"]


@dataclass(frozen=True, slots=True)
class PartitionReach:
    """The progress of one partition towards a bound. ``offset`` is where a range that ends at the
    bound would end now; None while that may still change. ``end_offset`` is None if the partition
    could not be asked, and ``why`` then says why not."""

    partition: Partition
    state: ReachState
    end_offset: int | None
    offset: int | None
    why: str = ""


def times_awaited(until: Bounds) -> tuple[int, ...]:
    """All distinct instants, in ms, that a survey must look up."""
    return tuple(sorted({bound.time_ms for bound in until.every if isinstance(bound, AtTime)}))


def can_be_awaited(until: Bounds) -> bool:
    """Whether it makes sense to wait for a bound. Only a time or an offset may still lie ahead;
    ``latest`` and a group's offset are reached by definition."""
    return all(isinstance(bound, AtTime | AtOffset) for bound in until.every)


def reach(
    until: Bounds,
    survey: Survey,
    now_ms: int,
    idle_after_ms: int | None = None,
    unsettled: Collection[Partition] = (),
    *,
    has_transactions: bool = True,
) -> tuple[PartitionReach, ...]:
    """One entry per partition that ``until`` names, sorted; for a number that is listed without a
    broker also one without it, if there are brokers that did not list theirs.

    A partition without a record that late counts as idle ``idle_after_ms`` after the time, by the
    clock from which ``now_ms`` was read before the survey; None waits for the record.
    Partitions in ``unsettled`` are not idle: they have records of an open transaction. Nor are
    those read from a replica. Without ``has_transactions``, a broker that answers the end of its
    log has no record that late. Raises JobFileError for a listed partition that does not exist."""
    unasked = _unasked_partitions(until, survey)
    check_partitions_are_known(until, survey, "--until", "correct --until", unasked.keys())
    asked = [
        _reach_one(
            bound,
            survey,
            survey.logs[partition],
            now_ms,
            None if partition in unsettled else idle_after_ms,
            has_transactions,
        )
        for partition in sorted(survey.logs)
        if isinstance(bound := until.of(partition), AtTime | AtOffset)
    ]
    waiting = [PartitionReach(p, "waiting", None, None, why) for p, why in unasked.items()]
    return tuple(sorted([*asked, *waiting], key=lambda one: one.partition))


def _unasked_partitions(until: Bounds, survey: Survey) -> dict[Partition, str]:
    """The partitions that ``until`` names and the survey could not ask, and why."""
    absent = survey.absent
    asked = named_in(survey.logs.keys())
    existing = {*survey.logs, *absent.unreachable, *absent.excluded}
    of_topics = group_by(existing, lambda p: (p.topic, p.broker))
    numbers = {key: {p.number for p in group} for key, group in of_topics.items()}
    return {
        partition: why
        for partition in {*absent.unreachable, *until.listed}
        if partition not in survey.logs
        and until.of(partition) is not None
        and (why := _why_unasked(partition, absent, partition in asked, numbers))
    }


def _why_unasked(
    partition: Partition,
    absent: AbsentPartitions,
    others_have_it: bool,
    numbers: Mapping[tuple[str, str], Set[int]],
) -> str | None:
    """Why a partition could not be asked; None if it could, or does not exist. ``numbers``: what
    is listed of each topic, by topic and broker."""
    why = absent.why_unreachable(partition)
    if why is not None or partition.broker:
        return why
    # Listed without a broker, it is also a partition of each broker that did not list its own. One
    # whose replica lists none of the topic counts as having none, if other brokers have it.
    if_none: Set[int] = {partition.number} if others_have_it else set()
    silent = {
        name: reason
        for name, reason in absent.partly_listed_brokers.items()
        if partition.number not in numbers.get((partition.topic, name), if_none)
    }
    silent |= absent.unanswered_brokers
    return "; ".join(f"broker {name}: {reason}" for name, reason in sorted(silent.items())) or None


def _reach_one(
    bound: AtTime | AtOffset,
    survey: Survey,
    log: LogState,
    now_ms: int,
    idle_after_ms: int | None,
    has_transactions: bool,
) -> PartitionReach:
    end = log.end_offset
    if isinstance(bound, AtOffset):
        is_there = end >= bound.offset
        state: ReachState = "reached" if is_there else "waiting"
        return PartitionReach(log.partition, state, end, bound.offset if is_there else None)
    offset = survey.lookups.for_times.get((log.partition, bound.time_ms))
    is_guess = (log.partition, bound.time_ms) in survey.lookups.inexact_times
    if offset is not None and offset < end and (not is_guess or _has_border(log, offset)):
        return PartitionReach(log.partition, "reached", end, offset)
    # An offset at the end may belong to a record after an open transaction, which cannot be read
    # yet, while records before it may still be committed. Without transactions, the log had no such
    # record, since its end is requested first.
    is_end = offset == end and not has_transactions
    # A replica may lack such a record. Nothing is written while its leader is down, so its silence
    # would always come.
    is_silent = not log.leader.is_replica and (offset is None or is_guess or is_end)
    if is_silent and idle_after_ms is not None and now_ms >= bound.time_ms + idle_after_ms:
        return PartitionReach(log.partition, "idle", end, end if offset is None else offset)
    return PartitionReach(log.partition, "waiting", end, None)


def _has_border(log: LogState, offset: int) -> bool:
    """Whether a segment begins after ``offset``: the segment before it was then written to until
    the time."""
    return any(offset < border < log.end_offset for border in log.borders or ())
