"""Chunks with typed rows: every offset keeps its class, and nothing of a bad record is lost."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.decode import columns
from rangeland.decode.payload.payload_decoder import (
    DecodedPayloads,
    PayloadDecoder,
    PayloadFormat,
    PayloadSchemaError,
    Undecodable,
)
from rangeland.decode.payload.row_format import RESCUED, RowFormat
from rangeland.decode.payload.schema_ids.schema_catalogue import SchemaCatalogue
from rangeland.decode.payload.string_format import StringFormat
from rangeland.delta.quarantine import quarantine_table
from rangeland.delta.quarantine.quarantine_writer import QuarantineWriter, QuarantineWriterSettings
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.dialects.dialect import load_dialect
from rangeland.dialects.row_schema import typed_rows
from rangeland.errors import UndecodablePayload
from rangeland.fetch import typed_chunks
from rangeland.fetch.quarantine_reading import decodable
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.receipt_builder import ReceiptBuilder
from rangeland.fetch.slice_chunks import LostChunk, ReadChunk
from rangeland.fetch.slice_reading import SliceReader, read_slices
from rangeland.fetch.typed_chunks import TypedChunks
from rangeland.landing.target.loss_records import losses_in
from rangeland.loss import Action, DamagedBytes, DecidedLoss, LossKind, UndecodableRecords
from rangeland.model import Counts, Partition, Range, Slice
from rangeland.planning.policy import Policy
from rangeland.schema_registry.executor_schemas import ExecutorSchemas

P = Partition("orders", 3)
KAFKA = ClusterSettings("kafka", ())
PIECE = Slice(0, P, 100, 120)
TEXT = RowFormat(value=StringFormat())
NO_SCHEMAS = ExecutorSchemas(SchemaCatalogue())


def rows(values: dict[int, bytes | None], key: bytes | None = b"k") -> pa.RecordBatch:
    """The records of these offsets."""
    n = len(values)
    batch = columns.records_batch(
        [
            pa.array([key] * n, pa.binary()),
            pa.array(list(values.values()), pa.binary()),
            pa.array(list(values), pa.int64()),
            pa.array([1_700_000_000_000_000 + at for at in values], pa.int64()).cast(
                columns.TIMESTAMP.type
            ),
            pa.array([0] * n, pa.int32()),
            pa.array([None] * n, columns.HEADERS.type),
        ]
    )
    return columns.with_partition(batch, P)


def chunk(values: dict[int, bytes | None], key: bytes | None = b"k") -> ReadChunk:
    """All 20 offsets of the piece: those that have no record are compacted."""
    counts = Counts(landed=len(values), compacted=20 - len(values))
    return ReadChunk(0, 100, 120, counts, rows(values, key), address="b:1", bytes_read=7)


BAD = b"\xff\xfe"
MIXED = {100: b"a", 101: BAD, 102: BAD, 104: BAD, 105: b"b", 119: BAD}


def typed(given: ReadChunk, action: Action, row_format: RowFormat = TEXT) -> ReadChunk:
    [found] = TypedChunks(row_format, Policy(undecodable=action), [PIECE]).type_rows(given)
    assert isinstance(found, ReadChunk)
    return found


def test_good_records_become_text_and_counts_stay() -> None:
    found = typed(chunk({100: b"a", 103: None, 104: b""}), Action.FAIL)
    assert found.rows.column("value").to_pylist() == ["a", None, ""]
    assert found.rows.schema == TEXT.schema(columns.row_schema())
    assert found.rows.schema.field("key").type == pa.binary()
    assert found.counts == Counts(landed=3, compacted=17)
    assert found.lost_offsets == ()


def test_a_bad_record_ends_the_reading_and_is_named() -> None:
    with pytest.raises(UndecodablePayload) as caught:
        typed(chunk(MIXED), Action.FAIL)
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.exit_code == 65
    assert error.what == "orders/3: the value of the record at offset 101 cannot be decoded"
    assert (
        r"it begins with '\xff\xfe'; 3 more records read with it cannot be decoded either"
        in error.why
    )
    assert "undecodable: skip" in error.do
    assert (error.facts["topic"], error.facts["partition"], error.facts["offset"]) == (
        "orders",
        3,
        101,
    )
    (loss,) = losses_in(error)
    assert (loss.kind, loss.from_offset, loss.until_offset) == (LossKind.UNDECODABLE, 101, 102)


def test_a_bad_key_is_named_as_one() -> None:
    both = RowFormat(key=StringFormat(), value=StringFormat())
    with pytest.raises(UndecodablePayload, match="the key of the record at offset 100"):
        typed(chunk({100: BAD}, key=BAD), Action.FAIL, both)


@pytest.mark.parametrize("action", [Action.SKIP, Action.QUARANTINE])
def test_the_counts_of_a_slice_close_per_record(action: Action) -> None:
    receipts = ReceiptBuilder([PIECE])
    found = typed(chunk(MIXED), action)
    receipts.add(found)
    (receipt,) = receipts.receipts()
    name = "lost" if action is Action.SKIP else "quarantined"
    assert receipt.counts == Counts(landed=2, compacted=14, **{name: 4})
    assert [(x.from_offset, x.until_offset) for x in receipt.losses] == [
        (101, 103),
        (104, 105),
        (119, 120),
    ]
    assert {x.kind for x in receipt.losses} == {LossKind.UNDECODABLE}
    assert sum(x.width for x in receipt.losses) == getattr(receipt.counts, name)
    assert receipt.rowless == ((101, 105), (106, 120))
    assert "2 records; the value at offset 101: it is not UTF-8" in receipt.losses[0].evidence


def test_only_quarantined_records_are_kept_with_all_that_they_have() -> None:
    skipped = typed(chunk(MIXED), Action.SKIP).lost_offsets
    assert all(lost.quarantined_bytes is None for lost in skipped)
    first = typed(chunk(MIXED), Action.QUARANTINE).lost_offsets[0].quarantined_bytes
    assert isinstance(first, UndecodableRecords)
    assert first.rows.column("offset").to_pylist() == [101, 102]
    assert first.rows.column("value").to_pylist() == [BAD, BAD]
    assert first.rows.column("key").to_pylist() == [b"k", b"k"]
    assert first.rows.column("reason").to_pylist()[0].startswith("it is not UTF-8")


def test_a_chunk_that_is_held_has_no_width_and_no_rows() -> None:
    [found] = TypedChunks(TEXT, Policy(undecodable=Action.HOLD), [PIECE]).type_rows(chunk(MIXED))
    assert isinstance(found, LostChunk)
    assert (found.from_offset, found.until_offset, found.counts) == (100, 100, Counts())
    assert (found.loss.from_offset, found.loss.until_offset) == (100, 120)
    receipts = ReceiptBuilder([PIECE])
    receipts.add(found)
    assert receipts.receipts()[0].held == found.loss


@pytest.mark.parametrize(
    ("action", "lost"),
    [(Action.SKIP, [(101, 103), (104, 105), (119, 120)]), (Action.HOLD, [(100, 120)])],
)
def test_each_loss_of_a_chunk_is_logged(
    action: Action, lost: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    settings = ReadSettings(KAFKA, policy=Policy(undecodable=action), row_format=TEXT)
    reader = SliceReader([PIECE], settings, load_dialect("kafka"))
    list(reader.type_rows(chunk(MIXED)))
    assert [vars(line)["offset"] for line in caplog.records] == [first for first, _ in lost]
    for line, (first, until) in zip(caplog.messages, lost, strict=True):
        assert line.startswith(f"Applied policy {action}: orders/3 [{first}, {until}) is ")


def test_too_many_losses_end_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_chunks, "MAX_LOSSES", 2)
    with pytest.raises(UndecodablePayload, match="more than 2 places") as ended:
        typed(chunk(MIXED), Action.SKIP)
    (loss,) = losses_in(ended.value)
    assert (loss.partition, loss.action) == (PIECE.partition, Action.FAIL)


@pytest.mark.parametrize("row_format", [None, TEXT])
def test_records_that_a_transform_fails_on_are_omitted_like_others(
    row_format: RowFormat | None,
) -> None:
    omitted = {0: {100: "KeyError: 'x' (m.py:5)", 107: "it has no row"}, 1: {105: "another slice"}}
    policy = Policy(undecodable=Action.QUARANTINE)
    settings = ReadSettings(KAFKA, policy=policy, row_format=row_format, omitted=omitted)
    reader = SliceReader([PIECE], settings, load_dialect("kafka"))
    [found] = reader.type_rows(chunk({100: b"a", 101: b"b", 105: b"c"}))
    assert isinstance(found, ReadChunk)
    assert found.rows.column("offset").to_pylist() == [101, 105]
    assert found.rows.schema.equals(typed_rows("kafka", row_format))
    assert found.counts == Counts(landed=2, compacted=17, quarantined=1)
    ((loss, kept),) = [(one.loss, one.quarantined_bytes) for one in found.lost_offsets]
    assert (loss.from_offset, loss.until_offset) == (100, 101)
    assert loss.evidence == (
        "the transform fails on offset 100: KeyError: 'x' (m.py:5); its value begins with 'a'"
    )
    assert isinstance(kept, UndecodableRecords)
    assert kept.rows.column("value").to_pylist() == [b"a"]
    whole = chunk({100: b"a"})
    assert [*SliceReader([PIECE], ReadSettings(KAFKA), load_dialect("kafka")).type_rows(whole)] == [
        whole
    ]


def test_an_entry_of_bytes_is_quarantined_whole_and_its_records_are_skipped_alone() -> None:
    """Its records have one offset."""
    piece = Slice(0, P, 100, 160)
    batch = rows({100: b"a", 120: BAD, 121: b"c", 140: b"d"})
    offsets = pa.array([100, 120, 120, 140], pa.int64())
    batch = batch.set_column(batch.schema.names.index("offset"), "offset", offsets)
    whole = ReadChunk(0, 100, 160, Counts(landed=4), batch, offsets_are_bytes=True)
    for action, landed, kept in (
        (Action.SKIP, [100, 120, 140], None),
        (Action.QUARANTINE, [100, 140], [BAD, b"c"]),
    ):
        [found] = TypedChunks(TEXT, Policy(undecodable=action), [piece]).type_rows(whole)
        assert isinstance(found, ReadChunk)
        assert found.rows.column("offset").to_pylist() == landed
        ((loss, quarantined),) = [(one.loss, one.quarantined_bytes) for one in found.lost_offsets]
        assert (loss.from_offset, loss.until_offset) == (120, 140)
        assert found.counts.landed == len(landed)
        assert found.counts.lost + found.counts.quarantined == 20
        counting = ReceiptBuilder([piece])
        counting.add(found)
        assert counting.receipts()[0].entry_span == 60
        if kept is None:
            assert quarantined is None
            continue
        assert isinstance(quarantined, UndecodableRecords)
        assert quarantined.rows.column("value").to_pylist() == kept
        reasons = quarantined.rows.column("reason").to_pylist()
        assert [one is None for one in reasons] == [False, True]


# --- from the quarantine ------------------------------------------------------------------


def kept_in(folder: Path) -> UndecodableRecords:
    """As it is read from the quarantine that it was written to."""
    lost = typed(chunk(MIXED), Action.QUARANTINE).lost_offsets[0]
    assert lost.quarantined_bytes is not None
    settings = QuarantineWriterSettings(StoreSettings(str(folder)), "j", "a", 1, "hash")
    writer = QuarantineWriter(settings)
    writer.add(0, Range(P, 101, 103), lost.quarantined_bytes, "b:1")
    writer.add(0, Range(P, 104, 105), DamagedBytes(b"raw", ((1, 2),), "why"), "b:1")
    (receipt,) = writer.close(_receipts())
    store, root = settings.table.open()
    read = quarantine_table._read(store, f"{root}/{receipt.quarantine_files[0].path}", None)
    intact, damaged = map(quarantine_table._batch, read)
    assert damaged.quarantined_bytes == DamagedBytes(b"raw", ((1, 2),), "why")
    assert intact.size_bytes > 0
    assert isinstance(intact.quarantined_bytes, UndecodableRecords)
    return intact.quarantined_bytes


def _receipts() -> Any:
    counting = ReceiptBuilder([PIECE])
    counting.add(ReadChunk(0, 100, 120, Counts(compacted=20)))
    return counting.receipts()


def test_kept_records_are_read_again_with_another_format(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    piece = Slice(0, P, 101, 103)
    bytes_only = ReadSettings(KAFKA, quarantined_bytes={0: kept})
    (found,) = read_slices([piece], bytes_only)
    assert isinstance(found, ReadChunk)
    assert found.rows.equals(rows({101: BAD, 102: BAD}))
    assert found.counts == Counts(landed=2)
    with pytest.raises(UndecodablePayload):
        list(
            read_slices([piece], ReadSettings(KAFKA, quarantined_bytes={0: kept}, row_format=TEXT))
        )
    (half,) = read_slices([Slice(0, P, 102, 103)], bytes_only)
    assert isinstance(half, ReadChunk)
    assert half.rows.column("offset").to_pylist() == [102]


def test_a_trial_tells_which_kept_records_can_be_decoded(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    where = Range(P, 101, 103)
    assert decodable(kept, where, "kafka", None, NO_SCHEMAS) == [(where, "")]
    ((piece, why),) = decodable(kept, where, "kafka", TEXT, NO_SCHEMAS)
    assert (piece, why[:7]) == (where, "value: ")


# --- layouts --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair(PayloadFormat):
    """`a,b`, of which b is a number."""

    names: tuple[str, str] = ("a", "b")
    name = "pair"

    @property
    def arrow_type(self) -> pa.DataType:
        a, b = self.names
        return pa.struct([pa.field(a, pa.string(), nullable=False), pa.field(b, pa.int32())])

    def decoder(self) -> PayloadDecoder:
        return PairDecoder(self.arrow_type)


@dataclass
class PairDecoder(PayloadDecoder):
    arrow_type: pa.DataType = field(default_factory=pa.null)

    def decode(self, payloads: Any) -> DecodedPayloads:
        made: list[Any] = []
        bad = []
        a, b = self.arrow_type.names
        for row, text in enumerate(payloads.to_pylist()):
            parts = [] if text is None else text.decode().split(",")
            if len(parts) < 2:
                made.append(None)
                if text is not None:
                    bad.append(Undecodable(row, "no comma", 7))
            else:
                made.append({a: parts[0], b: int(parts[1])})
        rescued = pa.array(["{}" if one else None for one in made], pa.string())
        return DecodedPayloads(pa.array(made, self.arrow_type), bad, rescued, {7: len(made)})


def test_a_flat_table_has_the_fields_after_the_columns_of_the_log() -> None:
    flat = RowFormat(value=Pair(), is_flat=True, keeps_unknown=True)
    assert typed_rows("kafka", flat).names == [
        *("_key", "_topic", "_partition", "_offset", "_timestamp", "_timestampType", "_headers"),
        *("a", "b", "_rescued_data"),
    ]
    assert all(f.nullable for f in typed_rows("kafka", flat))
    found = typed(chunk({100: b"x,1", 101: b"-", 102: None}), Action.SKIP, flat)
    assert found.rows.schema.equals(typed_rows("kafka", flat))
    assert found.rows.select(["_offset", "a", "b", "_rescued_data"]).to_pylist() == [
        {"_offset": 100, "a": "x", "b": 1, "_rescued_data": "{}"},
        {"_offset": 102, "a": None, "b": None, "_rescued_data": None},
    ]
    assert found.schema_ids == {7: 3}
    assert "no comma (schema 7)" in found.lost_offsets[0].loss.evidence
    counting = ReceiptBuilder([PIECE], flat.columns)
    counting.add(found)
    (receipt,) = counting.receipts()
    assert receipt.rowless == ((101, 102), (103, 120))
    assert receipt.schema_ids == ((7, 3),)


def test_a_nested_table_has_a_struct_whose_fields_may_be_null() -> None:
    nested = RowFormat(value=Pair())
    schema = typed_rows("rocketmq", nested)
    assert schema.field("value").type == pa.struct([("a", pa.string()), ("b", pa.int32())])
    assert schema.names[-1] == "bornTimestamp"
    assert RESCUED.name not in schema.names
    found = typed(chunk({100: b"x,1", 102: None}), Action.SKIP, nested)
    assert found.rows.column("value").to_pylist() == [{"a": "x", "b": 1}, None]


@pytest.mark.parametrize("names", [("a", "A"), ("_offset", "b"), ("b", "_Key")])
def test_a_flat_table_cannot_have_two_columns_of_a_name(names: tuple[str, str]) -> None:
    with pytest.raises(PayloadSchemaError):
        typed_rows("kafka", RowFormat(value=Pair(names), is_flat=True))


def test_text_cannot_be_flat() -> None:
    with pytest.raises(PayloadSchemaError, match="a flat table needs values with fields"):
        RowFormat(value=StringFormat(), is_flat=True)


def test_losses_are_those_of_the_ledger() -> None:
    lost = typed(chunk(MIXED), Action.SKIP).lost_offsets[0].loss
    assert isinstance(lost, DecidedLoss)
    assert lost.cause == "their keys or values do not fit the schema or the transform of the job"
