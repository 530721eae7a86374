"""A deadline, by a clock that the tests move on."""

from __future__ import annotations

import pytest

from rangeland import deadline
from rangeland.deadline import Deadline


def test_a_deadline_has_passed_once_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [7.0]
    monkeypatch.setattr(deadline.time, "monotonic", lambda: now[0])
    patience = Deadline(1.0)
    now[0] = 8.0
    assert not patience.has_passed
    now[0] = 8.1
    assert patience.has_passed
    assert Deadline(-0.1).has_passed
