"""Surveys a cluster for everything a plan needs: leaders, the start and end of each log, and the
offsets of times.

If something in a survey is suspicious, a second one is taken, with metadata from another broker,
since a single response may be wrong. A missing topic counts as a mistake in the job file once two
brokers have reported it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import OffsetResult
from rangeland.logging_setup import partition_fields
from rangeland.model import (
    AtOffset,
    AtTime,
    Earliest,
    Isolation,
    Latest,
    LogState,
    OffsetLookups,
    Partition,
    Survey,
)
from rangeland.survey.broker_requests import ask_sizes
from rangeland.survey.entry_lookup import entries_at
from rangeland.survey.retention_lookup import with_retention
from rangeland.survey.survey_attempt import SurveyAttempt
from rangeland.survey.survey_confirmation import merge_surveys, suspicions
from rangeland.survey.survey_request import SurveyRequest
from rangeland.survey.wanted_partitions import ChangedMeanwhile, UnknownTopic

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

AskGroup = Callable[[str, Sequence[Partition]], Mapping[Partition, int | None]]
"""Asks for the offsets that a group has committed; None for a partition without one."""
AGAIN_MS = 500
"""The pause before a suspicious survey is repeated."""


def take_survey(
    brokers: ConnectionPool,
    request: SurveyRequest,
    now: Callable[[], float] = time.time,
    ask_group: AskGroup | None = None,
) -> Survey:
    """Surveys a cluster. ``ask_group``: how the wanted groups are asked. Suspicious responses are
    checked with another broker. Raises JobFileError for topics or partitions that do not exist,
    AccessDenied for topics that this client may not read, and Unreachable when the deadline of the
    settings passes."""

    def survey(attempt: SurveyAttempt) -> tuple[Survey, dict[Partition, str]]:
        return _survey_once(attempt, now, ask_group)

    attempt, (first, suspicious) = _again_if_unknown(SurveyAttempt(brokers, request), survey)
    if not suspicious:
        return first
    for partition, reason in suspicious.items():
        mark = request.checkpoint.get(partition)
        fields = partition_fields(partition, mark.until_offset if mark else None)
        logger.info("Repeating the survey: %s: %s", partition, reason, extra=fields)
    second_attempt, (second, still_suspicious) = _again_if_unknown(_again(attempt), survey)
    who = _both(attempt, second_attempt)
    return merge_surveys(first, second, suspicious, still_suspicious, who)


def check_brokers_can_be_reached(
    brokers: ConnectionPool, request: SurveyRequest, *, check_topics: bool
) -> None:
    """Asks only for metadata, and returns once a broker has answered. Raises Unreachable if none
    answers in time and, with ``check_topics``, JobFileError for topics and partitions that two
    brokers do not know."""

    def ask(attempt: SurveyAttempt) -> None:
        attempt.first_response(check_topics=check_topics)

    _again_if_unknown(SurveyAttempt(brokers, request), ask)


def find_topics(brokers: ConnectionPool, pattern: str) -> tuple[str, ...]:
    """The topics of a cluster that match a pattern. Asks only for metadata. Raises NoTopicMatches
    if two brokers know of none, and Unreachable if the deadline of the settings passes."""
    attempt = SurveyAttempt(brokers, SurveyRequest(topic_pattern=pattern))
    return _again_if_unknown(attempt, SurveyAttempt.find_topics)[1]


def _again_if_unknown(
    attempt: SurveyAttempt, ask: Callable[[SurveyAttempt], Answer]
) -> tuple[SurveyAttempt, Answer]:
    """The attempt with its answer, or a second attempt if its broker does not know a topic. Raises
    JobFileError if the next broker does not know it either."""
    try:
        return attempt, ask(attempt)
    except UnknownTopic as error:
        second_attempt = _again(attempt)
        try:
            return second_attempt, ask(second_attempt)
        except UnknownTopic:
            raise error.confirmed_error(_both(attempt, second_attempt)) from None


def _again(attempt: SurveyAttempt) -> SurveyAttempt:
    time.sleep(AGAIN_MS / 1000)
    return attempt.again()


def _both(first: SurveyAttempt, second: SurveyAttempt) -> str:
    brokers = dict.fromkeys(str(attempt.answered_by) for attempt in (first, second))
    return f"asked twice, with metadata from {' and '.join(brokers)}"


def _survey_once(
    attempt: SurveyAttempt, now: Callable[[], float], ask_group: AskGroup | None
) -> tuple[Survey, dict[Partition, str]]:
    """A survey of one incarnation of each topic, and why partitions in it are suspicious."""
    while True:
        try:
            survey = _survey_logs(attempt, now, ask_group)
            request = attempt.request
            topics = attempt.partitions.topics
            # A pattern stands for whatever topics exist: once any log is found, a missing topic is
            # suspicious only if it has a checkpoint.
            landed = () if request.topic_pattern and survey.logs else request.landed
            return survey, suspicions(survey, request.checkpoint, topics, landed)
        except ChangedMeanwhile as error:
            attempt.start_over(error)


def _survey_logs(
    attempt: SurveyAttempt, now: Callable[[], float], ask_group: AskGroup | None
) -> Survey:
    brokers = attempt.pool
    request = attempt.request
    attempt.find_leaders()
    isolation = brokers.settings.isolation
    capabilities = brokers.dialect.capabilities
    start = attempt.offsets(Earliest(), isolation)
    end = attempt.offsets(Latest(), isolation)
    times = {t: attempt.offsets(AtTime(t), isolation) for t in request.times_ms}
    leaders = dict(sorted(attempt.partitions.reachable.items()))
    sizes = ask_sizes(brokers, leaders, start, end)
    logs = {
        p: LogState(p, leader, start[p].offset or 0, end[p].offset or 0, sizes.get(p))
        for p, leader in leaders.items()
    }
    if capabilities.offsets_are_bytes:
        logs = {p: _of_bytes(log, start[p], end[p]) for p, log in logs.items()}
    epochs = {p: mark.epoch for p, mark in request.checkpoint.items() if mark.epoch is not None}
    logs = attempt.with_epoch_ends(attempt.with_epochs(logs), epochs)
    groups = {} if ask_group is None else {g: ask_group(g, list(logs)) for g in request.groups}
    named = (*named_offsets(request, logs), *_committed_offsets(groups))
    lookups = OffsetLookups(
        for_times={
            (p, t): results[p].offset for t, results in times.items() for p in logs if p in results
        },
        inexact_times=frozenset(
            (p, t) for t, results in times.items() for p, x in results.items() if not x.is_exact
        ),
        of_groups={(p, g): offsets.get(p) for g, offsets in groups.items() for p in logs},
        entries=entries_at(brokers, logs, named, request.marks)
        if capabilities.offsets_are_bytes
        else {},
        uncommitted_ends=_uncommitted_ends(attempt, isolation, logs, named)
        if capabilities.has_transactions
        else {},
    )
    survey = Survey(
        int(now() * 1000), logs, lookups, attempt.partitions.absent, cluster=attempt.cluster()
    )
    if request.speed is not None:
        survey = with_retention(brokers, survey, request, attempt.answered_by)
    return replace(survey, requests=brokers.requests)


def _uncommitted_ends(
    attempt: SurveyAttempt,
    isolation: Isolation,
    logs: Mapping[Partition, LogState],
    named: Iterable[tuple[Partition, int]],
) -> dict[Partition, int]:
    """The ends for uncommitted reading of the logs whose committed records end before a named
    offset."""
    if isolation is Isolation.READ_UNCOMMITTED:
        return {}
    beyond = {p for p, offset in named if offset > logs[p].end_offset}
    results = attempt.offsets(Latest(), Isolation.READ_UNCOMMITTED, beyond)
    ends = {p: result.offset or 0 for p, result in results.items()}
    return {p: end for p, end in ends.items() if end > logs[p].end_offset}


def _of_bytes(log: LogState, start: OffsetResult, end: OffsetResult) -> LogState:
    """The log with its exact size, and the entries at which slices are cut: both are known where
    offsets are bytes."""
    offsets = {*start.borders, *end.borders, log.start_offset, log.end_offset}
    borders = tuple(sorted(b for b in offsets if log.start_offset <= b <= log.end_offset))
    return replace(log, size_bytes=log.end_offset - log.start_offset, borders=borders)


def named_offsets(
    request: SurveyRequest, logs: Mapping[Partition, LogState]
) -> list[tuple[Partition, int]]:
    """The offsets that the job names for these partitions."""
    sides = [x for x in request.bounds if any(isinstance(bound, AtOffset) for bound in x.every)]
    bounds = ((p, side.of(p)) for side in sides for p in logs)
    return [(p, bound.offset) for p, bound in bounds if isinstance(bound, AtOffset)]


def _committed_offsets(
    groups: Mapping[str, Mapping[Partition, int | None]],
) -> list[tuple[Partition, int]]:
    committed = (item for offsets in groups.values() for item in offsets.items())
    return [(p, offset) for p, offset in committed if offset is not None]
