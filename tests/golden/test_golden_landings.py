"""What earlier versions have written is still read: ledgers, plan files, answers of runs."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rangeland.delta.ledger.event_codec import SCHEMA, from_row, to_row
from rangeland.delta.ledger.events import (
    EventKind,
    LedgerEvent,
    LossEvent,
    OutcomeEvent,
    PartEvent,
    PlanEvent,
)
from rangeland.landing.drafts.plan_file import read_plan_file
from rangeland.planning.plan import Plan

LANDINGS = Path(__file__).parent / "landings"
VERSIONS = sorted(LANDINGS.iterdir())
JOB = "rangeland/golden"


def instants(row: dict[str, Any]) -> dict[str, Any]:
    for name in ("written_at", "seen_at"):
        if row[name] is not None:
            row[name] = dt.datetime.fromisoformat(row[name])
    return row


def rows_of(version: Path) -> list[dict[str, Any]]:
    lines = (version / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
    return [instants(json.loads(line)) for line in lines]


def entries_of(version: Path) -> list[LedgerEvent]:
    return [from_row(row) for row in rows_of(version)]


@pytest.fixture(params=VERSIONS, ids=[version.name for version in VERSIONS])
def version(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def test_every_row_of_a_ledger_is_read_and_says_what_it_said(version: Path) -> None:
    rows = rows_of(version)
    assert {row["event"] for row in rows} == set(EventKind)
    for row in rows:
        again = pa.Table.from_pylist([to_row(from_row(row))], SCHEMA).to_pylist()[0]
        assert {name: again[name] for name in row} == row


def test_the_plans_in_a_ledger_keep_their_hashes(version: Path) -> None:
    plans = [entry for entry in entries_of(version) if isinstance(entry, PlanEvent)]
    assert {entry.application.count("/") for entry in plans} == {1, 3}, "runs and backfills"
    for entry in plans:
        plan = Plan.from_json(json.loads(entry.document))
        assert plan.hash == entry.plan_hash
        assert plan.ranges == entry.ranges


def test_outcomes_parts_and_losses_come_back_whole(version: Path) -> None:
    entries = entries_of(version)
    outcomes = [entry for entry in entries if isinstance(entry, OutcomeEvent)]
    landed = {o.application: 0 for o in outcomes}
    for outcome in outcomes:
        counts = [entry.counts for entry in outcome.ranges]
        landed[outcome.application] += sum(found.landed for found in counts if found is not None)
        assert sum(entry.file.rows for entry in outcome.files) == sum(
            found.landed for found in counts if found is not None
        )
    assert landed[JOB] == 17 + 23 + 60 + 40
    assert sum(len(outcome.quarantine_files) for outcome in outcomes) == 1
    (part,) = [entry for entry in entries if isinstance(entry, PartEvent)]
    assert (part.number, part.member, len(part.receipts)) == (1, "member-1", 1)
    losses = [entry for entry in entries if isinstance(entry, LossEvent)]
    assert [event.loss.action for event in losses] == ["fail", "quarantine", "hold"]


def test_a_plan_file_is_read(version: Path) -> None:
    found = read_plan_file(version / "plan.json")
    assert found.plan.width == 60
    assert found.plan.application == JOB
    assert found.job.name == "golden"
    assert found.location is not None


def test_the_answers_of_runs_keep_their_keys(version: Path) -> None:
    lines = (version / "results.jsonl").read_text(encoding="utf-8").splitlines()
    results = [json.loads(line) for line in lines]
    assert [result["landed"] for result in results] == [17, 10, 23, 60, 40, 7]
