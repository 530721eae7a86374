"""A job of one table, in the form in which commands get it. Imports little, since a command line
needs it early."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rangeland.job import Job
from rangeland.job.job_text import JobText

if TYPE_CHECKING:
    from rangeland.landing.drafts.plan_file import ReviewedPlan


@dataclass(frozen=True, slots=True)
class TableJob:
    """A job that lands in one table. ``template`` is the job of the file, if the file names a table
    for each topic."""

    job: Job
    text: JobText
    template: Job | None = None
    reviewed: ReviewedPlan | None = None
    """The plan to apply, if it was made earlier."""

    @property
    def name(self) -> str:
        """The job's name, with its topic if the file has a table for each topic."""
        return self.job.name_with_topic

    @property
    def table(self) -> str:
        return self.job.sink.table
