"""Asks brokers what ``planning.log_identity`` needs to know about logs that have been read: who
leads them, their ends and epochs, and fingerprints of their bytes.

The driver asks about the logs of a plan before its outcome is prepared, and each task of a data
frame about its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from rangeland.connection.pool import ConnectionPool
from rangeland.deadline import Deadline
from rangeland.errors import Unreachable
from rangeland.model import Leader, Partition
from rangeland.planning.incarnation import LogMark
from rangeland.planning.lagging_ends import LAGGING_S, RESURVEY_POLL_S
from rangeland.planning.log_identity import (
    AskFingerprints,
    AskSurvey,
    FinalJudgement,
    LogEvidence,
    judge_logs,
)
from rangeland.survey.batch_fetch import batch_checksums
from rangeland.survey.cluster_survey import take_survey
from rangeland.survey.metadata_lookup import ask_metadata
from rangeland.survey.survey_attempt import SurveyAttempt
from rangeland.survey.survey_request import SurveyRequest


def attempt_for_marks(
    brokers: ConnectionPool,
    marks: Mapping[Partition, LogMark],
    tolerates_missing: bool,
    known_epochs: Mapping[Partition, int] | None = None,
) -> SurveyAttempt:
    """A survey of the logs with these marks, which has not asked anything yet. ``known_epochs``:
    the latest leader epochs in which they were read since."""
    return SurveyAttempt(brokers, _request_for_marks(marks, tolerates_missing, known_epochs or {}))


def judge_finally(
    brokers: ConnectionPool,
    marks: Mapping[Partition, LogMark],
    evidence: LogEvidence,
    tolerates_missing: bool,
) -> FinalJudgement:
    """Whether the logs with these marks are still the same, once all questions are answered."""
    caught_up_by = Deadline(LAGGING_S)
    while True:
        judgement = judge_logs(marks, evidence)
        if not isinstance(judgement, AskSurvey | AskFingerprints):
            return judgement
        answer = _ask(brokers, judgement, evidence, tolerates_missing)
        evidence = replace(answer, leader_has_time=not caught_up_by.has_passed)


def _ask(
    brokers: ConnectionPool,
    question: AskSurvey | AskFingerprints,
    evidence: LogEvidence,
    tolerates_missing: bool,
) -> LogEvidence:
    """The evidence, completed with the answer to a question."""
    match question:
        case AskSurvey(uncertain):
            if evidence.survey is not None:
                time.sleep(RESURVEY_POLL_S)
            request = _request_for_marks(uncertain, tolerates_missing, evidence.known_epochs)
            return replace(evidence, survey=take_survey(brokers, request))
        case AskFingerprints(leaders):
            now = take_fingerprints(brokers, leaders, evidence.compared_at)
            return replace(evidence, fingerprints=now)


def take_fingerprints(
    brokers: ConnectionPool, leaders: Mapping[Partition, Leader], offsets: Mapping[Partition, int]
) -> dict[Partition, int | None]:
    """Calls ``batch_checksums``; for a while, looks up leaders again if they do not answer."""
    checksums = batch_checksums(brokers, leaders, offsets)
    deadline = Deadline(LAGGING_S)
    while (unanswered := leaders.keys() - checksums.keys()) and not deadline.has_passed:
        time.sleep(RESURVEY_POLL_S)
        with suppress(Unreachable):
            topics = sorted({p.topic for p in unanswered})
            view = ask_metadata(brokers, topics, brokers.settings.seeds)
            current_leaders = {
                p: leader
                for topic in view.topics.values()
                for p, leader in topic.leaders.items()
                if p in unanswered
            }
            checksums |= batch_checksums(brokers, current_leaders, offsets)
    return checksums


def _request_for_marks(
    marks: Mapping[Partition, LogMark],
    tolerates_missing: bool,
    known_epochs: Mapping[Partition, int],
) -> SurveyRequest:
    topics = tuple(sorted({p.topic for p in marks}))
    only: dict[str, list[int | str]] = {topic: [] for topic in topics}
    for p in marks:
        only[p.topic].append(f"{p.broker}-{p.number}" if p.broker else p.number)
    return SurveyRequest(
        topics,
        partitions=only,
        known=frozenset(topics),
        checkpoint=dict(marks),
        known_epochs=known_epochs,
        tolerates_missing_leaders=tolerates_missing,
    )
