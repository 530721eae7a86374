"""The surveys that one command makes its plans from.

A survey may be needed before there is a plan, to see which schemas the records name, or which
partitions a group can claim. As long as it is fresh, the next plan is made from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from rangeland.job import Job
from rangeland.job.connection_settings import request_for_range, request_for_topics
from rangeland.landing.target.job_history import JobHistory
from rangeland.model import Partition, Survey
from rangeland.planning.incarnation import LogMark
from rangeland.planning.job_position import JobPosition
from rangeland.planning.retention_risk import ReadSpeed
from rangeland.progress_events import Progress
from rangeland.survey.survey_request import SurveyRequest

FRESH_S = 10
"""How long an early survey may be used for a plan."""
SurveyOf = Callable[[Job, SurveyRequest], Survey]


class _EarlySurvey(NamedTuple):
    """A survey that was taken before there was a plan, and when it began, by the monotonic
    clock."""

    begun_at: float
    survey: Survey

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self.begun_at < FRESH_S


class PlanSurveys:
    """Takes the surveys of one command. ``last`` is the newest one, or empty before the first.
    ``speed`` is how fast the job is expected to read. Every method that takes a survey raises what
    ``survey_of`` raises."""

    def __init__(
        self,
        job: Job,
        history: JobHistory,
        progress: Progress,
        survey_of: SurveyOf,
        speed: ReadSpeed,
    ) -> None:
        self._job = job
        self._history = history
        self._progress = progress
        self._survey_of = survey_of
        self._early: _EarlySurvey | None = None
        self.last = Survey(0, {})
        self.speed = speed

    def early(self) -> Survey:
        """A fresh survey that the next plan may be made from; taken if there is none."""
        if self._early is None or not self._early.is_fresh:
            begun_at = time.monotonic()
            survey = self.new(self._history.position(self._job.application))
            self._early = _EarlySurvey(begun_at, survey)
        self.last = self._early.survey
        return self.last

    def forget_early(self) -> None:
        """Drops the early survey: it must not be combined with a target that was read after it."""
        self._early = None

    def for_plan(self, position: JobPosition) -> Survey:
        """The survey for the next plan. The early survey is used, once, if it is fresh and the
        range does not begin at a group's offsets, which may have moved since; otherwise, a new one
        is taken."""
        early = self._early
        self._early = None
        if early is None or not early.is_fresh or early.survey.lookups.of_groups:
            return self.new(position)
        self.last = early.survey
        return self.last

    def new(self, position: JobPosition) -> Survey:
        """One survey of the cluster with everything that the job's range needs."""
        return self._take(self.request_for_plan(position))

    def of_plan(self, marks: Mapping[Partition, LogMark]) -> Survey:
        """A survey of the logs of a plan that was made earlier."""
        return self._take(self._request_for_marks(marks))

    def compare(self, marks: Mapping[Partition, LogMark]) -> Survey:
        """A survey to compare the job's logs with these marks. It does not become the last one."""
        return self._survey_of(self._job, self._request_for_marks(marks))

    def request_for_plan(self, position: JobPosition) -> SurveyRequest:
        """What ``new`` asks the cluster for."""
        listed = self._job.source.partitions
        known = position.landed_topics(listed)
        request = request_for_range(self._job, known, position.checkpoint)
        return replace(request, landed=position.landed_partitions(listed), speed=self.speed)

    def _request_for_marks(self, marks: Mapping[Partition, LogMark]) -> SurveyRequest:
        request = request_for_topics(self._job, (partition.topic for partition in marks))
        return replace(request, checkpoint=marks)

    def _take(self, request: SurveyRequest) -> Survey:
        self._progress.step(f"asking {self._job.source.where} for leaders and offsets")
        self.last = self._survey_of(self._job, request)
        return self.last
