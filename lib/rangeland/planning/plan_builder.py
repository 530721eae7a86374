"""Makes a plan from a survey: resolve, leave out what has landed, limit, estimate, cut.

Pure arithmetic: the same inputs always give the same plan. The caller has surveyed the cluster and
read the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rangeland.loss import DecidedLoss, Loss
from rangeland.model import Earliest, FromCheckpoint, Isolation, Partition, Range, Survey
from rangeland.planning.bound_resolution import RangeRequest, ResolvedRequest, resolve
from rangeland.planning.coverage import covered_parts, uncovered_parts
from rangeland.planning.incarnation import LogMark
from rangeland.planning.job_position import JobPosition
from rangeland.planning.passed_over_ranges import (
    new_beginnings,
    passed_over_warnings,
    ranges_passed_over,
)
from rangeland.planning.plan import Plan, advance
from rangeland.planning.plan_draft import PlanDraft, skipped_loss_warnings
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.planned_ranges import PlannedRanges, with_estimate
from rangeland.planning.retention_risk import RetentionRisk, at_risk
from rangeland.planning.run_limits import Limits, apply_limits
from rangeland.planning.slices import Slicing, cut_slices


@dataclass(frozen=True, slots=True)
class PlanTerms:
    """The parts of a job that determine its plans."""

    job: str
    application: str
    dialect: str
    isolation: Isolation
    request: RangeRequest
    limits: Limits
    slicing: Slicing
    kind: PlanKind
    """Only a run moves the job's checkpoint. If it has a beginning of its own after the checkpoint,
    the checkpoint moves there even if nothing lands."""
    tags: tuple[str, ...] = ()
    schema_json: str = ""


def draft_new(
    terms: PlanTerms,
    survey: Survey,
    position: JobPosition,
    damaged: Sequence[DecidedLoss] = (),
    overwritten: Sequence[Loss] = (),
) -> PlanDraft:
    """Drafts a plan of the job's request, which is empty if losses fail. Raises as ``resolve``
    does. Leaves out empty ranges, and partitions that a policy holds because their log is
    ``damaged``."""
    resolved = _hold(damaged, resolve(terms.request, survey, position, overwritten))
    requested = [r for r in resolved.ranges if r.width > 0]
    expired = [x for x in resolved.losses if x.kind.traits.is_before_log_start]
    # Other losses are not recorded as gone, since those offsets may still appear.
    skipped = tuple(x for x in resolved.losses if not x.kind.traits.is_before_log_start)

    ranges = _ranges_to_land(requested, terms.limits, survey, position)
    planned = PlannedRanges.of(ranges, expired)
    risks = at_risk(planned.readable, survey)

    beginnings = _beginnings(terms, resolved.ranges, survey, position)
    checkpoint = move_checkpoint(position.checkpoint, [*beginnings, *ranges], survey)
    plan = make_plan(terms, survey, position.sequence, planned, checkpoint, risks)
    passed_over = ranges_passed_over(plan, position) if terms.kind.traits.moves_checkpoint else ()

    return PlanDraft(
        plan=plan,
        requested=tuple(requested),
        already_landed=tuple(covered_parts(requested, position.covered)),
        held=resolved.held,
        notes=(
            *passed_over_warnings(passed_over),
            *resolved.notes,
            *skipped_loss_warnings(skipped),
        ),
        skipped_losses=skipped,
        risks=risks,
        moves_without_landing=bool(_partitions(beginnings) - _partitions(ranges)),
        passed_over=passed_over,
        failing=resolved.failing,
    )


def _hold(damaged: Sequence[DecidedLoss], resolved: ResolvedRequest) -> ResolvedRequest:
    """The request without the partitions whose logs are damaged."""
    partitions = {loss.partition for loss in damaged}
    ranges = tuple(r for r in resolved.ranges if r.partition not in partitions)
    return replace(resolved, ranges=ranges, held=(*resolved.held, *damaged))


def _ranges_to_land(
    requested: Sequence[Range], limits: Limits, survey: Survey, position: JobPosition
) -> list[Range]:
    """The requested ranges that are not covered, within the limits of a run."""
    uncovered = [
        with_estimate(r, survey.logs[r.partition])
        for r in uncovered_parts(requested, position.covered)
    ]
    limited = apply_limits(uncovered, limits, survey.logs, position.sequence - 1)
    return [r for r in limited if r.width > 0]


def _beginnings(
    terms: PlanTerms, ranges: Sequence[Range], survey: Survey, position: JobPosition
) -> list[Range]:
    """The beginnings to which the checkpoint moves even if nothing lands there, as empty ranges:
    those named by ``first_run``, and those named by the request of a run."""
    first = _first_beginnings(terms.request, ranges, survey, position)
    if not terms.kind.traits.moves_checkpoint:
        return first
    return [*first, *new_beginnings(terms.request, ranges, survey.logs, position.checkpoint)]


def _first_beginnings(
    request: RangeRequest, ranges: Sequence[Range], survey: Survey, position: JobPosition
) -> list[Range]:
    """The beginnings of partitions to which ``first_run`` applies. It is resolved only once,
    because the end of a log, or the first offset of a time, may have changed by the next run. A
    beginning past the end of its log is moved back to the end, since records written there later
    have to be landed."""
    if isinstance(request.first_run, Earliest):
        return []
    ends = {p: log.end_offset for p, log in survey.logs.items()}
    begins = ((r, min(r.from_offset, ends[r.partition])) for r in ranges)
    return [
        replace(r, from_offset=begin, until_offset=begin)
        for r, begin in begins
        if isinstance(request.from_bounds.of(r.partition), FromCheckpoint)
        and r.partition not in position.checkpoint
        and (not position.checkpoint or r.partition in position.held_at_first)
    ]


def _partitions(ranges: Iterable[Range]) -> set[Partition]:
    return {r.partition for r in ranges}


# --- parts of every plan ------------------------------------------------------------------


def move_checkpoint(
    checkpoint: Mapping[Partition, LogMark], ranges: Sequence[Range], survey: Survey
) -> dict[Partition, LogMark]:
    """The checkpoint once these ranges have landed, in the leader epochs of the survey."""
    epochs = {r.partition: survey.logs[r.partition].leader.epoch for r in ranges}
    return advance(checkpoint, tuple(ranges), epochs, _with_later_epoch(ranges, survey))


def _with_later_epoch(ranges: Sequence[Range], survey: Survey) -> set[Partition]:
    """Partitions whose leader epoch was read from a batch after all of their ranges, which may
    belong to an earlier epoch."""
    ends = {r.partition: r.until_offset for r in sorted(ranges)}
    logs = {p: survey.logs[p] for p in ends}
    return {p for p, log in logs.items() if log.epoch_is_read and ends[p] < log.end_offset}


def make_plan(
    terms: PlanTerms,
    survey: Survey,
    sequence: int,
    planned: PlannedRanges,
    checkpoint: Mapping[Partition, LogMark],
    risks: Sequence[RetentionRisk] = (),
) -> Plan:
    """The plan of these ranges, cut into slices. Those at risk are read first."""
    return Plan(
        job=terms.job,
        application=terms.application,
        sequence=sequence,
        dialect=terms.dialect,
        isolation=terms.isolation,
        tags=terms.tags,
        ranges=planned.ranges,
        slices=tuple(cut_slices(planned.readable, terms.slicing, survey.logs, risks)),
        losses=planned.losses,
        checkpoint=checkpoint,
        made_at_ms=survey.taken_at_ms,
        kind=terms.kind,
        schema_json=terms.schema_json,
        cluster=survey.cluster,
    )
