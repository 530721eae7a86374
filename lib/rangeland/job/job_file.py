"""The pydantic models of a job file, and their meaning as values.

Unknown keys are errors. ``value_parsers`` parses the values of fields; the descriptions of fields
here become the JSON schema and the table of settings. A secret is only ever a reference
(``${env:NAME}``, ``${file:PATH}``); it is looked up when a connection needs it, and never appears
in a plan, the ledger or a message.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from rangeland.decode.columns import PLAIN_COLUMNS, LogColumns
from rangeland.decode.payload.row_format import FLAT_COLUMNS
from rangeland.delta.stores.table_path import TablePath
from rangeland.delta.table_schema.schema_evolution import Evolution
from rangeland.dialects.dialect import load_dialect
from rangeland.job.decode_section import Decode
from rangeland.job.extends import read_job_text
from rangeland.job.job_mistakes import JobFileMistake, job_file_error, mistakes_of
from rangeland.job.job_text import JobText, override, parse_job_text
from rangeland.job.policy_section import PolicySpec
from rangeland.job.section import MisplacedKey, Section
from rangeland.job.source_section import Source
from rangeland.job.value_parsers import (
    TOPIC_FIELD,
    FirstRun,
    From,
    Milliseconds,
    Size,
    Until,
    Whole,
    without_secrets,
)
from rangeland.model import Bounds, Earliest, FromCheckpoint, Latest
from rangeland.planning.bound_resolution import RangeRequest
from rangeland.planning.plan import Plan
from rangeland.planning.policy import Policy, TopicRule
from rangeland.planning.run_limits import Limits
from rangeland.planning.slices import Slicing


class RangeSpec(Section):
    """What to land: where to begin, where to end, and what `checkpoint` means in the first run."""

    from_: From = Field(
        default=Bounds(FromCheckpoint()),
        alias="from",
        json_schema_extra={"default": "checkpoint"},
        description="The first offset to land. A time means the first record at or after it; a "
        "mapping lands only the partitions it lists.",
    )
    until: Until = Field(
        default=Bounds(Latest()),
        json_schema_extra={"default": "latest"},
        description="The first offset not to land: the same values except `checkpoint`. Resolved "
        "once per run.",
    )
    first_run: FirstRun = Field(
        default=Earliest(),
        json_schema_extra={"default": "earliest"},
        description="What `checkpoint` means in the job's first run, which decides where each "
        "partition begins. A partition that appears later is landed from its beginning.",
    )


class LimitSpec(Section):
    """The most that one run lands, shared fairly between partitions; the next run continues."""

    max_records: Whole | None = Field(default=None, gt=0, description="Offsets per run.")
    max_bytes: Size | None = Field(
        default=None, description="Bytes of the log per run, as the brokers store them."
    )
    broker_bytes_per_second: Size | None = Field(
        default=None,
        description="How fast all tasks of a run together may read from each broker. A broker's "
        "own quotas are always respected.",
    )


class SliceSpec(Section):
    """How ranges are cut into slices, which tasks read."""

    target_bytes: Size = Field(
        default=128 << 20, description="Bytes of the log per slice, and per task."
    )
    min_slices: Whole = Field(
        default=0,
        ge=0,
        description="At least this many, if there is enough to read; 0 means one per core.",
    )


class Sink(Section):
    """The table in which records are landed, and how they are written."""

    table: str = Field(
        min_length=1,
        json_schema_extra={"examples": ["lake/orders", "s3a://lake/orders", "main.sales.orders"]},
        description="Path or URI of a Delta table, or schema.table or catalog.schema.table. "
        "It is created if it does not exist. A path is used as it is, as Spark does: `%20` and "
        "`#` are part of a folder's name. With `{topic}` in it, such as `lake/{topic}`, each topic "
        "has a table of its own, with its own ledger and checkpoint.",
    )
    partition_by: tuple[str, ...] = Field(
        default=(),
        json_schema_extra={"examples": [["date(timestamp)"], ["hour(timestamp)", "topic"]]},
        description="Columns, or `date(column)` and `hour(column)`, which add a column `date` or "
        "`hour` in UTC. For a new table; an existing one keeps its partitioning.",
    )
    compression: Literal["zstd", "snappy", "none"] = Field(
        default="zstd", description="The compression of the Parquet files."
    )
    compression_level: int = Field(
        default=1,
        ge=-7,
        le=22,
        description="How hard zstd compresses. Higher levels make smaller files and take longer; "
        "levels below 0 save time, and their files are larger. Below -3 hardly any time is saved.",
    )
    target_file_bytes: Size = Field(
        default=256 << 20, description="A task starts a new file at about this size."
    )
    transform: str | None = Field(
        default=None,
        json_schema_extra={"pattern": r"^[\w.]+:[\w.]+$", "examples": ["my_module:my_function"]},
        description="module:function, which takes a DataFrame and returns one, applied to the rows "
        "before they are written.",
    )

    @field_validator("table")
    @classmethod
    def _possible(cls, table: str) -> str:
        """Refuses anything that cannot be a path, URI or table name."""
        if re.match(r"[A-Za-z]:[\\/]|\\\\", table):
            raise ValueError("a POSIX path, such as lake/orders, or a URI, not a Windows path")
        if not table.strip() or "\0" in table:
            raise ValueError("a path, a URI or the name of a table")
        if re.match(r"(?i)(https?|ftp|jdbc):", table):
            scheme = table.partition(":")[0]
            raise ValueError(f"a path or the URI of a store that can be written, not {scheme}:")
        where = TablePath.parse(table)
        if any(ord(c) < 32 or ord(c) == 127 for c in table):
            raise ValueError("a path without control characters")
        if where.scheme and not where.authority and not where.path.startswith("/"):
            raise ValueError("a path, or a URI with a slash after its scheme")
        if not table.startswith(where.scheme):
            raise ValueError(f"a URI whose scheme is in lower case, {where.scheme}:")
        if where.scheme == "file" and where.authority:
            raise ValueError("a path, or a file URI without a host, such as file:///lake/orders")
        fields = re.findall(r"(?i)\{\s*topics?\s*\}", table)
        if fields not in ([], [TOPIC_FIELD]):
            raise ValueError(f"{TOPIC_FIELD} once, where the topic's name belongs")
        return without_secrets(table)

    @model_validator(mode="after")
    def _level_of_zstd(self) -> Self:
        if self.compression != "zstd" and "compression_level" in self.model_fields_set:
            raise ValueError("compression_level only with compression: zstd")
        return self

    @field_validator("transform")
    @classmethod
    def _dotted_function(cls, transform: str | None) -> str | None:
        if transform is not None and not re.fullmatch(r"[\w.]+:[\w.]+", transform):
            raise ValueError("module:function")
        return transform

    @property
    def is_catalog_name(self) -> bool:
        name = self.table.replace(TOPIC_FIELD, "t")
        return re.fullmatch(r"[\w`-]+(\.[\w`-]+){1,2}", name) is not None

    @property
    def is_per_topic(self) -> bool:
        """Whether each topic has its own table."""
        return TOPIC_FIELD in self.table


class Group(Section):
    """A consumer group for the job. Exactly-once delivery never depends on it."""

    id: str = Field(
        min_length=1,
        description="Drivers that run the job at the same time share its partitions as members "
        "of this group; after a landing the checkpoint is committed as the group's offsets.",
    )
    assignment: Literal["range", "roundrobin", "sticky"] = Field(
        default="range",
        description="How members share partitions. Groups in ZooKeeper always use range, which "
        "also names RocketMQ's average allocation.",
    )
    session_ms: Milliseconds = Field(
        default=30_000,
        description="A driver that sends no heartbeat for this long loses its partitions, in ms.",
    )
    rebalance_ms: Milliseconds = Field(
        default=60_000,
        description="How long to wait for the other members in a rebalance, in ms: longer than a "
        "session, since a driver that was killed keeps its partitions for that long.",
    )

    @model_validator(mode="after")
    def _outlasts(self) -> Group:
        if self.rebalance_ms <= self.session_ms:
            expected = f"more than group.session_ms, which is {self.session_ms}"
            raise MisplacedKey(expected, "rebalance_ms")
        return self


class Job(Section):
    """One job file, validated."""

    name: str = Field(
        alias="job",
        pattern=r"^[a-z0-9][a-z0-9._-]*$",
        description="Names the checkpoint: a renamed job starts over, at `range.first_run`.",
    )
    source: Source
    range: RangeSpec = RangeSpec()
    limits: LimitSpec = LimitSpec()
    slices: SliceSpec = SliceSpec()
    decode: Decode = Decode()
    policy: PolicySpec = PolicySpec()
    sink: Sink
    group: Group | None = Field(default=None, description="A consumer group for the job.")

    @model_validator(mode="after")
    def _listed_topics(self) -> Job:
        for side, bounds in (("from", self.range.from_), ("until", self.range.until)):
            for topic in (partition.topic for partition in bounds.listed):
                if not self.source.reads(topic):
                    expected = f"ranges of topics of this job, not of {topic!r}"
                    raise MisplacedKey(expected, "range", side, topic)
        return self

    @model_validator(mode="after")
    def _policies_of_topics(self) -> Job:
        for pattern in self.policy.topics if self.source.topics else ():
            rule = TopicRule(pattern, ())
            if not any(rule.matches(topic) for topic in self.source.topics):
                expected = f"a topic of this job, which {pattern!r} is not"
                raise MisplacedKey(expected, "policy", "topics", pattern)
        return self

    @model_validator(mode="after")
    def _layout(self) -> Job:
        prefix = self.log_columns.prefix
        column = rf"(?i)(?:(?:date|hour)\(\s*)?{prefix}timestamp(?:type)?\s*\)?"
        time_columns = [w for w in self.sink.partition_by if re.fullmatch(column, w.strip())]
        dialect = self.source.dialect
        has_times = load_dialect(dialect).capabilities.has_timestamps
        if time_columns and not has_times and not self.sink.transform:
            expected = (
                f"columns other than {time_columns[0]}: messages of {dialect} have no timestamp"
            )
            raise MisplacedKey(expected, "sink", "partition_by")
        return self

    @staticmethod
    def load(path: str | Path, overrides: list[str] | None = None) -> Job:
        """The job of a file, with ``a.b=c`` overrides applied. Raises JobFileError, and UsageError
        for a malformed override."""
        return Job.of(override(read_job_text(Path(path)), overrides or []))

    @staticmethod
    def parse(text: str, name: str = "job") -> Job:
        """The job of a YAML text; messages call it ``name``."""
        return Job.of(parse_job_text(text, name))

    @staticmethod
    def of(text: JobText) -> Job:
        result = Job.job_or_mistakes(text)
        # Not raised inside a handler: pydantic's message repeats field names, secret or not.
        if not isinstance(result, Job):
            raise job_file_error(text, result)
        return result

    @staticmethod
    def job_or_mistakes(text: JobText) -> Job | list[JobFileMistake]:
        """The job, or the mistakes in its text."""
        try:
            return Job.model_validate(text.values)
        except ValidationError as error:
            return mistakes_of(Job, text, error)

    # --- the same as values -----------------------------------------------------------

    @property
    def application(self) -> str:
        """Delta's application id of this job's sequence of landings."""
        return f"rangeland/{self.name}"

    def is_own_run(self, plan: Plan) -> bool:
        """Whether a plan belongs to that sequence, and not to an application of its own."""
        return plan.application == self.application

    @property
    def request(self) -> RangeRequest:
        return RangeRequest(
            self.range.from_,
            self.range.until,
            self.range.first_run,
            self.policies,
            self.source.topic_pattern or "",
            self.source.topics,
        )

    @property
    def log_columns(self) -> LogColumns:
        """The names of the log's own columns in the job's table."""
        return FLAT_COLUMNS if self.decode.layout == "flat" else PLAIN_COLUMNS

    @property
    def evolution(self) -> Evolution:
        """The treatment of columns that the table lacks."""
        return Evolution(self.decode.evolution) if self.decode.is_typed else Evolution.FAIL

    @property
    def policies(self) -> Policy:
        return self.policy.values

    @property
    def run_limits(self) -> Limits:
        return Limits(self.limits.max_records, self.limits.max_bytes)

    @property
    def slicing(self) -> Slicing:
        return Slicing(self.slices.target_bytes, self.slices.min_slices)
