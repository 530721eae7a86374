"""Reading by tags: whatever a broker finds at a time, exactly the messages of the tags land,
and all other offsets are counted as filtered."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import (
    FetchContext,
    FetchedPartition,
    FetchOptions,
    PartitionFetch,
    ResponseSpan,
)
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.frames import RESPONSE, Frame, read_frame, write_frame
from rangeland.dialects.rocketmq.log_entries import scan
from rangeland.dialects.rocketmq.records import decode_chunks
from rangeland.dialects.rocketmq.requests import read_records, records_requests
from rangeland.dialects.rocketmq.session import RocketmqSession
from rangeland.errors import BadRecord
from rangeland.model import Counts, Isolation, Partition
from tests.examples import tried
from tests.fetched_records import fetched_at
from tests.frames import split_frames
from tests.rocketmq_messages import java_hash, messages, properties_of, stored

QUEUE = Partition("t", 0, "broker-a")
COMMITTED = Isolation.READ_COMMITTED
ONE, OTHER = "AaAaAa", "BBBBBB"
"""Two texts of one hash."""


class Broker:
    """One queue, with the tag of each message. A response brings ``most`` messages, from among
    ``looks`` offsets."""

    def __init__(self, tags: Sequence[str], most: int = 32, looks: int = 800) -> None:
        self.tags, self.most, self.looks = tags, most, looks
        self.session = RocketmqSession("test")
        self.pulls = 0

    def ask(self, series: m.PullSeries) -> m.SeriesResponse:
        _, sent = self.session.encode(series)
        response: Any = None
        while sent:
            for raw in split_frames(sent):
                self.pulls += 1
                response = self.session.decode(self._answer(read_frame(raw))) or response
            sent = self.session.due()
        found: m.SeriesResponse = response[1]
        return found

    def _answer(self, frame: Frame) -> memoryview:
        if frame.code == m.TOPIC_CONFIG:
            made = Frame(0, frame.opaque, RESPONSE, body=b'{"attributes": {}}')
            return memoryview(b"".join(bytes(part) for part in write_frame(made)))
        at, count = int(frame.fields["queueOffset"]), int(frame.fields["maxMsgNums"])
        asked = frame.fields["subscription"]
        hashes = {java_hash(tag) for tag in asked.split(" || ")}
        end, found, place = len(self.tags), [], at
        while place < min(end, at + self.looks) and len(found) < min(count, self.most):
            if asked == "*" or java_hash(self.tags[place]) in hashes:
                found.append(self.message(place))
            place += 1
        code, remark = (0, "FOUND") if found else (20, "NO_MATCHED_MESSAGE")
        if at >= end:
            code, remark = 19, "OFFSET_OVERFLOW_ONE"
        fields = {"nextBeginOffset": place, "minOffset": 0, "maxOffset": end}
        fields["suggestWhichBrokerId"] = 0
        texts = {name: str(value) for name, value in fields.items()}
        response = Frame(code, frame.opaque, RESPONSE, remark, texts, b"".join(found))
        return memoryview(b"".join(bytes(part) for part in write_frame(response)))

    def message(self, offset: int) -> bytes:
        tag = self.tags[offset]
        named = properties_of(("TAGS", tag)) if tag else b""
        return stored(b"value-%d" % offset, offset, named)


def fetch(broker: Broker, wanted: tuple[str, ...], position: int, until: int) -> FetchedPartition:
    asked = [PartitionFetch(QUEUE, None, None, position, 1 << 20, until)]
    (question,) = records_requests(asked, FetchOptions(COMMITTED, 0, 1 << 20, tags=wanted))
    (part,) = read_records([broker.ask(question.message)], asked, COMMITTED).partitions
    return part


def read(
    broker: Broker, wanted: tuple[str, ...], position: int, until: int
) -> tuple[list[int], Counts]:
    """As the fetch package reads: offsets of rows, and the sum of the counts."""
    rows: list[int] = []
    counts = Counts()
    while position < until:
        part = fetch(broker, wanted, position, until)
        assert part.meaning is ErrorMeaning.OK
        assert (part.readable_end, part.preferred) == (len(broker.tags), 0)
        behind = scan(part.records).next_offset
        assert behind is not None
        assert behind > position
        end = min(behind, until)
        for chunk in decode_chunks(part.records, position, end):
            assert chunk.counts.total == chunk.next_offset - position
            position, counts = chunk.next_offset, counts + chunk.counts
            rows += chunk.batch.column("offset").to_pylist() if chunk.batch else []
        assert position == end
    return rows, counts


tags_of_queue = st.lists(st.sampled_from(["A", "B", "", ONE, OTHER]), min_size=1, max_size=150)
wanted_tags = st.lists(
    st.sampled_from(["A", "B", ONE, "none"]), min_size=1, max_size=3, unique=True
)


@tried(60)
@given(
    tags=tags_of_queue,
    wanted=wanted_tags,
    most=st.integers(1, 32),
    looks=st.integers(1, 60),
    data=st.data(),
)
@example(tags=["B"] * 100, wanted=["A"], most=32, looks=7, data=None)
@example(tags=[OTHER] * 40, wanted=[ONE], most=3, looks=60, data=None)
def test_exactly_the_messages_of_the_tags_land_and_all_others_are_filtered(
    tags: list[str], wanted: list[str], most: int, looks: int, data: Any
) -> None:
    first, until = 0, len(tags)
    if data is not None:
        first = data.draw(st.integers(0, len(tags) - 1))
        until = data.draw(st.integers(first, len(tags)))
    broker = Broker(tags, most, looks)
    rows, counts = read(broker, tuple(wanted), first, until)
    there = [offset for offset in range(first, until) if tags[offset] in wanted]
    assert rows == there
    assert counts == Counts(landed=len(there), filtered=until - first - len(there))


def test_tags_that_are_rare_take_few_pulls_and_tags_of_all_no_more_than_no_tags() -> None:
    rare = Broker((["B"] * 999 + ["A"]) * 40)
    assert len(read(rare, ("A",), 0, 40_000)[0]) == 40
    assert rare.pulls < 40_000 / 800 * 1.6 + 10
    dense = Broker(["A"] * 8_000)
    assert len(read(dense, ("A",), 0, 8_000)[0]) == 8_000
    assert dense.pulls < 8_000 / 32 * 1.2


def test_the_two_texts_have_one_hash() -> None:
    assert java_hash(ONE) == java_hash(OTHER)


def test_a_range_that_has_gone_from_the_log_is_not_called_filtered() -> None:
    """Only the pull that asks for any message tells."""
    asked = [PartitionFetch(QUEUE, None, None, 5, 1 << 20, 20)]
    series = m.PullSeries(QUEUE, 5, 20, 1 << 20, ("A",))
    behind = {"nextBeginOffset": "20", "minOffset": "0", "maxOffset": "20"}
    responses = (
        m.RemotingResponse(m.Pull(QUEUE, 5, 1), 0, "FOUND", behind, memoryview(stored(b"v", 9))),
        m.RemotingResponse(m.Pull(QUEUE, 5, tags=("A",)), 20, "NO_MATCHED_MESSAGE", behind, b""),
    )
    (part,) = read_records([m.SeriesResponse(series, responses)], asked, COMMITTED).partitions
    assert (part.meaning, part.code_name.split(":")[0]) == (
        ErrorMeaning.OUT_OF_RANGE,
        "OFFSETS_MISSING",
    )


@pytest.mark.parametrize(
    ("code", "remark", "meaning"),
    [
        (19, "OFFSET_OVERFLOW_ONE", ErrorMeaning.OK),
        (20, "MESSAGE_WAS_REMOVING", ErrorMeaning.OUT_OF_RANGE),
        (2, "busy", ErrorMeaning.RETRY),
        (20, "NO_MATCHED_MESSAGE", ErrorMeaning.RETRY),  # that looks at nothing
    ],
)
def test_a_pull_by_tags_that_brings_nothing_says_why(
    code: int, remark: str, meaning: ErrorMeaning
) -> None:
    asked = [PartitionFetch(QUEUE, None, None, 5, 1 << 20, 20)]
    series = m.PullSeries(QUEUE, 5, 20, 1 << 20, ("A",))
    there = {"nextBeginOffset": "5", "minOffset": "0", "maxOffset": "20"}
    responses = (
        m.RemotingResponse(m.Pull(QUEUE, 5, 1), 0, "FOUND", there, memoryview(stored(b"v", 5))),
        m.RemotingResponse(m.Pull(QUEUE, 5, tags=("A",)), code, remark, there, b""),
    )
    (part,) = read_records([m.SeriesResponse(series, responses)], asked, COMMITTED).partitions
    assert (part.meaning, len(part.records)) == (meaning, 0)


def test_a_damaged_message_under_tags_is_named_at_its_position_and_can_be_passed() -> None:
    tagged = properties_of(("TAGS", "A"))
    good = [stored(b"v", offset, tagged) for offset in (5, 9)]
    bodies = [good[0], stored(b"x", 7, tagged, crc=1), good[1]]
    records = memoryview(b"".join(bodies))
    context = FetchContext(spans=(ResponseSpan(len(records), 4, 12),), has_gaps=True, tags=(b"A",))
    assert scan(fetched_at(records, 4, context=context)).next_offset == 12
    with pytest.raises(BadRecord) as caught:
        list(decode_chunks(fetched_at(records, 4, context=context), 4, 12))
    facts = caught.value.facts
    assert (facts["base_offset"], facts["next_offset"]) == (7, 8)
    assert records[facts["byte_index"] :][: len(bodies[1])] == bodies[1]
    before = list(decode_chunks(fetched_at(records, 4, context=context), 4, 7))
    behind = list(decode_chunks(fetched_at(records, 8, context=context), 8, 12))
    assert [chunk.counts for chunk in (*before, *behind)] == [
        Counts(landed=1, filtered=2),
        Counts(landed=1, filtered=3),
    ]


def test_bytes_of_a_message_are_never_taken_for_a_statement_about_offsets() -> None:
    """What earlier releases wrote in front of messages that came by tags, as the first bytes of a
    pull without tags."""
    forged = b"\xff\xff\xff\xffTAGS" + struct.pack(">qi", 1_000, 1) + b"A"
    body = memoryview(forged + messages([b"v"] * 3))
    asked = [PartitionFetch(QUEUE, None, None, 0, 1 << 20, 1_000)]
    series = m.PullSeries(QUEUE, 0, 1_000, 1 << 20)
    fields = {"nextBeginOffset": "3", "minOffset": "0", "maxOffset": "1000"}
    responses = (m.RemotingResponse(m.Pull(QUEUE, 0), 0, "FOUND", fields, body),)
    (part,) = read_records([m.SeriesResponse(series, responses)], asked, COMMITTED).partitions
    if part.meaning is ErrorMeaning.OK:
        with pytest.raises(BadRecord):
            scan(part.records)
        with pytest.raises(BadRecord):
            list(decode_chunks(part.records, 0, 1_000))


def test_what_an_earlier_release_has_put_into_quarantine_is_read_by_its_tags() -> None:
    some = b"".join(
        stored(b"v", offset, properties_of(("TAGS", tag))) for offset, tag in ((8, "A"), (9, "B"))
    )
    kept = b"\xff\xff\xff\xffTAGS" + struct.pack(">qi", 12, 1) + b"A" + some
    context = FetchContext(
        spans=(ResponseSpan(len(kept), 8, 12),), has_gaps=True, from_quarantine=True
    )
    (chunk,) = decode_chunks(fetched_at(kept, 8, context=context), 8, 12)
    assert chunk.counts == Counts(landed=1, filtered=3)
