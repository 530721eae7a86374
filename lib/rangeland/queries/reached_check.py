"""Checks once, without Spark, whether the logs have reached the end of a job's range.

Schedulers repeat the check until they have. A range by time should be landed only after its end is
reached: otherwise it ends at the end of the log, and records that are written later with an earlier
timestamp are in no interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.cluster_access.job_survey import survey_of
from rangeland.dialects.dialect import load_dialect
from rangeland.errors import UsageError
from rangeland.job import Job
from rangeland.job.connection_settings import request_for_topics
from rangeland.model import Isolation, Partition, Survey
from rangeland.planning.log_reach import can_be_awaited, reach, times_awaited
from rangeland.progress_events import Progress
from rangeland.query_results import ReachResult
from rangeland.survey.survey_request import SurveyRequest
from rangeland.survey.wanted_partitions import silent_brokers


def query_reach(
    job: Job,
    progress: Progress,
    idle_after_ms: int | None = None,
    clock: Callable[[], float] = time.time,
) -> ReachResult:
    """Compares the logs with the end of the job's range.

    Raises UsageError for an end that needs no waiting, and the errors of a survey."""
    until = job.range.until
    if not can_be_awaited(until):
        raise UsageError(
            "there is nothing to wait for",
            why="the range ends at latest, earliest or a group's offset, which always exist",
            do="give --until as a time or as offsets",
        )
    source = job.source
    progress.step(f"asking {source.where} for the ends of the logs")
    request = request_for_topics(job, times_ms=times_awaited(until))
    asked_at_ms = int(clock() * 1000)
    survey = survey_of(job, request)
    has_transactions = load_dialect(source.dialect).capabilities.has_transactions
    reach_now = partial(
        reach, until, survey, asked_at_ms, idle_after_ms, has_transactions=has_transactions
    )
    partitions = reach_now()
    if any(p.state == "idle" for p in partitions) and source.isolation is Isolation.READ_COMMITTED:
        open_partitions = _with_open_transactions(job, request, survey)
        partitions = reach_now(open_partitions)
    silent = silent_brokers(survey.absent.unanswered_brokers, request)
    # The partitions that are listed are named one by one, also those of these brokers.
    return ReachResult(job.name, asked_at_ms, partitions, {} if until.only_listed else silent)


def _with_open_transactions(job: Job, request: SurveyRequest, survey: Survey) -> set[Partition]:
    """Partitions that may have records of an open transaction, which brokers do not report, with
    their times, when asked for committed records. One that cannot be asked now may have some."""
    uncommitted = replace(look_up_cluster(job), isolation=Isolation.READ_UNCOMMITTED)
    everything = survey_of(job, replace(request, times_ms=()), uncommitted)
    return {
        partition
        for partition, log in survey.logs.items()
        if partition not in everything.logs
        or everything.logs[partition].end_offset > log.end_offset
    }
