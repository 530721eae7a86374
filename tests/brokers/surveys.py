"""Surveys a cluster with the library's own code, and makes slices of the result."""

from __future__ import annotations

from typing import Any

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.model import LogState, Slice, Survey
from rangeland.survey.cluster_survey import take_survey
from rangeland.survey.survey_request import SurveyRequest


def look(settings: ClusterSettings, **wanted: Any) -> Survey:
    with ConnectionPool(settings) as brokers:
        return take_survey(brokers, SurveyRequest(**wanted))


def slice_of(
    log: LogState, from_offset: int | None = None, until_offset: int | None = None, index: int = 0
) -> Slice:
    """``[from_offset, until_offset)`` of a log, or all of it."""
    start = log.start_offset if from_offset is None else from_offset
    end = log.end_offset if until_offset is None else until_offset
    leader = log.leader
    return Slice(index, log.partition, start, end, 0, leader.topic_id, leader.address)


def slices_of(survey: Survey) -> list[Slice]:
    """All that the survey saw, a slice per log."""
    return [slice_of(log, index=i) for i, log in enumerate(survey.logs.values())]
