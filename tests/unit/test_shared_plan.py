"""What a driver of a group does with an error that has ended its reading."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rangeland.delta.ledger.events import OutcomeEvent, PartEvent
from rangeland.errors import TransformFailed, Unreachable
from rangeland.groups import shared_plan
from rangeland.groups.lease import GroupLease
from rangeland.groups.shared_plan import SharedRead
from rangeland.landing.execution.shared_reader import PlanToRead, SharedOutcome
from rangeland.planning.slice_assignment import SliceOwners
from rangeland.progress_events import NoProgress
from tests.fakes.landing import landing_context
from tests.unit.test_landing_target import plan

PLAN = plan()
THEIRS = OutcomeEvent(PLAN.application, PLAN.job, PLAN.sequence, PLAN.hash, (), (), 0)


class Ledger:
    """The parts and outcomes of a plan: another driver prepares ``outcome`` in the meantime."""

    def __init__(self, outcome: OutcomeEvent | None) -> None:
        self._answers = [None, outcome]

    def parts_so_far(self, *about: object) -> tuple[list[PartEvent], OutcomeEvent | None]:
        return [], self._answers.pop(0)


def shared_read(
    monkeypatch: pytest.MonkeyPatch, error: Exception, outcome: OutcomeEvent | None, transform: Any
) -> SharedRead:
    monkeypatch.setattr(shared_plan, "look_up_plan_settings", lambda *about: None)
    context: Any = landing_context(SimpleNamespace(writer=Ledger(outcome)))
    work = PlanToRead(
        PLAN,
        cast(Any, SimpleNamespace(target=context.target, transform=transform)),
        tasks=cast(Any, SimpleNamespace(read_until_stopped=lambda *about: ([], error))),
        find_change=lambda receipts: None,
        record_outcome=lambda receipts, files: pytest.fail("nothing was read"),
    )
    lease = SimpleNamespace(
        join_rebalance=lambda: None,
        must_stop=False,
        hold_assignment=nullcontext,
        slice_owners=lambda partitions: SliceOwners.alone("me", partitions),
    )
    return SharedRead(work, cast(GroupLease, lease), NoProgress())


ERRORS = [
    (None, Unreachable("b1:9092 cannot be reached")),
    ("a transform", TransformFailed("the transform m:f failed", why="KeyError: 'x'")),
]


@pytest.mark.parametrize(("transform", "error"), ERRORS)
def test_the_outcome_of_another_driver_counts_more_than_an_error(
    transform: str | None, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shared_read(monkeypatch, error, THEIRS, transform).outcome()
    assert found == SharedOutcome(THEIRS, with_others=False)


@pytest.mark.parametrize(("transform", "error"), ERRORS)
def test_without_an_outcome_the_error_ends_the_run(
    transform: str | None, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(type(error)) as raised:
        shared_read(monkeypatch, error, None, transform).outcome()
    assert raised.value is error
