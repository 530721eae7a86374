"""One wrong answer is not believed: what is odd in a survey, and what two of them agree on.

Pure. A broker may answer from stale metadata, a leader that has just taken over may not know
its end, and either may simply be wrong once. So what would become a verdict is asked again,
with metadata from another broker where there is one; only what both looks have in common
stands, and the evidence says who was asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rangeland.model import LogState, Partition, Survey
from rangeland.planning.incarnation import LogMark, recreated
from rangeland.planning.missing_partitions import why_unreachable


def doubts_of(
    survey: Survey, checkpoint: Mapping[Partition, LogMark], topics: Iterable[str]
) -> dict[Partition, str]:
    """What is odd, by partition. ``topics`` are those that the survey was to look at: of
    these, partitions that were landed must still be there."""
    wanted = set(topics)
    odd = {p: why for p, log in survey.logs.items() if (why := _odd(log, checkpoint.get(p)))}
    for partition, mark in checkpoint.items():
        if partition.topic in wanted and _is_missing(partition, survey):
            odd[partition] = "it is not there"
        elif survey.epoch_ends.get(partition, mark.until_offset) < mark.until_offset:
            odd.setdefault(partition, "its epoch ends before the checkpoint")
    return odd


def _odd(log: LogState, mark: LogMark | None) -> str | None:
    if log.end_offset < log.start_offset:
        return "it ends before it begins"
    if log.end_offset == log.start_offset and log.size_bytes:
        # Its beginning may have been given for its end. Or all of it has just expired.
        return "it has bytes and no offsets"
    if mark is None:
        return None
    if recreated(mark, log):
        return "it is another log"
    if log.end_offset < mark.until_offset:
        return "it ends before the checkpoint"
    return "it begins after the checkpoint" if log.start_offset > mark.until_offset else None


def _is_missing(partition: Partition, survey: Survey) -> bool:
    elsewhere = partition in survey.elsewhere or partition in survey.unreachable
    is_away = partition.broker != "" and partition.broker not in survey.brokers
    return partition not in survey.logs and not elsewhere and not is_away


def settled(
    first: Survey,
    second: Survey,
    doubts: Mapping[Partition, str],
    doubts_again: Mapping[Partition, str],
    who: str,
) -> Survey:
    """What is not odd in one of two looks is taken from it, the newer one first. What is odd
    in both stands, and ``who`` was asked is noted beside it."""
    alone = {p for p in (*doubts_again, *first.logs) if p not in doubts}
    kept = {
        p: first.logs[p]
        for p in alone
        if p in first.logs and (p in doubts_again or p not in second.logs)
    }
    gone_now = {p: why for p, why in second.unreachable.items() if p not in kept}
    # Served by nobody in the first look, odd in the second: one look alone is not believed.
    once = [p for p in doubts_again if p not in doubts and p not in first.logs]
    away = {p: why for p in once if (why := why_unreachable(p, first)) is not None}
    times = {(p, t): at for (p, t), at in first.offsets_for_times.items() if p in kept}
    ends = {p: at for p, at in second.epoch_ends.items() if p not in kept}
    return replace(
        second,
        logs={**{p: log for p, log in second.logs.items() if p not in away}, **kept},
        offsets_for_times={**second.offsets_for_times, **times},
        epoch_ends=ends | {p: at for p, at in first.epoch_ends.items() if p in kept},
        unreachable=gone_now | away,
        elsewhere=second.elsewhere | (first.elsewhere & set(once)),
        agreed=dict.fromkeys((p for p in doubts if p in doubts_again), who),
    )
