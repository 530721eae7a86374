"""Missing messages: compacted, expired and filtered ones are distinguished.

A fake broker with one queue answers over a socket from a script, as brokers of version 5.5 do.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.frames import RESPONSE, Frame, read_frame, write_frame
from rangeland.errors import BadRecord, MissingRequirement, RangeLost, Unreachable
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.receipt_builder import ReceiptBuilder
from rangeland.fetch.slice_reading import read_slices
from rangeland.loss import Action
from rangeland.model import Address, Counts, Partition, Slice
from rangeland.planning.policy import Policy
from rangeland.wire.framing import FrameReader, frame
from tests.frames import feed
from tests.rocketmq_messages import batch, inner, properties_of, stored

QUEUE = Partition("t", 0, "broker-a")
COMPACTED = {"attributes": {"cleanup.policy": "COMPACTION"}, "topicName": "t"}
QUICK = FetchLimits(no_progress_ms=2_500, backoff_ms=20, max_backoff_ms=50)


@dataclass
class Broker:
    """``tags`` of the messages that are there, by offset. ``begins`` is where it says that its
    queue does. ``topic`` is what it says of how the topic was made, None where it refuses to, and
    ``damaged`` a batch that it gives for every offset there is. ``at_pull`` sees each pull by its
    number, before it is answered."""

    tags: dict[int, str]
    end: int
    begins: int = 0
    topic: object = field(default_factory=dict)
    damaged: bytes = b""
    altered: dict[int, bytes] = field(default_factory=dict)
    """Stored messages that are given in place of those that belong there."""
    moved: int | None = None
    """Where its queue, one of a static topic, goes on as another one, with offsets from 0 on."""
    looks: int = 10
    has_own_files: bool = False
    """What compaction leaves of the topic is in files of their own, so pulls do not depend on where
    the queue is said to begin."""
    learns: int | None = None
    """Where its queue begins, which it knows from the first time that it is asked for it."""
    at_pull: Callable[[Broker, int], None] = lambda broker, number: None
    pulls: list[tuple[int, int, str]] = field(default_factory=list)
    address: str = ""

    def answer(self, asked: Frame) -> Frame:
        code, remark, fields, body = self._answered(asked)
        texts = {name: str(value) for name, value in fields.items()}
        return Frame(code, asked.opaque, RESPONSE, remark, texts, body)

    def _answered(self, asked: Frame) -> tuple[int, str, dict[str, int], bytes]:
        match asked.code:
            case m.MIN_OFFSET:
                self.begins = self.begins if self.learns is None else self.learns
                return 0, "", {"offset": self.begins}, b""
            case m.MAX_OFFSET:
                return 0, "", {"offset": self.end}, b""
            case m.TOPIC_CONFIG if self.topic is not None:
                return 0, "", {}, json.dumps(self.topic).encode()
            case m.ROUTE:
                return 0, "", {}, json.dumps(self._route()).encode()
            case m.PULL:
                return self._pulled(asked)
        return 16, "no right", {}, b""

    def _route(self) -> object:
        at = {"brokerName": "broker-a", "cluster": "c", "brokerAddrs": {"0": self.address}}
        queues = {"brokerName": "broker-a", "perm": 6, "readQueueNums": 1}
        return {"brokerDatas": [at], "queueDatas": [queues]}

    def _pulled(self, asked: Frame) -> tuple[int, str, dict[str, int], bytes]:
        at, count = int(asked.fields["queueOffset"]), int(asked.fields["maxMsgNums"])
        wanted = asked.fields["subscription"]
        self.pulls.append((at, count, wanted))
        self.at_pull(self, len(self.pulls))
        until = self.end if wanted == "*" else min(self.end, at + self.looks)
        if self.moved is not None and at < self.moved:
            until = min(until, self.moved)
        found: list[int] = []
        place = at
        while place < until and len(found) < count:
            if place in self.tags and (wanted == "*" or self.tags[place] in wanted.split(" || ")):
                found.append(place)
            place += 1
        fields = {"nextBeginOffset": place, "minOffset": self.begins, "maxOffset": self.end}
        fields |= {} if self.moved is None else {"offsetDelta": self.delta(at)}
        body = b"".join(self.altered.get(offset) or self.message(offset) for offset in found)
        if at < self.begins and not self.has_own_files:
            return 21, "OFFSET_TOO_SMALL", fields | {"nextBeginOffset": self.begins}, b""
        if at >= self.end:
            return 19, "OFFSET_OVERFLOW_ONE", fields, b""
        if self.damaged:
            return 0, "FOUND", fields | {"nextBeginOffset": self.end}, self.damaged
        return (0, "FOUND", fields, body) if found else (20, "NO_MATCHED_MESSAGE", fields, b"")

    def message(self, offset: int) -> bytes:
        tags = properties_of(("TAGS", self.tags[offset]))
        return stored(b"%d" % offset, offset - self.delta(offset), tags)

    def delta(self, offset: int) -> int:
        return 0 if self.moved is None or offset < self.moved else self.moved


@contextmanager
def served(broker: Broker) -> Iterator[Address]:
    """One thread, one connection at a time."""
    stop = threading.Event()

    def work(server: socket.socket) -> None:
        while not stop.is_set():
            with suppress(TimeoutError):
                connection, _ = server.accept()
                with connection, suppress(OSError):
                    connection.settimeout(0.05)
                    talk(connection)

    def talk(connection: socket.socket) -> None:
        frames = FrameReader(1 << 20)
        while not stop.is_set():
            with suppress(TimeoutError):
                data = connection.recv(1 << 16)
                if not data:
                    return
                for raw in feed(frames, data):
                    response = broker.answer(read_frame(raw))
                    connection.sendall(frame(*write_frame(response)))

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        thread = threading.Thread(target=work, args=(server,))
        thread.start()
        try:
            address = Address("127.0.0.1", server.getsockname()[1])
            broker.address = str(address)
            yield address
        finally:
            stop.set()
            thread.join()


def read(
    broker: Broker, from_offset: int, until_offset: int, **more: object
) -> tuple[list[int], Counts]:
    """As a task reads: offsets of rows, and what became of all offsets."""
    with served(broker) as address:
        cluster = ClusterSettings("rocketmq", (address,), request_ms=2_000)
        settings = ReadSettings(cluster, **more)  # type: ignore[arg-type]
        slice_ = Slice(0, QUEUE, from_offset, until_offset, 0, None, address)
        tally = ReceiptBuilder([slice_])
        rows: list[int] = []
        for chunk in read_slices([slice_], settings, QUICK):
            tally.add(chunk)
            if chunk.rows is not None:
                rows += chunk.rows.column("offset").to_pylist()
        return rows, Counts.sum(receipt.counts for receipt in tally.receipts())


# --- compaction -------------------------------------------------------------------------


@pytest.mark.parametrize("tags", [(), ("A",)])
def test_a_compacted_topic_is_read_over_gaps_wherever_they_begin(tags: tuple[str, ...]) -> None:
    there = [3, 4, 9, *range(30, 70), 75, 80]
    for first, until in ((0, 81), (5, 81), (3, 60), (5, 9), (5, 8), (71, 75), (71, 76)):
        broker = Broker(dict.fromkeys(there, "A"), 81, topic=COMPACTED)
        rows, counts = read(broker, first, until, tags=tags)
        kept = [offset for offset in there if first <= offset < until]
        gone = until - first - len(kept)
        assert rows == kept, (first, until)
        assert counts.total == until - first
        assert counts.compacted + counts.filtered == gone
        assert not (counts.filtered and not tags)


@pytest.mark.parametrize(
    "topic",
    [None, {}, {"attributes": {"cleanup.policy": "DELETE"}}, "COMPACTION"],
)
@pytest.mark.parametrize("tags", [(), ("A",)])
def test_a_gap_in_a_topic_that_is_not_known_to_be_compacted_is_believed_of_nobody(
    topic: object, tags: tuple[str, ...]
) -> None:
    """A broker may have deleted messages and not know yet that its queue begins later."""
    broker = Broker({7: "A"}, 8, topic=topic)
    with pytest.raises(Unreachable, match="OFFSETS_MISSING"):
        read(broker, 5, 8, tags=tags)


@pytest.mark.parametrize("at_pull", [0, 1, 2])
def test_a_gap_before_the_beginning_of_the_queue_has_expired_also_in_a_compacted_topic(
    at_pull: int,
) -> None:
    """Its broker does not compact, and answers no pull from before the beginning once it knows
    where that is: at first, or after as many pulls, of which the last is the one that is repeated
    before it is asked."""

    def begin(broker: Broker, number: int) -> None:
        if number > at_pull:
            broker.begins = 7

    def broker() -> Broker:
        begins = 0 if at_pull else 7
        learns = 7 if at_pull == 2 else None
        return Broker({7: "A"}, 8, begins, topic=COMPACTED, at_pull=begin, learns=learns)

    with pytest.raises(RangeLost):
        read(broker(), 5, 8)
    rows, counts = read(broker(), 5, 8, policy=Policy(expired=Action.SKIP))
    assert (rows, counts) == ([7], Counts(landed=1, lost=2))


@pytest.mark.parametrize("begins", [0, 4, 7, 50, 81])
@pytest.mark.parametrize("tags", [(), ("A",)])
def test_what_compaction_leaves_is_read_from_before_the_beginning_of_the_queue(
    begins: int, tags: tuple[str, ...]
) -> None:
    """Which is that of the log of all topics: it loses its oldest messages, and those that were
    compacted are in files of their own."""
    there = [3, 4, 9, *range(30, 70), 75, 80]
    for first, until in ((0, 81), (5, 81), (5, 8), (71, 76)):
        broker = Broker(dict.fromkeys(there, "A"), 81, begins, topic=COMPACTED, has_own_files=True)
        rows, counts = read(broker, first, until, tags=tags)
        assert rows == [offset for offset in there if first <= offset < until]
        assert counts.compacted + counts.filtered == until - first - len(rows)


def test_a_gap_of_which_two_responses_differ_is_not_believed() -> None:
    def shrink(broker: Broker, number: int) -> None:
        """Each pull finds one message less than the one before."""
        broker.tags.pop(6 + number, None)

    broker = Broker(dict.fromkeys(range(7, 1_000), "A"), 1_000, topic=COMPACTED, at_pull=shrink)
    with pytest.raises(Unreachable, match="OFFSETS_MISSING"):
        read(broker, 5, 8)


# --- tags -------------------------------------------------------------------------------


def deleted_before(until: int, at_pull: int, begins: int | None = None) -> Callable[..., None]:
    def delete(broker: Broker, number: int) -> None:
        if number == at_pull:
            broker.tags = {o: tag for o, tag in broker.tags.items() if o >= until}
            broker.begins = broker.begins if begins is None else begins

    return delete


def test_what_is_deleted_while_tags_are_read_is_lost_and_not_filtered() -> None:
    """The first message is there when it is asked for; then its file goes, before the pulls by
    tags come to it."""
    broker = Broker(dict.fromkeys(range(100), "A"), 100, at_pull=deleted_before(60, 2, begins=60))
    with pytest.raises(RangeLost) as caught:
        read(broker, 10, 100, tags=("A",))
    assert "[10, 60)" in str(caught.value)
    broker = Broker(dict.fromkeys(range(100), "A"), 100, at_pull=deleted_before(60, 2, begins=60))
    rows, counts = read(broker, 10, 100, tags=("A",), policy=Policy(expired=Action.SKIP))
    assert (rows, counts) == (list(range(60, 100)), Counts(landed=40, lost=50))


def test_what_is_deleted_while_tags_are_read_is_not_filtered_before_the_broker_knows_either() -> (
    None
):
    broker = Broker(dict.fromkeys(range(100), "A"), 100, at_pull=deleted_before(60, 2))
    with pytest.raises(Unreachable, match="OFFSETS_MISSING"):
        read(broker, 10, 100, tags=("A",))


def test_what_is_deleted_before_a_series_by_tags_takes_nothing_from_it() -> None:
    tags = {offset: "AB"[offset % 2] for offset in range(100)}
    broker = Broker(tags, 100, at_pull=deleted_before(10, 2, begins=10))
    rows, counts = read(broker, 10, 100, tags=("A",))
    assert (rows, counts) == (list(range(10, 100, 2)), Counts(landed=45, filtered=45))


def test_the_first_message_is_asked_for_again_only_when_all_responses_by_tags_have_come() -> None:
    broker = Broker(dict.fromkeys(range(30), "A"), 30, looks=100)
    read(broker, 10, 30, tags=("A",))
    assert broker.pulls[0] == broker.pulls[-1] == (10, 1, "*")
    assert {wanted for _, _, wanted in broker.pulls[1:-1]} == {"A"}


def test_nothing_more_is_asked_where_all_messages_are_there() -> None:
    broker = Broker(dict.fromkeys(range(30), "A"), 30)
    assert read(broker, 10, 30) == (list(range(10, 30)), Counts(landed=20))
    assert (10, 1, "*") not in broker.pulls


# --- batches ----------------------------------------------------------------------------


@pytest.mark.parametrize("from_offset", [0, 2])
@pytest.mark.parametrize("tags", [(), ("A",)])
def test_a_batch_that_does_not_tell_where_it_ends_is_damage_also_from_inside_of_it(
    from_offset: int, tags: tuple[str, ...]
) -> None:
    """And not a gap, which would be asked about until the reader's patience ends."""
    damaged = batch([inner(b"v")] * 4, number="x")
    with pytest.raises(BadRecord, match="unknown number of messages"):
        read(Broker({}, 4, damaged=damaged), from_offset, 4, tags=tags)
    broker, hold = Broker({}, 4, damaged=damaged), Policy(corrupt=Action.HOLD)
    assert read(broker, from_offset, 4, tags=tags, policy=hold) == ([], Counts())


def test_a_batch_that_ends_before_the_offset_is_a_gap_before_what_follows() -> None:
    broker = Broker({}, 9, damaged=batch([inner(b"v")] * 4))
    with pytest.raises(Unreachable, match="OFFSETS_MISSING"):
        read(broker, 6, 9)


# --- offsets that are stored wrong ------------------------------------------------------

OFFSET_AT = 20


def flipped(message: bytes, bit: int) -> bytes:
    """With one bit of its stored offset turned over; no checksum covers it."""
    changed = bytearray(message)
    changed[OFFSET_AT + bit // 8] ^= 0x80 >> bit % 8
    return bytes(changed)


def with_one_flipped(offset: int, bit: int, end: int, **more: Any) -> Broker:
    broker = Broker(dict.fromkeys(range(end), "A"), end, **more)
    broker.altered = {offset: flipped(broker.message(offset), bit)}
    return broker


@pytest.mark.parametrize("offset", [0, 1, 31, 32, 40, 98, 99])
def test_a_stored_offset_with_a_flipped_bit_is_damage_and_nothing_is_called_compacted(
    offset: int,
) -> None:
    for bit in (0, 1, 30, *range(53, 64)):
        for topic in ({}, COMPACTED):
            broker = with_one_flipped(offset, bit, 100, topic=topic)
            with pytest.raises(BadRecord, match=f"offset {offset} cannot be decoded"):
                read(broker, 0, 100)


@pytest.mark.parametrize("bit", [0, 53, 57, 58, 62, 63])
@pytest.mark.parametrize("action", [Action.SKIP, Action.QUARANTINE])
def test_a_message_with_a_flipped_offset_is_lost_alone(bit: int, action: Action) -> None:
    rows, counts = read(with_one_flipped(40, bit, 100), 0, 100, policy=Policy(corrupt=action))
    assert rows == [*range(40), *range(41, 100)]
    assert (counts.landed, counts.lost + counts.quarantined) == (99, 1)


def test_a_flipped_offset_after_a_range_does_not_matter_to_it() -> None:
    for bit in (0, 57, 63):
        assert read(with_one_flipped(40, bit, 100), 0, 40)[0] == list(range(40))
        assert read(with_one_flipped(40, bit, 100), 41, 100)[0] == list(range(41, 100))


@pytest.mark.parametrize("bit", [0, 1, 50, 56, 57, 58])
def test_by_tags_a_flipped_offset_outside_of_its_response_is_damage(bit: int) -> None:
    """What a broker has looked through holds 10 offsets; nobody says which of them."""
    broker = Broker({n: "AB"[n % 5 > 0] for n in range(100)}, 100)
    broker.altered = {40: flipped(broker.message(40), bit)}
    with pytest.raises(BadRecord):
        read(broker, 0, 100, tags=("A",))
    rows, counts = read(broker, 0, 100, tags=("A",), policy=Policy(corrupt=Action.SKIP))
    assert rows == [n for n in range(0, 100, 5) if n != 40]
    assert counts.total == 100
    assert counts.lost >= 1


@pytest.mark.parametrize("bit", [0, 57, 60, 63])
def test_a_flipped_offset_before_a_gap_of_a_compacted_topic_is_damage(bit: int) -> None:
    """The last message of a response is the last that the response accounts for."""
    there = [*range(20), 50, 60]
    broker = Broker(dict.fromkeys(there, "A"), 61, topic=COMPACTED)
    broker.altered = {60: flipped(broker.message(60), bit)}
    with pytest.raises(BadRecord):
        read(broker, 0, 61)


# --- static topics ----------------------------------------------------------------------


@pytest.mark.parametrize("tags", [(), ("A",)])
@pytest.mark.parametrize("first", [10, 60])
def test_a_queue_of_a_static_topic_that_has_moved_is_not_called_damaged(
    tags: tuple[str, ...], first: int
) -> None:
    there = {offset: "AB"[offset % 2] for offset in range(90)}
    with pytest.raises(MissingRequirement, match="cannot be read") as refused:
        read(Broker(there, 90, moved=50), first, 90, tags=tags)
    assert "a static topic has moved, which is not supported" in refused.value.why


@pytest.mark.parametrize("tags", [(), ("A",)])
def test_what_comes_before_its_move_is_read(tags: tuple[str, ...]) -> None:
    broker = Broker(dict.fromkeys(range(90), "A"), 90, moved=50)
    rows, _ = read(broker, 10, 50, tags=tags)
    assert rows == list(range(10, 50))
