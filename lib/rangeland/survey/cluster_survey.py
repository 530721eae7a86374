"""The cluster as a plan needs it: leaders, start and end of each log, offsets for times.

If something in a survey is suspicious, a second one is taken, with metadata from another broker:
one wrong response is not believed. A missing topic is a mistake of the job file once two brokers
report it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import OffsetResult
from rangeland.groups.backend import GroupBackend
from rangeland.logging_setup import partition_fields
from rangeland.model import (
    Absences,
    AtOffset,
    AtTime,
    Earliest,
    Isolation,
    Latest,
    Leader,
    LogState,
    OffsetLookups,
    Partition,
    Survey,
)
from rangeland.survey.broker_requests import request_sizes
from rangeland.survey.entry_lookup import entries_at
from rangeland.survey.retention_lookup import with_retention
from rangeland.survey.survey_attempt import ChangedMeanwhile, SurveyAttempt, UnknownTopic
from rangeland.survey.survey_confirmation import merge_surveys, suspicions
from rangeland.survey.survey_request import SurveyRequest

logger = logging.getLogger(__name__)

AGAIN_MS = 500
"""The pause before a suspicious survey is repeated."""


def take_survey(
    brokers: ConnectionPool,
    wanted: SurveyRequest,
    now: Callable[[], float] = time.time,
    backend: GroupBackend | None = None,
) -> Survey:
    """Surveys a cluster. ``backend``: where the wanted groups are kept. Suspicious responses are
    checked with another broker. Raises JobFileError for topics or partitions that do not exist,
    AccessDenied for those that this client may not read, and Unreachable when the deadline of the
    settings passes."""
    attempt = SurveyAttempt(brokers, wanted)
    try:
        first = _survey_once(attempt, brokers, wanted, now, backend)
    except UnknownTopic as error:
        time.sleep(AGAIN_MS / 1000)
        again = attempt.again()
        try:
            return _survey_once(again, brokers, wanted, now, backend)
        except UnknownTopic:
            raise error.confirmed_error(_both(attempt, again)) from None
    suspicious = suspicions(first, wanted.checkpoint, attempt.asked)
    if not suspicious:
        return first
    for partition, why in suspicious.items():
        mark = wanted.checkpoint.get(partition)
        fields = partition_fields(partition, mark.until_offset if mark else None)
        logger.info("Repeating the survey: %s: %s", partition, why, extra=fields)
    time.sleep(AGAIN_MS / 1000)
    again = attempt.again()
    second = _survey_once(again, brokers, wanted, now, backend)
    still_suspicious = suspicions(second, wanted.checkpoint, again.asked)
    return merge_surveys(first, second, suspicious, still_suspicious, _both(attempt, again))


def check_brokers(brokers: ConnectionPool, wanted: SurveyRequest, *, check_topics: bool) -> None:
    """Asks only for metadata, and returns once a broker has answered. Raises Unreachable if none
    does in time; with ``check_topics`` JobFileError for topics and partitions that two brokers
    do not know."""
    attempt = SurveyAttempt(brokers, wanted)
    try:
        attempt.first_response(check_topics=check_topics)
    except UnknownTopic as error:
        time.sleep(AGAIN_MS / 1000)
        again = attempt.again()
        try:
            again.first_response(check_topics=True)
        except UnknownTopic:
            raise error.confirmed_error(_both(attempt, again)) from None


def _both(first: SurveyAttempt, second: SurveyAttempt) -> str:
    who = " and ".join(dict.fromkeys(str(attempt.answered_by) for attempt in (first, second)))
    return f"asked twice, with metadata from {who}"


def _survey_once(
    attempt: SurveyAttempt,
    brokers: ConnectionPool,
    wanted: SurveyRequest,
    now: Callable[[], float],
    backend: GroupBackend | None,
) -> Survey:
    """Surveys one incarnation of each topic."""
    while True:
        try:
            return _survey_logs(attempt, brokers, wanted, now, backend)
        except ChangedMeanwhile as error:
            attempt.start_over(error)


def _survey_logs(
    attempt: SurveyAttempt,
    brokers: ConnectionPool,
    wanted: SurveyRequest,
    now: Callable[[], float],
    backend: GroupBackend | None,
) -> Survey:
    leaders = attempt.leaders()
    isolation = brokers.settings.isolation
    capabilities = brokers.dialect.capabilities
    start = attempt.offsets(leaders, Earliest(), isolation)
    end = attempt.offsets(leaders, Latest(), isolation)
    times = {t: attempt.offsets(leaders, AtTime(t), isolation) for t in wanted.times_ms}
    measured = start.keys() & end.keys() - attempt.unreachable.keys()
    served = [p for p in sorted(leaders) if p in measured]
    sizes = request_sizes(brokers, {p: leaders[p] for p in served}, start, end)
    logs = {p: _log(leaders[p], p, start[p], end[p], sizes.get(p)) for p in served}
    if capabilities.offsets_are_bytes:
        logs = {p: _of_bytes(log, start[p], end[p]) for p, log in logs.items()}
    logs = attempt.epochs(logs)
    served = [p for p in served if p in logs]
    epochs_end = attempt.epoch_ends(logs, _epochs(wanted))
    served = [p for p in served if p not in attempt.unreachable]
    logs = {p: replace(logs[p], epoch_end=epochs_end.get(p)) for p in served}
    groups = {g: backend.offsets(g, served) for g in wanted.groups} if backend is not None else {}
    named = (*named_offsets(wanted, logs), *_committed_offsets(groups))
    lookups = OffsetLookups(
        for_times={
            (p, t): found[p].offset for t, found in times.items() for p in served if p in found
        },
        inexact_times=frozenset(
            (p, t) for t, found in times.items() for p in found if not found[p].is_exact
        ),
        of_groups={(p, g): found.get(p) for g, found in groups.items() for p in served},
        entries=entries_at(brokers, logs, named, wanted.marks)
        if capabilities.offsets_are_bytes
        else {},
        uncommitted_ends=_uncommitted_ends(attempt, isolation, logs, named)
        if capabilities.has_transactions
        else {},
    )
    absent = Absences(
        excluded=frozenset(attempt.excluded_partitions),
        unreachable=attempt.unreachable,
        unseen_topics=frozenset(attempt.unseen_topics),
        answered_brokers=frozenset(attempt.brokers),
        unanswered_brokers=attempt.unanswered_brokers,
    )
    cluster = attempt.cluster(leaders.values())
    survey = Survey(int(now() * 1000), logs, lookups, absent, cluster=cluster)
    if wanted.speed is not None:
        survey = with_retention(brokers, survey, wanted, attempt.answered_by)
    return replace(survey, requests=brokers.requests)


def _uncommitted_ends(
    attempt: SurveyAttempt,
    isolation: Isolation,
    logs: Mapping[Partition, LogState],
    named: Iterable[tuple[Partition, int]],
) -> dict[Partition, int]:
    """The ends of the logs for readers of everything, if committed records end before a named
    offset."""
    if isolation is Isolation.READ_UNCOMMITTED:
        return {}
    beyond = {p: logs[p].leader for p, offset in named if offset > logs[p].end_offset}
    found = attempt.offsets(beyond, Latest(), Isolation.READ_UNCOMMITTED) if beyond else {}
    ends = {p: result.offset or 0 for p, result in found.items()}
    return {p: end for p, end in ends.items() if end > logs[p].end_offset}


def _epochs(wanted: SurveyRequest) -> dict[Partition, int]:
    return {p: mark.epoch for p, mark in wanted.checkpoint.items() if mark.epoch is not None}


def _log(
    leader: Leader, partition: Partition, start: OffsetResult, end: OffsetResult, size: int | None
) -> LogState:
    return LogState(partition, leader, start.offset or 0, end.offset or 0, size)


def _of_bytes(log: LogState, start: OffsetResult, end: OffsetResult) -> LogState:
    """The logs with what is known where offsets are bytes: exact sizes, and the entries at which
    slices are cut."""
    known = {*start.borders, *end.borders, log.start_offset, log.end_offset}
    borders = tuple(sorted(b for b in known if log.start_offset <= b <= log.end_offset))
    return replace(log, size_bytes=log.end_offset - log.start_offset, borders=borders)


def named_offsets(
    wanted: SurveyRequest, logs: Mapping[Partition, LogState]
) -> list[tuple[Partition, int]]:
    """The offsets that the job itself names for these partitions."""
    sides = [x for x in wanted.bounds if any(isinstance(bound, AtOffset) for bound in x.every)]
    bounds = ((p, side.of(p)) for side in sides for p in logs)
    return [(p, bound.offset) for p, bound in bounds if isinstance(bound, AtOffset)]


def _committed_offsets(
    groups: Mapping[str, Mapping[Partition, int | None]],
) -> list[tuple[Partition, int]]:
    committed = (item for found in groups.values() for item in found.items())
    return [(p, offset) for p, offset in committed if offset is not None]
