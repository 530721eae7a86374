"""A job's position and the fate of its plans, from its table and the ledger beside it.

A plan has landed once the table has its transaction; the ledger shows what it landed, held and
lost. Nothing here writes or asks a broker: see ``target_writer``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from rangeland.delta.ledger.events import LossEvent, OutcomeEvent, PlanEvent
from rangeland.delta.table_metadata import CommitMetadata
from rangeland.delta.transaction_log import table_commit
from rangeland.errors import Bug, Conflict
from rangeland.job import Job
from rangeland.landing.target.identity_check import IdentityCheck
from rangeland.landing.target.target_ledger import TargetLedger
from rangeland.landing.target.target_table import TargetTable
from rangeland.loss import Action
from rangeland.model import Cluster, Isolation, Partition, Range
from rangeland.planning.coverage import Coverage, coverage_of, covered_parts, uncovered_parts
from rangeland.planning.incarnation import LogMark, checkpoint_after, with_later_epochs
from rangeland.planning.job_position import JobPosition
from rangeland.planning.plan import Plan, PlanId
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.read_options import LandedRead, ReadOptions

_AHEAD = "the checkpoint is ahead of the data, and landing on top would leave a hole"
MakeReadOptions = Callable[[Isolation, Sequence[str], Cluster | None], ReadOptions]


@dataclass(frozen=True, slots=True)
class EnteredPlan:
    """A plan that is in the ledger, with its outcome once that is prepared, and the version that
    the table had when it was entered, if that is known."""

    plan: Plan
    planned_at_version: int | None
    outcome: OutcomeEvent | None


class JobHistory:
    """The contents of table and ledger at the last refresh of the ledger."""

    def __init__(
        self, job: Job, table: TargetTable, ledger: TargetLedger, identity: IdentityCheck
    ) -> None:
        self._job = job
        self._table = table
        self._ledger = ledger
        self._identity = identity

    # --- where the job stands ----------------------------------------------------------

    def position(self, application: str) -> JobPosition:
        """The position at which the next plan of an application begins, as of the last
        ``refresh``."""
        sequence = self._identity.landed_sequence(application)
        own = self._job.application
        newest = self._plan_entry(PlanId(own, self._identity.landed_sequence(own)))
        checkpoint = self._checkpoint(newest) if newest is not None else {}
        last = None if newest is None else _plan_of(newest)
        return JobPosition(
            checkpoint,
            self._coverage(),
            sequence + 1,
            self._held_at_first(checkpoint),
            None if last is None else last.cluster,
            None if last is None else (last.isolation, last.tags),
        )

    def last_known(self, application: str) -> JobPosition:
        """The position after the last landing in the ledger, with the last sequence in it or in the
        table, without checking that the two agree."""
        sequence = self._table.transaction_version(application)
        outcome = next(self._ledger.view.outcomes(application), None)
        plan = self._ledger.view.plan(outcome.plan_id) if outcome else None
        checkpoint = {} if plan is None else self._checkpoint(plan)
        last = max(sequence, self._ledger.view.last_sequence(application))
        return JobPosition(checkpoint, self._coverage(), last + 1)

    def _held_at_first(self, checkpoint: Mapping[Partition, LogMark]) -> frozenset[Partition]:
        """Partitions that the job's first run held and no later run has landed."""
        losses = self.losses(PlanId(self._job.application, 1)) if checkpoint else []
        held = {x.loss.partition for x in losses if x.loss.action is Action.HOLD}
        return frozenset(held - checkpoint.keys())

    def _checkpoint(self, landed: PlanEvent) -> dict[Partition, LogMark]:
        """A job's checkpoint after a landed plan: held partitions stay where they were, and
        partitions whose log ended earlier than planned continue from that end."""
        events = self.losses(landed.plan_id)
        losses = [event.loss for event in events if event.plan_hash]
        return _in_later_epochs(checkpoint_after(_plan_of(landed).checkpoint, losses), events)

    def losses(self, plan_id: PlanId | None = None) -> list[LossEvent]:
        """The losses in the ledger, of one plan or of all."""
        return self._ledger.view.losses(plan_id)

    def _plan_entry(self, plan_id: PlanId) -> PlanEvent | None:
        """A plan that the table has landed, as it is in the ledger; None for sequence 0, and
        without a ledger."""
        if self._ledger.opened is None or plan_id.sequence <= 0:
            return None
        event = self._ledger.view.plan(plan_id)
        if event is None:
            self._ledger.opened.refresh()
            event = self._ledger.view.plan(plan_id)
        if event is None:
            raise Conflict(
                f"the table says that {plan_id.application} has landed {plan_id.sequence}, but the "
                "ledger has no such plan",
                why="the ledger was deleted, or the table is a copy of another one",
                do="restore the folder _rangeland beside the table's files, or land under "
                "another job name",
            )
        return event

    def _coverage(self) -> Coverage:
        return coverage_of(
            Range(partition, span.from_offset, span.until_offset, span.topic_id)
            for partition, spans in self._ledger.view.coverage().items()
            for span in spans
        )

    def landed_reads(
        self, ranges: Sequence[Range], make_options: MakeReadOptions
    ) -> list[LandedRead]:
        """The read options with which each of these ranges was last landed. Reads the whole ledger.
        ``make_options`` drops the isolation where it makes no difference."""
        reads: list[LandedRead] = []
        remaining = list(ranges)
        for event, outcome in reversed(self._ledger.view.prepared_plans()):
            if not remaining:
                break
            covered = coverage_of(one.range for one in outcome.ranges)
            if parts := covered_parts(remaining, covered):
                plan = _plan_of(event)
                options = make_options(plan.isolation, plan.tags, plan.cluster)
                marks = self._marks_reached(event, plan, covered)
                reads += [
                    LandedRead(part, options, plan.id, marks.get(part.partition)) for part in parts
                ]
                remaining = uncovered_parts(remaining, covered)
        return reads

    def _marks_reached(
        self, event: PlanEvent, plan: Plan, covered: Coverage
    ) -> dict[Partition, LogMark]:
        """How far a plan has landed its partitions: those marks of its checkpoint

        - at which one of its own ranges ends: others are of earlier plans, which may have read the
          log in another leader epoch,
        - and whose last offset it has landed, even if it holds offsets before that."""
        if not plan.kind.traits.resolves_bounds:
            return {}
        marks = _in_later_epochs(plan.checkpoint, self.losses(event.plan_id))
        last_offsets = [
            Range(r.partition, r.until_offset - 1, r.until_offset, r.topic_id) for r in plan.ranges
        ]
        ends = {(r.partition, r.until_offset) for r in covered_parts(last_offsets, covered)}
        return {p: mark for p, mark in marks.items() if (p, mark.until_offset) in ends}

    def clusters(self) -> set[Cluster]:
        """All clusters from which records are known to have landed in this table."""
        plans = (_plan_of(event) for event, _ in self._ledger.view.prepared_plans())
        return {plan.cluster for plan in plans if plan.cluster is not None}

    def unfinished_plans(self) -> list[EnteredPlan]:
        """Plans of any job that are entered and not in the table, oldest first."""
        plans, ledger = [], self._ledger.view
        for plan_id in ledger.possibly_unfinished():
            if self._identity.landed_sequence(plan_id.application) >= plan_id.sequence:
                continue
            event = ledger.plan(plan_id)
            if event is None:
                raise Bug(f"the ledger names plan {plan_id} and does not have it")
            outcome = ledger.outcome(plan_id)
            plans.append(EnteredPlan(_plan_of(event), event.table_version, outcome))
        return plans

    def entered_plan(self, plan: Plan) -> EnteredPlan | None:
        """The same plan, if it is in the ledger, finished or not."""
        same = next((u for u in self.unfinished_plans() if u.plan.hash == plan.hash), None)
        return same or self.plan_with_outcome(plan)

    def plan_with_outcome(self, plan: Plan) -> EnteredPlan | None:
        """The same plan with its outcome, if it was entered earlier and has one."""
        outcome = self._ledger.view.outcome(plan.id)
        if outcome is None or outcome.plan_hash != plan.hash:
            return None
        return EnteredPlan(plan, None, outcome)

    def last_removal(self) -> table_commit.Restored | CommitMetadata | None:
        """A RESTORE, or a commit that replaced all rows, that may have removed rows of this job:
        one since the job entered a plan that is not a repair, or a repair that has landed
        everything that was missing."""
        planned_at = None if self._table.snapshot is None else self._last_planned_at()
        if planned_at is None:
            return None
        delta, path = self._table.delta, self._table.uri
        commits = delta.commits(path, planned_at + 1)
        restored = table_commit.last_restore(delta, path, planned_at, commits)
        return restored or table_commit.last_replacement(commits)

    def _last_planned_at(self) -> int | None:
        """The version of the table for which the job's newest plan was made, not counting repairs
        that left rows missing; 0 if there are only such repairs. Any other plan is entered only if
        no rows are missing, or to adopt the table."""
        planned_at = None
        for event in self._ledger.view.plans(job=self._job.name):
            if not _is_repair(event) or self._has_repaired_all(event):
                return event.table_version
            planned_at = 0
        return planned_at

    def _has_repaired_all(self, event: PlanEvent) -> bool:
        """Whether table and ledger show each missing row as restored, or its loss as recorded. A
        policy may have held some of them, before or while the plan was read."""
        outcome = self._ledger.view.outcome(event.plan_id)
        landed = self._table.transaction_version(event.application)
        if outcome is None or landed < event.sequence or not _plan_of(event).repairs_all:
            return False
        planned = [one.range for one in event.ranges]
        return not uncovered_parts(planned, coverage_of(one.range for one in outcome.ranges))

    def removal_error(self, removal: table_commit.Restored | CommitMetadata) -> Conflict:
        """The error for the rows that this commit removed."""
        name, version = self._table.name, removal.version
        do = (
            f"restore the table to version {version - 1}; or land them again with `rangeland "
            "backfill JOB.yaml --missing`; or, if what is still missing is not wanted or cannot be "
            "landed again, run `rangeland adopt JOB.yaml`"
        )
        if isinstance(removal, CommitMetadata):
            return Conflict(
                f"all rows of the table {name} were replaced at version {version}",
                why=f"{removal.operation} removed rows that were landed; {_AHEAD}",
                do=do,
                at_version=version,
            )
        lost = ", ".join(map(str, removal.lost))
        return Conflict(
            f"the table {name} was restored to version {removal.restored_to}",
            why=f"rows of these landings are gone: {lost}; {_AHEAD}",
            do=do,
            restored_to=removal.restored_to,
            at_version=version,
        )

    @property
    def is_untouched(self) -> bool:
        """Whether nothing can have landed here yet: there is no table, and the ledger is empty or
        missing; or there is no ledger, and the table has never been written to."""
        if self._table.snapshot is None:
            return self._ledger.view.newest() is None
        if self._ledger.opened is not None:
            return False
        return self._table.version == 0 and not any(True for _ in self._table.snapshot.files())

    def landings(self) -> list[tuple[PlanEvent, OutcomeEvent]]:
        """All plans of all jobs that are in the table, in the order they were entered, each with
        its outcome. Raises Conflict if the table has rows but no ledger."""
        if self._ledger.opened is None:
            raise self._identity.disagreement_error() or Conflict(
                f"the table {self._table.name} has no ledger",
                why="this library has landed nothing in it, or its folder _rangeland is gone",
                do="land something first, or restore the folder _rangeland",
            )
        sequences: dict[str, int] = {}
        landings = []
        for plan, outcome in self._ledger.view.prepared_plans():
            application = plan.application
            if application not in sequences:
                sequences[application] = self._last_sequence(application)
            if plan.sequence <= sequences[application]:
                landings.append((plan, outcome))
        return landings

    def _last_sequence(self, application: str) -> int:
        """The last sequence in the table, or if that is unknown, in the ledger: reading the table
        then shows whether its rows are there."""
        try:
            return self._identity.landed_sequence(application)
        except Conflict:
            return self.last_known(application).sequence - 1

    def checkpoints(self, application: str, limit: int) -> set[tuple[Partition, int]]:
        """The marks at which the newest plans of an application begin and end. A group's offset may
        be either, since a first run may begin at the group's offset."""
        events = list(islice(self._ledger.view.plans(application=application), limit))
        plans = [_plan_of(event) for event in events]
        ends = {(p, m.until_offset) for e in events for p, m in self._checkpoint(e).items()}
        ends |= {(p, mark.until_offset) for plan in plans for p, mark in plan.checkpoint.items()}
        return ends | {(r.partition, r.from_offset) for plan in plans for r in plan.ranges}

    def newest_outcomes(self, application: str, limit: int) -> list[OutcomeEvent]:
        """The newest outcomes of an application, newest first."""
        return list(islice(self._ledger.view.outcomes(application), limit))

    def pace(self, application: str) -> list[tuple[int, float]]:
        """(bytes of the log, seconds from plan to outcome) of the newest two outcomes, newest
        first."""
        speeds = []
        for outcome in self.newest_outcomes(application, 2):
            plan = self._ledger.view.plan(outcome.plan_id)
            if plan is not None:
                size = sum(one.range.estimated_bytes for one in outcome.ranges)
                speeds.append((size, (outcome.written_at_ms - plan.written_at_ms) / 1000))
        return speeds


def _in_later_epochs(
    marks: Mapping[Partition, LogMark], losses: Sequence[LossEvent]
) -> dict[Partition, LogMark]:
    """The marks, in the leader epochs in which a plan with these losses was read."""
    epochs = [(x.loss.partition, x.epoch) for x in losses if x.epoch is not None]
    return with_later_epochs(marks, epochs)


def _plan_of(event: PlanEvent) -> Plan:
    return Plan.parse(event.document)


def _is_repair(event: PlanEvent) -> bool:
    return PlanKind.of_application(event.job, event.application).traits.repairs
