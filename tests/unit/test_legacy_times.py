"""Logs that begin in a format without times: when "no record is that late" is believed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import OffsetResult
from rangeland.dialects.dialect import load_dialect
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.legacy_requests import fit_request
from rangeland.dialects.protocol_session import BrokerRequest, NoCommonVersion
from rangeland.model import Address, AtTime, Leader, Partition
from rangeland.survey.legacy_times import NO_ANSWER, corrected_times, judge_entry, judge_segments
from tests.fetched_records import fetched_at

B1 = Address("b1", 9092)
P = Partition("t", 0)
NOTHING = OffsetResult(ErrorMeaning.OK, "", None)
END = 400
HIDING = ((0, 100, 0), (100, 500, 0), (200, 600, 2))


class Broker:
    """Segments ``(base offset, last modified, format)``, asked as of 0.11; ``no_oldest`` as
    of 4.0. ``part``: what it returns of a partition in place of its records, if anything."""

    def __init__(
        self,
        *segments: tuple[int, int, int],
        no_oldest: bool = False,
        part: m.FetchedPartitionData | None = None,
        leaves_out: bool = False,
    ) -> None:
        self.dialect = load_dialect("kafka")
        self.settings = ClusterSettings("kafka", (B1,))
        self.segments = segments
        self.no_oldest = no_oldest
        self.part, self.leaves_out = part, leaves_out
        self.fetched: list[int] = []

    def call_all(self, address: Address, questions: Sequence[BrokerRequest]) -> list[Any]:
        return [self._answer(question) for question in questions]

    def _answer(self, question: BrokerRequest) -> Any:
        request = question.message
        if isinstance(request, m.FetchRequest):
            return self._records(request.topics[0].partitions[0].fetch_offset)
        if self.no_oldest:
            raise NoCommonVersion("no version of ListOffsets is supported by both sides")
        assert question.max_version == 0
        asked = fit_request(request, 0).topics[0].partitions[0]
        times = [(base, modified) for base, modified, _ in self.segments] + [(END, 10**12)]
        if asked.timestamp >= 0:
            times = [(base, at) for base, at in times if at <= asked.timestamp]
        starts = tuple(base for base, _ in reversed(times))[: asked.max_num_offsets]
        part = m.ListOffsetsPartitionResponse(
            partition_index=0, error_code=0, old_style_offsets=starts
        )
        parts = () if self.leaves_out else (part,)
        topic = m.ListOffsetsTopicResponse(name="t", partitions=parts)
        return m.ListOffsetsResponse(topics=(topic,))

    def _records(self, offset: int) -> Any:
        self.fetched.append(offset)
        magic = next(form for base, _, form in self.segments if base == offset)
        part = m.FetchedPartitionData(
            partition_index=0,
            error_code=0,
            high_watermark=END,
            records=memoryview(bytes(16) + bytes([magic]) + bytes(40)),
        )
        parts = (self.part or part,)
        return m.FetchResponse(responses=(m.FetchedTopic(topic="t", partitions=parts),))


def told(broker: Broker, time_ms: int) -> OffsetResult:
    results = corrected_times(cast(ConnectionPool, broker), B1, {P: Leader(B1)}, AtTime(time_ms))
    return results.get(P, NOTHING)


def test_a_segment_without_times_hides_no_later_ones() -> None:
    broker = Broker((0, 100, 0), (100, 500, 0), (200, 600, 2), (300, 700, 2))
    assert told(broker, 450) == OffsetResult(ErrorMeaning.OK, "NONE", 0, is_exact=False)
    assert told(broker, 500) == OffsetResult(ErrorMeaning.OK, "NONE", 0, is_exact=False)
    assert broker.fetched == [100, 100], "the first that was written to since"


def test_all_was_copied_after_the_time() -> None:
    assert told(Broker((0, 500, 0), (200, 600, 2)), 50).offset == 0


@pytest.mark.parametrize(
    ("segments", "time_ms", "fetched"),
    [
        (((0, 100, 0), (100, 200, 2), (200, 300, 2)), 301, []),
        (((0, 100, 2), (100, 200, 2)), 150, [100]),
        (((0, 100, 0), (100, 900, 2)), 500, [100]),
    ],
    ids=["all was written before", "no format without times", "those without times are older"],
)
def test_an_ordinary_log_stays_exact(
    segments: tuple[tuple[int, int, int], ...], time_ms: int, fetched: list[int]
) -> None:
    broker = Broker(*segments)
    assert told(broker, time_ms) is NOTHING
    assert broker.fetched == fetched


def test_new_brokers_cannot_be_asked_for_segments() -> None:
    assert told(Broker(*HIDING, no_oldest=True), 450) is NOTHING


@pytest.mark.parametrize(
    ("code", "meaning"),
    [(0, ErrorMeaning.RETRY), (1, ErrorMeaning.OUT_OF_RANGE), (6, ErrorMeaning.FIND_LEADER)],
)
def test_a_segment_that_is_not_returned_is_not_taken_for_one_with_times(
    code: int, meaning: ErrorMeaning
) -> None:
    part = m.FetchedPartitionData(
        partition_index=0, error_code=code, high_watermark=END, records=memoryview(b"")
    )
    found = told(Broker(*HIDING, part=part), 450)
    assert (found.meaning, found.offset) == (meaning, None)


def test_a_partition_that_the_response_leaves_out_is_asked_for_again() -> None:
    assert told(Broker(*HIDING, leaves_out=True), 450).meaning is ErrorMeaning.RETRY


def segments(*borders: int, end: int | None = None) -> OffsetResult:
    return OffsetResult(ErrorMeaning.OK, "", end, borders=borders)


@pytest.mark.parametrize(
    ("log", "earlier", "judgement"),
    [
        (segments(0, 100, 200, end=END), segments(0, 100), 200),
        (segments(0, 100, 200, end=END), segments(), 0),
        (segments(0, 100, end=END), segments(0, 100), None),
        (segments(0, 100, END, end=END), segments(0, 100), None),
        (NO_ANSWER, segments(0), NO_ANSWER),
        (segments(0, end=END), NO_ANSWER, NO_ANSWER),
    ],
    ids=["a later one", "no earlier one", "no later one", "an empty one", "no log", "no segments"],
)
def test_the_first_segment_written_to_since_is_judged_by_its_entry(
    log: OffsetResult, earlier: OffsetResult, judgement: OffsetResult | int | None
) -> None:
    assert judge_segments(log, earlier) == judgement


def test_an_entry_without_a_timestamp_hides_later_segments() -> None:
    entry = FetchedPartition(P, ErrorMeaning.OK, "", fetched_at(b"v"))
    earlier = segments(0, 100, end=100)
    hidden = OffsetResult(ErrorMeaning.OK, "", 100)
    assert judge_entry(entry, earlier, lambda records: records == b"v") == hidden
    assert judge_entry(entry, earlier, lambda records: False) is None
