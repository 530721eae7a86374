"""Batches that brokers keep as one message: taken apart, every message of them is read as if it
had been stored by itself, and what is damaged is refused or passed over as a whole."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, cycle, repeat
from typing import Any

import cramjam
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchContext, FetchOptions, PartitionFetch, ResponseSpan
from rangeland.dialects.rocketmq import inner_batches
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.frames import RESPONSE, Frame, read_frame, write_frame
from rangeland.dialects.rocketmq.log_entries import cut_out, scan
from rangeland.dialects.rocketmq.queue_entries import EntryTotals, fields_of
from rangeland.dialects.rocketmq.records import decode_chunks
from rangeland.dialects.rocketmq.requests import read_records, records_requests
from rangeland.dialects.rocketmq.session import RocketmqSession
from rangeland.errors import BadRecord
from rangeland.model import Counts, Isolation, Partition
from tests.examples import tried
from tests.fetched_records import fetched_at
from tests.frames import split_frames
from tests.rocketmq_messages import (
    BORN_V6,
    INNER_BATCH,
    LZ4,
    MAGIC_2,
    NEED_UNWRAP,
    PACKED,
    STORE_V6,
    ZLIB,
    ZLIB_OF_OLD,
    ZSTD,
    batch,
    inner,
    java_hash,
    properties_of,
    stored,
)

QUEUE = Partition("t", 0, "broker-a")
COMMITTED = Isolation.READ_COMMITTED
END = 1 << 62
FLAGS = INNER_BATCH | NEED_UNWRAP


def batches_of(data: bytes, first: int, until: int) -> Iterator[pa.RecordBatch]:
    """All rows, and that the counts of all chunks add up to the range that they tell of."""
    position = first
    for chunk in decode_chunks(fetched_at(data, first), first, until):
        assert chunk.counts.total == chunk.next_offset - position
        position = chunk.next_offset
        if chunk.batch is not None:
            yield chunk.batch


def rows_of(data: bytes, first: int = 0, until: int = END) -> list[dict[str, Any]]:
    return [row for batch in batches_of(data, first, until) for row in batch.to_pylist()]


def refusal(data: bytes, first: int = 0, until: int = END) -> BadRecord:
    with pytest.raises(BadRecord) as caught:
        rows_of(data, first, until)
    return caught.value


# --- taken apart ------------------------------------------------------------------------

texts = st.text(st.characters(exclude_characters="\1\2", codec="utf-8"), min_size=1, max_size=5)
properties = st.lists(st.tuples(texts, texts), max_size=3).map(lambda pairs: properties_of(*pairs))


@dataclass
class Held:
    """An entry: the messages in it, or one that is stored by itself."""

    messages: list[tuple[bytes, bytes]]
    alone: bool


singles = st.builds(lambda one: Held([one], True), st.tuples(st.binary(max_size=9), properties))
held = st.builds(
    lambda some: Held(some, False),
    st.lists(st.tuples(st.binary(max_size=9), properties), min_size=1, max_size=7),
)
headers = st.sampled_from([{}, {"magic": MAGIC_2, "topic": b"t" * 200}, {"topic": b""}])
hosts = st.sampled_from([0, BORN_V6, STORE_V6, BORN_V6 | STORE_V6])
codecs = st.sampled_from([None, None, ZLIB, ZLIB_OF_OLD, LZ4, ZSTD])


def packed(data: bytes, codec: int | None) -> tuple[int, bytes]:
    """Flags, and the body as a producer packs it."""
    if codec is None:
        return FLAGS, data
    if codec == LZ4:
        body = bytes(cramjam.lz4.compress(data))
    elif codec == ZSTD:
        body = bytes(cramjam.zstd.compress(data))
    else:
        body = zlib.compress(data)
    return FLAGS | PACKED | codec << 8, body


@tried(60)
@given(
    entries=st.lists(st.one_of(held, held, singles), min_size=1, max_size=6),
    header=headers,
    host=hosts,
    codec=codecs,
    start=st.integers(0, 50),
    data=st.data(),
)
def test_the_messages_of_batches_are_read_as_if_each_was_stored_by_itself(
    entries: list[Held], header: dict[str, Any], host: int, codec: int | None, start: int, data: Any
) -> None:
    whole, apart, offset = b"", b"", start
    for entry in entries:
        for place, (body, named) in enumerate(entry.messages):
            apart += stored(body, offset + place, named, flags=host, **header)
        if entry.alone:
            whole += stored(*entry.messages[0][:1], offset, entry.messages[0][1], **header)
        else:
            flags, body = packed(b"".join(inner(*one) for one in entry.messages), codec)
            number = len(entry.messages)
            whole += batch((), offset, number=number, flags=flags | host, body=body, **header)
        offset += len(entry.messages)
    first = data.draw(st.integers(start, offset))
    until = data.draw(st.integers(first, offset + 2))
    assert rows_of(whole, first, until) == rows_of(apart, first, until)
    assert rows_of(whole, start) == rows_of(apart, start)
    assert scan(fetched_at(whole, start)).next_offset == offset
    assert len(cut_out(fetched_at(whole, start), start, offset)) == len(whole)


def test_a_range_that_cuts_a_batch_has_only_its_own_offsets() -> None:
    data = batch([inner(b"v%d" % n) for n in range(10)], 20) + batch([inner(b"w")] * 3, 30)
    assert [row["value"] for row in rows_of(data, 23, 26)] == [b"v3", b"v4", b"v5"]
    assert [row["offset"] for row in rows_of(data, 28, 32)] == [28, 29, 30, 31]
    assert [row["offset"] for row in rows_of(data, 31)] == [31, 32]


def test_parts_are_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(batch([inner(b"x" * 50)] * 10, 10 * n) for n in range(20))
    whole = rows_of(data)
    monkeypatch.setattr(inner_batches, "PART_BYTES", 1_000)
    chunks = list(decode_chunks(fetched_at(data, 5), 5, 195))
    assert [chunk.next_offset for chunk in chunks] == [*range(20, 200, 10), 195]
    assert rows_of(data) == whole


# --- damage -----------------------------------------------------------------------------

GOOD = [inner(b"a"), inner(b"b"), inner(b"c")]
BEFORE, BEHIND = stored(b"before", 4), batch([inner(b"x")] * 2, 8)
END_IS_KNOWN = {
    "the checksum of its body is wrong": batch(GOOD, 5, crc=1),
    "may not unpack": batch(GOOD, 5, flags=INNER_BATCH),
    "longer than the rest": batch(GOOD, 5, body=b"".join(GOOD)[:-1], number=3),
    "zlib data cannot be unpacked": batch(GOOD, 5, flags=FLAGS | PACKED | ZLIB << 8),
    "codec 7 is not known": batch(GOOD, 5, flags=FLAGS | PACKED | 7 << 8),
}


@pytest.mark.parametrize("why", END_IS_KNOWN)
def test_a_damaged_batch_is_named_whole_and_can_be_passed(why: str) -> None:
    bad = END_IS_KNOWN[why]
    data = BEFORE + bad + BEHIND
    assert scan(fetched_at(data, 4)).next_offset == 10
    error = refusal(data, 4)
    assert why in error.why
    facts = error.facts
    assert (facts["base_offset"], facts["next_offset"]) == (5, 8)
    assert facts["byte_index"] == len(BEFORE)
    assert [row["value"] for row in rows_of(data, 4, 5)] == [b"before"]
    assert [row["offset"] for row in rows_of(data, 8)] == [8, 9]
    assert bytes(cut_out(fetched_at(data, 4), 5, 8)) == bad
    # A range that begins inside it keeps all of it.
    assert refusal(data, 6).facts["base_offset"] == 5
    assert bytes(cut_out(fetched_at(data, 6), 6, 8)) == bad


@pytest.mark.parametrize("number", [2, 4])
def test_nothing_goes_on_after_a_batch_that_says_another_number_than_it_holds(
    number: int,
) -> None:
    error = refusal(BEFORE + batch(GOOD, 5, number=number), 4)
    held = "more" if number < 3 else "3"  # no more are looked at than it says
    assert f"it contains {held} messages, but claims {number}" in error.why
    assert error.facts["base_offset"] == 5
    assert "next_offset" not in error.facts


@pytest.mark.parametrize(
    "number", ["", "x", "-1", "0", "32768", "3.0", "\xb2", "000003", "1" * 5_000]
)
def test_the_walk_ends_at_a_batch_that_does_not_tell_its_number(number: str) -> None:
    data = BEFORE + batch(GOOD, 5, number=number)
    for bad in (data, data + BEHIND):
        with pytest.raises(BadRecord, match="cannot be decoded") as caught:
            scan(fetched_at(bad, 4))
        assert "unknown number of messages" in caught.value.why
        assert caught.value.facts["base_offset"] == 5
        assert "next_offset" not in caught.value.facts
        assert refusal(bad, 4).facts == caught.value.facts
    assert [row["value"] for row in rows_of(data, 4, 5)] == [b"before"]


def test_a_damaged_message_among_batches_is_found_at_its_position() -> None:
    bad = stored(b"bad", 8, crc=1)
    data = batch(GOOD, 5) + bad + batch(GOOD, 9)
    facts = refusal(data, 6).facts
    assert (facts["base_offset"], facts["next_offset"]) == (8, 9)
    assert data[facts["byte_index"] :][: len(bad)] == bad


damaged = st.builds(
    lambda data, place, byte: (
        data[: place % len(data)] + bytes([byte]) + data[place % len(data) + 1 :]
    ),
    st.just(BEFORE + batch(GOOD, 5) + stored(b"v", 8) + batch(GOOD, 9)),
    st.integers(0, 10_000),
    st.integers(0, 255),
)


@tried(100)
@given(data=damaged, from_offset=st.integers(0, 12), until_offset=st.integers(0, 14))
def test_whatever_a_byte_is_there_are_rows_or_a_refusal(
    data: bytes, from_offset: int, until_offset: int
) -> None:
    for entry in EntryTotals(memoryview(data)).entries():
        fields_of(memoryview(data)[entry.start : entry.end])
    offsets: list[int] = []
    with suppress(BadRecord):
        # Not whole rows: a time may be of a year that Python does not have.
        for batch in batches_of(data, from_offset, until_offset):
            offsets += batch.column("offset").to_pylist()
    assert offsets == sorted(set(offsets))
    assert all(from_offset <= offset < until_offset for offset in offsets)


def test_what_is_kept_of_a_batch_is_read_by_the_same_tags() -> None:
    some = [inner(b"%d" % n, properties_of(("TAGS", "AB"[n % 2]))) for n in range(4)]
    bodies = [batch(some, at, crc=crc) for at, crc in ((4, None), (8, 1), (12, None))]
    records = memoryview(b"".join(bodies))
    context = FetchContext(spans=(ResponseSpan(len(records), 6, 16),), tags=(b"A",))
    with pytest.raises(BadRecord) as caught:
        list(decode_chunks(fetched_at(records, 6, context=context), 6, 16))
    facts = caught.value.facts
    first, until = facts["base_offset"], facts["next_offset"]
    kept = bytes(cut_out(fetched_at(records, 6, context=context), first, until))
    assert kept == bodies[1]
    mended = kept.replace(bodies[1], batch(some, 8))
    alone = FetchContext(
        spans=(ResponseSpan(len(mended), 8, 12),), has_gaps=True, tags=(b"A",), from_quarantine=True
    )
    (chunk,) = decode_chunks(fetched_at(mended, 8, context=alone), 8, 12)
    assert chunk.counts == Counts(landed=2, filtered=2)
    assert scan(fetched_at(kept, 8, context=alone)).next_offset == 12


# --- from a broker ----------------------------------------------------------------------


class Broker:
    """One queue of a topic made for batches, which are given by the tags of their messages; a
    text is a message by itself. A pull begins at the entry that holds its offset, and takes
    more as long as not too many messages come; by tags a batch has none. ``told``: the codes
    with which it answers how the topic was made."""

    def __init__(
        self,
        entries: Sequence[Sequence[str] | str],
        *,
        told: Iterator[int] | None = None,
        session: RocketmqSession | None = None,
        queue: Partition = QUEUE,
    ) -> None:
        self.session, self.queue = session or RocketmqSession("test"), queue
        self.told = told or repeat(0)
        self.configs = 0
        self.tags: list[str] = []
        self.starts: list[int] = []
        self.data: list[tuple[bytes, int, str | None]] = []
        self.pulls: list[Frame] = []
        self.sent_bytes = 0
        is_plain = all(isinstance(entry, str) for entry in entries)
        self.kind = b"SimpleCQ" if is_plain else b"BatchCQ"
        for entry in entries:
            at = len(self.tags)
            self.starts.append(at)
            self.tags += [entry] if isinstance(entry, str) else entry
            if isinstance(entry, str):
                self.data.append((stored(b"v", at, properties_of(("TAGS", entry))), 1, entry))
            else:
                all_of = [inner(b"v", properties_of(("TAGS", tag))) for tag in entry]
                self.data.append((batch(all_of, at), len(entry), None))

    def ask(self, series: m.PullSeries) -> m.SeriesResponse:
        _, sent = self.session.encode(series)
        response: Any = None
        while sent:
            for raw in split_frames(sent):
                response = self.session.decode(self.answer(read_frame(raw))) or response
            sent = self.session.due()
        found: m.SeriesResponse = response[1]
        return found

    def answer(self, frame: Frame) -> memoryview:
        if frame.code == m.TOPIC_CONFIG:
            self.configs += 1
            code, made = next(self.told), b'{"attributes": {"queue.type": "%s"}}' % self.kind
            response = Frame(code, frame.opaque, RESPONSE, body=b"" if code else made)
        else:
            self.pulls.append(frame)
            response = self._pulled(frame)
        self.sent_bytes += len(response.body)
        return memoryview(b"".join(bytes(part) for part in write_frame(response)))

    def _pulled(self, frame: Frame) -> Frame:
        at, count = int(frame.fields["queueOffset"]), int(frame.fields["maxMsgNums"])
        asked = frame.fields["subscription"]
        hashes = {java_hash(tag) for tag in asked.split(" || ")}
        found, messages, behind = b"", 0, at
        index = bisect_right(self.starts, at) - 1 if at < len(self.tags) else len(self.data)
        for start, (data, number, tag) in zip(self.starts[index:], self.data[index:], strict=True):
            if messages and messages + number > min(count, 32):
                break
            behind = start + number
            if asked == "*" or (tag is not None and java_hash(tag) in hashes):
                found, messages = found + data, messages + number
        code, remark = (0, "FOUND") if found else (20, "NO_MATCHED_MESSAGE")
        if at >= len(self.tags):
            code, remark = 19, "OFFSET_OVERFLOW_ONE"
        fields = {"nextBeginOffset": behind, "minOffset": 0, "maxOffset": len(self.tags)}
        texts = {name: str(value) for name, value in fields.items()}
        return Frame(code, frame.opaque, RESPONSE, remark, texts, found)


def read(
    broker: Broker, wanted: tuple[str, ...], position: int, until: int
) -> tuple[list[int], Counts]:
    """As the fetch package reads: offsets of rows, and the sum of the counts."""
    rows: list[int] = []
    counts = Counts()
    while position < until:
        asked = [PartitionFetch(QUEUE, None, None, position, 1 << 20, until)]
        (question,) = records_requests(asked, FetchOptions(COMMITTED, 0, 1 << 20, tags=wanted))
        response = broker.ask(question.message)
        position, some, more = taken(broker, response, position, until)
        rows, counts = rows + some, counts + more
    return rows, counts


def taken(
    broker: Broker, response: m.SeriesResponse, position: int, until: int
) -> tuple[int, list[int], Counts]:
    """Where reading goes on, and what the response has brought."""
    rows: list[int] = []
    counts = Counts()
    asked = [PartitionFetch(broker.queue, None, None, position, 1 << 20, until)]
    (part,) = read_records([response], asked, COMMITTED).partitions
    assert (part.meaning, part.readable_end) == (ErrorMeaning.OK, len(broker.tags))
    behind = scan(part.records).next_offset
    assert behind is not None
    assert position < behind <= part.readable_end
    end = min(behind, until)
    for chunk in decode_chunks(part.records, position, end):
        assert chunk.counts.total == chunk.next_offset - position
        position, counts = chunk.next_offset, counts + chunk.counts
        rows += chunk.batch.column("offset").to_pylist() if chunk.batch else []
    assert position == end
    return end, rows, counts


some_tags = st.sampled_from(["A", "B", "C"])
queues = st.lists(
    st.one_of(some_tags, st.lists(some_tags, min_size=1, max_size=50)), min_size=1, max_size=40
)
responses_of_config = st.lists(st.sampled_from([0, 2, 16]), min_size=1, max_size=4)
"""Codes: it is told, the broker is busy, there is no right to know."""


@tried(60)
@given(
    entries=queues,
    wanted=st.sampled_from([(), ("A",), ("A", "none"), ("B", "C")]),
    told=responses_of_config,
    data=st.data(),
)
@example(entries=["B", ["A"] * 3], wanted=("A",), told=[0], data=None)
@example(entries=["B", ["A"] * 3], wanted=("A",), told=[2], data=None)
@example(entries=["B", ["A"] * 3], wanted=("A",), told=[16], data=None)
@example(entries=[["A", "B"]] * 40, wanted=("A",), told=[16], data=None)
def test_exactly_the_messages_of_the_range_and_the_tags_land(
    entries: list[Any], wanted: tuple[str, ...], told: list[int], data: Any
) -> None:
    """Whatever the broker says of how the topic was made: nothing, where it is busy or it may
    not be asked."""
    broker = Broker(entries, told=cycle(told))
    first, until = 0, len(broker.tags)
    if data is not None:
        first = data.draw(st.integers(0, until - 1))
        until = data.draw(st.integers(first, until))
    rows, counts = read(broker, wanted, first, until)
    there = [n for n in range(first, until) if not wanted or broker.tags[n] in wanted]
    assert rows == there
    left = until - first - len(there)
    assert counts == Counts(landed=len(there), filtered=left if wanted else 0)


@pytest.mark.parametrize("size", [1, 10, 20, 33, 500])
@pytest.mark.parametrize("wanted", [(), ("A",)])
def test_batches_of_any_size_come_about_once(size: int, wanted: tuple[str, ...]) -> None:
    broker = Broker([["A"] * size] * max(20, 4_000 // size))
    end = len(broker.tags)
    assert read(broker, wanted, 0, end)[0] == list(range(end))
    stored_bytes = sum(len(data) for data, _, _ in broker.data)
    assert broker.sent_bytes < 1.2 * stored_bytes + 16 * len(broker.data[0][0]) + 10_000


# --- what is known of a topic -----------------------------------------------------------


def subscriptions(broker: Broker) -> list[str]:
    return [frame.fields["subscription"] for frame in broker.pulls]


@tried(30)
@given(
    entries=st.tuples(queues, queues),
    plain=st.booleans(),
    told=responses_of_config,
    data=st.data(),
)
def test_queues_whose_responses_come_among_each_other_are_read_as_each_by_itself(
    entries: tuple[list[Any], list[Any]], plain: bool, told: list[int], data: Any
) -> None:
    """What one of them has told of the topic holds for both, and is not taken back."""
    session, tell = RocketmqSession("test"), cycle(told)
    brokers: dict[int, Broker] = {}
    for number, some in enumerate(entries):
        some = [entry for entry in some if isinstance(entry, str)] or ["A"] if plain else some
        queue = Partition("t", number, "broker-a")
        brokers[number] = Broker(some, told=tell, session=session, queue=queue)
        brokers[number].kind = b"SimpleCQ" if plain else b"BatchCQ"
    positions, rows = dict.fromkeys(brokers, 0), {number: [] for number in brokers}
    counts = dict.fromkeys(brokers, Counts())
    waiting: list[Frame] = []
    open_: dict[int, int] = {}

    def go_on(number: int) -> None:
        queue, position = brokers[number].queue, positions[number]
        if position < len(brokers[number].tags):
            series = m.PullSeries(queue, position, len(brokers[number].tags), 1 << 20, ("A",))
            question, sent = session.encode(series)
            open_[question] = number
            waiting.extend(read_frame(raw) for raw in split_frames(sent))

    for number in brokers:
        go_on(number)
    while open_:
        frame = waiting.pop(data.draw(st.integers(0, min(len(waiting) - 1, 20))))
        answered = session.decode(brokers[int(frame.fields.get("queueId", 0))].answer(frame))
        waiting += [read_frame(raw) for raw in split_frames(session.due())]
        if answered is not None:
            number = open_.pop(answered[0])
            broker = brokers[number]
            positions[number], some, more = taken(
                broker, answered[1], positions[number], len(broker.tags)
            )
            rows[number] += some
            counts[number] += more
            go_on(number)
    for number, broker in brokers.items():
        there = [n for n, tag in enumerate(broker.tags) if tag == "A"]
        assert rows[number] == there
        assert counts[number] == Counts(landed=len(there), filtered=len(broker.tags) - len(there))


def test_a_second_queues_responses_by_tags_do_not_take_back_that_a_topic_is_for_batches() -> None:
    """Both have asked by tags before anything was known; then the first has all its responses."""
    session = RocketmqSession("test")
    brokers = [
        Broker(["B", ["A"] * 3], session=session, queue=Partition("t", n, "broker-a"))
        for n in range(2)
    ]
    sent = [session.encode(m.PullSeries(b.queue, 0, 4, 1 << 20, ("A",)))[1] for b in brokers]
    for broker, data in zip(brokers, sent, strict=True):
        response: Any = None
        while data:
            for raw in split_frames(data):
                response = session.decode(broker.answer(read_frame(raw))) or response
            data = session.due()
        position, rows, counts = taken(broker, response[1], 0, 4)
        assert (position, rows, counts) == (1, [], Counts(filtered=1))
        assert broker.configs == (1 if broker is brokers[0] else 0)
    for broker in brokers:
        del broker.pulls[:]
        assert read(broker, ("A",), 1, 4) == ([1, 2, 3], Counts(landed=3))
        assert set(subscriptions(broker)) == {"*"}


@pytest.mark.parametrize("code", [1, 2, 16, 17])
def test_of_a_topic_that_is_not_told_of_everything_is_pulled_and_it_is_rarely_asked_about(
    code: int,
) -> None:
    broker = Broker("B" * 50_000, told=repeat(code))
    for position in range(0, 50_000, 500):
        assert read(broker, ("A",), position, position + 500) == ([], Counts(filtered=500))
    by_tags = [n for n, asked in enumerate(subscriptions(broker)) if asked != "*"]
    assert by_tags == list(range(1, 1 + len(by_tags))), "the first series alone is by tags"
    assert 5 <= broker.configs <= 10


def test_a_topic_that_is_told_of_later_is_read_by_tags_from_then_on() -> None:
    broker = Broker("B" * 2_000, told=chain([2, 2], repeat(0)))
    assert read(broker, ("A",), 0, 2_000) == ([], Counts(filtered=2_000))
    assert broker.configs == 3
    del broker.pulls[:]
    assert read(broker, ("A",), 0, 2_000) == ([], Counts(filtered=2_000))
    assert subscriptions(broker).count("*") < 5 < len(broker.pulls)
