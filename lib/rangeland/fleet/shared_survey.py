"""Takes one survey of a cluster for all jobs of a session that read it.

A survey takes a constant number of requests per broker, so a hundred tables need only one survey.
Each job gets the part about its own topics. What a survey asks about a log depends on the
checkpoint, so jobs that read the same topic share a survey only if their checkpoints there are
equal. A shared survey that fails, or that a job cannot use, only costs time: the job then takes its
own survey, which may succeed or fail.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TypeVar

from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.cluster_access.job_survey import survey_of
from rangeland.dialects.dialect import load_dialect
from rangeland.errors import RangelandError
from rangeland.job import Job
from rangeland.landing.plan_surveys import FRESH_S, SurveyOf
from rangeland.model import AtOffset, Bounds, Cluster, OffsetLookups, Partition, Survey
from rangeland.planning.incarnation import LogMark
from rangeland.survey.cluster_survey import named_offsets
from rangeland.survey.survey_request import SurveyRequest

Checkpoint = Mapping[Partition, LogMark]
K = TypeVar("K")
T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _ClusterSurvey:
    """The newest survey for the jobs of one cluster that have not begun yet."""

    tickets: list[SurveyTicket] = field(default_factory=list)
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)
    """The checkpoint of each topic, which is the same for all of its jobs."""
    survey: Survey | None = None
    taken_at: float = 0.0

    def agrees_with(self, checkpoints: Mapping[str, Checkpoint]) -> bool:
        """Whether other jobs that read these topics have the same checkpoints there."""
        return all(self.checkpoints.get(topic, x) == x for topic, x in checkpoints.items())


@dataclass(slots=True, eq=False)
class SurveyTicket:
    """Lets one job use a survey for many jobs, once. Any other survey is taken as usual."""

    job: Job
    surveys: SharedSurveys
    request: SurveyRequest | None = None
    """The survey that the job will ask for first, once that is known."""
    cluster: _ClusterSurvey | None = None
    """The survey of its cluster, while the job waits for a part of it."""

    def announce(self, request: SurveyRequest) -> None:
        """Names the survey that the job will ask for first."""
        if may_share(self.job, request):
            self.request = request
            self.surveys.add(self, request)

    def ahead(self) -> Survey | None:
        """The survey that the job would get now, taken if necessary; None if the job will take its
        own."""
        return self.surveys.ahead(self)

    def survey_of(self, job: Job, request: SurveyRequest) -> Survey:
        """The job's part of the shared survey, the first time and if the request is the one that
        was announced; otherwise a separate survey. Raises the errors of
        ``job_survey.survey_of``."""
        survey = self.ahead()
        self.surveys.remove(self)
        if survey is None or self.request != request:
            return self.surveys.take(job, request)
        return survey


def _sharing_key(job: Job) -> Hashable:
    """The properties that must be equal for two jobs to share a survey, whatever their topics,
    including the names that the job adds to the cluster that a survey finds. Raises what
    ``look_up_cluster`` raises."""
    tolerant = job.policies.tolerates_missing_leaders
    return look_up_cluster(job), tolerant, job.source.name_cluster(Cluster())


class SharedSurveys:
    """The surveys of the jobs of one session, by cluster. Thread-safe."""

    def __init__(
        self, take: SurveyOf = survey_of, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.take = take
        self._clock = clock
        self._lock = Lock()
        self._clusters: dict[Hashable, _ClusterSurvey] = {}

    def add(self, ticket: SurveyTicket, request: SurveyRequest) -> None:
        """Lets a ticket wait for a shared survey, unless another job has another checkpoint of one
        of its topics, or the job's cluster cannot be looked up."""
        try:
            key = _sharing_key(ticket.job)
        except RangelandError as error:  # raised where the job takes its own survey
            logger.info("The job %s takes its own survey: %s", ticket.job.name, error)
            return
        checkpoints = checkpoints_by_topic(request)
        with self._lock:
            cluster = self._clusters.setdefault(key, _ClusterSurvey())
            if cluster.agrees_with(checkpoints):
                cluster.checkpoints.update(checkpoints)
                cluster.tickets.append(ticket)
                ticket.cluster = cluster

    def remove(self, ticket: SurveyTicket) -> None:
        with self._lock:
            if ticket.cluster is not None:
                ticket.cluster.tickets.remove(ticket)
                ticket.cluster = None

    def ahead(self, ticket: SurveyTicket) -> Survey | None:
        """The part of a fresh survey about a ticket's topics; None if its job takes its own."""
        with self._lock:
            cluster = ticket.cluster
            if cluster is None:
                return None
            if cluster.survey is None or self._clock() - cluster.taken_at > FRESH_S:
                self._renew(cluster)
            if cluster.survey is None or ticket.request is None:
                return None
            return part_of(cluster.survey, ticket.request)

    def _renew(self, cluster: _ClusterSurvey) -> None:
        """Takes a survey for all waiting jobs. If that fails, each of them takes its own."""
        requests = [ticket.request for ticket in cluster.tickets if ticket.request is not None]
        try:
            cluster.survey = self.take(cluster.tickets[0].job, merge_requests(requests))
            cluster.taken_at = self._clock()
        except Exception as error:  # whatever it is, a shared survey only saves time
            logger.info("Each of %d jobs takes its own survey: %s", len(requests), error)
            cluster.survey = None
            for ticket in cluster.tickets:
                ticket.cluster = None
            cluster.tickets.clear()


def may_share(job: Job, request: SurveyRequest) -> bool:
    """Whether this job can use a survey that also covers other topics: it reads all partitions of
    listed topics, asks for no group's offsets, and its offsets are numbers of records."""
    capabilities = load_dialect(job.source.dialect).capabilities
    is_plain = not capabilities.offsets_are_bytes and capabilities.has_metadata
    return bool(request.topics) and not request.partitions and not request.groups and is_plain


def checkpoints_by_topic(request: SurveyRequest) -> Mapping[str, Checkpoint]:
    """The checkpoint of each topic of a request; empty for a topic of which nothing has landed."""
    checkpoints: dict[str, dict[Partition, LogMark]] = {topic: {} for topic in request.topics}
    for partition, mark in request.checkpoint.items():
        if partition.topic in checkpoints:
            checkpoints[partition.topic][partition] = mark
    return checkpoints


def merge_requests(requests: Sequence[SurveyRequest]) -> SurveyRequest:
    """One request that asks for everything in these requests, whose checkpoints agree. Landings of
    topics that a job no longer reads are left out: another job may read them."""
    checkpoints = [x for w in requests for x in checkpoints_by_topic(w).values()]
    return SurveyRequest(
        topics=tuple(dict.fromkeys(t for w in requests for t in w.topics)),
        times_ms=tuple(sorted({t for w in requests for t in w.times_ms})),
        known=frozenset(t for w in requests for t in w.known.intersection(w.topics)),
        bounds=_naming_offsets(requests),
        checkpoint={p: mark for x in checkpoints for p, mark in x.items()},
        landed=frozenset(p for w in requests for p in w.landed if p.topic in w.topics),
        speed=next((w.speed for w in requests if w.speed is not None), None),
    )


def _naming_offsets(requests: Iterable[SurveyRequest]) -> tuple[Bounds, ...]:
    sides: list[Bounds] = []
    for side in (side for request in requests for side in request.bounds):
        if side not in sides and any(isinstance(bound, AtOffset) for bound in side.every):
            sides.append(side)
    return tuple(sides)


def part_of(survey: Survey, request: SurveyRequest) -> Survey:
    """The part of a survey about the topics of this request, and about the cluster as a whole."""
    own_topics = frozenset(request.topics)
    logs = {p: log for p, log in survey.logs.items() if p.topic in own_topics}
    beyond = {p for p, offset in named_offsets(request, logs) if offset > logs[p].end_offset}

    def by_partition(values: Mapping[Partition, T]) -> dict[Partition, T]:
        return {p: value for p, value in values.items() if p.topic in own_topics}

    def by_pair(values: Mapping[tuple[Partition, K], T]) -> dict[tuple[Partition, K], T]:
        return {(p, of): value for (p, of), value in values.items() if p.topic in own_topics}

    lookups = survey.lookups
    absent = survey.absent
    return replace(
        survey,
        logs=logs,
        lookups=OffsetLookups(
            for_times=by_pair(lookups.for_times),
            inexact_times=frozenset(
                (p, t) for p, t in lookups.inexact_times if p.topic in own_topics
            ),
            of_groups=by_pair(lookups.of_groups),
            entries=by_pair(lookups.entries),
            uncommitted_ends={p: end for p, end in lookups.uncommitted_ends.items() if p in beyond},
        ),
        absent=replace(
            absent,
            excluded=frozenset(p for p in absent.excluded if p.topic in own_topics),
            unreachable=by_partition(absent.unreachable),
            unseen_topics=absent.unseen_topics & own_topics,
        ),
        retention={
            topic: limits for topic, limits in survey.retention.items() if topic in own_topics
        },
        confirmed_by=by_partition(survey.confirmed_by),
    )
