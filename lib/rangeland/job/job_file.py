"""A job file as a pydantic model, and its meaning as values. Each section has its own module.

Unknown keys are errors. ``value_parsers`` parses the values of fields; the descriptions of fields
become the JSON schema and the table of settings. A secret is only ever given as a reference
(``${env:NAME}``, ``${file:PATH}``); it is looked up when a connection needs it, and never appears
in a plan, the ledger or a message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from rangeland.decode.columns import PLAIN_COLUMNS, LogColumns
from rangeland.decode.payload.row_format import FLAT_COLUMNS
from rangeland.delta.table_schema.schema_evolution import Evolution
from rangeland.dialects.dialect import load_dialect
from rangeland.errors import JobFileError
from rangeland.job.decode_section import Decode
from rangeland.job.extends import read_job_text
from rangeland.job.group_section import Group
from rangeland.job.job_mistakes import JobFileMistake, job_file_error, mistakes_of
from rangeland.job.job_text import FieldPath, JobText, override, parse_job_text
from rangeland.job.policy_section import PolicySpec
from rangeland.job.range_section import LimitSpec, RangeSpec, SliceSpec
from rangeland.job.section import MisplacedKey, Section
from rangeland.job.sink_section import Sink
from rangeland.job.source_section import Source
from rangeland.job.text_patterns import JOB_NAME
from rangeland.planning.bound_resolution import RangeRequest
from rangeland.planning.plan import Plan
from rangeland.planning.policy import Policy, TopicRule
from rangeland.planning.run_limits import Limits
from rangeland.planning.slices import Slicing


@dataclass(frozen=True, slots=True)
class _Origin:
    """The text from which a job was made, if there is one; jobs made from different texts may be
    equal."""

    text: JobText | None = field(default=None, compare=False)


class Job(Section):
    """One job file, validated."""

    name: str = Field(
        alias="job",
        pattern=JOB_NAME,
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
    _origin: _Origin = PrivateAttr(default=_Origin())

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
        """The job in a file, with ``a.b=c`` overrides applied. Raises JobFileError, and UsageError
        for a malformed override."""
        return Job.of(override(read_job_text(Path(path)), overrides or []))

    @staticmethod
    def parse(text: str, name: str = "job") -> Job:
        """The job in a YAML text, which messages call ``name``."""
        return Job.of(parse_job_text(text, name))

    @staticmethod
    def of(text: JobText) -> Job:
        result = Job.job_or_mistakes(text)
        # Not raised inside a handler: pydantic's message repeats field names, even if they are
        # secrets.
        if not isinstance(result, Job):
            raise job_file_error(text, result)
        return result

    @staticmethod
    def job_or_mistakes(text: JobText) -> Job | list[JobFileMistake]:
        """The job, or the mistakes in its text."""
        try:
            job = Job.model_validate(text.values)
        except ValidationError as error:
            return mistakes_of(Job, text, error)
        job._origin = _Origin(text)
        return job

    def placed_error(self, error: JobFileError, path: FieldPath) -> JobFileError:
        """An error about a field that only shows when its value is used, with the file and line of
        the field added."""
        text = self._origin.text
        if text is None:
            return error
        return error.with_words(what=f"{text.where(path)}: {error.what}").with_facts(
            file=text.file_of(path), line=text.line_of(path)
        )

    # --- the same as values -----------------------------------------------------------

    @property
    def name_with_topic(self) -> str:
        """The job's name, with its topic if it is the job of one topic of a file that has a table
        for each."""
        topic = self._origin.text.topic if self._origin.text else ""
        return f"{self.name}.{topic}" if topic else self.name

    @property
    def application(self) -> str:
        """Delta's application id for this job's sequence of landings."""
        return f"rangeland/{self.name}"

    def is_own_run(self, plan: Plan) -> bool:
        """Whether a plan belongs to the sequence of the job's runs, as opposed to a separate one
        such as a backfill's."""
        return plan.application == self.application

    @property
    def request(self) -> RangeRequest:
        return RangeRequest(
            from_bounds=self.range.from_,
            until_bounds=self.range.until,
            first_run=self.range.first_run,
            policy=self.policies,
            topic_pattern=self.source.topic_pattern or "",
            topics=self.source.topics,
            partitions=self.source.partitions,
        )

    @property
    def log_columns(self) -> LogColumns:
        """The names of the log's own columns in the job's table."""
        return FLAT_COLUMNS if self.decode.layout == "flat" else PLAIN_COLUMNS

    @property
    def evolution(self) -> Evolution:
        """What to do about columns that the table lacks."""
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
