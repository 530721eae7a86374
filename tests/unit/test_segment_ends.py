"""Damaged offsets in the last batch of a segment, where a response ends: nothing after it in that
answer contradicts it, and the records of the next segment must not count as compacted.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from rangeland.dialects.fetch_values import PartitionFetch
from rangeland.errors import BadRecord
from rangeland.loss import Action
from rangeland.model import Counts, Earliest
from rangeland.planning.policy import Policy
from tests.fakes import logs
from tests.fakes.logs import KafkaServing, Log, Read, read_log
from tests.record_batches import Batch, Record, encode

FIRST = (0, 4, 8, 20, 40)
SECOND = (44, 48, 52, 60, 64, 68, 72, 76, 100)
LAST = FIRST.index(40)
WHOLE = Counts(landed=56, compacted=48)


class Segments(KafkaServing):
    """A broker chooses a segment by its first offset, and in it the first batch that does not say
    that it ends before the offset."""

    spoilt = 0
    """How many responses are damaged on their way."""

    def answer(self, request: Any) -> Any:
        found = self.found(request)
        if isinstance(found, memoryview) and Segments.spoilt:
            Segments.spoilt -= 1
            (_, _, last), place = self.log.entries[LAST], bytes(found)
            return memoryview(place.replace(last, bytes(8) + last[8:]))
        return found

    def found(self, request: Any) -> Any:
        if not isinstance(request, PartitionFetch):
            return self.log.begins if isinstance(request, Earliest) else self.log.ends
        segments = self.log.entries[: len(FIRST)], self.log.entries[len(FIRST) :]
        for segment in segments[request.offset >= SECOND[0] :]:
            for index, (_, _, data) in enumerate(segment):
                base, delta = struct.unpack_from(">q15xi", data)
                if base + delta >= request.offset:
                    return memoryview(b"".join(data for _, _, data in segment[index:]))
        return memoryview(b"")


@pytest.fixture(autouse=True)
def segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(logs.SERVINGS, "kafka", Segments)
    monkeypatch.setattr(logs, "HASTY", replace(logs.HASTY, no_progress_ms=60_000))


def read(base: int, action: Action = Action.FAIL) -> Read:
    """A compacted log, in which the batch at 40 says that it is at ``base``."""
    entries = [
        (o, o + 4, encode(Batch(o, [Record(b"%d" % o, b"v")] * 4))) for o in (*FIRST, *SECOND)
    ]
    first, until, stored = entries[LAST]
    entries[LAST] = (first, until, base.to_bytes(8, "big") + stored[8:])
    policy = Policy(corrupt=action)
    return read_log("kafka", Log(entries), 0, 104, compacted=("t",), policy=policy)


def test_a_segment_may_end_with_a_batch_after_a_gap() -> None:
    assert read(40).receipt.counts == WHOLE


@pytest.mark.parametrize("action", [Action.FAIL, Action.SKIP, Action.QUARANTINE])
@pytest.mark.parametrize("base", [41, 42, 44, 56, 104, 1 << 40])
def test_a_batch_that_says_it_is_in_the_next_segment_is_damaged(base: int, action: Action) -> None:
    with pytest.raises(BadRecord, match="the entry at offset 24 cannot be decoded"):
        read(base, action)


@pytest.mark.parametrize("action", [Action.FAIL, Action.QUARANTINE])
def test_a_batch_that_says_it_is_before_others_is_damaged_though_it_is_not_found_again(
    action: Action,
) -> None:
    with pytest.raises(BadRecord, match="it follows offset 23, but claims to be at 8"):
        read(8, action)


def test_what_was_damaged_on_its_way_once_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Segments, "spoilt", 1)
    assert read(40).receipt.counts == WHOLE


def test_the_end_of_such_a_batch_is_where_the_next_segment_begins() -> None:
    found = read(8, Action.SKIP)
    assert found.receipt.counts == Counts(landed=52, compacted=32, lost=20)
    (loss,) = found.receipt.losses
    assert (loss.from_offset, loss.until_offset) == (24, 44)


def test_what_is_damaged_is_held_where_it_begins() -> None:
    for base in (8, 56):
        assert len(read(base, Action.HOLD).rows) == 16
