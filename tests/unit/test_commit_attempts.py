"""How often an outcome is committed again when others change the table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rangeland.landing.execution.committer import MAX_ATTEMPTS, PlanCommitter, Superseded
from rangeland.spark.replace_where import ConcurrentChange

CHANGED = ConcurrentChange("could not replace rows", why="OPTIMIZE was first")


def committer(monkeypatch: pytest.MonkeyPatch, results: list[Any]) -> Any:
    """One whose attempts have these results, the last again and again."""

    def attempt(*_: object) -> Any:
        result = results.pop(0) if len(results) > 1 else results[0]
        made.attempts += 1
        if isinstance(result, Exception):
            raise result
        return result

    made: Any = PlanCommitter.__new__(PlanCommitter)
    table = SimpleNamespace(refresh_same_table=lambda: None)
    made._target, made.attempts = SimpleNamespace(table=table), 0
    monkeypatch.setattr(made, "_try_commit", attempt)
    return made


def commit(committer: Any) -> Any:
    return committer._commit_newest(SimpleNamespace(id="plan"), "outcome", None)


def test_a_change_by_another_writer_is_followed_by_another_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert commit(committer(monkeypatch, [CHANGED, "landed"])) == ("outcome", "landed")


@pytest.mark.parametrize("superseded", range(MAX_ATTEMPTS + 2))
def test_attempts_end_however_often_the_outcome_was_superseded(
    monkeypatch: pytest.MonkeyPatch, superseded: int
) -> None:
    others: list[Any] = [Superseded(f"outcome {n}") for n in range(superseded)]  # type: ignore[arg-type]
    under_test = committer(monkeypatch, [*others, CHANGED])
    with pytest.raises(ConcurrentChange):
        commit(under_test)
    assert under_test.attempts == superseded + MAX_ATTEMPTS
