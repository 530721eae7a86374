"""The text of verify and find: exact ranges, the remedy, one line for each fact."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from rangeland.model import Partition, Range
from rangeland.planning.plan import PlanId
from rangeland.planning.table_audit import Audit, LandedRange, ReplacedRange
from rangeland.query_results import Finding, FindState, VerifyResult
from rangeland.render.result_view import render_result
from rangeland.render.verify_view import render_find, render_verify
from tests import sample_results as made
from tests.unit.test_render import lines_with, rendered

P0, P1 = Partition("orders", 0), Partition("orders", 1)
PIECES = (
    LandedRange(Range(P0, 100, 300), 190, ((110, 120),)),
    LandedRange(Range(P1, 0, 50), 50, ()),
)


def verified(audit: Audit, *gone_files: str) -> VerifyResult:
    return VerifyResult("orders", "lake/orders", 7, 3, PIECES, audit, gone_files, 1.25)


def test_a_clean_table_is_said_to_be_proved() -> None:
    text = rendered(render_verify(verified(Audit())))
    assert "240 landed records, each in the table exactly once" in text
    assert "3 landings" in text
    assert "--missing" not in text
    assert lines_with(text, "orders/0")[0][-4:] == ["100", "300", "0", "0"]


def test_holes_and_duplicates_are_named_and_drawn_with_the_remedy() -> None:
    audit = Audit((Range(P0, 150, 160),), (Range(P1, 3, 4),), (Range(P1, 90, 91),))
    text = rendered(render_verify(verified(audit, "part-1.parquet")))
    assert "missing: orders/0 [150, 160), 10 offsets" in text
    assert "more rows than were landed: orders/1 [3, 4), 1 offset" in text
    assert "rows that no landing wrote: orders/1 [90, 91)" in text
    assert "gone from the store: part-1.parquet" in text
    assert "rangeland backfill JOB.yaml --missing" in text
    assert "x" in lines_with(text, "orders/0")[0][1]
    assert "exactly once" not in text


def test_what_cannot_be_proved_is_not_claimed() -> None:
    """Ten rows are left of 60 that had landed: of 50, and of ten that have replaced some of them
    later. The number of the others that were there then is not known."""
    rest = [LandedRange(Range(P0, *ends), None) for ends in ((0, 40), (60, 100))]
    replaced = LandedRange(Range(P0, 40, 60), 10)
    unproved = tuple(one.range for one in rest)
    result = replace(verified(Audit(unproved=unproved)), landed_ranges=(*rest, replaced))
    text = rendered(render_verify(result))
    assert "cannot be proved" in text
    assert "orders/0 [0, 40), 40 offsets" in text
    assert "exactly once" not in text
    assert "?" in lines_with(text, "orders/0")[0][1]
    assert result.exit_code == 0, "nothing shows that any is missing"


def test_what_is_not_sure_is_said() -> None:
    hole = Range(P0, 150, 160)
    assert "not sure" in rendered(render_verify(verified(Audit((hole,), suspect=(hole,)))))


def test_a_found_offset_shows_its_landing_its_leader_and_its_file() -> None:
    finding = Finding(
        P0,
        150,
        FindState.LANDED,
        ("file:/lake/orders/part-1.parquet",),
        job="orders",
        application="rangeland/orders",
        sequence=12,
        table_version=7,
        leader="b1:9092",
        landed_at_ms=1_700_000_000_123,
        range=Range(P0, 100, 300),
        earlier=(PlanId("rangeland/orders", 3),),
    )
    text = rendered(render_find(finding))
    for fact in (
        "orders/0 offset 150: landed",
        "rangeland/orders 12",
        "[100, 300)",
        "2023-11-14T22:13:20.123Z",
        "b1:9092",
        "part-1.parquet",
        "rangeland/orders 3",
    ):
        assert fact in text
    assert finding.to_json()["file"] == "file:/lake/orders/part-1.parquet"


def test_an_offset_that_was_never_landed_is_said_in_one_line() -> None:
    beyond = Finding(P0, 900, FindState.NOT_LANDED, why="it has offsets 0 to 249 of orders/0")
    text = rendered(render_find(beyond))
    assert "not landed in this table: it has offsets 0 to 249 of orders/0" in text
    assert beyond.to_json()["why"] == "it has offsets 0 to 249 of orders/0"
    text = rendered(render_find(Finding(P0, 150, FindState.NOT_LANDED)))
    assert text.strip() == "orders/0 offset 150: not landed in this table"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            FindState.QUARANTINED,
            "in quarantine; `rangeland redrive JOB.yaml` lands it once it can be",
        ),
        (FindState.LOST, "left out by a policy: undecodable, the value at offset 150"),
    ],
)
def test_an_offset_that_a_policy_has_left_out_is_said_with_the_reason(
    state: FindState, words: str
) -> None:
    why = "undecodable, the value at offset 150: it is not JSON"
    text = " ".join(rendered(render_find(Finding(P0, 150, state, why=why))).split())
    assert words in text
    assert why in text


def test_a_long_path_is_not_broken() -> None:
    path = f"file:/lake/{'orders/' * 20}part-1.parquet"
    stream = io.StringIO()
    found = render_find(Finding(P0, 150, FindState.UNKNOWN_ROW, (path,)))
    Console(file=stream, width=80).print(found, crop=False)
    assert f"{path}\n" in stream.getvalue()


def test_a_replaced_range_says_what_has_changed() -> None:
    result = made.a_result(replaced=ReplacedRange(same=990, changed=10))
    text = rendered(render_result(result))
    assert "against the rows that were there: 990 the same, 10 changed" in text
    assert result.to_json()["replaced"] == {"same": 990, "added": 0, "changed": 10, "missing": 0}


def test_what_runs_have_passed_over_is_listed_and_is_not_damage() -> None:
    over = replace(verified(Audit()), passed_over=(Range(P0, 20, 60),))
    text = " ".join(rendered(render_verify(over)).split())
    assert "passed over: never landed, and before the checkpoint; a backfill lands it" in text
    assert "orders/0 [20, 60), 40 offsets" in text
    assert over.is_well
    (told,) = over.to_json()["passed_over"]
    assert (told["partition"], told["from_offset"], told["until_offset"]) == (0, 20, 60)


def test_where_nothing_has_landed_nothing_is_claimed() -> None:
    text = rendered(render_verify(VerifyResult("orders", "lake/orders", None, 0, (), Audit())))
    assert "nothing has landed yet, so there is nothing to verify" in text
    assert "None" not in text
