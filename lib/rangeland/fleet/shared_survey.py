"""One survey of a cluster for all jobs of a session that read it.

A survey has a constant number of requests per broker, so that a hundred tables need one survey
and not a hundred. Each job gets the part about its own topics. A shared survey that fails, or
that a job does not fit in, costs nothing but time: that job then takes its own, and fails by
itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import TypeVar

from rangeland.cluster_access.cluster_lookup import cluster_settings
from rangeland.cluster_access.job_survey import survey_of
from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.dialects.dialect import load_dialect
from rangeland.errors import RangelandError
from rangeland.job import Job
from rangeland.landing.plan_surveys import FRESH_SECONDS, SurveyOf
from rangeland.model import AtOffset, Bounds, OffsetLookups, Partition, Survey
from rangeland.planning.policy import Action, LossKind
from rangeland.survey.survey_request import SurveyRequest

K = TypeVar("K")
T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _WaitingJobs:
    """The jobs of one cluster that have not begun, and the last survey for all of them."""

    waiting: dict[int, tuple[Job, SurveyRequest]]
    survey: Survey | None = None
    taken_at: float = 0.0


class SharedSurveys:
    """Surveys for jobs that were announced, each of which may use a shared one once. Any other
    survey is taken as usual. For use from many threads."""

    def __init__(
        self, take: SurveyOf = survey_of, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._take = take
        self._clock = clock
        self._lock = Lock()
        self._clusters: list[tuple[tuple[ClusterSettings, bool], _WaitingJobs]] = []
        self._cluster_of: dict[int, _WaitingJobs] = {}

    def announce(self, wanted: Iterable[tuple[Job, SurveyRequest]]) -> None:
        """Names jobs, each with the one survey that it will ask for first."""
        for job, request in wanted:
            if not may_share(job, request):
                continue
            cluster = self._find(job)
            cluster.waiting[id(job)] = (job, request)
            self._cluster_of[id(job)] = cluster

    def _find(self, job: Job) -> _WaitingJobs:
        # Of a policy, only whether it holds partitions without a leader matters to a survey.
        key = (cluster_settings(job), job.policies.ever(LossKind.UNREACHABLE, Action.HOLD))
        for known, cluster in self._clusters:
            if known == key:
                return cluster
        cluster = _WaitingJobs({})
        self._clusters.append((key, cluster))
        return cluster

    def ahead(self, job: Job) -> Survey | None:
        """The survey that the job would get now, taken if need be; None if it will take its own."""
        with self._lock:
            cluster = self._cluster_of.get(id(job))
            if cluster is None or id(job) not in cluster.waiting:
                return None
            if cluster.survey is None or self._clock() - cluster.taken_at > FRESH_SECONDS:
                self._renew(cluster)
            return None if cluster.survey is None else part_of(cluster.survey, job.source.topics)

    def survey_of(self, job: Job, wanted: SurveyRequest) -> Survey:
        """Takes the place of ``job_survey.survey_of``, and raises what that raises."""
        survey = self.ahead(job)
        with self._lock:
            cluster = self._cluster_of.pop(id(job), None)
            asked = None if cluster is None else cluster.waiting.pop(id(job), None)
        if survey is None or asked is None or asked[1] != wanted:
            return self._take(job, wanted)
        return survey

    def _renew(self, cluster: _WaitingJobs) -> None:
        """Surveys for all jobs that wait. Where that fails, each of them takes its own."""
        job, _ = next(iter(cluster.waiting.values()))
        wanted = merge_requests([request for _, request in cluster.waiting.values()])
        try:
            cluster.survey = self._take(job, wanted)
            cluster.taken_at = self._clock()
        except RangelandError as error:
            logger.info("Each of %d jobs takes its own survey: %s", len(cluster.waiting), error)
            cluster.survey = None
            cluster.waiting.clear()


def may_share(job: Job, wanted: SurveyRequest) -> bool:
    """Whether a survey for other topics too means the same for this job: it takes all partitions
    of listed topics, asks for no group's offsets, and its offsets are numbers of records."""
    capabilities = load_dialect(job.source.dialect).capabilities
    is_plain = not capabilities.offsets_are_bytes and capabilities.has_metadata
    return bool(wanted.topics) and not wanted.partitions and not wanted.groups and is_plain


def merge_requests(wanted: Iterable[SurveyRequest]) -> SurveyRequest:
    """One request for all of these."""
    requests = list(wanted)
    return SurveyRequest(
        topics=tuple(dict.fromkeys(t for w in requests for t in w.topics)),
        times_ms=tuple(sorted({t for w in requests for t in w.times_ms})),
        known=frozenset(t for w in requests for t in w.known),
        bounds=_naming_offsets(requests),
        marks=tuple(mark for w in requests for mark in w.marks),
        checkpoint={p: mark for w in requests for p, mark in w.checkpoint.items()},
        speed=next((w.speed for w in requests if w.speed is not None), None),
    )


def _naming_offsets(requests: Iterable[SurveyRequest]) -> tuple[Bounds, ...]:
    found: list[Bounds] = []
    for side in (side for wanted in requests for side in wanted.bounds):
        if side not in found and any(isinstance(bound, AtOffset) for bound in side.every):
            found.append(side)
    return tuple(found)


def part_of(survey: Survey, topics: Iterable[str]) -> Survey:
    """The part of a survey about these topics, and about the cluster as a whole."""
    mine = frozenset(topics)

    def by_partition(values: Mapping[Partition, T]) -> dict[Partition, T]:
        return {p: value for p, value in values.items() if p.topic in mine}

    def by_pair(values: Mapping[tuple[Partition, K], T]) -> dict[tuple[Partition, K], T]:
        return {(p, of): value for (p, of), value in values.items() if p.topic in mine}

    lookups, absent = survey.lookups, survey.absent
    return replace(
        survey,
        logs=by_partition(survey.logs),
        lookups=OffsetLookups(
            for_times=by_pair(lookups.for_times),
            inexact_times=frozenset((p, t) for p, t in lookups.inexact_times if p.topic in mine),
            of_groups=by_pair(lookups.of_groups),
            entries=by_pair(lookups.entries),
            uncommitted_ends=by_partition(lookups.uncommitted_ends),
        ),
        absent=replace(
            absent,
            excluded=frozenset(p for p in absent.excluded if p.topic in mine),
            unreachable=by_partition(absent.unreachable),
            unseen_topics=absent.unseen_topics & mine,
        ),
        retention={topic: kept for topic, kept in survey.retention.items() if topic in mine},
        confirmed_by=by_partition(survey.confirmed_by),
    )
