"""The context that the steps of one landing command share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from rangeland.decode.payload.row_format import RowFormat
from rangeland.job import Job
from rangeland.landing.plan_surveys import PlanSurveys
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.planning.plan_kind import PlanKind
from rangeland.progress_events import Progress
from rangeland.spark.transform import Transform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class LandingContext:
    """The context of a command that lands, or that shows what would be landed, once its table has
    been read. The command's steps keep it, and take from it and its target what they need."""

    spark: SparkSession
    job: Job
    kind: PlanKind
    """The kind of the plans that the command makes, though it may finish others; RUN for
    ``apply``, which makes none."""
    target: LandingTarget
    """The table with its ledger and quarantine, as they were last read."""
    surveys: PlanSurveys
    """The surveys that its plans are made from."""
    progress: Progress
    row_format: RowFormat | None
    """How keys and values become typed columns: the same for all plans of the command. None if they
    stay bytes."""
    row_schema: pa.Schema
    """The columns of the rows to land, after the transform if there is one."""
    transform: Transform | None = None
    """The job's function from data frame to data frame, loaded."""
    began_at: float = 0.0
    """When the command began, by the monotonic clock."""
    warnings: list[str] = field(default_factory=list)
    """All warnings so far, for the command's result."""

    def schema_to_merge(self) -> str:
        """The schema of the written rows, if the table may have to adopt it."""
        return self.target.table.schema.schema_to_merge(self.row_schema)

    def warn(self, text: str) -> None:
        """Reports a warning, unless it has been reported before."""
        if text not in self.warnings:
            self.warnings.append(text)
            self.progress.warn(text)
