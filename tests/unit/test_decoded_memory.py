"""Payloads whose values take much more memory than they do: decoded in pieces, or refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2 as pb

from rangeland.decode.payload import column_buffers, payload_kernel
from rangeland.decode.payload.avro.avro_format import AvroFormat
from rangeland.decode.payload.json import json_columns, json_kernel
from rangeland.decode.payload.json.json_format import JsonFormat
from rangeland.decode.payload.payload_decoder import (
    MAX_DECODED_BYTES,
    DecodedPayloads,
    PayloadFormat,
    UnknownFields,
)
from rangeland.decode.payload.protobuf.protobuf_format import ProtobufFormat
from rangeland.decode.payload.row_format import RowFormat
from rangeland.decode.payload.schema_ddl import parse_ddl
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    RegisteredSchema,
    SchemaFormat,
)
from rangeland.decode.payload.schema_ids.subject_writers import SubjectWriters
from rangeland.fetch.receipt_builder import ReceiptBuilder
from rangeland.fetch.slice_chunks import LostChunk, ReadChunk
from rangeland.fetch.typed_chunks import TypedChunks
from rangeland.loss import Action
from rangeland.model import Counts, Slice
from rangeland.planning.policy import Policy
from rangeland.planning.slice_receipt import Receipt
from tests.fakes.schemas import decode_framed
from tests.unit.test_avro_decoder import encode, record
from tests.unit.test_protobuf_decoder import REPEATED, descriptors, message
from tests.unit.test_typed_chunks import PIECE, rows

F = pb.FieldDescriptorProto
ITEMS = record(("items", {"type": "array", "items": ["null", "string"]}), ("e", "string", "y" * 50))
OLD_ITEMS = record(("items", {"type": "array", "items": ["null", "string"]}))


class KnownJson:
    def of_id(self, schema_id: int) -> RegisteredSchema:
        return RegisteredSchema(SchemaFormat.JSON, "{}")


def pieces(form: PayloadFormat, payloads: pa.Array) -> Iterator[DecodedPayloads]:
    decoder = form.decoder()
    while len(payloads):
        found = decode_framed(decoder, payloads, KnownJson())
        assert len(found.values)
        payloads = payloads.slice(len(found.values))
        yield found


def joined(parts: list[DecodedPayloads]) -> tuple[Any, ...]:
    """Values, undecodable rows, rescued text and schema ids of all."""
    bad, ids, begin = [], dict[int, int](), 0
    for part in parts:
        bad += [(begin + one.row, one.reason, one.schema_id) for one in part.undecodable]
        for schema_id, count in part.schema_ids.items():
            ids[schema_id] = ids.get(schema_id, 0) + count
        begin += len(part.values)
    values = [one for part in parts for one in part.values.to_pylist()]
    kept = [one for part in parts for one in ([] if not part.rescued else part.rescued.to_pylist())]
    return values, bad, kept, ids


def avro_payloads() -> list[bytes | None]:
    good = [encode(OLD_ITEMS, {"items": [None, "x" * n, None] * (n % 7)}) for n in range(300)]
    return [*good[:100], None, b"\x02\x07", *good[100:200], b"", *good[200:]]


def json_payloads(frame: bytes = b"") -> list[bytes | None]:
    good = [
        frame + json.dumps({"a": n, "l": [{"s": "x" * n}, None] * (n % 5), "u": [n]}).encode()
        for n in range(300)
    ]
    return [*good[:100], None, frame + b'{"a":"', *good[100:200], b"", *good[200:]]


def protobuf_payloads() -> list[bytes | None]:
    good = [b"\x08\x07" + b"\x12\x03\x0a\x01x" * (n % 9) for n in range(300)]
    return [*good[:100], None, b"\x08", *good[100:200], b"\x12\x7f", *good[200:]]


AVRO = AvroFormat(json.dumps(ITEMS), writer_schema=json.dumps(OLD_ITEMS))
JSON = JsonFormat(
    parse_ddl("a INT, l ARRAY<STRUCT<s: STRING, b: BIGINT>>, n STRUCT<d: DOUBLE>"),
    UnknownFields.KEEP,
)
PROTOBUF = ProtobufFormat(
    descriptors(
        message("Item", ("s", F.TYPE_STRING)),
        message("M", ("a", F.TYPE_INT64), ("items", ".p.Item", REPEATED)),
    ),
    "p.M",
)
CASES = [
    pytest.param(AVRO, avro_payloads(), id="avro"),
    pytest.param(JSON, json_payloads(), id="json"),
    pytest.param(
        replace(JSON, writers=SubjectWriters()), json_payloads(b"\0\0\0\0\5"), id="framed json"
    ),
    pytest.param(PROTOBUF, protobuf_payloads(), id="protobuf"),
]


def limit(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    for module in (payload_kernel, column_buffers, json_kernel, json_columns):
        monkeypatch.setattr(module, "MAX_DECODED_BYTES", size)


@pytest.mark.parametrize(("form", "payloads"), CASES)
@pytest.mark.parametrize("size", [1, 500, 5_000])
def test_pieces_are_the_same_together(
    form: PayloadFormat, payloads: list[bytes | None], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = pa.array(payloads, pa.binary())
    (whole,) = pieces(form, given)
    limit(monkeypatch, size)
    parts = list(pieces(form, given))
    assert len(parts) > 1
    assert joined(parts) == joined([whole])


def receipt_of(chunk: ReadChunk, row_format: RowFormat, action: Action) -> tuple[Receipt, Any]:
    receipts = ReceiptBuilder([PIECE])
    found = []
    for one in TypedChunks(row_format, Policy(undecodable=action), [PIECE]).type_rows(chunk):
        receipts.add(one)
        found.append(one)
    (receipt,) = receipts.receipts()
    return receipt, pa.Table.from_batches([one.rows for one in found if isinstance(one, ReadChunk)])


@pytest.mark.parametrize("action", [Action.SKIP, Action.QUARANTINE])
def test_the_counts_of_a_slice_do_not_depend_on_pieces(
    action: Action, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = encode(OLD_ITEMS, {"items": ["x", None]})
    values = {101: good, 102: b"\x07", 103: good, 107: None, 110: good, 111: good, 118: b""}
    counts = Counts(landed=7, control=2, aborted=4, compacted=7)
    chunk = ReadChunk(0, 100, 120, counts, rows(values), address="b:1", bytes_read=7)
    whole, table = receipt_of(chunk, RowFormat(value=AVRO), action)
    limit(monkeypatch, 1)
    receipt, again = receipt_of(chunk, RowFormat(value=AVRO), action)
    assert again.num_rows == 5
    assert again.column("value").num_chunks > table.column("value").num_chunks
    assert again.combine_chunks().equals(table.combine_chunks())
    assert receipt == whole


def test_a_slice_is_held_where_its_piece_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    good = encode(OLD_ITEMS, {"items": []})
    chunk = ReadChunk(
        0, 100, 120, Counts(landed=3, compacted=17), rows({101: good, 105: b"\x07", 110: good})
    )
    limit(monkeypatch, 1)
    receipt, table = receipt_of(chunk, RowFormat(value=AVRO), Action.HOLD)
    assert receipt.until_offset == 105
    assert receipt.counts == Counts(landed=1, compacted=4)
    assert table.column("offset").to_pylist() == [101]


@pytest.mark.parametrize(
    ("counts", "until", "landed"),
    [
        # 102, 103 and one of the others: whether aborted or control is not known at 105.
        (Counts(landed=4, control=3, aborted=2), 101, Counts(landed=1)),
        (Counts(landed=4, control=5), 105, Counts(landed=2, control=3)),
    ],
)
def test_no_offset_before_a_held_piece_has_a_class_that_it_may_not_have(
    counts: Counts, until: int, landed: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = encode(OLD_ITEMS, {"items": []})
    values = {100: good, 101: good, 105: b"\x07", 108: good}
    piece = Slice(0, PIECE.partition, 100, 109)
    chunk = ReadChunk(0, 100, 109, counts, rows(values), bytes_read=7)
    limit(monkeypatch, 1)
    found = list(
        TypedChunks(RowFormat(value=AVRO), Policy(undecodable=Action.HOLD), [piece]).type_rows(
            chunk
        )
    )
    receipts = ReceiptBuilder([piece])
    for one in found:
        assert isinstance(one, ReadChunk | LostChunk)
        receipts.add(one)
    (receipt,) = receipts.receipts()
    assert (receipt.until_offset, receipt.counts, receipt.bytes_read) == (until, landed, 7)
    assert receipt.held is not None
    assert (receipt.held.from_offset, receipt.held.until_offset) == (until, 109)
    assert "the value at offset 105" in receipt.held.evidence


def test_a_chunk_without_undecodable_records_is_not_held_whatever_its_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = encode(OLD_ITEMS, {"items": []})
    counts = Counts(landed=4, control=5, aborted=4, compacted=7)
    values = {101: good, 105: good, 110: good, 118: good}
    chunk = ReadChunk(0, 100, 120, counts, rows(values), bytes_read=7)
    limit(monkeypatch, 1)
    receipt, table = receipt_of(chunk, RowFormat(value=AVRO), Action.HOLD)
    assert (receipt.counts, receipt.held, receipt.bytes_read) == (counts, None, 7)
    assert table.column("offset").to_pylist() == [101, 105, 110, 118]


def test_offsets_that_are_bytes_may_be_shared_by_records_of_several_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = encode(OLD_ITEMS, {"items": []})
    batch = pa.concat_batches([rows({at: good}) for at in (100, 100, 100, 110)])
    chunk = ReadChunk(0, 100, 120, Counts(landed=4), batch, offsets_are_bytes=True)
    limit(monkeypatch, 1)
    receipt, table = receipt_of(chunk, RowFormat(value=AVRO), Action.FAIL)
    assert (receipt.counts, receipt.entry_span, table.num_rows) == (Counts(landed=4), 20, 4)


@pytest.mark.parametrize(
    ("action", "left"), [(Action.SKIP, [100, 100, 110]), (Action.QUARANTINE, [110])]
)
def test_an_entry_of_several_pieces_is_lost_or_quarantined_as_one(
    monkeypatch: pytest.MonkeyPatch, action: Action, left: list[int]
) -> None:
    good = encode(OLD_ITEMS, {"items": []})
    offsets = [(100, good), (100, b"\x07"), (100, good), (110, good)]
    batch = pa.concat_batches([rows({at: value}) for at, value in offsets])
    chunk = ReadChunk(0, 100, 120, Counts(landed=4), batch, offsets_are_bytes=True)
    limit(monkeypatch, 1)
    receipt, table = receipt_of(chunk, RowFormat(value=AVRO), action)
    (loss,) = receipt.losses
    assert (loss.from_offset, loss.until_offset) == (100, 110)
    assert table.column("offset").to_pylist() == left
    assert receipt.counts.lost + receipt.counts.quarantined == 10


def test_keys_and_values_are_cut_at_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    key = json.dumps({"l": [{"s": "k" * 100}] * 20}).encode()
    good = encode(OLD_ITEMS, {"items": []})
    batch = rows({at: good for at in range(100, 120)}, key)
    formats = RowFormat(key=JSON, value=AVRO)
    (whole,) = formats.decoder("orders").decode(batch)
    limit(monkeypatch, 300)
    parts = list(formats.decoder("orders").decode(batch))
    assert len(parts) > 1
    assert pa.Table.from_batches([one.batch for one in parts]).to_pylist() == (
        whole.batch.to_pylist()
    )


# --- real sizes ---------------------------------------------------------------------------


def total_of(form: PayloadFormat, payloads: pa.Array) -> int:
    """The bytes of all values. In the meantime no piece takes much more than it may."""
    before, total, count = pa.total_allocated_bytes(), 0, 0
    decoder = form.decoder()
    while count < len(payloads):
        found = decoder.decode(payloads.slice(count))
        assert not found.undecodable
        assert found.values.nbytes < 1.2 * MAX_DECODED_BYTES
        assert pa.total_allocated_bytes() - before < 3 * MAX_DECODED_BYTES
        total += found.values.nbytes
        count += len(found.values)
    return total


def test_a_column_that_would_pass_two_gibibytes_is_decoded_in_pieces() -> None:
    """A default of 60 KB for records of one byte."""
    reader = record(("a", "boolean"), ("text", "string", "x" * 60_000))
    form = AvroFormat(json.dumps(reader), writer_schema=json.dumps(record(("a", "boolean"))))
    assert total_of(form, pa.array([b"\1"] * 40_000, pa.binary())) > 1 << 31


@pytest.mark.parametrize(
    ("form", "payload"),
    [
        (JsonFormat(parse_ddl(", ".join(f"f{n} DECIMAL(20,2)" for n in range(200)))), b"{}"),
        (
            ProtobufFormat(
                descriptors(message("M", *((f"f{n}", F.TYPE_UINT64) for n in range(200))))
            ),
            b"",
        ),
    ],
    ids=["json", "protobuf"],
)
def test_short_payloads_of_wide_schemas_are_decoded_in_pieces(
    form: PayloadFormat, payload: bytes
) -> None:
    assert total_of(form, pa.array([payload] * 100_000, pa.binary())) > 300_000_000


WIDE = record(*((f"f{at}", "long") for at in range(200)), name="Wide")
TOO_LARGE = "it would take more than 256 MiB of memory"
LARGE = [
    pytest.param(
        AvroFormat(json.dumps(record(("rows", {"type": "array", "items": ["null", WIDE]})))),
        b"\x80\xea\x30" + b"\0" * 400_000 + b"\0",
        b"\2\0\0",
        TOO_LARGE,
        id="avro",
    ),
    pytest.param(
        ProtobufFormat(
            descriptors(
                message("Wide", *((f"f{at}", F.TYPE_INT64) for at in range(200))),
                message("M", ("rows", ".p.Wide", REPEATED)),
            ),
            "p.M",
        ),
        b"\x0a\0" * 400_000,
        b"\x0a\0",
        TOO_LARGE,
        id="protobuf",
    ),
    pytest.param(
        JsonFormat(parse_ddl("l ARRAY<TINYINT>")),
        b'{"l":[' + b"0," * (1 << 24) + b"0]}",
        b'{"l":[0]}',
        "its arrays and maps have more than 16,777,216 values",
        id="json",
    ),
]


@pytest.mark.parametrize(("form", "large", "small", "words"), LARGE)
def test_a_record_that_is_too_large_alone_is_undecodable_whatever_is_beside_it(
    form: PayloadFormat, large: bytes, small: bytes, words: str
) -> None:
    parts = list(pieces(form, pa.array([small, large, None, small], pa.binary())))
    values, bad, _, _ = joined(parts)
    assert [row for row, _, _ in bad] == [1]
    assert words in bad[0][1]
    assert values[1:3] == [None, None]
    assert values[0] == values[3] is not None
