"""``spark.read.format("rangeland")``: a plan as a Spark data source.

The plan is made once, together with the source, and is part of it: either by ``load``, or by the
first action on a frame whose ``schema`` was given. Every action reads the same offsets, whereas
other sources resolve "latest" each time. An existing plan can be given instead. Reading a frame
lands nothing and moves no checkpoint.

Options: ``servers``, or ``zookeeper`` if brokers are registered in one; ``topics`` (comma
separated) or ``topicPattern``; ``from`` and ``until`` as in a job file, or as JSON; ``isolation``;
``dialect``; ``tags`` of RocketMQ messages (comma separated, or a JSON list); ``compacted``, topics
whose logs may have gaps although brokers do not report it (comma separated). Instead of these,
``job`` gives the path of a job file; ``plan``, a plan's JSON, goes with either. ``logLevel`` and
``logFormat`` are as on the command line: Spark makes the source and its plan in a separate process,
which does not know how the driver logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from rangeland.dialects.row_schema import typed_rows
from rangeland.errors import Conflict, UsageError
from rangeland.fetch.read_settings import ReadSettings
from rangeland.logging_setup import LogFormat, LogLevel, LogSettings, configure, current_settings
from rangeland.model import Slice
from rangeland.planning.plan import Plan, contradiction
from rangeland.spark.plan_frames import checked_batches
from rangeland.spark.task_context import configure_task
from rangeland.untrusted import MAX_INT32, JsonFields, Unreadable, decimal, parse_json

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
except ImportError as error:
    raise UsageError(
        'format("rangeland") needs Spark 4.0 or later',
        why="Spark 3.5 has no data sources in Python",
        do="read a plan instead: rangeland.plan(job, spark).read(spark)",
    ) from error

Choice = TypeVar("Choice", bound=StrEnum)


_OF_KAFKA_SOURCE: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "servers",
    "subscribe": "topics",
    "subscribepattern": "topicPattern",
    "startingoffsets": "from",
    "startingoffsetsbytimestamp": "from",
    "startingtimestamp": "from",
    "endingoffsets": "until",
    "endingoffsetsbytimestamp": "until",
    "endingtimestamp": "until",
    "kafka.isolation.level": "isolation",
}
"""Options of Spark's own Kafka source, in lower case, and their names here."""


class RangelandSource(DataSource):
    """The data source; its options are described in the docstring of this module."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        lowered = {k.lower(): v for k, v in options.items()}
        self._logging = _log_settings(lowered)
        if self._logging != current_settings():
            configure(self._logging)
        # This must not wait: Spark asks a copy of the source for each reader, and may never ask for
        # a schema.
        self._plan, self._settings, self._min_tasks = _plan_of(lowered)

    @classmethod
    def name(cls) -> str:
        return "rangeland"

    def schema(self) -> StructType:
        return from_arrow_schema(typed_rows(self._plan.dialect, self._settings.row_format))

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self._plan, self._settings, self._min_tasks, self._logging)


@dataclass
class _Task(InputPartition):
    """One Spark partition: slices that are read one after another."""

    slices: Sequence[Slice]

    def __init__(self, slices: Sequence[Slice]) -> None:
        super().__init__(tuple(s.index for s in slices))
        self.slices = slices


class _Reader(DataSourceReader):
    """Reads the slices of a frozen plan, in at least as many tasks as were asked for."""

    def __init__(
        self, plan: Plan, settings: ReadSettings, min_tasks: int, logging: LogSettings
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._min_tasks = min_tasks
        self._logging = logging

    def partitions(self) -> Sequence[InputPartition]:
        from rangeland.dataframe.frozen_plan import tasks_of_frame

        is_limited = bool(self._settings.rates)
        tasks = tasks_of_frame(self._plan, self._min_tasks, is_limited=is_limited)
        # Spark asks for at least one partition, and an empty one reads nothing.
        return [_Task(task) for task in tasks] or [_Task(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Task)
        configure_task(self._logging)
        return checked_batches(self._plan, partition.slices, self._settings)


def _plan_of(options: Mapping[str, str]) -> tuple[Plan, ReadSettings, int]:
    """The plan that these options describe, the settings for reading it, and the smallest number of
    tasks. Raises UsageError for options that do not exist or do not go together."""
    from rangeland.dataframe.frozen_plan import KNOWN, freeze, job_of_options

    if unknown := sorted(set(options) - KNOWN):
        own = _OF_KAFKA_SOURCE.get(unknown[0])
        raise UsageError(
            f"there is no option {unknown[0]} for format rangeland",
            do=f"use {own}, which is its name here"
            if own
            else f"use one of {', '.join(sorted(KNOWN))}",
        )
    job = job_of_options(options)
    min_tasks = _number("minPartitions", options.get("minpartitions", "1"))
    plan = _given_plan(options["plan"]) if "plan" in options else None
    return *freeze(job, plan, min_tasks), min_tasks


def _log_settings(options: Mapping[str, str]) -> LogSettings:
    """The logging settings in the options; otherwise those of this process."""
    own = current_settings()
    return LogSettings(
        _choice("logLevel", LogLevel, options.get("loglevel", own.level)),
        _choice("logFormat", LogFormat, options.get("logformat", own.format)),
    )


def _choice(name: str, choices: type[Choice], text: str) -> Choice:
    try:
        return choices(text.strip().lower())
    except ValueError:
        do = f"use one of {', '.join(choices)}"
        raise UsageError(f"option {name} is {text}", do=do) from None


def _number(name: str, text: str) -> int:
    try:
        return decimal(text.strip(), name, 1, MAX_INT32)
    except Unreadable:
        raise UsageError(f"option {name} is {text}", do="give a whole number, 1 or more") from None


def _given_plan(text: str) -> Plan:
    """The plan of the option. Raises UsageError if it is not JSON, and Conflict if it is not a plan
    or was edited."""
    try:
        document = parse_json(text)
    except Unreadable as error:
        raise UsageError(
            "option plan is not a plan", why=str(error), do="give the JSON of a plan"
        ) from error
    plan = Plan.from_json(document)
    planned_hash = JsonFields(document).get("hash")
    defect = contradiction(plan)
    if planned_hash not in (None, plan.hash):
        defect = "it does not match its hash"
    if defect is not None:
        raise Conflict(
            "the plan of option plan was changed after it was made",
            why=defect,
            do="make it again with `rangeland plan JOB.yaml --json`",
        )
    return plan
