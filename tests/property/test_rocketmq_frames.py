"""RocketMQ's frames, routes and messages: whatever the bytes, a value or the one error."""

from __future__ import annotations

import json
import zlib
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from rangeland.dialects.fetch_values import FetchContext, ResponseSpan
from rangeland.dialects.rocketmq.frames import Frame, HeaderReader, read_frame, write_frame
from rangeland.dialects.rocketmq.log_entries import scan
from rangeland.dialects.rocketmq.records import decode_chunks
from rangeland.dialects.rocketmq.routes import read_route, read_topics
from rangeland.errors import BadRecord, RemoteProtocolError
from rangeland.model import Counts, Isolation
from tests.examples import tried
from tests.fetched_records import fetched_at
from tests.rocketmq_messages import messages, stored

COMMITTED = Isolation.READ_COMMITTED
many = tried(25)

texts = st.text(max_size=20)
frames = st.builds(
    Frame,
    st.integers(-(2**15), 2**15 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**31), 2**31 - 1),
    texts,
    st.dictionaries(texts, texts, max_size=5),
    st.binary(max_size=40),
)
heads = st.sampled_from([b"", b"\0\0\0", b"\x01\0\0", b"\0\0\0\x04null", b"\0\0\0\x02{}"])
junk = st.builds(lambda head, rest: head + rest, heads, st.binary(max_size=60))


def bytes_of(frame: Frame) -> bytes:
    return b"".join(bytes(part) for part in write_frame(frame))


@many
@given(frame=frames)
def test_frames_go_there_and_back(frame: Frame) -> None:
    read = read_frame(memoryview(bytes_of(frame)))
    assert (read.code, read.opaque, read.flag) == (frame.code, frame.opaque, frame.flag)
    assert (read.remark, dict(read.fields)) == (frame.remark, dict(frame.fields))
    assert bytes(read.body) == bytes(frame.body)


numbers = st.one_of(st.integers(0, 10**18), st.sampled_from(["007", "-1", "1.5", '"5"', "5,5"]))


@many
@given(
    st.lists(
        st.tuples(
            numbers,
            numbers,
            numbers,
            st.sampled_from(["FOUND", "NOT", r"\"opaque\":3"]),
            st.booleans(),
        ),
        max_size=6,
    )
)
@example([(1, 2, 3, "FOUND", True), (40, 50, 6, "FOUND", True)])
def test_a_header_that_is_like_the_last_one_says_the_same(pulls: list[tuple[Any, ...]]) -> None:
    reader = HeaderReader()
    for begin, end, opaque, remark, is_inside in pulls:
        inside = f',"maxOffset":"{end}"'
        header = (
            f'{{"code":0,"extFields":{{"nextBeginOffset":"{begin}"{inside if is_inside else ""}}}'
            f',"flag":1,"opaque":{opaque},"remark":"{remark}"{"" if is_inside else inside}}}'
        ).encode()
        data = memoryview(len(header).to_bytes(4, "big") + header + b"body")
        said: list[Any] = []
        for read in (read_frame, reader.read):
            try:
                said.append(read(data))
            except RemoteProtocolError as error:
                said.append(error.what)
        assert said[0] == said[1]


@many
@given(
    data=st.one_of(junk, frames.map(bytes_of)), place=st.integers(0, 200), to=st.integers(0, 255)
)
def test_any_bytes_are_a_frame_or_refused(data: bytes, place: int, to: int) -> None:
    damaged = bytearray(data)
    if place < len(damaged):
        damaged[place] = to
    refused: RemoteProtocolError | None = None
    try:
        read_frame(memoryview(bytes(damaged)))
    except RemoteProtocolError as error:
        refused = error
    assert refused is None or refused.facts["reason"]


words = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.text(max_size=5), st.just([]), st.just({})
)
names = st.sampled_from(
    ["brokerDatas", "queueDatas", "brokerName", "brokerAddrs", "readQueueNums", "0", "topicList"]
)
documents: Any = st.recursive(
    words,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=4)),
    max_leaves=12,
)


@many
@given(document=documents)
@example(document={"brokerDatas": [{"brokerName": "a", "brokerAddrs": {"0": "h:99999999999"}}]})
def test_any_document_is_a_route_or_refused(document: Any) -> None:

    body = json.dumps(document).encode()
    for read in (read_route, read_topics):
        try:
            found = read(body)
        except RemoteProtocolError:
            continue
        if not isinstance(found, list):
            assert found.leaders("t") is not None


@many
@given(body=st.binary(max_size=60))
def test_any_bytes_are_a_route_or_refused(body: bytes) -> None:
    for read in (read_route, read_topics):
        try:
            read(body)
        except RemoteProtocolError:
            continue


# --- messages ---------------------------------------------------------------------------


@many
@given(
    widths=st.lists(st.integers(1, 4), max_size=8),
    first=st.integers(0, 40),
    end=st.integers(0, 60),
    packed=st.sets(st.integers(0, 7)),
)
def test_every_offset_has_a_class_whatever_is_asked_for(
    widths: list[int], first: int, end: int, packed: set[int]
) -> None:

    offsets = [sum(widths[: i + 1]) for i in range(len(widths))]
    data = b"".join(
        stored(zlib.compress(b"body"), offset, flags=1) if i in packed else stored(b"body", offset)
        for i, offset in enumerate(offsets)
    )
    spans = (ResponseSpan(len(data), 0, offsets[-1] + 1),) if offsets else ()
    context = FetchContext(spans=spans, has_gaps=True)
    chunks = list(decode_chunks(fetched_at(data, first, context=context), first, end))
    wanted = [offset for offset in offsets if first <= offset < end]
    found = [row for c in chunks if c.batch is not None for row in c.batch.to_pylist()]
    assert [row["offset"] for row in found] == wanted
    assert all(row["value"] == b"body" for row in found)
    position = first
    for chunk in chunks:
        assert chunk.counts.total == chunk.next_offset - position
        position = chunk.next_offset
    behind = scan(fetched_at(data, context=context)).next_offset
    reached = min(end, behind) if behind is not None else first
    assert position == max(first, reached)


@many
@given(data=st.one_of(st.binary(max_size=200), st.just(messages([b"v"] * 4))), cut=st.integers(0))
def test_any_bytes_are_messages_or_a_bad_record(data: bytes, cut: int) -> None:
    records = memoryview(data[:cut])
    refused: list[BadRecord] = []
    for read in (
        lambda: scan(fetched_at(records)),
        lambda: list(decode_chunks(fetched_at(records), 0, 9)),
    ):
        try:
            read()
        except BadRecord as error:
            refused.append(error)
    assert all(error.facts["base_offset"] >= 0 for error in refused)


def test_counts_of_nothing_are_nothing() -> None:
    assert Counts.sum(c.counts for c in decode_chunks(fetched_at(b""), 0, 9)) == Counts()
