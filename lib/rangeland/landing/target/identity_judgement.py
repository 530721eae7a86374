"""Judges whether a plan has landed in a table, and whether table and ledger belong together, from
what was seen of both. Pure.

The result may be a question instead of a judgement, the cheapest first. The caller
(``identity_check``) finds the answer, and asks for a judgement again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from rangeland.delta.table_metadata import CommitMetadata
from rangeland.planning.plan import PlanId

# --- whether a plan has landed ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlanEvidence:
    """What the ledger shows about a plan. ``is_prepared``: it has an outcome. ``is_followed``: a
    later plan was entered by a driver that saw this one in the table. The table had the version
    ``planned_at_version`` when the plan was made."""

    is_prepared: bool
    is_followed: bool
    planned_at_version: int


@dataclass(frozen=True, slots=True)
class LandingEvidence:
    """The evidence about the newest plan of an application: first what the table's transactions
    show, then also the answers to the questions that were asked. ``transaction`` is the last
    sequence in them, 0 for none; ``table_version`` is None if there is no table."""

    plan_id: PlanId
    transaction: int
    table_version: int | None
    plan: PlanEvidence | None = None
    log: Sequence[CommitMetadata] | None = None
    """The commits that the table's log still has, from the plan's version on."""
    has_files: bool | None = None
    """Whether the table has at least one of the plan's files."""


class LandingJudgement(Enum):
    """Whether a plan is in the table."""

    LANDED = auto()
    NOT_LANDED = auto()
    CONTRADICTION = auto()
    """The table's transactions and the ledger are from different times."""
    UNKNOWN = auto()


class LandingQuestion(Enum):
    """The field of the evidence that must be known first."""

    PLAN = auto()
    LOG = auto()
    HAS_FILES = auto()


def judge_landing(seen: LandingEvidence) -> LandingJudgement | LandingQuestion:
    """Whether the newest plan of an application is in the table. Its transaction shows it for as
    long as it exists; after that the ledger and the table's history decide."""
    last = seen.plan_id.sequence
    if seen.transaction >= last:
        return LandingJudgement.LANDED
    if 0 < seen.transaction < last - 1:
        return LandingJudgement.CONTRADICTION
    if seen.table_version is None:
        return LandingJudgement.NOT_LANDED
    if (plan := seen.plan) is None:
        return LandingQuestion.PLAN
    if not plan.is_prepared:  # nothing is committed before its outcome is in the ledger
        return LandingJudgement.NOT_LANDED
    if seen.transaction:  # an earlier plan's: if the table had this one, it went back in time
        was_there = plan.is_followed
        return LandingJudgement.CONTRADICTION if was_there else LandingJudgement.NOT_LANDED
    if plan.is_followed:
        return LandingJudgement.LANDED
    if seen.log is None:
        return LandingQuestion.LOG
    return _judge_history(seen, plan.planned_at_version, seen.table_version, seen.log)


def _judge_history(
    seen: LandingEvidence, planned_at_version: int, version: int, log: Sequence[CommitMetadata]
) -> LandingJudgement | LandingQuestion:
    """The judgement by the table's log and files. Commits since the table was read do not count."""
    commits = [c for c in log if planned_at_version < c.version <= version]
    plan_id = seen.plan_id
    if any(c.transactions.get(plan_id.application) == plan_id.sequence for c in commits):
        return LandingJudgement.LANDED
    # The log may go back to before the plan was made. Or the plan may have been made for a
    # version that is in the log and newer than the one read.
    first = commits[0].version if commits else version + 1
    if first == planned_at_version + 1 or any(
        c.version >= planned_at_version > version for c in log
    ):
        return LandingJudgement.NOT_LANDED
    if seen.has_files is None:
        return LandingQuestion.HAS_FILES
    return LandingJudgement.LANDED if seen.has_files else LandingJudgement.UNKNOWN


# --- whether table and ledger belong together ---------------------------------------------


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """The id of a table, and the id of the ledger that it names, if any."""

    table_id: str
    ledger_id: str | None


@dataclass(frozen=True, slots=True)
class LedgerIdentity:
    """The id of a ledger, whether it has plans, and the table id in its newest plan, if any:
    ledgers of version 0.1.0 have no table ids."""

    ledger_id: str
    has_plans: bool
    table_id: str | None


@dataclass(frozen=True, slots=True)
class IdentityEvidence:
    """The evidence about a table and the ledger beside it, each of which is None if it does not
    exist, with the answers to the questions that were asked."""

    table: TableIdentity | None
    ledger: LedgerIdentity | None
    transaction: int | None = None
    """The job's last sequence in the table's transactions, 0 for none."""
    has_files: bool | None = None
    """Whether the table has any file."""
    has_landings: bool | None = None
    """Whether the table has anything that was landed according to this ledger; also true if nothing
    is known to have landed."""


class IdentityJudgement(Enum):
    """Whether table and ledger belong together."""

    SAME = auto()
    NO_LEDGER = auto()
    NO_TABLE = auto()
    OTHER_LEDGER = auto()
    OTHER_TABLE = auto()


class IdentityQuestion(Enum):
    """The field of the evidence that must be known first."""

    TRANSACTION = auto()
    HAS_FILES = auto()
    HAS_LANDINGS = auto()


def judge_identity(seen: IdentityEvidence) -> IdentityJudgement | IdentityQuestion:
    """Whether table and ledger name each other. Asks nothing if they do."""
    table = seen.table
    ledger = seen.ledger
    if table is None:
        is_gone = ledger is not None and ledger.has_plans
        return IdentityJudgement.NO_TABLE if is_gone else IdentityJudgement.SAME
    if ledger is None:
        return _judge_without_ledger(table, seen)
    if table.ledger_id not in (None, ledger.ledger_id):
        if seen.has_files is None:
            return IdentityQuestion.HAS_FILES
        if seen.has_files:
            return IdentityJudgement.OTHER_LEDGER
    if not ledger.has_plans:
        return IdentityJudgement.SAME
    is_same = seen.has_landings if ledger.table_id is None else ledger.table_id == table.table_id
    if is_same is None:
        return IdentityQuestion.HAS_LANDINGS
    return IdentityJudgement.SAME if is_same else IdentityJudgement.OTHER_TABLE


def _judge_without_ledger(
    table: TableIdentity, seen: IdentityEvidence
) -> IdentityJudgement | IdentityQuestion:
    """Whether a ledger is missing: the job has landed in the table, or the table names a ledger and
    has rows. CREATE TABLE ... LIKE copies properties, but no rows."""
    if seen.transaction is None:
        return IdentityQuestion.TRANSACTION
    if seen.transaction:
        return IdentityJudgement.NO_LEDGER
    if table.ledger_id is None:
        return IdentityJudgement.SAME
    if seen.has_files is None:
        return IdentityQuestion.HAS_FILES
    return IdentityJudgement.NO_LEDGER if seen.has_files else IdentityJudgement.SAME
