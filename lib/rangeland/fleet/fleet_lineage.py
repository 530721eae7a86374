"""Reports the landings of many jobs as OpenLineage events. One reporter serves them all: they end
with one wait for what was not sent, and with one warning."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from rangeland.fleet.fleet_result import CommandResult, FleetResult
from rangeland.fleet.topic_jobs import FailedFile
from rangeland.monitoring.lineage_reporter import LineageReporter

if TYPE_CHECKING:
    from rangeland.fleet.fleet_run import JobsProgress

R = TypeVar("R", bound=CommandResult)


def report_fleet(
    failed: Iterable[FailedFile],
    progress: JobsProgress,
    land: Callable[[LineageReporter], FleetResult[R]],
) -> FleetResult[R]:
    """Reports the files that cannot be used, as far as their jobs are known, calls ``land``, and
    returns its result once the events are sent. A warning about them is in the result of each
    job."""
    with LineageReporter(progress.warn) as reporter:
        for file in failed:
            if file.job:
                reporter.report_failure(file.job, file.error)
        fleet_result = land(reporter)
    jobs = tuple(job_result.with_warning(reporter.warning) for job_result in fleet_result.jobs)
    return replace(fleet_result, jobs=jobs)
