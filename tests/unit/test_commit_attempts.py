"""How often an outcome is committed again when others change the table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rangeland.delta.transaction_log.table_commit import (
    CommittedOutcome,
    FilesGone,
    FilesUnfit,
    NotCommitted,
    RowsRefused,
    TableMoved,
)
from rangeland.errors import Conflict, StorageFailed, TableRefused
from rangeland.landing.execution.commit_failures import (
    MAX_ATTEMPTS,
    Raise,
    ReadAgain,
    TryAgain,
    step_after_failure,
)
from rangeland.landing.execution.committer import PlanCommitter
from rangeland.landing.execution.plan_ending import Superseded
from rangeland.planning.plan import PlanId
from rangeland.spark.replace_where import RowsChanged

CHANGED = RowsChanged("lake/t", "OPTIMIZE was first")
MOVED = TableMoved("lake/t", "RESTORE was first")
LANDED = CommittedOutcome(7, is_new=True)
FOUND = CommittedOutcome(6, is_new=False)
GONE = FilesGone(("part-1.parquet",))
UNFIT = FilesUnfit(cast(Any, SimpleNamespace(field="id")))
REFUSED = RowsRefused(TableRefused("a row breaks the constraint id > 0"))


# --- what follows one failure ------------------------------------------------------------------

PLAN_ID = PlanId("rangeland/orders", 7)


@pytest.mark.parametrize("was_read_again", [False, True])
@pytest.mark.parametrize("conflicts", range(MAX_ATTEMPTS - 1))
def test_an_outcome_whose_rows_have_changed_is_tried_again(
    conflicts: int, was_read_again: bool
) -> None:
    step = step_after_failure(PLAN_ID, CHANGED, conflicts, was_read_again=was_read_again)
    assert step == TryAgain("OPTIMIZE was first")


@pytest.mark.parametrize("was_read_again", [False, True])
def test_the_last_attempt_at_an_outcome_whose_rows_have_changed_raises_a_conflict(
    was_read_again: bool,
) -> None:
    last = MAX_ATTEMPTS - 1
    step = step_after_failure(PLAN_ID, CHANGED, last, was_read_again=was_read_again)
    assert isinstance(step, Raise)
    assert isinstance(step.error, Conflict)
    assert step.error.why == "another writer has changed them: OPTIMIZE was first"


@pytest.mark.parametrize("was_read_again", [False, True])
def test_a_repair_whose_table_has_moved_is_tried_again_a_few_times(was_read_again: bool) -> None:
    last = MAX_ATTEMPTS - 1
    steps = [
        step_after_failure(PLAN_ID, MOVED, conflicts, was_read_again=was_read_again)
        for conflicts in range(MAX_ATTEMPTS)
    ]
    assert steps[:last] == [TryAgain("RESTORE was first")] * last
    assert isinstance(steps[last], Raise)
    assert isinstance(steps[last].error, Conflict)
    assert steps[last].error.what == "could not land missing rows in lake/t"


@pytest.mark.parametrize("conflicts", [0, MAX_ATTEMPTS - 1])
@pytest.mark.parametrize("failure", [GONE, UNFIT, REFUSED], ids=["gone", "unfit", "refused"])
def test_an_outcome_that_cannot_be_committed_is_read_again_whatever_came_before(
    failure: NotCommitted, conflicts: int
) -> None:
    step = step_after_failure(PLAN_ID, failure, conflicts, was_read_again=False)
    assert step == ReadAgain(failure)


@pytest.mark.parametrize(
    ("failure", "error"),
    [(GONE, StorageFailed), (UNFIT, Conflict), (REFUSED, TableRefused)],
    ids=["gone", "unfit", "refused"],
)
def test_a_second_outcome_that_cannot_be_committed_raises_the_error_of_its_failure(
    failure: NotCommitted, error: type[Exception]
) -> None:
    step = step_after_failure(PLAN_ID, failure, 0, was_read_again=True)
    assert isinstance(step, Raise)
    assert isinstance(step.error, error)


# --- all attempts ------------------------------------------------------------------------------


def committer(monkeypatch: pytest.MonkeyPatch, results: list[Any]) -> Any:
    """One whose attempts have these results, the last again and again."""

    def attempt(plan: object, outcome: str) -> Any:
        made.attempts.append(outcome)
        return results.pop(0) if len(results) > 1 else results[0]

    def read_again(plan: object, old: str, failure: NotCommitted) -> str:
        made.failures.append(failure)
        return f"{old} read again"

    made: Any = PlanCommitter.__new__(PlanCommitter)
    made.attempts, made.failures = [], []
    monkeypatch.setattr(made, "_attempt", attempt)
    by_now = "rangeland.landing.execution.committer.has_landed_by_now"
    monkeypatch.setattr(by_now, lambda *_: results[0] is FOUND)
    counts = "rangeland.landing.execution.committer.check_plan_is_not_ended"
    monkeypatch.setattr(counts, lambda *_: made.checks.append(results[0]))
    made.checks = []
    made._target = None
    made._outcomes = SimpleNamespace(read_again=read_again)
    return made


def commit(committer: Any) -> Any:
    plan: Any = SimpleNamespace(id="plan")
    outcome: Any = "outcome"
    _, landed, _ = committer._commit(plan, outcome)
    return landed


def test_a_change_by_another_writer_is_followed_by_another_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert commit(committer(monkeypatch, [CHANGED, LANDED])) == LANDED


@pytest.mark.parametrize("superseded", range(MAX_ATTEMPTS + 2))
def test_attempts_end_however_often_the_outcome_was_superseded(
    monkeypatch: pytest.MonkeyPatch, superseded: int
) -> None:
    others: list[Any] = [Superseded(f"outcome {n}") for n in range(superseded)]  # type: ignore[arg-type]
    under_test = committer(monkeypatch, [*others, CHANGED])
    with pytest.raises(Conflict, match="another writer has changed them: OPTIMIZE was first"):
        commit(under_test)
    assert len(under_test.attempts) == superseded + MAX_ATTEMPTS


@pytest.mark.parametrize("failure", [GONE, REFUSED])
def test_a_plan_whose_outcome_cannot_be_committed_is_read_again(
    monkeypatch: pytest.MonkeyPatch, failure: NotCommitted
) -> None:
    under_test = committer(monkeypatch, [failure, LANDED])
    assert commit(under_test) == LANDED
    assert under_test.attempts[-1] == "outcome read again"
    assert under_test.failures == [failure]


@pytest.mark.parametrize(
    ("second", "error"), [(GONE, StorageFailed), (REFUSED, TableRefused)], ids=["gone", "refused"]
)
def test_a_plan_is_read_again_only_once(
    monkeypatch: pytest.MonkeyPatch, second: NotCommitted, error: type[Exception]
) -> None:
    under_test = committer(monkeypatch, [GONE, second])
    with pytest.raises(error):
        commit(under_test)
    assert under_test.attempts == ["outcome", "outcome read again"]


def test_files_that_another_driver_has_landed_are_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    under_test = committer(monkeypatch, [GONE, FOUND])
    assert commit(under_test) == FOUND
    assert under_test.failures == []
    assert under_test.checks == [FOUND], "its plan may have been ended instead"


def test_changes_by_other_writers_are_counted_from_zero_once_the_plan_was_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = [CHANGED] * (MAX_ATTEMPTS - 1)
    under_test = committer(monkeypatch, [*few, GONE, *few, LANDED])
    assert commit(under_test) == LANDED
    assert under_test.attempts[-1] == "outcome read again"
