"""``check``: tries everything that a run needs, and reports all problems at once.

Nothing is landed. A small test file is written to each of the table's folders and removed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from rangeland.cluster_access.job_survey import schema_ids_in_logs, survey_of
from rangeland.cluster_access.registry_lookup import look_up_row_format
from rangeland.dialects.dialect import dialect_names
from rangeland.errors import Conflict, RangelandError
from rangeland.job import Job
from rangeland.job.connection_settings import plaintext_secret_warnings, request_for_topics
from rangeland.landing.drafts.landing_checks import (
    check_draft_can_land,
    check_table_and_ledger_agree,
)
from rangeland.landing.drafts.planner import Planner
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.target.table_warnings import property_warnings, store_warning
from rangeland.model import Survey
from rangeland.progress_events import Progress
from rangeland.query_results import CheckedItem, CheckResult
from rangeland.run import open_landing
from rangeland.wording import count_noun, end_sentence, sentence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check(job: Job, open_spark: Callable[[], SparkSession], progress: Progress) -> CheckResult:
    """Tries everything a run needs."""
    parts = CheckedParts(job, open_spark, progress)
    findings = [CheckedItem("job file", True, f"job {job.name} is well formed")]
    errors: list[RangelandError] = []

    def look(name: str, check_item: Callable[[], str]) -> bool:
        progress.step(f"checking {name}")
        try:
            findings.append(CheckedItem(name, True, check_item()))
        except RangelandError as error:
            findings.append(CheckedItem(name, False, str(error)))
            errors.append(error)
            return False
        return True

    for text in plaintext_secret_warnings(job):
        findings.append(CheckedItem("security", True, f"warning: {text}"))
    look("dialect", lambda: _dialect(job))
    brokers_answer = look("brokers", lambda: _brokers(job, parts.survey))
    if brokers_answer and job.decode.is_typed:
        look("schemas", lambda: _schemas(job, parts.survey))
    if look("spark", lambda: _spark(parts.spark)):
        look("table", lambda: _table(parts.landing))
        if brokers_answer:
            look("plan", lambda: _plan(parts.landing))
    return CheckResult(job.name, tuple(findings), errors[0] if errors else None)


class CheckedParts:
    """The parts of a job that several items of the check look at. Each part is made when an item
    first needs it; later items reuse it, or try again if that failed."""

    def __init__(
        self, job: Job, open_spark: Callable[[], SparkSession], progress: Progress
    ) -> None:
        self._job = job
        self._open_spark = open_spark
        self._progress = progress

    @cached_property
    def survey(self) -> Survey:
        return survey_of(self._job, request_for_topics(self._job, self._job.source.topics))

    @cached_property
    def spark(self) -> SparkSession:
        return self._open_spark()

    @cached_property
    def landing(self) -> LandingContext:
        return open_landing(self._job, self.spark, self._progress)


def _dialect(job: Job) -> str:
    if job.source.dialect not in dialect_names():
        raise Conflict(
            f"dialect {job.source.dialect} is not available",
            why=f"this installation has {', '.join(dialect_names())}",
            do="correct source.dialect, or install the version that has it",
        )
    return job.source.dialect


def _brokers(job: Job, survey: Survey) -> str:
    """The size of the job's topics, and which of them are missing."""
    # The plan can tell whether a missing topic has vanished or never existed.
    missing = sorted({*job.source.topics} - {partition.topic for partition in survey.logs})
    leaders = {str(log.leader.address) for log in survey.logs.values()}
    records = sum(log.end_offset - log.start_offset for log in survey.logs.values())
    sizes = (
        f"{count_noun(len(survey.logs), 'partition')} on {count_noun(len(leaders), 'leader')}, "
        f"{count_noun(records, 'offset')}"
    )
    return f"{sizes}; missing: {', '.join(missing)}" if missing else sizes


def _schemas(job: Job, survey: Survey) -> str:
    row_format = look_up_row_format(job, schema_ids_in_logs(job, survey))
    formats = {} if row_format is None else {"keys": row_format.key, "values": row_format.value}
    return ", ".join(
        f"{name} are {payload_format.name}"
        for name, payload_format in formats.items()
        if payload_format is not None
    )


def _spark(spark: SparkSession) -> str:
    _ = spark.sparkContext  # a run cannot land without it
    return f"Spark {spark.version} with Delta"


def _table(context: LandingContext) -> str:
    """Whether the table accepts the job's rows and can be written, as a sentence with notes."""
    table = context.target.table
    schema = table.schema
    schema.layout(context.row_schema)
    notes = (
        *schema.notes(context.row_schema),
        *filter(None, [store_warning(table.location, replaces=True)]),
        *property_warnings(table.snapshot),
    )
    if table.version is None:
        table.location.check_folder_is_free()
        table.location.try_store()
        return _with_notes(f"{table.name} does not exist yet, but can be created", notes)
    table.location.try_store()
    check_table_and_ledger_agree(context)
    at = f"{table.name} is at version {table.version}"
    return _with_notes(f"{at}, accepts these rows, and can be written", notes)


def _with_notes(text: str, notes: Sequence[str]) -> str:
    return " ".join([end_sentence(text), *map(sentence, notes)]) if notes else text


def _plan(context: LandingContext) -> str:
    draft = Planner(context).draft()
    check_draft_can_land(context, draft)
    if draft.is_empty:
        return "there is nothing to land now"
    plan = draft.plan
    ranges = count_noun(len(plan.ranges), "range")
    return f"a run would land {count_noun(plan.width, 'offset')} in {ranges}"
