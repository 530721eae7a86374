"""Decides what is suspicious in a survey, and merges it with a second survey, so that no single
wrong response is believed.

Pure functions. A broker may answer from stale metadata, a leader that has just taken over may not
know the end of its log, and either may simply be wrong once. So the survey is repeated for whatever
would be called a loss, with metadata from another broker if there is one. A loss is believed only
if both surveys report it, and the evidence names the brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from rangeland.model import LogState, OffsetLookups, Partition, Survey
from rangeland.planning.incarnation import LogMark, is_recreated

Pair = TypeVar("Pair", bound=tuple[Partition, Any])
Value = TypeVar("Value")


def suspicions(
    survey: Survey,
    checkpoint: Mapping[Partition, LogMark],
    topics: Iterable[str],
    landed: Iterable[Partition] = (),
) -> dict[Partition, str]:
    """Why partitions are suspicious. ``topics``: the surveyed ones. Their partitions in the
    checkpoint must still exist, and so must each topic with ``landed`` partitions."""
    surveyed = set(topics)
    seen = {partition.topic for partition in survey.logs}
    reasons = {
        p: reason
        for p, log in survey.logs.items()
        if (reason := _suspicion(log, checkpoint.get(p)))
    }
    expected = {*checkpoint, *(p for p in landed if p.topic not in seen)}
    vanished = [p for p in expected if p.topic in surveyed and _has_vanished(p, survey)]
    return reasons | dict.fromkeys(vanished, "it does not exist")


def _suspicion(log: LogState, mark: LogMark | None) -> str | None:
    if log.end_offset < log.start_offset:
        return "it ends before it begins"
    if log.end_offset == log.start_offset and log.size_bytes:
        # The broker may have reported the start as the end, or the whole log has just expired.
        return "it has bytes and no offsets"
    if mark is None:
        return None
    if is_recreated(mark, log):
        return "it is another log"
    if log.end_offset < mark.until_offset:
        return "it ends before the checkpoint"
    if log.start_offset > mark.until_offset:
        return "it begins after the checkpoint"
    if log.epoch_end is not None and log.epoch_end < mark.until_offset:
        return "its epoch ends before the checkpoint"
    return None


def _from_its_start(log: LogState) -> LogState:
    """If the first records of an open transaction were deleted, Kafka reports a last stable offset
    below the log's start. The log then has no committed records yet; this does not show that its
    end was lost."""
    return log if log.end_offset >= log.start_offset else replace(log, end_offset=log.start_offset)


def _has_vanished(partition: Partition, survey: Survey) -> bool:
    elsewhere = partition in survey.absent.excluded or partition in survey.absent.unreachable
    is_down = partition.broker != "" and partition.broker not in survey.absent.answered_brokers
    return partition not in survey.logs and not elsewhere and not is_down


def merge_surveys(
    first: Survey,
    second: Survey,
    suspicious: Mapping[Partition, str],
    still_suspicious: Mapping[Partition, str],
    who: str,
) -> Survey:
    """Combines two surveys: each partition is taken from the survey in which it is not suspicious,
    preferably the newer one. If it is suspicious in both, that is believed. ``who``: the brokers
    that were asked, for the evidence."""
    kept = {
        p: log
        for p, log in first.logs.items()
        if p not in suspicious and (p in still_suspicious or p not in second.logs)
    }
    unreachable = {p: why for p, why in second.absent.unreachable.items() if p not in kept}
    # Unserved in the first survey, suspicious in the second: one survey alone is not believed.
    suspicious_once = [p for p in still_suspicious if p not in suspicious and p not in first.logs]
    unserved = {
        p: why for p in suspicious_once if (why := first.absent.why_unreachable(p)) is not None
    }
    logs = {p: _from_its_start(log) for p, log in second.logs.items() if p not in unserved}
    return replace(
        second,
        logs={**logs, **kept},
        lookups=_merge_lookups(first.lookups, second.lookups, kept),
        absent=replace(
            second.absent,
            unreachable=unreachable | unserved,
            excluded=second.absent.excluded | (first.absent.excluded & set(suspicious_once)),
        ),
        confirmed_by=dict.fromkeys((p for p in suspicious if p in still_suspicious), who),
    )


def _merge_lookups(
    first: OffsetLookups, second: OffsetLookups, kept: Collection[Partition]
) -> OffsetLookups:
    """The first survey's lookups for the logs that are ``kept``, the second's for the others."""

    def merge(earlier: Mapping[Pair, Value], later: Mapping[Pair, Value]) -> dict[Pair, Value]:
        from_first = {pair: value for pair, value in earlier.items() if pair[0] in kept}
        return {pair: value for pair, value in later.items() if pair[0] not in kept} | from_first

    inexact_times = (dict.fromkeys(lookups.inexact_times) for lookups in (first, second))
    # Offsets that the first survey has seen are not lost just because the second lacks them.
    later_ends = {p: end for p, end in second.uncommitted_ends.items() if p not in kept}
    return OffsetLookups(
        for_times=merge(first.for_times, second.for_times),
        inexact_times=frozenset(merge(*inexact_times)),
        of_groups=merge(first.of_groups, second.of_groups),
        entries=merge(first.entries, second.entries),
        uncommitted_ends={**first.uncommitted_ends, **later_ends},
    )
