"""Makes plans for data frames, which are read without landing anything and are not entered in any
ledger.

Without a ledger, ``checkpoint`` means what it means in the job's first run, and nothing is left out
because it has already landed. Apart from that, such a plan is like any other.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rangeland.cluster_access.cluster_lookup import look_up_cleanup, look_up_read_settings
from rangeland.cluster_access.job_survey import schema_ids_in_logs, survey_of
from rangeland.cluster_access.registry_lookup import look_up_row_format
from rangeland.errors import Conflict, RangelandError, UsageError
from rangeland.fetch.backoff import shared_rates
from rangeland.fetch.log_lines import log_loss
from rangeland.fetch.read_settings import ReadSettings
from rangeland.job import Job
from rangeland.job.connection_settings import request_for_range
from rangeland.landing.execution.plan_cluster_check import check_plan_is_of_source
from rangeland.loss import Action, DecidedLoss
from rangeland.model import Slice
from rangeland.planning.job_position import JobPosition
from rangeland.planning.loss_errors import FailingLosses, failing_error
from rangeland.planning.plan import Plan, in_planned_epochs
from rangeland.planning.plan_builder import PlanTerms, draft_new
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.task_packing import pack_tasks
from rangeland.untrusted import MAX_INT64, Unreadable, parse_json

logger = logging.getLogger(__name__)

_TASK_BYTES = 128 << 20

_OF_A_JOB = {
    "servers",
    "zookeeper",
    "topics",
    "topicpattern",
    "isolation",
    "tags",
    "compacted",
    "dialect",
    "from",
    "until",
}
KNOWN = _OF_A_JOB | {"job", "plan", "minpartitions", "loglevel", "logformat"}
"""The options of ``format("rangeland")``, in lower case because Spark ignores case."""


def job_of_options(options: Mapping[str, str]) -> Job:
    """The job that the options of a data source describe; it has no table."""
    if "job" in options:
        if conflicts := sorted(_OF_A_JOB & set(options)):
            raise UsageError(
                f"option job cannot be combined with {' and '.join(conflicts)}",
                why="the job file says what to read",
                do="omit one or the other",
            )
        return Job.load(options["job"])
    if "servers" not in options and "zookeeper" not in options:
        raise UsageError(
            "format rangeland does not know where to read from",
            do="give the options servers and topics, or job with the path of a job file",
        )
    lists = ("servers", "topics", "compacted")
    source: dict[str, Any] = {name: _split_list(options[name]) for name in lists if name in options}
    if "tags" in options:
        source["tags"] = _tags_of_text(options["tags"])
    fields = {"topicpattern": "topic_pattern"}
    fields |= {name: name for name in ("isolation", "dialect", "zookeeper")}
    source |= {field: options[name] for name, field in fields.items() if name in options}
    sides = {name: bound_of_text(options[name]) for name in ("from", "until") if name in options}
    return Job.parse(
        json.dumps(
            {
                "job": "data-frame",
                "source": source,
                "range": {"from": "earliest", **sides},
                "sink": {"table": "none"},
            }
        ),
        "options of format rangeland",
    )


def bound_of_text(text: str) -> Any:
    """A bound given as text: a word, or JSON for a mapping."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        return parse_json(text, unique_keys=True)
    except Unreadable as error:
        raise UsageError(
            f"{text} is not JSON", why=str(error), do='write it as {"orders": {"0": 23}}'
        ) from error


def _tags_of_text(text: str) -> Any:
    """The tags in the option, separated by commas or as a JSON list, since a tag may contain any
    characters, even commas."""
    if not text.lstrip().startswith("["):
        return _split_list(text) or [text]  # an empty text does not mean all messages
    try:
        return parse_json(text)
    except Unreadable as error:
        raise UsageError(
            f"option tags is {text}, which is not JSON",
            why=str(error),
            do='write it as A,B or ["A", "B"]',
        ) from error


def _split_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def freeze(job: Job, plan: Plan | None = None, min_tasks: int = 1) -> tuple[Plan, ReadSettings]:
    """A new plan of the job's range, or the given one, and the settings to read it. Raises Conflict
    if the given one was made for another dialect or cluster."""
    settings = look_up_read_settings(job)
    if plan is None:
        survey = survey_of(job, request_for_range(job), settings.cluster)
        settings = settings.with_versions_of(survey)
        row_format = look_up_row_format(job, schema_ids_in_logs(job, survey))
        draft = draft_new(_terms(job, min_tasks), survey, JobPosition())
        if draft.failing is not None:
            raise failing_error(draft.failing)
        if draft.held:
            raise _held_error(draft.held)
        log_left_out(draft)
        plan = draft.plan
        topics = {partition.topic for partition in survey.logs}
    else:
        _check_is_of_source(job, plan, settings)
        settings = settings.with_filter(plan.isolation, plan.tags)
        row_format = look_up_row_format(job, schema_ids_in_logs(job))
        topics = {slice_.partition.topic for slice_ in plan.slices}
    settings = look_up_cleanup(job, replace(settings, row_format=row_format), topics)
    return plan, _with_rates(job, settings, plan, min_tasks)


def _check_is_of_source(job: Job, plan: Plan, settings: ReadSettings) -> None:
    """Raises Conflict unless the plan is for the job's dialect and cluster."""
    if plan.dialect != job.source.dialect:
        raise Conflict(
            f"the plan is for {plan.dialect}, and the source for {job.source.dialect}",
            do="give the option dialect, or the job, that the plan was made with",
        )
    check_plan_is_of_source(plan, job.source, settings)


def _held_error(held: Sequence[DecidedLoss]) -> RangelandError:
    """The error for losses at which a policy holds partitions, which a run would record."""
    error = failing_error(FailingLosses(tuple(held)))
    return error.with_words(
        why=f"{error.why}; a data frame cannot record that it leaves out what `policy` holds",
        do="read it when all of it can be read, or leave the partition out; or land the job, which "
        "records what it holds",
    )


def log_left_out(draft: PlanDraft) -> None:
    """Logs what a run would report: what a policy skips or holds, what is uncertain, and what the
    limits of a run leave to the next one."""
    for loss in (*(x.with_action(Action.SKIP) for x in draft.plan.losses), *draft.held):
        log_loss(loss)
    for note in draft.notes:
        logger.warning("Noted while planning: %s", note)
    planned = (*draft.plan.ranges, *draft.already_landed)
    left = sum(r.width for r in draft.requested) - sum(r.width for r in planned)
    if left > 0:
        logger.warning("Left out %d offsets: `limits` are those of one run, and of a frame", left)


def _terms(job: Job, min_slices: int) -> PlanTerms:
    """The job's part in a plan that is not entered in any ledger."""
    return PlanTerms(
        job=job.name,
        application="rangeland/read",
        dialect=job.source.dialect,
        isolation=job.source.isolation,
        tags=job.source.tags,
        request=job.request,
        limits=job.run_limits,
        slicing=replace(job.slicing, min_slices=max(job.slicing.min_slices, min_slices)),
        kind=PlanKind.BACKFILL,
    )


def tasks_of_frame(plan: Plan, min_tasks: int, *, is_limited: bool) -> list[list[Slice]]:
    """The slices of a plan by task: ``min_tasks`` or more, if there are enough slices. Where the
    job limits the rate (``is_limited``) there are no others, since they would not read faster."""
    slices = in_planned_epochs(plan, plan.slices)
    return pack_tasks(slices, MAX_INT64 if is_limited else _TASK_BYTES, min_tasks)


def _with_rates(job: Job, settings: ReadSettings, plan: Plan, min_tasks: int) -> ReadSettings:
    """The settings, with the job's rate divided among the tasks: how many of them run at the same
    time is not known where the plan is made."""
    if (rate := job.limits.broker_bytes_per_second) is None:
        return settings
    tasks = tasks_of_frame(plan, min_tasks, is_limited=True)
    return replace(settings, rates=shared_rates(tasks, len(tasks), rate))
