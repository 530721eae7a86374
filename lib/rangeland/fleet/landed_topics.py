"""Finds the topics of a template that have tables, and those created after its first run. Asks
stores and catalogs, never a cluster.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs

from rangeland.delta.ledger.ledger_table import FOLDER as LEDGER_FOLDER
from rangeland.delta.stores.store_errors import masked_error
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.errors import RangelandError, StorageFailed
from rangeland.job import Job
from rangeland.job.topic_tables import table_of_topic
from rangeland.job.value_parsers import TOPIC_FIELD
from rangeland.landing.target.landing_target import open_target
from rangeland.model import Earliest, FromCheckpoint
from rangeland.patterns import match_topics
from rangeland.spark.catalog_names import LEDGER_SUFFIX, parts_of, quote_name
from rangeland.spark.spark_errors import catalog_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_FOLDER = "_delta_log"
FIRST_ENTRY = f"{LEDGER_FOLDER}/{LOG_FOLDER}/{1:020}.json"
"""The log entry with the first plan of a ledger. An old log may no longer have it."""

logger = logging.getLogger(__name__)


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


def later_topics(template: Job, spark: SparkSession, topics: Sequence[str]) -> frozenset[str]:
    """The topics that were added after the first run: they have no table yet, while another topic
    has a checkpoint of this job. ``range.first_run`` refers to the first run of all tables
    together. Empty if the job begins at the beginning of each topic anyway. Raises StorageFailed if
    the tables cannot be listed. If a table cannot be read, and no other one shows a checkpoint,
    raises the error of that table."""
    spec = template.range
    follows = any(isinstance(bound, FromCheckpoint) for bound in spec.from_.every)
    if isinstance(spec.first_run, Earliest) or not follows:
        return frozenset()
    without = _topics_without_table(template, spark, topics)
    jobs = [_job_with_table_of(template, topic) for topic in topics if topic not in without]
    if not without or not _has_checkpoint(jobs, spark):
        return frozenset()
    for topic in sorted(without):
        logger.info(
            "The topic %s appeared after the first run: landing starts at its beginning", topic
        )
    return without


def _has_checkpoint(jobs: Iterable[Job], spark: SparkSession) -> bool:
    """Whether one of these jobs has a checkpoint in its table. Usually, the first one does."""
    failure: RangelandError | None = None
    for job in jobs:
        try:
            if topics_in(job, spark):
                return True
        except RangelandError as error:  # raised again when this table is landed in
            failure = failure or error
    if failure is not None:
        raise failure
    return False


def _topics_without_table(
    template: Job, spark: SparkSession, topics: Sequence[str]
) -> frozenset[str]:
    """The topics that have no table, or one in which no plan of any job was entered."""
    by_catalog = template.sink.is_catalog_name
    find = _tables_and_ledgers_in_catalog if by_catalog else _tables_and_plans_in_folders
    tables, used_ledgers = find(template, spark, topics)
    without = {topic for topic in topics if topic not in tables}
    doubtful = [topic for topic in tables if topic not in used_ledgers]
    without |= {t for t in doubtful if _may_be_unused(_job_with_table_of(template, t), spark)}
    return frozenset(without)


def _may_be_unused(job: Job, spark: SparkSession) -> bool:
    """Whether a run may have created the table's ledger and ended before a plan was entered. This
    may also be true of a table that cannot be read now: it is better to land too much of it than to
    leave out records."""
    try:
        ledger = open_target(spark, job).ledger
    except RangelandError as error:
        logger.info("Whether %s was landed in is unknown: %s", job.sink.table, error)
        return True
    return ledger.opened is not None and ledger.entered == 0


# --- tables in folders -------------------------------------------------------------------------


def _in_folders(template: Job, spark: SparkSession) -> list[str]:
    """The landed topics, from the folders whose names may be those of tables, in one listing."""
    parent, before, after, below = _folder_parts(template)
    with _listing_errors(template):
        store, root = DeltaKernel(spark).storage(parent).open()
        inside = store.get_file_info(pafs.FileSelector(root, allow_not_found=True))
        name = re.compile(f"{re.escape(before)}(.+){re.escape(after)}")
        matches = [(folder.path, name.fullmatch(folder.base_name)) for folder in inside]
        topics = {
            posixpath.join(path, below, LEDGER_FOLDER, LOG_FOLDER): match[1]
            for path, match in matches
            if match is not None
        }
        ledgers = store.get_file_info(list(topics))
    return [topics[folder.path] for folder in ledgers if folder.type is not pafs.FileType.NotFound]


def _tables_and_plans_in_folders(
    template: Job, spark: SparkSession, topics: Sequence[str]
) -> tuple[list[str], Collection[str]]:
    """The topics that have a table, and those whose ledger certainly has a plan."""
    parent, before, after, below = _folder_parts(template)
    with _listing_errors(template):
        store, root = DeltaKernel(spark).storage(parent).open()

        def having(path: str) -> list[str]:
            folders = [posixpath.join(root, f"{before}{topic}{after}", below) for topic in topics]
            infos = store.get_file_info([posixpath.join(folder, path) for folder in folders])
            pairs = zip(topics, infos, strict=True)
            return [topic for topic, info in pairs if info.type is not pafs.FileType.NotFound]

        return having(LOG_FOLDER), set(having(FIRST_ENTRY))


def _folder_parts(template: Job) -> tuple[str, str, str, str]:
    """The folder of all tables; the text before and after the topic in the name of a folder inside
    it; and the folder below that one, which may be empty."""
    head, _, tail = template.sink.table.partition(TOPIC_FIELD)
    parent, slash, before = head.rpartition("/")
    after, _, below = tail.partition("/")
    return (parent or slash) if slash else ".", before, after, below


@contextmanager
def _listing_errors(template: Job) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        shown = masked_error(error)
        raise StorageFailed(
            f"could not list the tables of {template.sink.table}",
            why=str(shown),
            do="check that the tables' store is up, then run again",
        ) from shown


# --- tables in a catalog -----------------------------------------------------------------------


def _in_catalog(
    template: Job, spark: SparkSession, known_tables: set[tuple[str, ...]]
) -> list[str]:
    """The landed topics, from the ledgers of those tables in a catalog whose names fit, and whose
    topics are not known yet."""
    *outer, last = parts_of(template.sink.table)
    before, _, after = last.partition(TOPIC_FIELD)
    # A catalog may list names in lower case, however the job file spells them.
    text = f"{re.escape(before)}.+{re.escape(after)}{re.escape(LEDGER_SUFFIX)}"
    name = re.compile(text, re.IGNORECASE)
    names = _names_in_catalog(template, spark)
    ledgers = [ledger.removesuffix(LEDGER_SUFFIX) for ledger in names if name.fullmatch(ledger)]
    tables = [".".join((*outer, ledger)) for ledger in ledgers]
    return [
        topic
        for table in tables
        if _key(table) not in known_tables
        for topic in topics_in(_with_table(template, table), spark)
    ]


def _tables_and_ledgers_in_catalog(
    template: Job, spark: SparkSession, topics: Sequence[str]
) -> tuple[list[str], Collection[str]]:
    """The topics that have a table, and those whose ledger is registered as well."""
    names = {name.lower() for name in _names_in_catalog(template, spark)}
    last_parts = {topic: _key(table_of_topic(template.sink, topic))[-1] for topic in topics}
    tables = [topic for topic in topics if last_parts[topic] in names]
    return tables, {topic for topic in tables if last_parts[topic] + LEDGER_SUFFIX in names}


def _names_in_catalog(template: Job, spark: SparkSession) -> list[str]:
    """The names of the tables in the schema of a template; none if there is no such schema."""
    *outer, _ = parts_of(template.sink.table)
    schema = quote_name(".".join(outer))
    try:
        if not spark.catalog.databaseExists(schema):
            return []
        return [table.name for table in spark.catalog.listTables(schema)]
    except Exception as error:  # Spark raises many classes of Python and Java errors here
        raise catalog_error(f"could not list the tables of {template.sink.table}", error) from error


def _key(name: str) -> tuple[str, ...]:
    """A table's name, however it is quoted and spelled."""
    return tuple(part.lower() for part in parts_of(name))


# --- one table ---------------------------------------------------------------------------------


def topics_in(job: Job, spark: SparkSession) -> frozenset[str]:
    """The topics that this job has landed in its table."""
    return open_target(spark, job).history.last_known(job.application).topics


def _job_with_table_of(template: Job, topic: str) -> Job:
    return _with_table(template, table_of_topic(template.sink, topic))


def _with_table(template: Job, table: str) -> Job:
    return template.model_copy(update={"sink": template.sink.model_copy(update={"table": table})})
