"""The ledger's rows and the arithmetic of coverage."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pyarrow as pa
import pytest

from rangeland.delta.ledger.covered_offsets import merge_covered, with_ranges
from rangeland.delta.ledger.event_codec import (
    SCHEMA,
    from_row,
    missing_columns_sql,
    stats_of,
    to_row,
)
from rangeland.delta.ledger.events import (
    CoveredInterval,
    EventKey,
    EventKind,
    LedgerEvent,
    LogFingerprint,
    LossEvent,
    OutcomeEvent,
    PartEvent,
    PlanEvent,
)
from rangeland.delta.ledger.ledger_files import LedgerFiles
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.errors import Conflict, StorageFailed
from rangeland.loss import Action, DecidedLoss, Loss, LossKind
from rangeland.model import Counts, DataFile, Partition, Range
from rangeland.planning.intervals import merge
from rangeland.planning.plan import PlanId
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.slice_receipt import RangeResult, Receipt, WrittenFile

P0 = Partition("orders", 0)
B1 = Partition("orders", 1, "broker-a")


def a_plan() -> PlanEvent:
    ranges = (Range(P0, 0, 10, "id", 99), Range(B1, 5, 6))
    covered = {
        P0: (CoveredInterval(0, 5), CoveredInterval(7, 9, "id")),
        B1: (CoveredInterval(1, 2),),
    }
    live = (PlanId("rangeland/a", 3),)
    return PlanEvent(
        "rangeland/a", "a", 4, "hash", ranges, "{}", 1_700_000_000_123, 7, 9, covered, live
    )


def an_outcome() -> OutcomeEvent:
    file = DataFile("d=1/x.parquet", 10, 3, "{}", 5, {"d": "1", "e": None})
    return OutcomeEvent(
        "rangeland/a",
        "a",
        4,
        "hash",
        (RangeResult(Range(P0, 0, 10, "id", 99), Counts(landed=8, control=2), "h:1"),),
        (WrittenFile(file, Range(P0, 0, 10, "id")), WrittenFile(file)),
        1_700_000_000_123,
    )


def a_part() -> PartEvent:
    file = DataFile("x.parquet", 10, 3, "{}", 5)
    lost = (Loss(P0, 8, 10, LossKind.EXPIRED, "it begins at 10").with_action(Action.SKIP),)
    receipts = (
        Receipt(3, P0, 0, 10, Counts(landed=8, lost=2), "h:1", 99, lost, ((8, 10),)),
        Receipt(4, B1, 5, 60, Counts(landed=1), entry_span=55),
    )
    files = (WrittenFile(file, Range(P0, 0, 10, "id")), WrittenFile(file))
    return PartEvent("rangeland/a", "a", 4, "hash", 2, "m-1", receipts, files, 1_700_000_000_123)


def a_loss() -> LossEvent:
    loss = Loss(B1, 10, 15, LossKind.EXPIRED, "the log begins at 15 on h:1", topic_id="id")
    skipped = loss.with_action(Action.SKIP)
    return LossEvent("rangeland/a", "a", 4, skipped, 1_700_000_000_007, 1_700_000_000_123)


def with_quarantine(outcome: OutcomeEvent) -> OutcomeEvent:
    return replace(
        outcome, attempt=2, quarantine_files=(DataFile("part-hash-1.parquet", 10, 1, "{}", 5),)
    )


def a_held_part() -> PartEvent:
    kept = (DataFile("part-hash-1.parquet", 10, 1, "{}", 5),)
    bad = DecidedLoss(P0, 3, 5, LossKind.CORRUPT, "its checksum is wrong", action=Action.QUARANTINE)
    held = DecidedLoss(P0, 8, 10, LossKind.TRUNCATED, "the log ends at 8", action=Action.HOLD)
    receipt = Receipt(
        3,
        P0,
        0,
        8,
        Counts(landed=6, quarantined=2),
        rowless=((3, 5),),
        losses=(bad, held),
        quarantine_files=kept,
    )
    return replace(a_part(), receipts=(receipt,))


@pytest.mark.parametrize(
    "entry",
    [
        a_plan(),
        an_outcome(),
        with_quarantine(an_outcome()),
        a_part(),
        a_held_part(),
        replace(
            a_part(), fingerprints=(LogFingerprint(P0, 4_000_000_000), LogFingerprint(B1, None))
        ),
        a_loss(),
        replace(a_loss(), plan_hash="hash", attempt=1),
    ],
)
def test_entries_survive_the_way_through_a_row(entry: LedgerEvent) -> None:
    table = pa.Table.from_pylist([to_row(entry)], schema=SCHEMA)
    assert from_row(table.to_pylist()[0]) == entry


def test_each_field_of_a_receipt_survives_the_way_through_a_row() -> None:
    (receipt,) = a_held_part().receipts
    receipt = replace(
        receipt,
        address="h:1",
        bytes_read=99,
        entry_span=8,
        schema_ids=((7, 4), (9, 1)),
        leader_epoch=5,
    )
    for field in fields(Receipt):
        value = getattr(receipt, field.name)
        assert value not in (field.default, None, "", ()), f"{field.name} needs a value"
    table = pa.Table.from_pylist([to_row(replace(a_part(), receipts=(receipt,)))], schema=SCHEMA)
    found = from_row(table.to_pylist()[0])
    assert isinstance(found, PartEvent)
    for field in fields(Receipt):
        assert getattr(found.receipts[0], field.name) == getattr(receipt, field.name), field.name


def test_a_part_without_fingerprints_is_written_and_read_as_by_earlier_versions() -> None:
    row = to_row(a_part())
    assert json.loads(row["document"]).keys() == {"member", "slices"}
    found = from_row(pa.Table.from_pylist([row], schema=SCHEMA).to_pylist()[0])
    assert isinstance(found, PartEvent)
    assert found.fingerprints == ()
    assert all("leader_epoch" not in one for one in json.loads(row["document"])["slices"])
    assert [receipt.leader_epoch for receipt in found.receipts] == [None, None]


@pytest.mark.parametrize("kind", PlanKind)
def test_an_outcome_is_given_up_if_it_has_landed_nothing_and_its_kind_holds_no_partitions(
    kind: PlanKind,
) -> None:
    of_kind = replace(an_outcome(), application=kind.application("a", "0123456789ab"))
    assert (of_kind.has_landed_ranges, of_kind.is_given_up(kind)) == (True, False)
    empty = replace(of_kind, ranges=())
    assert not empty.has_landed_ranges
    assert empty.is_given_up(kind) == (kind in (PlanKind.REPLACE, PlanKind.REDRIVE))


def test_a_ledger_of_an_earlier_version_lacks_the_columns_of_losses() -> None:
    assert missing_columns_sql(SCHEMA.names) == []
    first = SCHEMA.names[: SCHEMA.names.index("document") + 1]
    assert missing_columns_sql(first)[:3] == [
        "`topic` STRING",
        "`partition` INT",
        "`broker` STRING",
    ]
    assert missing_columns_sql(first)[-2:] == ["`seen_at` TIMESTAMP", "`table_id` STRING"]


def test_statistics_hold_the_whole_application_id() -> None:
    long = to_row(a_plan()) | {"application": "rangeland/" + "x" * 80}
    stats = json.loads(stats_of([long]))
    assert stats["minValues"]["application"] == stats["maxValues"]["application"]
    assert len(stats["minValues"]["application"]) == 90


def test_pieces_that_touch_become_one() -> None:
    assert merge([(5, 9), (0, 5), (12, 12), (20, 30), (21, 22)]) == [(0, 9), (20, 30)]


def test_intervals_of_different_topic_ids_never_merge() -> None:
    merged = merge_covered(
        [CoveredInterval(0, 5, "a"), CoveredInterval(5, 9, "b"), CoveredInterval(3, 7, "a")]
    )
    assert merged == (CoveredInterval(0, 7, "a"), CoveredInterval(5, 9, "b"))


def test_ranges_are_added_to_what_is_landed() -> None:
    results = [RangeResult(r, Counts(landed=r.width)) for r in (Range(P0, 5, 8), Range(B1, 1, 2))]
    landed = with_ranges({P0: (CoveredInterval(0, 5),)}, results)
    assert landed == {P0: (CoveredInterval(0, 8),), B1: (CoveredInterval(1, 2),)}


def test_a_ledger_file_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    files = LedgerFiles(str(tmp_path), StoreSettings(f"file:{tmp_path}"))

    def read_one(path: str) -> PlanEvent:
        return files.event(EventKey("rangeland/a", "a", 1, "plan", 1, path), PlanEvent)

    for read in (read_one, lambda path: files.events_in([path], [EventKind.PLAN])):
        with pytest.raises(Conflict, match="is gone") as caught:
            read("part-ledger-plan-1.zstd.parquet")
        assert "part-ledger-plan-1.zstd.parquet" in caught.value.why
        assert "rangeland adopt" in caught.value.do
    (tmp_path / "part-ledger-plan-2.zstd.parquet").write_bytes(b"not Parquet")
    with pytest.raises(StorageFailed):
        read_one("part-ledger-plan-2.zstd.parquet")
