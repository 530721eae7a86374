"""The queries and the transform that the pages show, run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rangeland.delta.ledger.events import LossEvent, OutcomeEvent, PlanEvent
from rangeland.delta.ledger.ledger_table import Ledger
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.job import Job
from rangeland.loss import Action, Loss, LossKind
from rangeland.model import Counts, Partition, Range
from rangeland.planning.slice_receipt import RangeResult
from rangeland.spark.transform import load_transform
from tests import docs

pytestmark = pytest.mark.spark

QUERIES = [b for name in docs.PAGES for b in docs.blocks(name) if b.language == "sql"]
SHOWN = "lake/orders/_rangeland/ledger"
APP = "rangeland/orders-hourly"
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def ledger(kernel: DeltaKernel, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two landings on two days, the second with a loss and at its second attempt, and a plan
    that is not landed."""
    made = Ledger(kernel, str(tmp_path_factory.mktemp("docs") / "orders")).open_or_create()
    landed = [Counts(landed=9, control=1), Counts(landed=7, lost=3), None]
    for number, counts in enumerate(landed):
        where = Range(Partition("orders", 0), number * 10, number * 10 + 10, "id")
        name = (APP, "orders-hourly", number + 1, f"h{number}")
        at_ms = number * DAY_MS
        assert made.enter(PlanEvent(*name, (where,), "{}", at_ms), number)
        if counts is not None:
            ranges = (RangeResult(where, counts, "broker-1:9092"),)
            lost = Loss(
                where.partition, 11, 14, LossKind.EXPIRED, "the log begins at 14", topic_id="id"
            )
            of_plan = (*name[:3], lost.with_action(Action.SKIP), at_ms, at_ms, name[3])
            losses = [LossEvent(*of_plan)] if counts.lost else []
            outcome = OutcomeEvent(*name, ranges, (), at_ms)
            assert made.prepare_outcome(outcome, losses)
            if losses:
                again = [replace(loss, attempt=1) for loss in losses]
                assert made.prepare_outcome(replace(outcome, attempt=1), again)
    return made.path


def test_there_are_queries() -> None:
    assert len(QUERIES) == 6
    assert [SHOWN in query.text for query in QUERIES].count(False) == 1  # of the quarantine


def answers(sql: Callable[[str], list[Any]], ledger: str, words: str) -> list[dict[str, Any]]:
    (query,) = [q for q in QUERIES if words in q.text]
    return [row.asDict() for row in sql(query.text.replace(SHOWN, ledger))]


def test_what_was_landed_lately(sql: Callable[[str], list[Any]], ledger: str) -> None:
    rows = answers(sql, ledger, "LIMIT 20")
    assert [(r["sequence"], r["from_offset"], r["landed"], r["lost"]) for r in rows] == [
        (2, 10, 7, 3),
        (1, 0, 9, 0),
    ]


def test_how_many_records_a_day(sql: Callable[[str], list[Any]], ledger: str) -> None:
    rows = answers(sql, ledger, "AS day")
    assert [tuple(row.values()) for row in rows] == [
        (dt.date(1970, 1, 1), 1, 9),
        (dt.date(1970, 1, 2), 1, 7),
    ]


def test_plans_without_an_outcome(sql: Callable[[str], list[Any]], ledger: str) -> None:
    (row,) = answers(sql, ledger, "event = 'plan'")
    assert (row["application"], row["sequence"]) == (APP, 3)


def test_what_was_lost(sql: Callable[[str], list[Any]], ledger: str) -> None:
    (row,) = answers(sql, ledger, "r.lost + r.quarantined > 0")
    assert (row["from_offset"], row["until_offset"], row["lost"]) == (10, 20, 3)


def test_why_it_was_lost_and_what_was_done(sql: Callable[[str], list[Any]], ledger: str) -> None:
    (row,) = answers(sql, ledger, "event = 'loss'")
    assert (row["sequence"], row["from_offset"], row["until_offset"], row["count"]) == (
        2,
        11,
        14,
        3,
    )
    assert (row["verdict"], row["action"]) == ("expired", "skip")
    assert (row["cause"], row["evidence"]) == (
        "retention removed them before they were landed",
        "the log begins at 14",
    )


def test_the_transform_of_the_configs_makes_orders(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = docs.ROOT / "configs"
    monkeypatch.syspath_prepend(str(configs))
    name = Job.load(Path(configs / "orders-parsed.yaml")).sink.transform
    assert name is not None
    rows = [
        (b'{"id": 7, "customer": "ada", "amount": 12.5}', 0),
        (b"no json", 1),
        (None, 2),
    ]
    frame = spark.createDataFrame(rows, "value BINARY, offset BIGINT").selectExpr(
        "value", "'orders' topic", "0 partition", "offset", "timestamp_millis(0) timestamp"
    )
    made = load_transform(name)(frame).orderBy("offset")
    assert made.columns == ["topic", "partition", "offset", "timestamp", "id", "customer", "amount"]
    found = [(r.offset, r.id, r.customer, r.amount and float(r.amount)) for r in made.collect()]
    assert found == [(0, 7, "ada", 12.5), (1, None, None, None)]
