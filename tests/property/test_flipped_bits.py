"""One flipped bit anywhere in what a broker stores, through everything that reads it: the outcome
is an error with a name, or the true rows. Never other rows, and no offset without a row that is not
accounted for.

What no reader can tell is named here, and nothing else is left out: a few fields that are covered
by no checksum and contradict nothing (the times and properties of a RocketMQ message), and offsets
that are moved into a gap which may be there (by tags).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangeland.dialects.kafka.log_entries import locate_entries
from rangeland.dialects.rocketmq.queue_entries import EntryTotals
from rangeland.errors import BadRecord, RangelandError, RangeLost, Unreachable
from rangeland.loss import Action
from rangeland.planning.policy import Policy
from tests.examples import tried
from tests.fakes.logs import Log, Read, read_log
from tests.fetched_records import fetched_at
from tests.golden import test_golden_records as golden_kafka
from tests.golden import test_golden_rocketmq as golden_rocketmq
from tests.jafka_entries import entry, packed, plain
from tests.message_sets import Message, Wrapper, encode_message, encode_wrapper
from tests.record_batches import Batch, Record, encode
from tests.rocketmq_messages import PACKED, ZSTD, batch, inner, properties_of, stored

NAMED = (BadRecord, RangeLost, Unreachable)
few = tried(5)


def kafka_v2() -> Log:
    entries = []
    for index, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd", "none", "none")):
        base = 4 * index
        records = [
            Record(b"k%d" % o, b"value-%d" % o, ((b"h", b"%d" % o),)) for o in range(base, base + 4)
        ]
        entries.append((base, base + 4, encode(Batch(base, records, codec))))
    return Log(entries)


def kafka_old(magic: int) -> Log:
    entries, offset = [], 0
    for codec in ("", "gzip", "", "", "snappy", "lz4", "", ""):
        count = 5 if codec else 1
        some = [Message(o, b"k", b"value-%d" % o, magic) for o in range(offset, offset + count)]
        data = encode_wrapper(Wrapper(some, codec, magic)) if codec else encode_message(some[0])
        entries.append((offset, offset + count, data))
        offset += count
    return Log(entries)


def golden_of_kafka() -> Iterator[tuple[str, Log]]:
    for one in golden_kafka.ALL:
        if one.said["aborted"]:
            continue
        data = memoryview(one.data)
        entries = [
            (entry.base_offset, entry.last_offset + 1, bytes(data[start:end]))
            for start, end, entry in locate_entries(fetched_at(data), 0, join_messages=False)
        ]
        if entries[0][0] == 0 and sum(len(data) for _, _, data in entries) < 20_000:
            yield golden_kafka.label(one), Log(entries)


def golden_of_rocketmq() -> Iterator[tuple[str, Log]]:
    for name in ("Pull.plain", "Pull.lz4", "Pull.zlib", "Pull.zstd", "Pull.batch", "Pull.two"):
        body = golden_rocketmq.response_of(name).body
        entries = [
            (e.offset, e.until_offset, bytes(body[e.start : e.end]))
            for e in EntryTotals(body).entries()
        ]
        yield name, Log(entries)


def jafka() -> Log:
    entries, offset = [], 0
    for n in range(9):
        data = (
            packed(plain([b"in-%d-%d" % (n, i) for i in range(3)]))
            if n % 3 == 1
            else entry(b"v-%d" % n)
        )
        entries.append((offset, offset + len(data), data))
        offset += len(data)
    return Log(entries)


def rocketmq(tagged: bool = False) -> Log:
    entries = []
    for offset in range(12):
        named = properties_of(("TAGS", "AB"[offset % 2]), ("KEYS", "k"))
        body, flags = b"value-%d" % offset, 0
        if offset % 4 == 3 and not tagged:
            body, flags = zstd(body * 9), PACKED | ZSTD << 8
        entries.append((offset, offset + 1, stored(body, offset, named, flags=flags)))
    return Log(entries, joined=5)


def rocketmq_batches() -> Log:
    entries, offset = [], 0
    for count in (1, 3, 1, 4, 1):
        held = [inner(b"value-%d" % o) for o in range(offset, offset + count)]
        data = batch(held, offset) if count > 1 else stored(b"value-%d" % offset, offset)
        entries.append((offset, offset + count, data))
        offset += count
    return Log(entries, joined=3)


def zstd(data: bytes) -> bytes:
    import cramjam

    return bytes(cramjam.zstd.compress(data))


LOGS: dict[str, tuple[str, Log]] = {
    "kafka v2": ("kafka", kafka_v2()),
    "kafka v0": ("kafka", kafka_old(0)),
    "kafka v1": ("kafka", kafka_old(1)),
    "jafka": ("jafka", jafka()),
    "rocketmq": ("rocketmq", rocketmq()),
    "rocketmq batches": ("rocketmq", rocketmq_batches()),
    **{f"kafka {name}": ("kafka", log) for name, log in golden_of_kafka()},
    **{f"rocketmq {name}": ("rocketmq", log) for name, log in golden_of_rocketmq()},
}


def essence(row: dict[str, Any], dialect: str) -> Any:
    """What must be true of a row. RocketMQ's checksum covers the body alone."""
    if dialect == "rocketmq":
        return row["offset"], row["value"]
    return json.dumps(row, default=repr, sort_keys=True)


def outcome(dialect: str, log: Log, first: int, until: int, **more: Any) -> Read | RangelandError:
    try:
        return read_log(dialect, log, first, until, **more)
    except NAMED as error:
        return error


def assert_true(dialect: str, log: Log, bad: Log, first: int, until: int) -> str:
    true = read_log(dialect, log, first, until)
    found = outcome(dialect, bad, first, until)
    if isinstance(found, RangelandError):
        return type(found).__name__
    assert [essence(row, dialect) for row in found.rows] == [
        essence(row, dialect) for row in true.rows
    ]
    assert found.receipt.counts == true.receipt.counts
    return "rows"


def assert_passed(dialect: str, log: Log, bad: Log, first: int, until: int) -> None:
    """Where a policy goes on behind damage, what lands is true, and the rest is accounted for."""
    true = {
        row_key(row): essence(row, dialect) for row in read_log(dialect, log, first, until).rows
    }
    found = outcome(dialect, bad, first, until, policy=Policy(corrupt=Action.SKIP))
    if isinstance(found, RangelandError):
        return
    for row in found.rows:
        assert essence(row, dialect) == true[row_key(row)]
    if dialect != "jafka":
        counts = found.receipt.counts
        assert counts.landed + counts.lost + counts.control == until - first


def row_key(row: dict[str, Any]) -> Any:
    return row["offset"], row.get("position", 0)


@pytest.mark.parametrize("name", LOGS)
@few
@given(data=st.data())
def test_one_flipped_bit_is_a_named_error_or_changes_no_row(name: str, data: st.DataObject) -> None:
    dialect, log = LOGS[name]
    index = data.draw(st.integers(0, len(log.entries) - 1))
    size = len(log.entries[index][2])
    bit = data.draw(st.integers(0, 8 * size - 1))
    start = data.draw(st.integers(0, index))
    first, until = log.entries[start][0], log.ends
    if dialect != "jafka" and data.draw(st.booleans()):
        first = data.draw(st.integers(first, log.entries[index][1] - 1))
        until = data.draw(st.integers(first + 1, log.ends))
    bad = log.flipped(index, bit)
    assert_true(dialect, log, bad, first, until)
    assert_passed(dialect, log, bad, first, until)


HEADS = {
    "kafka v2": 21,
    "kafka v0": 18,
    "kafka v1": 18,
    "jafka": 10,
    "rocketmq": 44,
    "rocketmq batches": 44,
}
"""Bytes at the head of an entry of which at least some are covered by no checksum."""


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_each_bit_of_each_head_flipped(name: str) -> None:
    dialect, log = LOGS[name]
    for index, (_, until, _) in enumerate(log.entries):
        for bit in range(8 * HEADS[name]):
            bad = log.flipped(index, bit)
            assert_true(dialect, log, bad, log.begins, log.ends)
            assert_true(dialect, log, bad, log.begins, until)
            assert_passed(dialect, log, bad, log.begins, log.ends)
