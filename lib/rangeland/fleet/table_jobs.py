"""Which jobs a command is about: job files, folders of them, and a job for each topic of a file
whose ``sink.table`` contains ``{topic}``.

A topic that has a table is part of its job even when the cluster no longer has the topic: then
the policy about vanished logs applies to it, as in any job.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rangeland.errors import RangelandError, UsageError
from rangeland.fleet.landed_topics import landed_topics
from rangeland.groups.job_survey import survey_of
from rangeland.job import Job
from rangeland.job.connection_settings import wanted_of
from rangeland.job.located_values import JobText
from rangeland.job.topic_tables import (
    TableJob,
    is_asked_for,
    job_of_topic,
    refuse_shared_tables,
)

JOB_FILES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class FailedFile:
    """A job file whose tables are not known, and why. ``job`` is its name, if that is known."""

    name: str
    error: RangelandError
    job: str = ""


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """One job file. ``topics`` are those that the cluster has, if it was asked."""

    job: Job
    text: JobText
    topics: tuple[str, ...] | None = None


def job_files(paths: Iterable[Path]) -> list[Path]:
    """The job files among these; of a folder, all that it has itself, in the order of their names.
    Raises UsageError for a folder without any, and for what does not exist: a command line that
    is mistyped does nothing."""
    found: list[Path] = []
    for place, path in enumerate(paths, 1):
        if path.is_dir():
            found += files_in(path, JOB_FILES, "job files")
        elif path.exists():
            found.append(path)
        else:
            # `--set source.security.sasl.password hunter2` leaves a password over.
            raise UsageError(
                f"argument {place}, not repeated here, is neither a file nor a folder",
                do="Name job files, or folders of them; write --set as --set A.B=C",
            )
    return list(dict.fromkeys(found))


def files_in(folder: Path, suffixes: Collection[str], what: str) -> list[Path]:
    """The files with one of these endings in a folder itself. Raises UsageError if it has none."""
    inside = sorted(p for p in folder.iterdir() if p.suffix in suffixes and p.is_file())
    if not inside:
        endings = " or ".join(f"*{suffix}" for suffix in suffixes)
        raise UsageError(f"the folder {folder} has no {what}", do=f"Name a folder with {endings}")
    return inside


def loaded(
    paths: Iterable[Path], load: Callable[[Path], tuple[Job, JobText]], *, asks_cluster: bool
) -> tuple[list[LoadedFile], list[FailedFile]]:
    """The files, and those that cannot be used. Needs no Spark: an unreachable cluster shows
    before a session is started."""
    files: list[LoadedFile] = []
    failed: list[FailedFile] = []
    for path in paths:
        try:
            job, text = load(path)
            topics = topics_of(job) if asks_cluster and job.sink.is_per_topic else None
            files.append(LoadedFile(job, text, topics))
        except RangelandError as error:
            failed.append(FailedFile(str(path), error))
    return files, failed


def topics_of(job: Job) -> tuple[str, ...]:
    """The topics of a job: those that it lists, or those of the cluster that match its pattern.
    Raises what a survey raises."""
    if job.source.topic_pattern is None:
        return job.source.topics
    survey = survey_of(job, wanted_of(job))
    partitions = {*survey.logs, *survey.unreachable, *survey.elsewhere}
    return tuple(sorted({partition.topic for partition in partitions}))


def table_jobs(file: LoadedFile, spark: Any) -> list[TableJob]:
    """The jobs of a file: itself, or one for each topic. Raises JobFileError where two topics would
    share a table, and what ``landed_topics`` raises."""
    if not file.job.sink.is_per_topic:
        return [TableJob(file.job, file.text)]
    of_cluster = file.job.source.topics if file.topics is None else file.topics
    topics = sorted({*of_cluster, *landed_topics(file.job, spark, of_cluster)})
    refuse_shared_tables(file.job, topics)
    asked = [topic for topic in topics if is_asked_for(file.job, topic)]
    pairs = (job_of_topic(file.job, file.text, topic) for topic in asked)
    return [TableJob(job, text, file.job) for job, text in pairs]
