"""The values that the steps of one command's landing share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rangeland.decode.payload.row_format import RowFormat
from rangeland.job import Job
from rangeland.landing.plan_surveys import PlanSurveys
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.progress_events import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class LandingContext:
    """The job, its Spark session, the table and ledger that it lands in, the surveys of its
    cluster, the receivers of progress and warnings, and the row format: made once, so that a run
    reads everything alike. Each step keeps the ones it needs as private attributes of these
    names."""

    spark: SparkSession
    job: Job
    target: LandingTarget
    surveys: PlanSurveys
    progress: Progress
    warn: Callable[[str], None]
    row_format: RowFormat | None = None
