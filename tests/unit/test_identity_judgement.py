"""What proves that a landing is in its table, and that a table and a ledger belong together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rangeland.delta.table_metadata import CommitMetadata
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
from rangeland.planning.plan import PlanId

LANDED, NOT_LANDED = LandingJudgement.LANDED, LandingJudgement.NOT_LANDED
CONTRADICTION = LandingJudgement.CONTRADICTION


def seen(transaction: int = 0, sequence: int = 3) -> LandingEvidence:
    return LandingEvidence(PlanId("app", sequence), transaction, 9)


def prepared(is_followed: bool = False) -> LandingEvidence:
    """The plan has an outcome, was made at version 5, and its transaction is gone."""
    return replace(seen(), plan=PlanEvidence(True, is_followed, 5))


def commit(version: int, **transactions: int) -> CommitMetadata:
    return CommitMetadata(version, 0, "WRITE", transactions)


# --- whether a plan has landed ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transaction", "sequence", "judgement"),
    [
        (0, 0, LANDED),
        (3, 3, LANDED),
        (4, 3, LANDED),
        (2, 3, LandingQuestion.PLAN),
        (1, 3, CONTRADICTION),
    ],
    ids=["nothing ever", "its own", "a later one", "the one before", "an earlier one"],
)
def test_a_transaction_in_the_table_decides(
    transaction: int, sequence: int, judgement: LandingJudgement | LandingQuestion
) -> None:
    assert judge_landing(seen(transaction, sequence)) is judgement


@pytest.mark.parametrize(
    ("plan", "judgement"),
    [
        (PlanEvidence(is_prepared=False, is_followed=False, planned_at_version=0), NOT_LANDED),
        (PlanEvidence(is_prepared=True, is_followed=False, planned_at_version=5), NOT_LANDED),
        (PlanEvidence(is_prepared=True, is_followed=True, planned_at_version=5), CONTRADICTION),
    ],
    ids=["not prepared", "prepared", "seen landed"],
)
def test_a_table_that_has_the_one_before_has_lost_a_plan_that_was_seen_in_it(
    plan: PlanEvidence, judgement: LandingJudgement
) -> None:
    """As where its folder was restored from a backup, and the ledger was not."""
    assert judge_landing(replace(seen(transaction=2), plan=plan)) is judgement


def test_without_a_transaction_the_ledger_is_asked_and_without_a_table_nobody() -> None:
    assert judge_landing(seen()) is LandingQuestion.PLAN
    assert judge_landing(replace(seen(), table_version=None)) is NOT_LANDED


def test_a_plan_without_an_outcome_has_not_landed_and_one_that_was_seen_landed_has() -> None:
    unprepared = PlanEvidence(is_prepared=False, is_followed=False, planned_at_version=0)
    assert judge_landing(replace(seen(), plan=unprepared)) is NOT_LANDED
    assert judge_landing(prepared(is_followed=True)) is LANDED
    assert judge_landing(prepared()) is LandingQuestion.LOG


@pytest.mark.parametrize(
    ("log", "judgement"),
    [
        ([commit(8), commit(9, app=3)], LANDED),
        ([commit(6), commit(7), commit(8), commit(9)], NOT_LANDED),
        ([commit(8), commit(9)], LandingQuestion.HAS_FILES),
        ([commit(9), commit(10, app=3)], LandingQuestion.HAS_FILES),
        ([], LandingQuestion.HAS_FILES),
    ],
    ids=[
        *("its transaction is in the log", "the whole log lacks it", "the log begins later"),
        *("it landed after the table was read", "the log is gone"),
    ],
)
def test_a_landing_is_believed_by_what_was_seen_and_denied_by_a_whole_history(
    log: list[CommitMetadata], judgement: LandingJudgement | LandingQuestion
) -> None:
    assert judge_landing(replace(prepared(), log=log)) is judgement


def test_a_plan_that_was_made_after_the_table_was_read_is_not_in_it() -> None:
    evidence = replace(prepared(), table_version=4, log=[commit(5), commit(6, app=3)])
    assert judge_landing(evidence) is NOT_LANDED


def test_where_the_log_does_not_go_back_far_enough_one_of_its_files_proves_a_landing() -> None:
    evidence = replace(prepared(), log=[commit(9)])
    assert judge_landing(replace(evidence, has_files=True)) is LANDED
    assert judge_landing(replace(evidence, has_files=False)) is LandingJudgement.UNKNOWN


# --- whether table and ledger belong together ---------------------------------------------------

TABLE = TableIdentity("table", "ledger")
LEDGER = LedgerIdentity("ledger", has_plans=True, table_id="table")
EMPTY = LedgerIdentity("ledger", has_plans=False, table_id=None)
SAME, NO_LEDGER = IdentityJudgement.SAME, IdentityJudgement.NO_LEDGER


@pytest.mark.parametrize(
    ("table", "ledger", "judgement"),
    [
        (None, None, SAME),
        (None, EMPTY, SAME),
        (None, LEDGER, IdentityJudgement.NO_TABLE),
        (TABLE, LEDGER, SAME),
        (TABLE, EMPTY, SAME),
        (replace(TABLE, ledger_id=None), LEDGER, SAME),
        (replace(TABLE, table_id="other"), LEDGER, IdentityJudgement.OTHER_TABLE),
        (replace(TABLE, ledger_id="other"), LEDGER, IdentityQuestion.HAS_FILES),
        (TABLE, replace(LEDGER, table_id=None), IdentityQuestion.HAS_LANDINGS),
        (TABLE, None, IdentityQuestion.TRANSACTION),
    ],
)
def test_table_and_ledger_have_to_name_each_other(
    table: TableIdentity | None,
    ledger: LedgerIdentity | None,
    judgement: IdentityJudgement | IdentityQuestion,
) -> None:
    assert judge_identity(IdentityEvidence(table, ledger)) is judgement


@pytest.mark.parametrize(
    ("has_files", "judgement"), [(True, IdentityJudgement.OTHER_LEDGER), (False, SAME)]
)
def test_only_a_table_with_rows_can_belong_to_another_ledger(
    has_files: bool, judgement: IdentityJudgement
) -> None:
    table = replace(TABLE, ledger_id="other")
    assert judge_identity(IdentityEvidence(table, LEDGER, has_files=has_files)) is judgement


@pytest.mark.parametrize(
    ("has_landings", "judgement"), [(True, SAME), (False, IdentityJudgement.OTHER_TABLE)]
)
def test_a_ledger_without_ids_of_tables_is_recognized_by_what_it_has_landed(
    has_landings: bool, judgement: IdentityJudgement
) -> None:
    ledger = replace(LEDGER, table_id=None)
    assert judge_identity(IdentityEvidence(TABLE, ledger, has_landings=has_landings)) is judgement


@pytest.mark.parametrize(
    ("ledger_id", "transaction", "has_files", "judgement"),
    [
        (None, 2, None, NO_LEDGER),
        (None, 0, None, SAME),
        ("ledger", 0, None, IdentityQuestion.HAS_FILES),
        ("ledger", 0, True, NO_LEDGER),
        ("ledger", 0, False, SAME),
    ],
    ids=["landed", "never landed", "names a ledger", "and has rows", "and has none"],
)
def test_a_ledger_is_missing_where_something_was_landed(
    ledger_id: str | None,
    transaction: int,
    has_files: bool | None,
    judgement: IdentityJudgement | IdentityQuestion,
) -> None:
    table = TableIdentity("table", ledger_id)
    assert judge_identity(IdentityEvidence(table, None, transaction, has_files)) is judgement
