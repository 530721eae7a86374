"""Finds out before Spark is started whether a command must fail: no broker answers, or a topic of a
table that does not exist yet does not exist either."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from rangeland.cluster_access.cluster_lookup import cluster_settings
from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.errors import RangelandError
from rangeland.job import Job
from rangeland.job.connection_settings import request_for_range
from rangeland.survey.cluster_survey import check_brokers_can_be_reached

MOST_AT_A_TIME = 16


def check_brokers_answer(job: Job) -> None:
    """Raises Unreachable if no broker of the job's cluster answers in time; JobFileError for topics
    that do not exist, if none of their records can have landed, and whatever a login raises."""
    _ask(job, cluster_settings(job), check_topics=is_surely_new(job))


def find_unreachable(jobs: Sequence[Job]) -> list[RangelandError | None]:
    """For each job, why its cluster cannot be used, or None. Each cluster is asked once."""
    outcomes: list[tuple[ClusterSettings | None, RangelandError | None]] = []
    clusters: list[tuple[ClusterSettings, Job]] = []
    for job in jobs:
        try:
            settings = cluster_settings(job)
            outcomes.append((settings, None))
            if not any(settings == known for known, _ in clusters):
                clusters.append((settings, job))
        except RangelandError as error:
            outcomes.append((None, error))

    def ask(cluster: tuple[ClusterSettings, Job]) -> RangelandError | None:
        try:
            _ask(cluster[1], cluster[0], check_topics=False)
        except RangelandError as error:
            return error
        return None

    with ThreadPoolExecutor(MOST_AT_A_TIME) as pool:
        errors = list(pool.map(ask, clusters))
    return [error or _cluster_error(settings, clusters, errors) for settings, error in outcomes]


def _cluster_error(
    settings: ClusterSettings | None,
    clusters: Iterable[tuple[ClusterSettings, Job]],
    errors: Iterable[RangelandError | None],
) -> RangelandError | None:
    return next(e for (own, _), e in zip(clusters, errors, strict=True) if own == settings)


def _ask(job: Job, settings: ClusterSettings, *, check_topics: bool) -> None:
    with ConnectionPool(settings) as brokers:
        by_name = not job.source.topic_pattern or brokers.dialect.capabilities.has_metadata
        request = request_for_range(job)
        if not by_name:  # the survey matches the pattern against the registry's topics
            request = replace(request, topics=(), topic_pattern=None)
        check_brokers_can_be_reached(brokers, request, check_topics=check_topics and by_name)


def is_surely_new(job: Job) -> bool:
    """Whether it is known without Spark that the table does not exist: its path is on this machine,
    and no configuration of Hadoop may map it to another store."""
    table = job.sink.table
    if job.sink.is_catalog_name or job.sink.is_per_topic or "://" in table:
        return False
    elsewhere = ("PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")
    if any(os.environ.get(name) for name in elsewhere):
        return False
    return ":" not in table and not Path(table).exists()
