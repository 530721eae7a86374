"""The reference decoder says what the bytes say, and names every way they can be wrong.

The kernel is held to the same responses here, case by case; `tests/property` does so for
bytes nobody thought of."""

from __future__ import annotations

import datetime as dt
import struct
import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest

from rangeland.decode import columns
from rangeland.decode.kafka.kernel import KafkaKernel
from rangeland.decode.kafka.layout import Fault, Payload, RecordFormat
from rangeland.decode.native import native_library
from rangeland.decode.native.kernel_arrays import MAX_BYTES
from rangeland.errors import BadRecord, Bug
from rangeland.model import Partition
from tests.message_sets import Message, encode_message
from tests.record_batches import Record, encode_record, encode_records, varint
from tests.reference import kafka_records

Decode = Callable[[list[Payload], int, int], pa.RecordBatch]
MAX_INT64 = (1 << 63) - 1


@pytest.fixture(params=["reference", "kernel"])
def decode(request: pytest.FixtureRequest) -> Decode:
    if request.param == "reference":
        return kafka_records.decode_records
    return KafkaKernel(native_library.load_library()).decode_records


def payload_of(*records: Record, base: int = 100, append_ms: int | None = None) -> Payload:
    return Payload(encode_records(records), base, 1000, append_ms, len(records), len(records) - 1)


def test_null_empty_and_absent_stay_distinct(decode: Decode) -> None:
    headers = ((b"a", None), (b"b", b""), (b"a", b"again"))
    batch = decode([payload_of(Record(None, b""), Record(b"", None, headers))], 0, 1000)
    assert batch.column("key").to_pylist() == [None, b""]
    assert batch.column("value").to_pylist() == [b"", None]
    assert batch.column("headers").to_pylist() == [
        None,
        [
            {"key": "a", "value": None},
            {"key": "b", "value": b""},
            {"key": "a", "value": b"again"},
        ],
    ]


def test_only_wanted_offsets_give_rows(decode: Decode) -> None:
    payloads = [payload_of(*[Record(b"k")] * 5), payload_of(*[Record(b"k")] * 5, base=200)]
    batch = decode(payloads, 103, 202)
    assert batch.column("offset").to_pylist() == [103, 104, 200, 201]


def test_times_are_microseconds_and_minus_one_stays(decode: Decode) -> None:
    records = [Record(timestamp_delta=-1001), Record(timestamp_delta=5)]
    batch = decode([payload_of(*records)], 0, 1000)
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [-1000, 1_005_000]
    assert batch.column("timestamp")[1].as_py() == dt.datetime.fromtimestamp(1.005, dt.UTC)
    assert batch.column("timestampType").to_pylist() == [0, 0]


def test_a_broker_stamped_batch_gives_its_time_to_every_record(decode: Decode) -> None:
    records = [Record(timestamp_delta=-1), Record(timestamp_delta=MAX_INT64)]
    batch = decode([payload_of(*records, append_ms=7)], 0, 1000)
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [7000, 7000]
    assert batch.column("timestampType").to_pylist() == [1, 1]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain", "plain"),
        ("Schlüssel 鍵 😀".encode(), "Schlüssel 鍵 😀"),
        (b"a\xc3(", "a\ufffd("),
        (b"\xed\xa0\x80x", "\ufffdx"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xe0\x80\x80", "\ufffd\ufffd\ufffd"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xf0\x80\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
        (b"\xff\xc0\xaf", "\ufffd\ufffd\ufffd"),
    ],
)
def test_header_keys_are_read_as_java_reads_them(decode: Decode, raw: bytes, text: str) -> None:
    batch = decode([payload_of(Record(headers=((raw, b"1"), (b"ok", None))))], 0, 1000)
    assert [h["key"] for h in batch.column("headers")[0].as_py()] == [text, "ok"]


def test_nothing_gives_an_empty_batch_with_all_columns(decode: Decode) -> None:
    assert decode([], 0, 10).schema == columns.RECORDS
    batch = decode([Payload(b"", 5, 0, None, 0, 9)], 0, 10)
    assert (batch.num_rows, batch.schema) == (0, columns.RECORDS)


def body(*parts: bytes) -> bytes:
    """A record of these parts, with its length before them."""
    joined = b"".join(parts)
    return varint(len(joined)) + joined


GOOD = encode_record(Record(b"k", b"v"), 0)
START = b"\0\0\0"  # attributes, timestamp delta 0, offset delta 0
NULL = varint(-1)

FAULTS = [
    (Fault.NEGATIVE_RECORD_COUNT, b"", 0, 0, {"record_count": -1}),
    (Fault.BATCH_ENDS, GOOD, 1, len(GOOD), {"record_count": 2}),
    (Fault.BATCH_ENDS, b"\x80", 0, 0, {}),
    (Fault.VARINT_TOO_LONG, b"\xff\xff\xff\xff\x1f", 0, 0, {}),
    (Fault.VARINT_TOO_LONG, body(b"\0", b"\x80" * 9 + b"\x02", b"\0"), 0, 2, {}),
    (Fault.NEGATIVE_RECORD_LENGTH, varint(-1), 0, 0, {}),
    (Fault.RECORD_PAST_BATCH, varint(7) + b"\0" * 6, 0, 0, {}),
    (Fault.RECORD_TOO_SHORT, body(b""), 0, 1, {}),
    (Fault.RECORD_TOO_SHORT, body(START, NULL, NULL), 0, 6, {}),
    (Fault.RECORD_TOO_SHORT, body(START, NULL, NULL, varint(1)), 0, 7, {}),
    (Fault.OFFSET_DELTA_OUTSIDE, body(b"\0\0", varint(1), NULL, NULL, b"\0"), 0, 3, {}),
    (Fault.OFFSET_DELTA_OUTSIDE, body(b"\0\0", varint(-1), NULL, NULL, b"\0"), 0, 3, {}),
    (Fault.OFFSET_DELTA_ORDER, GOOD + GOOD, 1, len(GOOD) + 3, {"record_count": 2}),
    (
        Fault.OFFSET_OVERFLOW,
        encode_record(Record(), 1),
        0,
        3,
        {"base_offset": MAX_INT64, "last_offset_delta": 1},
    ),
    (Fault.NEGATIVE_LENGTH, body(START, varint(-2), NULL, b"\0"), 0, 4, {}),
    (Fault.NEGATIVE_LENGTH, body(START, NULL, varint(-9), b"\0"), 0, 5, {}),
    (Fault.FIELD_PAST_RECORD, body(START, varint(1)), 0, 4, {}),
    (Fault.FIELD_PAST_RECORD, body(START, NULL, varint(1 << 30), b"\0"), 0, 5, {}),
    (Fault.FIELD_PAST_RECORD, body(START, NULL, NULL, varint(1), varint(5)), 0, 7, {}),
    (Fault.FIELD_PAST_RECORD, body(START, NULL, NULL, varint(1), b"\0", varint(5)), 0, 8, {}),
    (Fault.NEGATIVE_HEADER_COUNT, body(START, NULL, NULL, varint(-1)), 0, 6, {}),
    (
        Fault.TOO_MANY_HEADERS,
        encode_record(Record(headers=((b"", None),) * 2), 0),
        0,
        6,
        {"max_headers": 1},
    ),
    (Fault.HEADER_KEY_NULL, body(START, NULL, NULL, varint(1), NULL, NULL), 0, 7, {}),
    (Fault.RECORD_TOO_LONG, body(START, NULL, NULL, b"\0", b"!"), 0, 7, {}),
    (Fault.TRAILING_BYTES, GOOD + b"!", 1, len(GOOD), {}),
    (Fault.TRAILING_BYTES, b"!", 0, 0, {"record_count": 0}),
]


PLAIN: dict[str, int] = {"form": RecordFormat.PLAIN}
MESSAGE = encode_message(Message(0, b"k", b"v"))


def message(offset: int, checked: bytes, magic: int = 0, attributes: int = 0) -> bytes:
    """A message with these bytes behind its attributes, and the right checksum."""
    checked = bytes([magic, attributes]) + checked
    head = struct.pack(">qiI", offset, 4 + len(checked), zlib.crc32(checked))
    return head + checked


def four(number: int) -> bytes:
    return struct.pack(">i", number)


MESSAGE_FAULTS = [
    (Fault.BATCH_ENDS, MESSAGE, 1, len(MESSAGE), PLAIN | {"record_count": 2}),
    (Fault.BATCH_ENDS, MESSAGE[:11], 0, 0, PLAIN),
    (Fault.NEGATIVE_RECORD_LENGTH, encode_message(Message(0, length=-1)), 0, 8, PLAIN),
    (Fault.RECORD_PAST_BATCH, MESSAGE[:-1], 0, 8, PLAIN),
    (Fault.OFFSET_DELTA_OUTSIDE, encode_message(Message(1)), 0, 0, PLAIN),
    (Fault.OFFSET_DELTA_OUTSIDE, encode_message(Message(-1)), 0, 0, PLAIN),
    (Fault.OFFSET_DELTA_ORDER, MESSAGE * 2, 1, len(MESSAGE), PLAIN | {"record_count": 2}),
    (
        Fault.OFFSET_OVERFLOW,
        encode_message(Message(1)),
        0,
        0,
        PLAIN | {"offset_shift": MAX_INT64, "base_offset": MAX_INT64, "last_offset_delta": 1},
    ),
    (Fault.RECORD_TOO_SHORT, struct.pack(">qi", 0, 5) + b"\0" * 5, 0, 12, PLAIN),
    (Fault.WRONG_MESSAGE_CHECKSUM, encode_message(Message(0, crc=1)), 0, 12, PLAIN),
    (Fault.UNKNOWN_MESSAGE_MAGIC, message(0, four(-1) * 2, magic=2), 0, 16, PLAIN),
    (Fault.PACKED_MESSAGE, message(0, four(-1) * 2, attributes=1), 0, 17, PLAIN),
    (Fault.RECORD_TOO_SHORT, message(0, four(-1), magic=1), 0, 18, PLAIN),
    (Fault.RECORD_TOO_SHORT, message(0, b"\0\0\0"), 0, 18, PLAIN),
    (Fault.NEGATIVE_LENGTH, message(0, four(-2) + four(-1)), 0, 18, PLAIN),
    (Fault.FIELD_PAST_RECORD, message(0, four(1 << 30) + four(-1)), 0, 18, PLAIN),
    (Fault.RECORD_TOO_SHORT, message(0, four(-1)), 0, 22, PLAIN),
    (Fault.NEGATIVE_LENGTH, message(0, four(-1) + four(-9)), 0, 22, PLAIN),
    (Fault.FIELD_PAST_RECORD, message(0, four(-1) + four(1)), 0, 22, PLAIN),
    (Fault.RECORD_TOO_LONG, message(0, four(-1) * 2 + b"!"), 0, 26, PLAIN),
    (Fault.TRAILING_BYTES, MESSAGE + b"!", 1, len(MESSAGE), PLAIN),
]


@pytest.mark.parametrize(
    ("fault", "data", "record", "position", "changes"), [*FAULTS, *MESSAGE_FAULTS]
)
def test_every_fault_is_named_with_its_position(
    decode: Decode, fault: Fault, data: bytes, record: int, position: int, changes: dict[str, int]
) -> None:
    payload = Payload(data, 0, 0, None, 1, 0)._replace(**changes)
    wanted_end = MAX_INT64 if fault is not Fault.OFFSET_OVERFLOW else 1
    with pytest.raises(BadRecord) as caught:
        decode([payload_of(Record(), base=5), payload], -1, wanted_end)
    assert caught.value.facts == {
        "payload": 1,
        "record": record,
        "byte_index": position,
        "reason": fault.reason,
    }
    assert fault.reason in str(caught.value)


def test_every_fault_has_a_case() -> None:
    assert {case[0] for case in (*FAULTS, *MESSAGE_FAULTS)} == set(Fault)


def test_a_record_nobody_wants_is_hopped_over(decode: Decode) -> None:
    """What is wrong behind its offset is found by whoever wants it."""
    broken = body(b"\0\0", varint(0), varint(99))
    payload = Payload(broken + encode_record(Record(b"k"), 1), 10, 0, None, 2, 1)
    assert decode([payload], 11, 12).column("offset").to_pylist() == [11]
    with pytest.raises(BadRecord):
        decode([payload], 10, 12)


def test_a_call_beyond_two_gib_is_refused() -> None:
    class Huge(KafkaKernel):
        def __init__(self) -> None:
            super().__init__(native_library.load_library())

    quarter = memoryview(bytes(1)).cast("B")
    big = pa.foreign_buffer(pa.py_buffer(quarter).address, MAX_BYTES // 2 + 1, base=quarter)
    payload = Payload(big, 0, 0, None, 0, 0)
    with pytest.raises(Bug):
        Huge().decode_records([payload, payload], 0, 1)


# --- whole rows -------------------------------------------------------------------------


def test_rows_have_the_columns_of_the_contract_in_order() -> None:
    batch = kafka_records.decode_records([payload_of(*[Record(b"k")] * 3)], 0, 1000)
    rows = columns.with_partition(batch, Partition("orders", 4))
    rows.validate(full=True)
    assert rows.schema == columns.row_schema()
    assert rows.schema.names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    assert rows.column("topic").to_pylist() == ["orders"] * 3
    assert rows.column("partition").to_pylist() == [4] * 3


def test_columns_of_other_dialects_come_last() -> None:
    batch = kafka_records.decode_records([payload_of(Record(), Record())], 0, 1000)
    position = pa.field("position", pa.int32())
    batch = batch.append_column(position, pa.array([0, 1], pa.int32()))
    rows = columns.with_partition(batch, Partition("t", 0, "b-1"))
    assert rows.schema == columns.row_schema(broker=True, extra=[position])
    assert rows.column("broker").to_pylist() == ["b-1", "b-1"]
    assert rows.column("position").to_pylist() == [0, 1]


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 1 << 17, (1 << 17) + 1])
def test_constants_have_as_many_rows_as_the_batch(rows: int) -> None:
    arrays = [pa.nulls(rows, field.type) for field in columns.RECORDS]
    whole = columns.with_partition(columns.records_batch(arrays), Partition("t", 9))
    assert whole.column("partition").to_pylist() == [9] * rows


# --- numbers at their edges -------------------------------------------------------------


TOO_LATE = MAX_INT64 // 1000 + 1


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (Payload(GOOD, 0, TOO_LATE, None, 1, 0), 0),
        (Payload(GOOD, 0, -MAX_INT64, None, 1, 0), 0),
        (Payload(GOOD, 0, 0, TOO_LATE, 1, 0), 1),
        (Payload(encode_record(Record(timestamp_delta=1), 0), 0, MAX_INT64, None, 1, 0), 0),
        (
            Payload(
                encode_message(Message(0, magic=1, timestamp_ms=TOO_LATE)),
                0, 0, None, 1, 0, RecordFormat.PLAIN,
            ),
            0,
        ),
        (Payload(encode_message(Message(0, magic=1)), 0, 0, -MAX_INT64, 1, 0,
                 RecordFormat.PACKED), 1),
    ],
)  # fmt: skip
def test_a_time_that_no_column_can_hold_is_null_and_its_record_is_good(
    decode: Decode, payload: Payload, kind: int
) -> None:
    """A producer may write nanoseconds or anything else; the batch is as it should be."""
    fine = Payload(GOOD, 1, 7, None, 1, 0)
    batch = decode([payload, fine], 0, 9)
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [None, 7_000]
    assert batch.column("timestampType").to_pylist() == [kind, 0]


@pytest.mark.parametrize("until", [MAX_INT64, MAX_INT64 + 1, 1 << 64, 1 << 80])
@pytest.mark.parametrize("from_offset", [-1 << 80, -1 << 63, 0, MAX_INT64 - 3])
def test_any_range_may_be_asked_for(decode: Decode, from_offset: int, until: int) -> None:
    payload = payload_of(*[Record(b"k")] * 3, base=MAX_INT64 - 2)
    found = decode([payload], from_offset, until).column("offset").to_pylist()
    assert found == [MAX_INT64 - 2, MAX_INT64 - 1]
    assert decode([payload], 1 << 80, until).num_rows == 0
