"""Has a log come as far as a range wants to end? Arithmetic over a survey, no clock.

An offset is reached when the log ends at or after it. A time is reached when the log holds
a record at or after it: only then does "the first offset at or after this time", which is
what a range by time ends at, stay where it is. A partition in which nothing is written
never gets there, so a caller may hold its silence for an answer, a while after the time has
passed; that is a guess, and it is called ``idle`` and not ``reached``. Brokers that only know
when segments were written prove a time by a later segment, where they tell where segments
begin; without one only the margin helps.

Neither says that nothing older will come: who writes may write any timestamp.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from rangeland.errors import JobFileError
from rangeland.model import AtOffset, AtTime, Bounds, LogState, Partition, Survey
from rangeland.planning.bounds import named_in

State = Literal["reached", "idle", "waiting"]


@dataclass(frozen=True, slots=True)
class PartitionReach:
    """How far one partition has come. ``offset`` is where a range that ends at the bound
    would end now; None while that could still move."""

    partition: Partition
    state: State
    end_offset: int
    offset: int | None


def times_awaited(until: Bounds) -> tuple[int, ...]:
    """All distinct instants, in ms, that a survey must look up."""
    bounds = [*([] if until.only_listed else [until.default]), *until.listed.values()]
    return tuple(sorted({bound.time_ms for bound in bounds if isinstance(bound, AtTime)}))


def can_be_awaited(until: Bounds) -> bool:
    """Only times and offsets can; ``latest`` and a group's offset are always there."""
    bounds = [*([] if until.only_listed else [until.default]), *until.listed.values()]
    return all(isinstance(bound, AtTime | AtOffset) for bound in bounds)


def reach(
    until: Bounds,
    survey: Survey,
    now_ms: int,
    idle_after_ms: int | None = None,
    unsettled: Collection[Partition] = (),
) -> tuple[PartitionReach, ...]:
    """One entry per partition that ``until`` speaks of, sorted.

    ``idle_after_ms`` after a time, on the clock that ``now_ms`` was read from before the
    survey, a partition without a record that late counts as idle; None waits for the record.
    The ``unsettled`` are not silent: they hold records of an open transaction. Raises
    JobFileError for a listed partition that is not there."""
    _refuse_unknown(until.listed, survey)
    return tuple(
        _reach_one(
            bound,
            survey,
            survey.logs[partition],
            now_ms,
            None if partition in unsettled else idle_after_ms,
        )
        for partition in sorted(survey.logs)
        if isinstance(bound := until.of(partition), AtTime | AtOffset)
    )


def _reach_one(
    bound: AtTime | AtOffset, survey: Survey, log: LogState, now_ms: int, idle_after_ms: int | None
) -> PartitionReach:
    end = log.end_offset
    if isinstance(bound, AtOffset):
        is_there = end >= bound.offset
        state: State = "reached" if is_there else "waiting"
        return PartitionReach(log.partition, state, end, bound.offset if is_there else None)
    found = survey.offsets_for_times.get((log.partition, bound.time_ms))
    # A record behind an open transaction is not readable yet, and what is before it may
    # still be committed: the range would end before it.
    is_guess = (log.partition, bound.time_ms) in survey.inexact
    if found is not None and found < end and (not is_guess or _has_border(log, found)):
        return PartitionReach(log.partition, "reached", end, found)
    is_silent = found is None or is_guess
    if is_silent and idle_after_ms is not None and now_ms >= bound.time_ms + idle_after_ms:
        return PartitionReach(log.partition, "idle", end, end if found is None else found)
    return PartitionReach(log.partition, "waiting", end, None)


def _has_border(log: LogState, offset: int) -> bool:
    """A segment begins behind this one, which is the last that was not written to after the
    time: so that one was."""
    return any(offset < border < log.end_offset for border in log.borders or ())


def _refuse_unknown(listed: Iterable[Partition], survey: Survey) -> None:
    there_are = named_in(survey.logs.keys())
    for partition in listed:
        if partition not in there_are:
            same = [p for p in sorted(survey.logs) if p.topic == partition.topic]
            there = ", ".join(str(p).rpartition("/")[2] for p in same)
            raise JobFileError(
                f"--until names {partition}, which does not exist",
                why=f"topic {partition.topic} has partitions {there}",
                do="correct --until",
                partition=str(partition),
            )
