"""One survey of the cluster for all that a job's range needs, also from before its plan is made."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from rangeland.job import Job
from rangeland.job.connection_settings import request_for_range
from rangeland.landing.landing_target import LandingTarget
from rangeland.model import Survey
from rangeland.planning.plan_builder import JobPosition
from rangeland.planning.retention_risk import ReadSpeed, speed_of
from rangeland.survey.cluster_survey import SurveyRequest

FRESH_SECONDS = 10
"""How long an early survey may be used for a plan."""
SurveyOf = Callable[[Job, SurveyRequest], Survey]


class PlanSurvey(NamedTuple):
    """``at``: when it began, by the monotonic clock."""

    at: float
    survey: Survey

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self.at < FRESH_SECONDS


def plan_survey(job: Job, target: LandingTarget, survey_of: SurveyOf) -> PlanSurvey:
    """Raises what ``survey_of`` raises."""
    at = time.monotonic()
    position = target.history.position(job.application)
    speed = speed_of(target.history.pace(job.application))
    return PlanSurvey(at, survey_of(job, request_for_plan(job, position, speed)))


def request_for_plan(job: Job, position: JobPosition, speed: ReadSpeed) -> SurveyRequest:
    """What one survey asks for all that the job's range needs."""
    return replace(request_for_range(job, position.topics, position.checkpoint), speed=speed)
