"""The topics of a job with a table for each topic that have one already.

Tables in folders are found by their names, those in a catalog by their ledgers, since the names of
topics cannot be read from the names of such tables.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from typing import Any

import pyarrow.fs as pafs

from rangeland.delta.delta_kernel import DeltaKernel
from rangeland.delta.ledger.ledger_table import FOLDER as LEDGER_FOLDER
from rangeland.delta.store_access import open_store
from rangeland.errors import StorageFailed
from rangeland.job import Job
from rangeland.job.topic_tables import table_of_topic
from rangeland.job.value_parsers import TOPIC_FIELD
from rangeland.landing.landing_target import LandingTarget
from rangeland.patterns import matching
from rangeland.spark.catalog_names import LEDGER_SUFFIX, parts_of, quoted


def landed_topics(template: Job, spark: Any, others: Iterable[str] = ()) -> list[str]:
    """The topics of a pattern that have a table with a ledger, apart from ``others``, which are
    known anyway. Raises StorageFailed where the tables cannot be listed."""
    pattern = template.source.topic_pattern
    if pattern is None:
        return []
    known = set(others)
    if template.sink.is_catalog_name:
        tables = {_key(table_of_topic(template.sink, topic)) for topic in known}
        found = _in_catalog(template, spark, tables)
    else:
        found = _in_folders(template, spark)
    return matching(pattern, sorted(set(found) - known))


def _in_folders(template: Job, spark: Any) -> list[str]:
    """From the folders that the name of a table may have, in one listing."""
    head, _, tail = template.sink.table.partition(TOPIC_FIELD)
    parent, slash, before = head.rpartition("/")
    after, more, below = tail.partition("/")
    storage = DeltaKernel(spark).storage((parent or slash) if slash else ".")
    try:
        store, root = open_store(storage)
        inside = store.get_file_info(pafs.FileSelector(root, allow_not_found=True))
        name = re.compile(f"{re.escape(before)}(.+){re.escape(after)}")
        named = [(entry.path, name.fullmatch(entry.base_name)) for entry in inside]
        topics = {
            posixpath.join(path, below if more else "", LEDGER_FOLDER, "_delta_log"): match[1]
            for path, match in named
            if match is not None
        }
        ledgers = store.get_file_info(list(topics))
    except OSError as error:
        raise StorageFailed(
            f"listing the tables of {template.sink.table}", why=str(error)
        ) from error
    return [topics[entry.path] for entry in ledgers if entry.type is not pafs.FileType.NotFound]


def _in_catalog(template: Job, spark: Any, known_tables: set[tuple[str, ...]]) -> list[str]:
    *outer, last = parts_of(template.sink.table)
    before, _, after = last.partition(TOPIC_FIELD)
    # A catalog may list names in lower case, however the job file spells them.
    text = f"{re.escape(before)}.+{re.escape(after)}{re.escape(LEDGER_SUFFIX)}"
    name = re.compile(text, re.IGNORECASE)
    schema = quoted(".".join(outer))
    if not spark.catalog.databaseExists(schema):
        return []
    listed = [table.name for table in spark.catalog.listTables(schema)]
    ledgers = [found.removesuffix(LEDGER_SUFFIX) for found in listed if name.fullmatch(found)]
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


def topics_in(job: Job, spark: Any) -> frozenset[str]:
    """The topics that this job has landed in its table."""
    return LandingTarget(spark, job).history.last_known(job.application).topics


def _with_table(template: Job, table: str) -> Job:
    return template.model_copy(update={"sink": template.sink.model_copy(update={"table": table})})
