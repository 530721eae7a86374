"""Finds out, before Spark is started, whether a command is bound to fail: because no broker
answers, or because a topic does not exist and none of its records can have landed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.errors import RangelandError
from rangeland.job import Job
from rangeland.job.connection_settings import request_for_range
from rangeland.survey.cluster_survey import check_brokers_can_be_reached

MAX_CHECKS_AT_A_TIME = 16
"""How many clusters are asked at the same time, by threads that only wait. Few commands have jobs
on more clusters than this."""


def check_brokers_answer(job: Job) -> None:
    """Raises Unreachable if no broker of the job's cluster answers in time; JobFileError for topics
    that do not exist, if none of their records can have landed; and whatever a login raises."""
    _ask(job, look_up_cluster(job), check_topics=is_surely_new(job))


def find_unreachable(jobs: Sequence[Job]) -> list[RangelandError | None]:
    """For each job, why its cluster cannot be used, or None. Each cluster is asked once."""
    all_settings = [_settings_or_error(job) for job in jobs]
    clusters: dict[ClusterSettings, Job] = {}
    for settings, job in zip(all_settings, jobs, strict=True):
        if isinstance(settings, ClusterSettings):
            clusters.setdefault(settings, job)
    with ThreadPoolExecutor(MAX_CHECKS_AT_A_TIME) as pool:
        outcomes = pool.map(_cluster_error, clusters.values(), clusters)
        errors = dict(zip(clusters, outcomes, strict=True))
    return [
        errors[settings] if isinstance(settings, ClusterSettings) else settings
        for settings in all_settings
    ]


def _settings_or_error(job: Job) -> ClusterSettings | RangelandError:
    try:
        return look_up_cluster(job)
    except RangelandError as error:
        return error


def _cluster_error(job: Job, settings: ClusterSettings) -> RangelandError | None:
    """Why a cluster cannot be used, or None. The job is one of those that read it."""
    try:
        _ask(job, settings, check_topics=False)
    except RangelandError as error:
        return error
    return None


def _ask(job: Job, settings: ClusterSettings, *, check_topics: bool) -> None:
    with ConnectionPool(settings) as brokers:
        by_name = not job.source.topic_pattern or brokers.dialect.capabilities.has_metadata
        request = request_for_range(job)
        if not by_name:  # the survey matches the pattern against the registry's topics
            request = replace(request, topics=(), topic_pattern=None)
        check_brokers_can_be_reached(brokers, request, check_topics=check_topics and by_name)


def is_surely_new(job: Job) -> bool:
    """Whether it is certain, without Spark, that the table does not exist yet: its path is on this
    machine, and no Hadoop configuration can map it to another store."""
    table = job.sink.table
    if job.sink.is_catalog_name or job.sink.is_per_topic or "://" in table:
        return False
    elsewhere = ("PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")
    if any(os.environ.get(name) for name in elsewhere):
        return False
    return ":" not in table and not Path(table).exists()
