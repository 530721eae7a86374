"""Which landing has an offset, where a topic was created again and both have landed it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rangeland.delta.ledger.events import OutcomeEvent
from rangeland.landing.audit import offset_lookup
from rangeland.landing.audit.offset_lookup import find_offset
from rangeland.landing.target.job_history import EnteredPlan
from rangeland.model import Counts, DataFile, Isolation, Partition, Range
from rangeland.planning.plan import Plan, PlanId
from rangeland.planning.slice_receipt import RangeResult, WrittenFile
from rangeland.query_results import FindState
from tests.fakes.landing import landing_context

P = Partition("orders", 0)
TABLE = "file:///lake/orders"


def landing(sequence: int, topic_id: str | None, file: str) -> tuple[Any, OutcomeEvent]:
    plan_id = PlanId("rangeland/orders", sequence)
    plan = SimpleNamespace(
        plan_id=plan_id,
        application=plan_id.application,
        job="orders",
        sequence=sequence,
        table_version=1,
    )
    counts = Counts(landed=100)
    event_range = RangeResult(Range(P, 0, 100, topic_id), counts, "b1:9092", rowless=())
    files = (WrittenFile(DataFile(f"date=1/{file}", 1, 100, "{}", 0)),)
    outcome = OutcomeEvent(
        *(plan_id.application, "orders", sequence, "hash"), (event_range,), files, written_at_ms=0
    )
    return plan, outcome


def state_of(
    landings: list[tuple[Any, OutcomeEvent]], rows_in: list[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[FindState, list[str]]:
    """What is found of an offset that has a row in each of these files."""
    files = [f"{TABLE}/date=1/{name}" for name in rows_in]
    rows = SimpleNamespace(files_with=lambda partition, offset: files)
    monkeypatch.setattr(offset_lookup, "table_rows", lambda *about: rows)
    delta = SimpleNamespace(commits=lambda *about: [])
    table: Any = SimpleNamespace(location=SimpleNamespace(delta=delta, uri=TABLE))
    history: Any = SimpleNamespace(landings=lambda: landings, losses=lambda *about: [])
    target = landing_context(SimpleNamespace(table=table, history=history)).target
    found = find_offset(cast(Any, None), target, P, 7)
    return found.state, [name.rpartition("/")[2] for name in found.files]


@pytest.mark.parametrize(
    ("rows_in", "state", "shown"),
    [
        (["old", "new"], FindState.LANDED, ["new"]),
        (["new"], FindState.LANDED, ["new"]),
        (["old"], FindState.HOLE, []),
        ([], FindState.HOLE, []),
        (["optimized", "optimized"], FindState.LANDED, ["optimized"] * 2),
        (["old", "optimized"], FindState.LANDED, ["optimized"]),
        (["new", "optimized"], FindState.LANDED, ["new", "optimized"]),
        (["optimized"], FindState.NO_ROW_OR_HOLE, ["optimized"]),  # of which of the two?
    ],
)
def test_a_row_of_a_former_topic_is_not_taken_for_that_of_the_one_created_again(
    rows_in: list[str], state: FindState, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [landing(1, "first", "old"), landing(2, "second", "new")]
    assert state_of(both, rows_in, monkeypatch) == (state, shown)


@pytest.mark.parametrize("ids", [("one", "one"), ("one", None), (None, None)])
def test_a_row_of_the_same_topic_is_that_of_its_newest_landing(
    ids: tuple[str | None, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [landing(1, ids[0], "old"), landing(2, ids[1], "new")]
    assert state_of(both, ["old"], monkeypatch) == (FindState.LANDED, ["old"])


@pytest.mark.parametrize(
    ("offset", "why"),
    [
        (120, "plan 7 of rangeland/orders covers it, but has not landed yet"),
        (150, "it has offsets 0 to 99 of orders/0"),
    ],
)
def test_an_offset_of_an_unfinished_plan_is_said_to_be_waiting_for_it(
    offset: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges = (Range(P, 100, 150),)
    plan = Plan("orders", "rangeland/orders", 7, "kafka", Isolation.READ_COMMITTED, ranges, ())
    history: Any = SimpleNamespace(
        landings=lambda: [landing(1, None, "new")],
        unfinished_plans=lambda: [EnteredPlan(plan, 1, None)],
    )
    rows = SimpleNamespace(files_with=lambda partition, offset: [])
    monkeypatch.setattr(offset_lookup, "table_rows", lambda *about: rows)
    target = landing_context(SimpleNamespace(table=None, history=history)).target
    found = find_offset(cast(Any, None), target, P, offset)
    assert (found.state, found.why.partition(";")[0]) == (FindState.NOT_LANDED, why)
