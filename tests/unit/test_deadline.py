"""A deadline, by a clock that only sleeping moves on."""

from __future__ import annotations

import pytest

from rangeland import deadline
from rangeland.deadline import Deadline


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    pauses: list[float] = []
    monkeypatch.setattr(deadline.time, "monotonic", lambda: sum(pauses))
    monkeypatch.setattr(deadline.time, "sleep", pauses.append)
    return pauses


def test_it_is_waited_until_the_deadline_has_passed(slept: list[float]) -> None:
    patience = Deadline(1.0)
    while patience.wait(0.5):
        assert len(slept) < 9
    assert (slept, patience.has_passed) == ([0.5, 0.5, 0.5], True)


def test_after_the_deadline_nothing_is_waited_for(slept: list[float]) -> None:
    assert not Deadline(-0.1).wait(0.5)
    assert slept == []
