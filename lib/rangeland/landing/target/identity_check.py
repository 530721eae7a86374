"""Checks what has landed, and whether a table and the ledger beside it belong together.

Each names the other. The table has the ledger's id in its property ``rangeland.ledger``, and its
transactions record what has landed; every plan in the ledger has the table's id. If they disagree,
nothing may land until an operator has decided, or records could land twice or never.
``table_adoption`` records that decision.

A property survives checkpoints, ``OPTIMIZE`` and ``INSERT OVERWRITE``; ``CREATE OR REPLACE`` and
clones lose it. A Delta checkpoint drops transactions that are older than
``delta.setTransactionRetentionDuration``.

``identity_judgement`` judges; this module asks its questions, and raises the error that a judgement
calls for.
"""

from __future__ import annotations

from dataclasses import replace

from rangeland.delta.ledger.events import PlanEvent
from rangeland.errors import Conflict
from rangeland.landing.target.identity_judgement import (
    IdentityEvidence,
    IdentityJudgement,
    IdentityQuestion,
    LandingEvidence,
    LandingJudgement,
    LandingQuestion,
    LedgerIdentity,
    PlanEvidence,
    TableIdentity,
    judge_identity,
    judge_landing,
)
from rangeland.landing.target.table_warnings import RETENTION_PROPERTY
from rangeland.landing.target.target_ledger import TargetLedger
from rangeland.landing.target.target_table import TargetTable
from rangeland.planning.plan import PlanId
from rangeland.wording import count_noun

LEDGER_PROPERTY = "rangeland.ledger"
_ADOPT = (
    "or, if the table is as it should be, `rangeland adopt JOB.yaml`, which counts its present "
    "rows as landed"
)


class IdentityCheck:
    """Checks a table and the ledger beside it against each other."""

    def __init__(self, application: str, table: TargetTable, ledger: TargetLedger) -> None:
        self._application = application
        self._table = table
        self._ledger = ledger
        self._sequences: dict[LandingEvidence, int] = {}

    # --- what has landed ----------------------------------------------------------------

    def has_landed(self, plan_id: PlanId) -> bool:
        """Whether the table had a plan when it was last read. Raises Conflict if nothing shows
        whether it did."""
        return self.landed_sequence(plan_id.application) >= plan_id.sequence

    def landed_sequence(self, application: str) -> int:
        """The last sequence of an application that is in the table; 0 for none. Raises Conflict if
        nothing shows which one it is."""
        newest = PlanId(application, self._ledger.view.last_sequence(application))
        transaction = self._table.transaction_version(application)
        evidence = LandingEvidence(newest, transaction, self._table.version)
        if evidence not in self._sequences:
            self._sequences[evidence] = self._sequence_by(evidence)
        return self._sequences[evidence]

    def _sequence_by(self, evidence: LandingEvidence) -> int:
        newest = evidence.plan_id
        match self._judge_landing(evidence):
            case LandingJudgement.LANDED:
                return max(newest.sequence, evidence.transaction)
            case LandingJudgement.NOT_LANDED:
                return newest.sequence - 1
            case LandingJudgement.CONTRADICTION if self._was_read_too_early(evidence):
                return evidence.transaction
            case LandingJudgement.CONTRADICTION:
                raise _contradiction_error(self._table.name, newest, evidence.transaction)
            case LandingJudgement.UNKNOWN:
                raise _unknown_landing_error(self._table.name, newest)

    def _judge_landing(self, evidence: LandingEvidence) -> LandingJudgement:
        ledger = self._ledger.view
        plan_id = evidence.plan_id
        while True:
            match judge_landing(evidence):
                case LandingQuestion.PLAN:
                    evidence = replace(evidence, plan=self._plan_evidence(plan_id))
                case LandingQuestion.LOG:
                    planned_at_version = evidence.plan.planned_at_version if evidence.plan else 0
                    location = self._table.location
                    log = location.delta.commits(location.uri, planned_at_version)
                    evidence = replace(evidence, log=log)
                case LandingQuestion.HAS_FILES:
                    outcome = ledger.outcome(plan_id)
                    files = () if outcome is None else outcome.data_files
                    evidence = replace(evidence, has_files=self._table.has_one_of(files))
                case judgement:
                    return judgement

    def _was_read_too_early(self, evidence: LandingEvidence) -> bool:
        """Whether the application has landed more since the table was read: the ledger may have
        been read again after that."""
        latest = self._table.location.load()
        if latest is None:
            return False
        application = evidence.plan_id.application
        return (latest.transaction_version(application) or 0) > evidence.transaction

    def _plan_evidence(self, plan_id: PlanId) -> PlanEvidence:
        ledger = self._ledger.view
        plan = ledger.plan(plan_id)
        outcome = ledger.outcome(plan_id)
        if plan is None or outcome is None:
            return PlanEvidence(is_prepared=False, is_followed=False, planned_at_version=0)
        is_followed = plan_id not in ledger.possibly_unfinished()
        return PlanEvidence(True, is_followed, plan.table_version or 0)

    # --- whether they belong together ----------------------------------------------------

    def check_table_and_ledger_agree(self) -> None:
        """Raises Conflict if table and ledger do not belong together."""
        if (error := self.disagreement_error()) is not None:
            raise error

    def disagreement_error(self) -> Conflict | None:
        """The error if table and ledger do not belong together. Cheap if they do."""
        table = self._table
        ledger = self._ledger
        match self._judge_identity():
            case IdentityJudgement.SAME:
                return None
            case IdentityJudgement.NO_LEDGER:
                sequence = table.transaction_version(self._application)
                return _no_ledger_error(table.name, PlanId(self._application, sequence))
            case IdentityJudgement.NO_TABLE:
                return _no_table_error(table.name, ledger.view.newest())
            case IdentityJudgement.OTHER_LEDGER:
                return _other_ledger_error(table.name)
            case IdentityJudgement.OTHER_TABLE:
                return _other_table_error(table, ledger.view.newest())

    def _judge_identity(self) -> IdentityJudgement:
        table = self._table_identity()
        ledger = self._ledger_identity()
        evidence = IdentityEvidence(table, ledger)
        while True:
            match judge_identity(evidence):
                case IdentityQuestion.TRANSACTION:
                    transaction = self._table.transaction_version(self._application)
                    evidence = replace(evidence, transaction=transaction)
                case IdentityQuestion.HAS_FILES:
                    evidence = replace(evidence, has_files=self._table.has_files())
                case IdentityQuestion.HAS_LANDINGS:
                    evidence = replace(evidence, has_landings=self._has_landings())
                case judgement:
                    return judgement

    def _table_identity(self) -> TableIdentity | None:
        snapshot = self._table.snapshot
        if snapshot is None:
            return None
        return TableIdentity(snapshot.table_id, snapshot.property(LEDGER_PROPERTY))

    def _ledger_identity(self) -> LedgerIdentity | None:
        if self._ledger.opened is None:
            return None
        newest = self._ledger.view.newest()
        table_id = None if newest is None else newest.table_id
        return LedgerIdentity(self._ledger.opened.table_id, newest is not None, table_id)

    def _has_landings(self) -> bool:
        """Whether the table has anything that was landed according to this ledger; also true if
        nothing is known to have landed."""
        ledger = self._ledger.view
        recent = ledger.possibly_unfinished()
        outcomes = [o for _, o in ledger.prepared_plans() if o.plan_id not in recent]
        if not outcomes:
            return True
        if any(self._table.transaction_version(o.application) for o in outcomes[-5:]):
            return True
        return self._table.has_one_of(file for o in outcomes for file in o.data_files)


def _contradiction_error(table: str, newest: PlanId, landed_last: int) -> Conflict:
    return Conflict(
        f"the last plan of {newest.application} is {landed_last} in the table {table}, and "
        f"{newest.sequence} in its ledger",
        why="the table's folder and _rangeland are from different times, for example because one "
        "of them was restored from a backup",
        do=f"restore both as they were at the same time, {_ADOPT}",
    )


def _unknown_landing_error(table: str, plan_id: PlanId) -> Conflict:
    return Conflict(
        f"it is unknown whether {plan_id} has landed in {table}",
        why="the table's transaction of that name is gone, and so is the part of its "
        f"history that would show it; its property {RETENTION_PROPERTY} may be the cause",
        do="check with `rangeland verify JOB.yaml` whether its rows are there, then run "
        "`rangeland adopt JOB.yaml`, and `rangeland backfill JOB.yaml --missing` for "
        "those that are not",
    )


def _no_ledger_error(table: str, last: PlanId) -> Conflict:
    landings = f"it has {count_noun(last.sequence, 'landing')} of {last.application}"
    why = landings if last.sequence else "records were landed"
    return Conflict(
        f"the table {table} has no ledger",
        why=f"{why}, so either the folder _rangeland was deleted, or this is a copy or clone of "
        "another table; what has landed is unknown",
        do=f"copy the folder _rangeland from where the table came from, {_ADOPT}",
    )


def _no_table_error(table: str, newest: PlanEvent | None) -> Conflict:
    return Conflict(
        f"the table {table} is gone, and its ledger is still there",
        why=f"the ledger's newest plan is {_name_of(newest)}; a new table "
        "would lack what the ledger lists as landed",
        do="restore the table; or move the folder _rangeland away, to land everything again; or "
        "run `rangeland adopt JOB.yaml`, to continue with an empty table",
    )


def _other_ledger_error(table: str) -> Conflict:
    return Conflict(
        f"the ledger beside the table {table} is not the one that the table names",
        why="the folder _rangeland was created again, or comes from another table",
        do=f"restore the former folder, {_ADOPT}",
    )


def _other_table_error(table: TargetTable, newest: PlanEvent | None) -> Conflict:
    return Conflict(
        f"the table {table.name} is not the one that its ledger belongs to",
        why=f"the ledger's newest plan, {_name_of(newest)}, was made for "
        "another table at that path: it has been created again or replaced since, and what the "
        "ledger lists as landed may not be in it",
        do="restore the former table; or move its folder _rangeland away, to land "
        f"everything again; {_ADOPT}",
        table_id=table.table_id,
        ledger_table_id=None if newest is None else newest.table_id,
    )


def _name_of(plan: PlanEvent | None) -> str:
    return "" if plan is None else f"{plan.application} {plan.sequence}"
