"""Finds the jobs of a command: one per job file, or one for each topic of a file whose
``sink.table`` contains ``{topic}``.

A topic that has a table is part of its job even when the cluster no longer has the topic: then
the policy about vanished logs applies to it, as in any job.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs

from rangeland.cluster_access.job_survey import topics_of
from rangeland.delta.ledger.ledger_table import FOLDER as LEDGER_FOLDER
from rangeland.delta.stores.store_errors import masked_error
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.errors import RangelandError, StorageFailed
from rangeland.fleet.table_job import TableJob
from rangeland.job import Job
from rangeland.job.job_text import JobText
from rangeland.job.topic_tables import (
    check_tables_are_distinct,
    is_asked_for,
    job_of_topic,
    table_of_topic,
)
from rangeland.job.value_parsers import TOPIC_FIELD
from rangeland.landing.drafts.plan_file import ReviewedPlan
from rangeland.landing.target.landing_target import open_target
from rangeland.patterns import match_topics
from rangeland.spark.catalog_names import LEDGER_SUFFIX, parts_of, quote_name
from rangeland.survey.wanted_partitions import NoTopicMatches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class FailedFile:
    """A job file whose tables are not known, and why. ``job`` is its name, if that is known."""

    name: str
    error: RangelandError
    job: str = ""


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """One job file, or the job of a plan file. ``topics``: the topics of the cluster, if it was
    asked. ``no_topic``: the error of a pattern that none of them matches, unless one that is gone
    has a table."""

    job: Job
    text: JobText
    topics: tuple[str, ...] | None = None
    reviewed: ReviewedPlan | None = None
    no_topic: NoTopicMatches | None = None


def load_files(
    paths: Iterable[Path], load: Callable[[Path], tuple[Job, JobText]], *, asks_cluster: bool
) -> tuple[list[LoadedFile], list[FailedFile]]:
    """The files, and the ones that cannot be used. Needs no Spark: an unreachable cluster shows
    before a session is started."""
    files: list[LoadedFile] = []
    failures: list[FailedFile] = []
    for path in paths:
        try:
            file = LoadedFile(*load(path))
            is_asked = asks_cluster and file.job.sink.is_per_topic
            files.append(_with_topics(file) if is_asked else file)
        except RangelandError as error:
            failures.append(FailedFile(str(path), error))
    return files, failures


def _with_topics(file: LoadedFile) -> LoadedFile:
    """The file with the topics of its cluster, of which there may be none."""
    try:
        return replace(file, topics=topics_of(file.job))
    except NoTopicMatches as error:
        return replace(file, topics=(), no_topic=error)


def table_jobs(file: LoadedFile, spark: SparkSession) -> list[TableJob]:
    """The jobs of a file: itself, or one for each topic. Raises JobFileError if there is no topic,
    or if two would share a table, and the errors of ``landed_topics``."""
    if not file.job.sink.is_per_topic:
        return [TableJob(file.job, file.text, reviewed=file.reviewed)]
    of_cluster = file.job.source.topics if file.topics is None else file.topics
    topics = sorted({*of_cluster, *landed_topics(file.job, spark, of_cluster)})
    if not topics and file.no_topic is not None:
        raise file.no_topic
    check_tables_are_distinct(file.job, topics)
    planned_topics = [topic for topic in topics if is_asked_for(file.job, topic)]
    pairs = (job_of_topic(file.job, file.text, topic) for topic in planned_topics)
    return [TableJob(job, text, file.job) for job, text in pairs]


def landed_topics(
    template: Job, spark: SparkSession, cluster_topics: Iterable[str] = ()
) -> list[str]:
    """The topics of a pattern that have a table with a ledger, apart from ``cluster_topics``, which
    are already known. Tables in folders are found by their names, tables in a catalog by their
    ledgers, since their names do not show the names of topics. Raises StorageFailed if the tables
    cannot be listed."""
    pattern = template.source.topic_pattern
    if pattern is None:
        return []
    known_topics = set(cluster_topics)
    if template.sink.is_catalog_name:
        tables = {_key(table_of_topic(template.sink, topic)) for topic in known_topics}
        topics = _in_catalog(template, spark, tables)
    else:
        topics = _in_folders(template, spark)
    return match_topics(pattern, sorted(set(topics) - known_topics))


def _in_folders(template: Job, spark: SparkSession) -> list[str]:
    """The landed topics, from the folders that the name of a table may have, in one listing."""
    head, _, tail = template.sink.table.partition(TOPIC_FIELD)
    parent, slash, before = head.rpartition("/")
    after, more, below = tail.partition("/")
    storage = DeltaKernel(spark).storage((parent or slash) if slash else ".")
    try:
        store, root = storage.open()
        inside = store.get_file_info(pafs.FileSelector(root, allow_not_found=True))
        name = re.compile(f"{re.escape(before)}(.+){re.escape(after)}")
        matches = [(folder.path, name.fullmatch(folder.base_name)) for folder in inside]
        topics = {
            posixpath.join(path, below if more else "", LEDGER_FOLDER, "_delta_log"): match[1]
            for path, match in matches
            if match is not None
        }
        ledgers = store.get_file_info(list(topics))
    except (OSError, pa.ArrowException) as error:
        shown = masked_error(error)
        raise StorageFailed(
            f"could not list the tables of {template.sink.table}",
            why=str(shown),
            do="check that the tables' store is up, then run again",
        ) from shown
    return [topics[folder.path] for folder in ledgers if folder.type is not pafs.FileType.NotFound]


def _in_catalog(
    template: Job, spark: SparkSession, known_tables: set[tuple[str, ...]]
) -> list[str]:
    """The landed topics, from the ledgers of those tables of a catalog whose names fit and are not
    known yet."""
    *outer, last = parts_of(template.sink.table)
    before, _, after = last.partition(TOPIC_FIELD)
    # A catalog may list names in lower case, however the job file spells them.
    text = f"{re.escape(before)}.+{re.escape(after)}{re.escape(LEDGER_SUFFIX)}"
    name = re.compile(text, re.IGNORECASE)
    schema = quote_name(".".join(outer))
    if not spark.catalog.databaseExists(schema):
        return []
    names = [table.name for table in spark.catalog.listTables(schema)]
    ledgers = [ledger.removesuffix(LEDGER_SUFFIX) for ledger in names if name.fullmatch(ledger)]
    tables = [".".join((*outer, ledger)) for ledger in ledgers]
    return [
        topic
        for table in tables
        if _key(table) not in known_tables
        for topic in topics_in(_with_table(template, table), spark)
    ]


def _key(name: str) -> tuple[str, ...]:
    """A table's name, however it is quoted and spelled."""
    return tuple(part.lower() for part in parts_of(name))


def topics_in(job: Job, spark: SparkSession) -> frozenset[str]:
    """The topics that this job has landed in its table."""
    return open_target(spark, job).history.last_known(job.application).topics


def _with_table(template: Job, table: str) -> Job:
    return template.model_copy(update={"sink": template.sink.model_copy(update={"table": table})})
