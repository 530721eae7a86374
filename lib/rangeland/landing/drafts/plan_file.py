"""A plan in a file: written by ``plan --out``, reviewed by a person, executed by ``apply``.

The file is JSON with line breaks, so that it can be read and compared. It contains the plan as in
the ledger, the losses that were found while planning, the job's values as in the job file
(references to secrets stay references), the location of the table, and a summary. A seal over the
entire content detects edits, so that either the reviewed plan is executed or none.

The seal is a checksum, not a signature: it detects an edit or a damaged copy, but anyone can change
a file and seal it again. So the content is validated like any other input, and a file deserves no
more trust than the people who can write to it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

from rangeland.delta.stores.table_path import TablePath
from rangeland.errors import Conflict, JobFileError, UsageError
from rangeland.job import Job, Sink
from rangeland.job.command_line_overrides import load_job
from rangeland.job.job_text import JobText, override
from rangeland.loss import DecidedLoss
from rangeland.planning.plan import PLAN_JSON, Plan, canonical, contradiction
from rangeland.record_codec import ColumnType
from rangeland.results import PlanPreview
from rangeland.untrusted import Unreadable, parse_json, require_type

FORMAT = 3
WITHOUT_SEEN = 2
"""An earlier format, without the losses that were found while planning."""
WITHOUT_LOCATION = 1
"""An earlier format, which also lacks the location of the table."""
MARK = "rangeland_plan_file"
MAX_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class ReviewedPlan:
    """The content of a plan file. ``location`` is the table's URI when the plan was made, None
    for a name in a catalog. ``topic`` is that of the job's text, which the file has separately, if
    the job file has a table for each topic."""

    text: JobText
    plan: Plan
    location: str | None
    unplanned_losses: tuple[DecidedLoss, ...] = ()
    topic: str = ""

    @property
    def hash(self) -> str:
        return self.plan.hash

    @property
    def job(self) -> Job:
        """The job as it was planned."""
        return Job.of(self.text)

    def job_with(self, settings: Sequence[str]) -> Job:
        """The job with ``a.b=c`` overrides applied."""
        return Job.of(override(self.text, settings))

    def in_place(self, job: Job) -> Job:
        """The job with the table that was reviewed: a relative path would name a different table
        when resolved in another folder."""
        if self.location is None:
            return job
        sink = Sink.model_validate({**job.sink.model_dump(), "table": self.location})
        return job.model_copy(update={"sink": sink})


def write_plan_file(path: Path, preview: PlanPreview, job_text: JobText) -> None:
    """Writes a previewed plan with its job to a file, or nothing at all. Raises UsageError if it
    cannot be written."""
    plan = preview.draft.plan
    document = {
        MARK: FORMAT,
        "summary": {
            "table": preview.table,
            "records": plan.width,
            "estimated_bytes": plan.estimated_bytes,
            "tasks": preview.tasks,
            "already_landed": [str(r) for r in preview.draft.already_landed],
            "held": [f"{loss}: {loss.evidence}" for loss in preview.draft.held],
        },
        **_CONTENT.write(
            ReviewedPlan(job_text, plan, preview.location, preview.unplanned_losses, job_text.topic)
        ),
    }
    document["seal"] = _seal(document)
    text = json.dumps(document, indent=2) + "\n"
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        try:
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"the plan file {path} cannot be written",
            why=error.strerror or str(error),
            do="name a file in a folder that exists and can be written to",
        ) from error


@dataclass(slots=True)
class PlanFolder:
    """Plan files of one command, each named after its job. If jobs of the same name land in several
    tables, the names of all but the first file contain a hash of the table."""

    path: Path
    _names: set[str] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def write(self, job_name: str, preview: PlanPreview, job_text: JobText) -> None:
        """Writes the file of one job. Any thread may call this. Raises as ``write_plan_file``
        does."""
        write_plan_file(self.path / self._name_of(job_name, preview.table), preview, job_text)

    def _name_of(self, job_name: str, table: str) -> str:
        with self._lock:
            name = f"{job_name}.json"
            if name.casefold() in self._names:  # Folders may treat A and a as the same.
                name = f"{job_name}-{hashlib.sha256(table.encode()).hexdigest()[:12]}.json"
            self._names.add(name.casefold())
            return name


def read_plan_file(path: Path) -> ReviewedPlan:
    """The job and the plan of a file. Raises UsageError if it cannot be read, JobFileError if
    it is not a plan file, Conflict if it was edited or has an unknown format."""
    document = _read(path)
    number = document[MARK]
    if isinstance(number, bool) or number not in (FORMAT, WITHOUT_SEEN, WITHOUT_LOCATION):
        raise Conflict(
            f"{path} is a plan file of format {number!r}",
            why=f"this version reads format {FORMAT}",
            do="apply it with the version that made it, or make the plan again",
        )
    plan = document.get("plan")
    if not isinstance(plan, dict) or _sha256(plan) != document.get("hash"):
        raise _edited_file_error(path, "the plan in it does not match its hash")
    if _seal(document) != document.get("seal"):
        raise _edited_file_error(path, "the job or the summary in it does not match its seal")
    reviewed = _read_content(path, document)
    if number == WITHOUT_LOCATION:
        _check_is_absolute(path, reviewed.job.sink)
    return reviewed


def job_of_plan(reviewed: ReviewedPlan, job_file: Path | None, settings: Sequence[str]) -> Job:
    """The job of the job file, or else of the plan file, with the overrides applied. Raises
    Conflict if the plan was not made for it."""
    job = reviewed.job_with(settings) if job_file is None else load_job(job_file, settings)[0]
    plan = reviewed.plan
    planned_job = reviewed.job
    pairs = {
        "job": (job.name, planned_job.name),
        "source.dialect": (job.source.dialect, plan.dialect),
        "source.isolation": (job.source.isolation, plan.isolation),
        "source.tags": (job.source.tags, plan.tags),
        "sink": (job.sink, planned_job.sink),
    }
    differing = [field for field, (value, planned) in pairs.items() if value != planned]
    if differing:
        sources = [] if job_file is None else [str(job_file)]
        sources += [f"--set {setting}" for setting in settings]
        raise Conflict(
            f"{' with '.join(sources)} is not the job that the plan was made for",
            why=f"{' and '.join(differing)} differ",
            do="make the plan again from this job, or apply the plan file alone",
            fields=differing,
        )
    return reviewed.in_place(job)


def _read_content(path: Path, document: Mapping[str, Any]) -> ReviewedPlan:
    """The content, validated even if the seal is right: the type of each value, and that plan and
    job belong together."""
    try:
        reviewed = _CONTENT.read(ReviewedPlan, {"seen": [], **document})
    except Unreadable as error:
        raise _damaged_file_error(path, str(error)) from error
    text = replace(reviewed.text, name=f"{path} (job)", topic=reviewed.topic)
    reviewed = replace(reviewed, text=text)
    defect = contradiction(reviewed.plan) or _mismatch(reviewed)
    if defect is not None:
        raise _damaged_file_error(path, defect)
    return reviewed


def _mismatch(reviewed: ReviewedPlan) -> str | None:
    """Why plan and job do not belong together, or None."""
    job = reviewed.job
    plan = reviewed.plan
    is_own = job.is_own_run(plan)
    if plan.job != job.name or not (is_own or plan.application.startswith(f"{job.application}/")):
        return f"its plan is for the job {plan.job} ({plan.application}), but its job is {job.name}"
    foreign = [r.partition for r in plan.ranges if not job.source.reads(r.partition.topic)]
    if foreign and not plan.replaces and is_own:
        return f"its plan reads {foreign[0]}, which its job does not ask for"
    if reviewed.topic and job.source.topics != (reviewed.topic,):
        return f"its topic is {reviewed.topic}, but its job reads {', '.join(job.source.topics)}"
    if plan.dialect != job.source.dialect:
        return f"its plan is for {plan.dialect}, but its job is for {job.source.dialect}"
    try:
        reviewed.in_place(job)
    except ValueError:  # its text repeats the location, which may contain anything
        return "its location cannot be the path or URI of a table"
    return None


def _check_is_absolute(path: Path, sink: Sink) -> None:
    """Raises Conflict for a relative path: nobody knows which table was reviewed."""
    where = TablePath.parse(sink.table)
    if sink.is_catalog_name or where.scheme or where.path.startswith("/"):
        return
    raise _unusable_plan_error(
        path,
        f"does not say in which folder its table {sink.table} is",
        f"plan files of format {WITHOUT_LOCATION} do not have it",
    )


def _read(path: Path) -> dict[str, Any]:
    """The JSON document of a plan file, whatever its content."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"the plan file {path} cannot be read",
            why=error.strerror or str(error),
            do="name a file that `rangeland plan JOB.yaml --out FILE` has written",
        ) from error
    try:
        document = parse_json(text, max_bytes=MAX_BYTES, unique_keys=True)
    except Unreadable as error:
        raise _not_a_plan_file_error(path, str(error)) from error
    if not isinstance(document, dict) or MARK not in document:
        raise _not_a_plan_file_error(path, f"it has no field {MARK}")
    return document


def _not_a_plan_file_error(path: Path, why: str) -> JobFileError:
    return JobFileError(
        f"{path} is not a plan file",
        why=why,
        do="make one with `rangeland plan JOB.yaml --out FILE`",
        file=str(path),
    )


def _damaged_file_error(path: Path, why: str) -> Conflict:
    return _unusable_plan_error(path, "does not have a plan that can be applied", why)


def _edited_file_error(path: Path, why: str) -> Conflict:
    return _unusable_plan_error(path, "was changed after it was written", why)


def _unusable_plan_error(path: Path, what: str, why: str) -> Conflict:
    return Conflict(
        f"{path} {what}",
        why=why,
        do="make the plan again with `rangeland plan JOB.yaml --out FILE` and review that",
        file=str(path),
    )


def _seal(document: Mapping[str, Any]) -> str:
    return _sha256({key: value for key, value in document.items() if key != "seal"})


def _sha256(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(document).encode()).hexdigest()


def _json_values(job_text: JobText) -> dict[str, Any]:
    """The job's values as JSON: keys become text, as they would be when read back."""
    try:
        values: dict[str, Any] = json.loads(json.dumps(job_text.values, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise JobFileError(
            f"{job_text.name} has a value that cannot be written to a plan file",
            why=str(error),
            do="write it as text or as a plain number",
        ) from error
    return values


_CONTENT = PLAN_JSON.with_views(
    {
        ReviewedPlan: "hash location topic? text=job plan unplanned_losses=seen",
        DecidedLoss: "*partition from_offset until_offset kind=verdict evidence topic_id action",
    },
    {
        "job": ColumnType(
            dict, _json_values, lambda job: JobText("job", require_type(job, dict, "job"))
        ),
        "plan": ColumnType(dict, Plan.to_json, Plan.from_json),
    },
)
"""These losses have an action, because they are not part of the plan, and so not always skipped."""
