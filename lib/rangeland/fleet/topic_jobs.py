"""Finds the jobs of a command: one per job file, or one for each topic of a file whose
``sink.table`` contains ``{topic}``.

A topic that has a table is part of its job even if the cluster no longer has the topic: then the
policy for vanished logs applies to it, as in any job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rangeland.cluster_access.job_survey import topics_of
from rangeland.errors import RangelandError
from rangeland.fleet.landed_topics import landed_topics, later_topics
from rangeland.fleet.table_job import TableJob
from rangeland.job import Job
from rangeland.job.job_text import JobText
from rangeland.job.topic_tables import (
    check_tables_are_distinct,
    is_asked_for,
    job_of_topic,
)
from rangeland.landing.drafts.plan_file import ReviewedPlan
from rangeland.spark.spark_errors import as_own_error
from rangeland.survey.wanted_partitions import NoTopicMatches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class FailedFile:
    """A job file that cannot be used, and why. ``job`` is the job's name, and ``table`` its table,
    if they are known."""

    name: str
    error: RangelandError
    job: str = ""
    table: str | None = None


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """One job file, or the job of a plan file. ``topics``: the topics of the cluster, if it was
    asked. ``no_topic``: the error if none of them matches the pattern; it counts unless a topic
    that is gone has a table."""

    job: Job
    text: JobText
    topics: tuple[str, ...] | None = None
    reviewed: ReviewedPlan | None = None
    no_topic: NoTopicMatches | None = None


def load_files(
    paths: Iterable[Path], load: Callable[[Path], tuple[Job, JobText]], *, asks_cluster: bool
) -> tuple[list[LoadedFile], list[FailedFile]]:
    """The loaded files, and the ones that cannot be used. Needs no Spark, so that an unreachable
    cluster is noticed before a session is started."""
    files: list[LoadedFile] = []
    failures: list[FailedFile] = []
    for path in paths:
        try:
            file = LoadedFile(*load(path))
            is_asked = asks_cluster and file.job.sink.is_per_topic
            files.append(_with_topics(file) if is_asked else file)
        except Exception as error:  # one file's failure is its own, whatever it is
            failures.append(FailedFile(str(path), as_own_error(error)))
    return files, failures


def _with_topics(file: LoadedFile) -> LoadedFile:
    """The file with the topics of its cluster, which may be none."""
    try:
        return replace(file, topics=topics_of(file.job))
    except NoTopicMatches as error:
        return replace(file, topics=(), no_topic=error)


def table_jobs(file: LoadedFile, spark: SparkSession) -> list[TableJob]:
    """The jobs of a file: its own job, or one for each topic. Raises JobFileError if there is no
    topic, or if two would share a table, and the errors of ``landed_topics`` and
    ``later_topics``."""
    if not file.job.sink.is_per_topic:
        return [TableJob(file.job, file.text, reviewed=file.reviewed)]
    of_cluster = file.job.source.topics if file.topics is None else file.topics
    topics = sorted({*of_cluster, *landed_topics(file.job, spark, of_cluster)})
    if not topics and file.no_topic is not None:
        raise file.no_topic
    check_tables_are_distinct(file.job, topics)
    # Commands that do not ask the cluster plan nothing, so they need not know.
    later = frozenset[str]() if file.topics is None else later_topics(file.job, spark, topics)
    pairs = (
        job_of_topic(file.job, file.text, topic, is_later=topic in later)
        for topic in topics
        if is_asked_for(file.job, topic)
    )
    return [TableJob(job, text, file.job) for job, text in pairs]
