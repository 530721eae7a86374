"""The kernel gives what the reference gives, for any bytes: the same rows, or the same fault.

To run the same under the sanitizers, see `test_the_kernel_is_clean_under_sanitizers`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rangeland.decode.kafka.kernel import KafkaKernel
from rangeland.decode.kafka.layout import Payload
from rangeland.errors import BadRecord
from tests.examples import tried
from tests.property.sanitizers import kernel_library, run_under_sanitizers
from tests.record_batches import Record, deltas, encode_records, varint
from tests.reference import kafka_records

many = tried(100)


KERNEL = KafkaKernel(kernel_library())

# --- what may be in a log ---------------------------------------------------------------

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
texts = st.one_of(
    st.text(max_size=6).map(lambda text: text.encode()),
    st.binary(max_size=6),
    st.sampled_from([b"", b"\xed\xa0\x80", b"\xed\xa0", b"\xc3\x28", b"\xf0\x9f\x98\x80"]),
)
values = st.one_of(
    st.none(), st.just(b""), st.binary(max_size=40), st.integers(0, 300).map(lambda n: b"x" * n)
)
headers = st.lists(st.tuples(texts, values), max_size=3).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn, steps: tuple[int, ...] = (1, 1, 1, 2, 70, 9000)) -> list[Record]:
    records: list[Record] = []
    delta = -1
    for _ in range(draw(st.integers(0, 12))):
        delta += draw(st.sampled_from(steps))
        stamp = draw(st.one_of(st.integers(-200, 200), INT64.map(lambda n: n // 10**6)))
        records.append(Record(draw(values), draw(values), draw(headers), stamp, delta))
    return records


@st.composite
def payloads(draw: st.DrawFn, records: list[Record] | None = None) -> Payload:
    records = draw(record_lists()) if records is None else records
    last = max(deltas(records), default=0) + draw(st.integers(0, 2))
    return Payload(
        encode_records(records),
        draw(st.one_of(st.integers(0, 1000), st.just((1 << 63) - 5), INT64)),
        draw(st.one_of(st.integers(-1, 2_000_000_000_000), INT64)),
        draw(st.one_of(st.none(), st.integers(-1, 2_000_000_000_000), INT64)),
        len(records),
        last,
    )


@st.composite
def damaged_payloads(draw: st.DrawFn) -> Payload:
    """A good payload in which something is not as it should be."""
    in_order = draw(st.booleans())
    records = draw(record_lists() if in_order else record_lists(steps=(1, 1, 1, 0, -1)))
    payload = draw(payloads(records))
    data = bytearray(payload.data)
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["set", "cut", "insert", "tail", "varint"]))
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        if kind == "set" and data:
            data[at] = draw(st.integers(0, 255))
        elif kind == "cut":
            del data[at:]
        elif kind == "insert":
            data[at:at] = draw(st.binary(max_size=4))
        elif kind == "tail":
            data += draw(st.binary(max_size=4))
        elif kind == "varint":
            number = draw(st.one_of(st.integers(-3, 300), INT64, st.just((1 << 31) - 1)))
            data[at : at + 1] = varint(number)
    count = payload.record_count + draw(st.sampled_from([0, 0, 0, -1, 1, 1 << 31]))
    last = payload.last_offset_delta + draw(st.sampled_from([0, 0, 0, -1, -3]))
    return payload._replace(data=bytes(data), record_count=count, last_offset_delta=last)


@st.composite
def junk_payloads(draw: st.DrawFn) -> Payload:
    data = draw(st.binary(max_size=60))
    count, last = draw(st.integers(0, 4)), draw(st.integers(0, 300))
    return Payload(data, draw(st.integers(0, 50)), 0, None, count, last)


def wants(payload: Payload) -> st.SearchStrategy[tuple[int, int]]:
    near = st.integers(payload.base_offset - 2, payload.base_offset + 20)
    everything = st.sampled_from([(-(1 << 63), (1 << 63) - 1), (-(1 << 64), 1 << 64)])
    return st.one_of(everything, st.tuples(near, near))


# --- the claims -------------------------------------------------------------------------


def outcome(
    decode: Callable[[list[Payload], int, int], pa.RecordBatch],
    given_payloads: list[Payload],
    from_offset: int,
    until_offset: int,
) -> pa.RecordBatch | BadRecord:
    try:
        return decode(given_payloads, from_offset, until_offset)
    except BadRecord as error:
        return error


def assert_same(given_payloads: list[Payload], from_offset: int, until_offset: int) -> bool:
    """Whether there were rows rather than a fault."""
    wanted = outcome(kafka_records.decode_records, given_payloads, from_offset, until_offset)
    found = outcome(KERNEL.decode_records, given_payloads, from_offset, until_offset)
    assert type(found) is type(wanted), (found, wanted)
    if isinstance(wanted, BadRecord) or isinstance(found, BadRecord):
        assert (str(found), found.facts) == (str(wanted), wanted.facts)
        return False
    found.validate(full=True)
    assert found.schema.equals(wanted.schema, check_metadata=True)
    assert found.equals(wanted)
    for one, other in zip(found.columns, wanted.columns, strict=True):
        assert one.null_count == other.null_count
    return True


@many
@given(data=st.data(), batches=st.lists(payloads(), max_size=4))
def test_good_batches_give_the_same_rows(data: st.DataObject, batches: list[Payload]) -> None:
    bounds = data.draw(wants(batches[0])) if batches else (0, 9)
    assert_same(batches, *bounds)


@many
@given(data=st.data(), batches=st.lists(damaged_payloads(), min_size=1, max_size=3))
def test_damaged_batches_give_the_same_fault(data: st.DataObject, batches: list[Payload]) -> None:
    assert_same(batches, *data.draw(wants(batches[-1])))


@many
@given(payload=junk_payloads())
@example(Payload(b"\x80\x80\x80\x80\x10", 0, 0, None, 1, 0))
@example(Payload(b"\x80\x80\x80\x80\x80\x00", 0, 0, None, 1, 0))
@example(Payload(b"\x16\x00" + b"\x80" * 9 + b"\x02", 0, 0, None, 1, 0))
@example(Payload(b"\x0c\x02\x00\x00\x01\x01\x00", 0, 0, None, 1, 0))
def test_junk_gives_the_same_fault(payload: Payload) -> None:
    assert_same([payload], 0, 100)


@tried(10)
@given(payload=payloads())
def test_every_truncation_gives_the_same_fault(payload: Payload) -> None:
    for size in range(len(payload.data)):
        rows = assert_same([payload._replace(data=payload.data[:size])], -(1 << 63), (1 << 63) - 1)
        assert not rows


def test_a_large_batch_gives_the_same_rows() -> None:
    records = [
        Record(b"%d" % i, None if i % 97 == 0 else b"v" * (i % 400), ((b"h", b""),) * (i % 3))
        for i in range(20_000)
    ]
    payload = Payload(encode_records(records), 7, 0, None, len(records), len(records) - 1)
    assert assert_same([payload, payload._replace(base_offset=50_000)], 1000, 69_000)


@pytest.mark.slow
def test_the_kernel_is_clean_under_sanitizers(tmp_path: Path) -> None:
    """All claims above once more; any report of the sanitizers ends that process."""
    run_under_sanitizers(__file__, tmp_path)
