"""Has the log come as far as a job's range wants to end? One look, for those who wait.

Nothing here waits, and no Spark is started: a scheduler asks again when it likes, and the
answer of one look is a value. A range by time should be landed after its end is reached;
landed earlier it ends at the end of the log, and what is written later with an earlier
timestamp belongs to no interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rangeland.errors import UsageError
from rangeland.groups.job_survey import survey_of
from rangeland.job import Job
from rangeland.model import Isolation, Partition, Survey
from rangeland.planning.reached import PartitionReach, can_be_awaited, reach, times_awaited
from rangeland.progress import Progress
from rangeland.results import partition_json
from rangeland.survey.cluster_survey import SurveyRequest


@dataclass(frozen=True, slots=True)
class ReachResult:
    """Of ``reached``. ``asked_at_ms`` is the clock of the machine that asked, before it did:
    no broker tells its own."""

    job: str
    asked_at_ms: int
    partitions: tuple[PartitionReach, ...]

    @property
    def is_reached(self) -> bool:
        return all(p.state != "waiting" for p in self.partitions)

    def to_json(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "reached": self.is_reached,
            "asked_at_ms": self.asked_at_ms,
            "partitions": [
                {
                    **partition_json(p.partition),
                    "state": p.state,
                    "end": p.end_offset,
                    "until_offset": p.offset,
                }
                for p in self.partitions
            ],
        }


def reached(
    job: Job,
    progress: Progress,
    idle_after_ms: int | None = None,
    clock: Callable[[], float] = time.time,
) -> ReachResult:
    """One look at the logs against the end of the job's range.

    Raises UsageError for an end that nobody has to wait for, and as a survey does."""
    until = job.range.until
    if not can_be_awaited(until):
        raise UsageError(
            "there is nothing to wait for",
            why="the range ends at latest, earliest or a group's offset, which are always there",
            do="give --until as a time or as offsets",
        )
    source = job.source
    progress.step(f"asking {source.where} how far the logs are")
    wanted = SurveyRequest(
        source.topics, source.topic_pattern, source.partitions, times_ms=times_awaited(until)
    )
    asked_at_ms = int(clock() * 1000)
    survey = survey_of(job, wanted)
    found = reach(until, survey, asked_at_ms, idle_after_ms)
    if any(p.state == "idle" for p in found) and source.isolation is Isolation.READ_COMMITTED:
        unsettled = _unsettled(job, wanted, survey)
        found = reach(until, survey, asked_at_ms, idle_after_ms, unsettled)
    return ReachResult(job.job, asked_at_ms, found)


def _unsettled(job: Job, wanted: SurveyRequest, survey: Survey) -> set[Partition]:
    """Partitions that hold more than may be read yet: records of an open transaction, which
    a broker that is asked for committed ones keeps to itself, times and all."""
    everything = survey_of(job, replace(wanted, times_ms=()), Isolation.READ_UNCOMMITTED)
    return {
        partition
        for partition, log in everything.logs.items()
        if partition not in survey.logs or log.end_offset > survey.logs[partition].end_offset
    }
