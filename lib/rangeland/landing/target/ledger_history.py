"""Reads from one version of the ledger how far jobs have landed, and with which options.

A prepared outcome covers its ranges, even if it is not in the table yet; ``job_history`` says
whether it has landed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from rangeland.delta.ledger.events import LossEvent, OutcomeEvent, PlanEvent
from rangeland.delta.ledger.ledger_view import LedgerView
from rangeland.loss import Action
from rangeland.model import Cluster, Isolation, Partition, Range
from rangeland.planning.coverage import Coverage, coverage_of, covered_parts, uncovered_parts
from rangeland.planning.incarnation import LogMark, checkpoint_after, with_later_epochs
from rangeland.planning.plan import Plan, PlanId
from rangeland.planning.read_options import LandedRead, ReadOptions
from rangeland.planning.retention_risk import MEASURED_RUNS, ReadSpeed, speed_of

MakeReadOptions = Callable[[Isolation, Sequence[str], Cluster | None], ReadOptions]


def plan_of(event: PlanEvent) -> Plan:
    return Plan.parse(event.document)


# --- how far ------------------------------------------------------------------------------


def coverage_in(ledger: LedgerView, without: Sequence[OutcomeEvent] = ()) -> Coverage:
    """The offsets that prepared outcomes account for, with or without rows. ``without``: outcomes
    that can no longer land."""
    return coverage_of(
        Range(partition, interval.from_offset, interval.until_offset, interval.topic_id)
        for partition, intervals in ledger.coverage(without).items()
        for interval in intervals
    )


def checkpoint_of(ledger: LedgerView, landed: PlanEvent) -> dict[Partition, LogMark]:
    """A job's checkpoint after a landed plan: held partitions stay where they were, and partitions
    whose log ended earlier than planned continue from that end."""
    events = ledger.losses(landed.plan_id)
    losses = [event.loss for event in events if event.plan_hash]
    return _in_later_epochs(checkpoint_after(plan_of(landed).checkpoint, losses), events)


def held_at_first(ledger: LedgerView, application: str) -> frozenset[Partition]:
    """Partitions that a job's first run held."""
    losses = (event.loss for event in ledger.losses(PlanId(application, 1)))
    return frozenset(loss.partition for loss in losses if loss.action is Action.HOLD)


def recent_checkpoints(
    ledger: LedgerView, application: str, limit: int
) -> set[tuple[Partition, int]]:
    """The marks at which the newest plans of an application begin and end. A group's offset may be
    either, since a first run may begin at the group's offset."""
    events = list(islice(ledger.plans(application=application), limit))
    plans = [plan_of(event) for event in events]
    ends = {(p, m.until_offset) for e in events for p, m in checkpoint_of(ledger, e).items()}
    ends |= {(p, mark.until_offset) for plan in plans for p, mark in plan.checkpoint.items()}
    return ends | {(r.partition, r.from_offset) for plan in plans for r in plan.ranges}


def expected_speed(ledger: LedgerView, application: str) -> ReadSpeed:
    """The speed at which the next run will probably read, calculated from the newest outcomes: the
    bytes of the log, and the seconds from plan to outcome. In between, a plan may have waited for
    another run to finish it, which the ledger does not show, so the fastest outcome counts."""
    runs = []
    for outcome in islice(ledger.outcomes(application), MEASURED_RUNS):
        plan = ledger.plan(outcome.plan_id)
        if plan is not None:
            size = sum(one.range.estimated_bytes for one in outcome.ranges)
            runs.append((size, (outcome.written_at_ms - plan.written_at_ms) / 1000))
    return speed_of(runs)


# --- how it was read ----------------------------------------------------------------------


def landed_reads(
    ledger: LedgerView, ranges: Sequence[Range], make_options: MakeReadOptions
) -> list[LandedRead]:
    """The read options with which each of these ranges was last landed. Reads the whole ledger, if
    there are any ranges. ``make_options`` drops the isolation if it makes no difference."""
    reads: list[LandedRead] = []
    remaining = list(ranges)
    for event, outcome in reversed(ledger.prepared_plans() if ranges else []):
        if not remaining:
            break
        covered = coverage_of(one.range for one in outcome.ranges)
        if parts := covered_parts(remaining, covered):
            plan = plan_of(event)
            options = make_options(plan.isolation, plan.tags, plan.cluster)
            marks = _marks_reached(plan, ledger.losses(event.plan_id), covered)
            reads += [
                LandedRead(part, options, plan.id, marks.get(part.partition)) for part in parts
            ]
            remaining = uncovered_parts(remaining, covered)
    return reads


def landed_clusters(ledger: LedgerView) -> set[Cluster]:
    """All clusters from which records are known to have landed in this table. Reads the whole
    ledger."""
    plans = (plan_of(event) for event, _ in ledger.prepared_plans())
    return {plan.cluster for plan in plans if plan.cluster is not None}


def _marks_reached(
    plan: Plan, losses: Sequence[LossEvent], covered: Coverage
) -> dict[Partition, LogMark]:
    """The marks of a plan's checkpoint up to which the plan itself has landed partitions:

    - one of its own ranges ends at the mark: other marks come from earlier plans, which may have
      read the log in another leader epoch;
    - and the last offset before the mark has landed, even if the plan holds earlier offsets."""
    if not plan.kind.traits.resolves_bounds:
        return {}
    marks = _in_later_epochs(plan.checkpoint, losses)
    last_offsets = [
        Range(r.partition, r.until_offset - 1, r.until_offset, r.topic_id) for r in plan.ranges
    ]
    ends = {(r.partition, r.until_offset) for r in covered_parts(last_offsets, covered)}
    return {p: mark for p, mark in marks.items() if (p, mark.until_offset) in ends}


def _in_later_epochs(
    marks: Mapping[Partition, LogMark], losses: Sequence[LossEvent]
) -> dict[Partition, LogMark]:
    """The marks, in the leader epochs in which a plan with these losses was read."""
    epochs = [(x.loss.partition, x.epoch) for x in losses if x.epoch is not None]
    return with_later_epochs(marks, epochs)
