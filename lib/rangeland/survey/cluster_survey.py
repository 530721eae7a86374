"""The cluster as a plan needs it: leaders, where each log begins and ends, offsets for times.

Made of one look, and of a second one, with metadata from another broker, where the first has
something odd in it: one wrong answer is not believed. A topic that is not there is the job's
mistake, once two brokers say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import OffsetAnswer
from rangeland.groups.backend import GroupBackend
from rangeland.model import (
    Address,
    AtOffset,
    AtTime,
    Earliest,
    Latest,
    Leader,
    LogState,
    Partition,
    Survey,
)
from rangeland.planning.retention_risk import ReadSpeed, expiry_times, reading_ms
from rangeland.survey.attempt import SurveyAttempt, SurveyRequest, UnknownTopic
from rangeland.survey.confirmation import doubts_of, settled
from rangeland.survey.entry_lookup import entries_at
from rangeland.survey.epoch_ends import epoch_ends, with_epochs
from rangeland.survey.retention import expiring, retention_of

AGAIN_MS = 500
"""Before what is odd is asked again."""

__all__ = ["SurveyRequest", "take_survey"]


def take_survey(
    brokers: ConnectionPool,
    wanted: SurveyRequest,
    now: Callable[[], float] = time.time,
    home: GroupBackend | None = None,
) -> Survey:
    """``home`` is where the groups that are wanted live. What is odd in it is asked again,
    and of another broker. Raises JobFileError for topics or partitions that are not there and
    Unreachable when the deadline of the settings passes."""
    look = SurveyAttempt(brokers, wanted)
    try:
        first = _look_once(look, brokers, wanted, now, home)
    except UnknownTopic as error:
        time.sleep(AGAIN_MS / 1000)
        again = look.again()
        try:
            return _look_once(again, brokers, wanted, now, home)
        except UnknownTopic:
            raise error.said_by(_both(look, again)) from None
    doubts = doubts_of(first, wanted.checkpoint, look.asked)
    if not doubts:
        return first
    time.sleep(AGAIN_MS / 1000)
    again = look.again()
    second = _look_once(again, brokers, wanted, now, home)
    doubts_again = doubts_of(second, wanted.checkpoint, again.asked)
    return settled(first, second, doubts, doubts_again, _both(look, again))


def _both(first: SurveyAttempt, second: SurveyAttempt) -> str:
    who = " and ".join(dict.fromkeys(str(look.told_by) for look in (first, second)))
    return f"asked twice, with metadata from {who}"


def _look_once(
    look: SurveyAttempt,
    brokers: ConnectionPool,
    wanted: SurveyRequest,
    now: Callable[[], float],
    home: GroupBackend | None,
) -> Survey:
    leaders = look.leaders()
    isolation = brokers.settings.isolation
    nature = brokers.dialect.capabilities
    start = look.offsets(leaders, Earliest(), isolation)
    end = look.offsets(leaders, Latest(), isolation)
    times = {t: look.offsets(leaders, AtTime(t), isolation) for t in wanted.times_ms}
    there = [p for p in sorted(leaders) if p in start and p in end and p not in look.unreachable]
    sizes = look.sizes({p: leaders[p] for p in there}, start, end)
    logs = {p: _log(leaders[p], p, start[p], end[p], sizes.get(p)) for p in there}
    if nature.offsets_are_bytes:
        logs = {p: _of_bytes(log, start[p], end[p]) for p, log in logs.items()}
    logs = with_epochs(brokers, logs)
    groups = {g: home.offsets(g, there) for g in wanted.groups} if home is not None else {}
    survey = Survey(
        taken_at_ms=int(now() * 1000),
        logs=logs,
        offsets_for_times={
            (p, t): found[p].offset for t, found in times.items() for p in there if p in found
        },
        group_offsets={(p, g): found.get(p) for g, found in groups.items() for p in there},
        requests=brokers.requests,
        elsewhere=frozenset(look.elsewhere),
        inexact=frozenset(
            (p, t) for t, found in times.items() for p in found if not found[p].is_exact
        ),
        entries=entries_at(
            brokers, logs, (*named_offsets(wanted, logs), *_committed(groups)), wanted.marks
        )
        if nature.offsets_are_bytes
        else {},
        unreachable=look.unreachable,
        brokers=frozenset(look.brokers),
        silent=look.silent,
        hidden=frozenset(look.hidden),
        epoch_ends=epoch_ends(brokers, logs, _epochs(wanted)),
        cluster=look.cluster(leaders.values()),
    )
    if wanted.speed is not None:
        survey = _with_retention(brokers, survey, wanted, look.told_by)
    return replace(survey, requests=brokers.requests)


def _with_retention(
    brokers: ConnectionPool, survey: Survey, wanted: SurveyRequest, seed: Address | None
) -> Survey:
    retention = retention_of(brokers, survey.logs, seed)
    begins = {p: mark.until_offset for p, mark in wanted.checkpoint.items()}
    read_ms = reading_ms(survey.logs, begins, wanted.speed or ReadSpeed())
    times_ms = expiry_times(retention, survey.taken_at_ms, read_ms)
    return replace(survey, retention=retention, expiring=expiring(brokers, survey.logs, times_ms))


def _epochs(wanted: SurveyRequest) -> dict[Partition, int]:
    return {p: mark.epoch for p, mark in wanted.checkpoint.items() if mark.epoch is not None}


def _log(
    leader: Leader, partition: Partition, start: OffsetAnswer, end: OffsetAnswer, size: int | None
) -> LogState:
    return LogState(partition, leader, start.offset or 0, end.offset or 0, size)


def _of_bytes(log: LogState, start: OffsetAnswer, end: OffsetAnswer) -> LogState:
    """Where offsets are bytes, sizes are exact, and cuts are made where entries begin."""
    known = {*start.borders, *end.borders, log.start_offset, log.end_offset}
    borders = tuple(sorted(b for b in known if log.start_offset <= b <= log.end_offset))
    return replace(log, size_bytes=log.end_offset - log.start_offset, borders=borders)


def named_offsets(
    wanted: SurveyRequest, logs: Mapping[Partition, LogState]
) -> list[tuple[Partition, int]]:
    """The offsets that the job itself gives for these partitions."""
    bounds = ((p, side.of(p)) for side in wanted.bounds for p in logs)
    return [(p, bound.offset) for p, bound in bounds if isinstance(bound, AtOffset)]


def _committed(
    groups: Mapping[str, Mapping[Partition, int | None]],
) -> list[tuple[Partition, int]]:
    return [(p, at) for found in groups.values() for p, at in found.items() if at is not None]
