"""Offsets that no checksum covers: batches that are not where they say, and what is kept."""

from __future__ import annotations

import queue
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import crc32c
import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.failures import ConnectionLost
from rangeland.connection.pool import ConnectionPool
from rangeland.decode.columns import OFFSET
from rangeland.dialects.cluster_values import OffsetResult
from rangeland.dialects.dialect import load_dialect
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition, FetchResult
from rangeland.dialects.kafka.aborted_transactions import aborted_within
from rangeland.dialects.kafka.log_entries import scan
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import AccessDenied, BadRecord, RangeLost
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.fetch_steps import SendFetch
from rangeland.fetch.fetch_thread import FetchThread
from rangeland.fetch.fetched_pieces import FetchedPiece
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.replica_choice import Sender
from rangeland.fetch.slice_chunks import LostChunk, ReadChunk, SliceChunk
from rangeland.fetch.slice_reading import SliceReader, read_slices
from rangeland.fetch.slice_state import Fail, Phase
from rangeland.loss import Action, DamagedBytes, LossKind
from rangeland.model import Address, Counts, Isolation, Partition, Slice
from rangeland.planning.policy import Policy, TopicRule
from tests.fakes.fetching import take_step
from tests.fakes.logs import Log, read_log
from tests.fetched_records import fetched_at
from tests.message_sets import Message, Wrapper, encode_message, encode_wrapper
from tests.record_batches import ABORT, COMMIT, Batch, Record, cleaned, encode, marker

P = Partition("t", 0)
B1 = Address("b1", 1)
FAR = 1 << 40
PASSING = [Action.SKIP, Action.QUARANTINE]


def four(base: int, **changes: object) -> bytes:
    batch = Batch(base, [Record(b"k", b"v" * 9)] * 4)
    return encode(replace(batch, **changes))  # type: ignore[arg-type]


def at(stored: bytes, base: int) -> bytes:
    """The same batch with another base offset, which its checksum does not cover."""
    return struct.pack(">q", base) + stored[8:]


def chunks(
    action: Action, *stored: bytes, until: int = 12, aborted: Sequence[tuple[int, int]] = ()
) -> list[SliceChunk]:
    committed = Isolation.READ_COMMITTED
    kept = {0: DamagedBytes(b"".join(stored), tuple(aborted), "")}
    policy = Policy(corrupt=action)
    settings = ReadSettings(
        ClusterSettings("kafka", (), isolation=committed), policy=policy, quarantined_bytes=kept
    )
    return list(read_slices([Slice(0, P, 0, until)], settings))


def total(found: Sequence[SliceChunk]) -> Counts:
    return Counts.sum(chunk.counts for chunk in found)


def lost(found: Sequence[SliceChunk]) -> list[tuple[int, int]]:
    return [c.loss.interval for c in found if isinstance(c, LostChunk)]


def offsets(found: Sequence[SliceChunk]) -> list[int]:
    read = [c.rows for c in found if isinstance(c, ReadChunk) and c.rows is not None]
    return [offset for batch in read for offset in batch.column(OFFSET.name).to_pylist()]


def quarantined(found: Sequence[SliceChunk]) -> list[DamagedBytes]:
    kept = [chunk.quarantined_bytes for chunk in found if isinstance(chunk, LostChunk)]
    return [one for one in kept if isinstance(one, DamagedBytes)]


# --- offsets that do not rise -------------------------------------------------------------------


@pytest.mark.parametrize("base", [FAR, 5, 1, 0, -(1 << 62), (1 << 63) - 1])
def test_a_batch_that_is_not_where_it_says_is_damaged(base: int) -> None:
    stored = (four(0), at(four(4), base), four(8), four(12))
    with pytest.raises(BadRecord, match="cannot be decoded"):
        chunks(Action.FAIL, *stored)
    for action in PASSING:
        found = chunks(action, *stored)
        assert lost(found) == [(4, 8)]
        assert offsets(found) == [*range(4), *range(8, 12)]
        assert total(found).compacted == 0
    (held,) = [c for c in chunks(Action.HOLD, *stored) if isinstance(c, LostChunk)]
    assert held.from_offset == held.until_offset == 4


def test_the_bytes_of_a_misplaced_batch_are_kept_and_are_not_taken_for_compacted() -> None:
    misplaced = at(four(4), FAR)
    (kept,) = quarantined(chunks(Action.QUARANTINE, four(0), misplaced, four(8)))
    assert kept.records == misplaced
    settings = ReadSettings(ClusterSettings("kafka", ()), quarantined_bytes={0: kept})
    with pytest.raises(BadRecord, match="contain none of them"):
        list(read_slices([Slice(0, P, 4, 8)], settings))


def test_a_misplaced_message_of_an_old_format_is_lost_alone() -> None:
    stored = [encode_message(Message(n, b"k", b"v", 1)) for n in range(12)]
    stored[5] = at(stored[5], FAR)
    with pytest.raises(BadRecord, match="offset 5 cannot be decoded"):
        chunks(Action.FAIL, *stored)
    found = chunks(Action.SKIP, *stored)
    assert (total(found), lost(found)) == (Counts(landed=11, lost=1), [(5, 6)])


def test_a_fetch_does_not_go_by_offsets_that_do_not_rise() -> None:
    stored = memoryview(four(0) + at(four(4), FAR) + four(8))
    with pytest.raises(BadRecord) as caught:
        scan(fetched_at(stored))
    assert caught.value.facts == {"base_offset": 4, "next_offset": 8}
    assert scan(fetched_at(stored, 8)).next_offset == 12
    with pytest.raises(BadRecord):  # what comes next need not be whole to contradict it
        scan(fetched_at(stored[: -len(four(8)) + 20]))


def test_gaps_of_a_cleaner_are_not_damage() -> None:
    sparse = encode(cleaned(Batch(4, [Record(b"k", b"v")] * 4), [1]))
    found = chunks(Action.FAIL, four(0), sparse, four(20), until=24)
    assert total(found) == Counts(landed=9, compacted=15)


# --- ends and passing ---------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0, 1, 9, 1 << 30])
@pytest.mark.parametrize("action", PASSING)
def test_the_end_of_a_damaged_header_is_held_against_the_next_batch(
    action: Action, delta: int
) -> None:
    damaged = bytearray(four(4))
    struct.pack_into(">i", damaged, 23, delta)
    found = chunks(action, four(0), bytes(damaged), four(8))
    assert lost(found) == [(4, 8)]
    assert (total(found).landed, total(found).compacted) == (8, 0)


@pytest.mark.parametrize("action", PASSING)
def test_a_thinned_batch_with_a_right_checksum_ends_where_it_says(action: Action) -> None:
    """What a cleaner has left, in a codec that is not known here: the offsets behind it are
    not its own."""
    thinned = bytearray(encode(cleaned(Batch(4, [Record(b"k", b"v")] * 4), [0, 3])))
    attributes = struct.unpack_from(">h", thinned, 21)[0] | 7
    struct.pack_into(">h", thinned, 21, attributes)
    struct.pack_into(">I", thinned, 17, crc32c.crc32c(bytes(thinned[21:])))
    found = chunks(action, four(0), bytes(thinned), four(20), until=24)
    assert lost(found) == [(4, 8)]
    assert (total(found).landed, total(found).compacted) == (8, 12)


@pytest.mark.parametrize("count", [-1, 3, 5, 1 << 20])
@pytest.mark.parametrize("action", PASSING)
def test_a_batch_with_a_damaged_count_is_passed(action: Action, count: int) -> None:
    damaged = bytearray(four(4))
    struct.pack_into(">i", damaged, 57, count)
    found = chunks(action, four(0), bytes(damaged), four(8))
    assert (lost(found), total(found).landed) == ([(4, 8)], 8)


@pytest.mark.parametrize("action", PASSING)
def test_a_damaged_abort_marker_is_passed_and_ends_its_transaction(action: Action) -> None:
    of = {"transactional": True, "producer_id": 7}
    bad_marker = encode(replace(marker(4, 7, ABORT), crc_error=1))
    stored = (four(0, **of), bad_marker, four(5, **of), encode(marker(9, 7, COMMIT)))
    found = chunks(action, *stored, until=10, aborted=[(7, 0)])
    assert lost(found) == [(4, 5)]
    assert total(found).landed == total(found).aborted == 4
    assert offsets(found) == [5, 6, 7, 8]


# --- what goes with quarantined bytes -------------------------------------------------------------


def test_a_committed_batch_after_an_abort_is_landed_when_it_is_redriven() -> None:
    of = {"transactional": True, "producer_id": 7}
    good = four(5, **of)
    bad = good[:-3] + bytes([good[-3] ^ 1]) + good[-2:]
    stored = (four(0, **of), encode(marker(4, 7, ABORT)), bad, encode(marker(9, 7, COMMIT)))
    found = chunks(Action.QUARANTINE, *stored, until=10, aborted=[(7, 0)])
    assert total(found) == Counts(aborted=4, control=2, quarantined=4)
    (kept,) = quarantined(found)
    assert (kept.records, kept.aborted) == (bad, ())
    mended = {0: replace(kept, records=good)}
    committed = ClusterSettings("kafka", (), isolation=Isolation.READ_COMMITTED)
    settings = ReadSettings(committed, quarantined_bytes=mended)
    assert total(list(read_slices([Slice(0, P, 5, 9)], settings))) == Counts(landed=4)


def test_aborted_records_in_quarantine_land_only_where_uncommitted_ones_are_read() -> None:
    stored = four(0, transactional=True, producer_id=7)
    kept = {0: DamagedBytes(stored, ((7, 0),), "")}
    for isolation, counts in (
        (Isolation.READ_COMMITTED, Counts(aborted=4)),
        (Isolation.READ_UNCOMMITTED, Counts(landed=4)),
    ):
        cluster = ClusterSettings("kafka", (), isolation=isolation)
        settings = ReadSettings(cluster, quarantined_bytes=kept)
        assert total(list(read_slices([Slice(0, P, 0, 4)], settings))) == counts


def test_what_is_kept_of_an_aborted_transaction_stays_aborted() -> None:
    of = {"transactional": True, "producer_id": 7}
    stored = memoryview(four(0, **of) + four(4, **of) + four(8, **of, crc_error=1))
    assert aborted_within(fetched_at(stored, aborted=[(7, 0), (7, 30)]), 4, 8) == ((7, 0),)
    three = fetched_at(stored, aborted=[(7, 0), (8, 3), (8, 4)])
    assert aborted_within(three, 0, 4) == ((7, 0), (8, 3))
    assert aborted_within(fetched_at(stored, aborted=[(7, 8)]), 8, 12) == ((7, 8),)


# --- behind what is readable ----------------------------------------------------------------------


class Edges:
    """Brokers that only tell where the log ends."""

    def __init__(self, end: int | None) -> None:
        self.dialect = load_dialect("kafka")
        self.end = end
        self.asked = 0

    def call_all(self, address: Address, questions: Sequence[BrokerRequest]) -> list[Any]:
        self.asked += 1
        if self.end is None:
            raise ConnectionLost("gone")
        return [self.end]


def taken(
    monkeypatch: pytest.MonkeyPatch,
    end: int | None,
    readable_end: int,
    *stored: bytes,
    isolation: Isolation = Isolation.READ_COMMITTED,
) -> tuple[FetchedPiece | None, Edges, FetchThread]:
    piece = Slice(0, P, 0, 12, leader=B1)
    settings = ReadSettings(ClusterSettings("kafka", (B1,), isolation=isolation))
    edges = Edges(end)
    monkeypatch.setattr(edges, "dialect", _Dialect(edges.dialect))
    brokers = cast(ConnectionPool, edges)
    fetcher = FetchThread([piece], settings, FetchLimits(), brokers=brokers)
    fetcher._loop.states[0].broker.is_confirmed = True  # metadata has named it
    ask = fetcher._loop.next(0)
    assert isinstance(ask, SendFetch)
    part = FetchedPartition(P, ErrorMeaning.OK, "", fetched_at(b"".join(stored)), readable_end)
    return fetcher._responses.read(B1, ask.requests[0], part, throttled=False), edges, fetcher


class _Dialect:
    """Kafka's, but that offsets come as they are."""

    def __init__(self, kafka: Any) -> None:
        self.kafka = kafka
        self.isolations: list[Isolation] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kafka, name)

    def offsets_requests(self, leaders: Any, when: Any, isolation: Isolation) -> Any:
        self.isolations.append(isolation)
        return self.kafka.offsets_requests(leaders, when, isolation)

    def read_offsets(self, responses: Sequence[Any]) -> dict[Partition, OffsetResult]:
        return {P: OffsetResult(ErrorMeaning.OK, "", responses[0])}


def test_what_is_within_the_log_is_taken_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    piece, edges, _ = taken(monkeypatch, None, 12, four(0), four(4), four(8))
    assert piece is not None
    assert (piece.until_offset, edges.asked) == (12, 0)


def test_a_last_batch_after_the_log_is_left_for_the_next_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    piece, edges, _ = taken(monkeypatch, None, 12, four(0), at(four(4), FAR))
    assert piece is not None
    assert (piece.until_offset, edges.asked) == (4, 0)


def test_what_goes_back_is_judged_beside_what_it_contradicts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = (four(0), at(four(4), 2), four(8))
    piece, _, _ = taken(monkeypatch, None, 12, *stored)
    assert piece is not None
    assert (piece.until_offset, bytes(piece.records.data)) == (8, b"".join(stored))


def test_a_batch_after_the_end_of_the_log_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    piece, _, fetcher = taken(monkeypatch, 12, 12, at(four(0), FAR))
    assert piece is None
    with pytest.raises(BadRecord, match=f"ends at offset {FAR + 4}, and the log ends at 12"):
        take_step(fetcher._loop, 0)


def test_nothing_is_handed_over_of_a_response_that_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    denied = Partition("t", 1)
    slices = [Slice(0, P, 0, 12, leader=B1), Slice(1, denied, 0, 12, leader=B1)]
    settings = ReadSettings(ClusterSettings("kafka", (B1,)))
    fetcher = FetchThread(slices, settings, FetchLimits(), brokers=cast(ConnectionPool, Edges(12)))
    response = FetchResult(
        ErrorMeaning.OK,
        "",
        (
            FetchedPartition(P, ErrorMeaning.OK, "", fetched_at(four(0)), 12),
            FetchedPartition(denied, ErrorMeaning.DENIED, "TOPIC_AUTHORIZATION_FAILED"),
        ),
    )
    monkeypatch.setattr(fetcher, "_result", lambda step, is_sent: response)
    ask = fetcher._loop.next(0)
    assert isinstance(ask, SendFetch)
    ended = fetcher._fetch(ask, is_sent=False)
    assert isinstance(ended, Fail)
    assert isinstance(ended.error, AccessDenied)
    assert fetcher._loop.states[0].next_offset == 4
    with pytest.raises(queue.Empty):
        fetcher._pieces.get_nowait()


def test_garbage_that_says_it_is_far_away_is_left_to_decoding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which knows its place, and what the policy and the leader say to it."""
    garbage = bytearray(at(four(4), FAR))
    struct.pack_into(">i", garbage, 8, -5)
    piece, edges, _ = taken(monkeypatch, 12, 12, four(0), bytes(garbage))
    assert piece is not None
    assert (piece.until_offset, edges.asked) == (12, 0)
    assert lost(chunks(Action.HOLD, four(0), bytes(garbage))) == [(4, 12)]


def test_a_log_may_grow_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    piece, edges, _ = taken(monkeypatch, 16, 12, four(12))
    assert piece is not None
    assert (piece.until_offset, edges.asked) == (12, 1)


@pytest.mark.parametrize("isolation", Isolation)
def test_the_end_is_asked_for_as_the_log_is_read(
    monkeypatch: pytest.MonkeyPatch, isolation: Isolation
) -> None:
    """A damaged offset after the last stable one may still be below the high watermark."""
    _, edges, _ = taken(monkeypatch, 16, 12, four(12), isolation=isolation)
    assert cast(Any, edges.dialect).isolations == [isolation]


def test_who_cannot_be_asked_for_the_end_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    piece, _, fetcher = taken(monkeypatch, None, 12, four(12))
    assert piece is None
    with pytest.raises(queue.Empty):
        fetcher._pieces.get_nowait()
    assert fetcher._loop.states[0].next_offset == 0


class Leaving(Edges):
    """A broker that sends these records, and is gone when it is asked about them."""

    def __init__(self, *parts: FetchedPartition) -> None:
        super().__init__(None)
        self.settings = ClusterSettings("kafka", (B1,))
        self.dialect = cast(Any, _LeavingDialect(self.dialect))
        self.result = FetchResult(ErrorMeaning.OK, "", parts)

    def call_all(self, address: Address, questions: Sequence[BrokerRequest]) -> list[Any]:
        return super().call_all(address, questions) if self.asked else [self._leave()]

    def _leave(self) -> FetchResult:
        self.asked += 1
        return self.result


class _LeavingDialect(_Dialect):
    def read_records(self, responses: Sequence[Any], *_: Any) -> FetchResult:
        return cast(FetchResult, responses[0])


def test_a_broker_that_is_gone_before_its_response_is_understood_is_left_by_all_slices() -> None:
    gap, intact = memoryview(four(8)), memoryview(four(0) + four(4) + four(8))
    other = Partition("t", 1)
    parts = [
        FetchedPartition(p, ErrorMeaning.OK, "", fetched_at(b), 12)
        for p, b in ((P, gap), (other, intact))
    ]
    brokers = cast(ConnectionPool, Leaving(*parts))
    settings = ReadSettings(brokers.settings)
    slices = [Slice(0, P, 0, 12, leader=B1), Slice(1, other, 0, 12, leader=B1)]
    fetcher = FetchThread(slices, settings, FetchLimits(), brokers=brokers)
    ask = fetcher._loop.next(0)
    assert isinstance(ask, SendFetch)
    assert fetcher._fetch(ask, is_sent=False) is None
    states = fetcher._loop.states.values()
    assert [(s.phase, s.next_offset) for s in states] == [(Phase.FINDING, 0), (Phase.FINDING, 0)]


# --- reading without receipts ---------------------------------------------------------------------


def test_without_receipts_only_what_is_skipped_goes_missing() -> None:
    rule = TopicRule("t", ((LossKind.CORRUPT, Action.QUARANTINE),))
    policy = Policy((rule,), expired=Action.HOLD, recreated=Action.SKIP, corrupt=Action.HOLD)
    strict = policy.without_receipts()
    assert strict.actions[LossKind.EXPIRED] is Action.FAIL
    assert strict.actions[LossKind.RECREATED] is Action.SKIP
    assert strict.of(LossKind.CORRUPT, "other") is Action.FAIL
    assert strict.of(LossKind.CORRUPT, "t") is Action.FAIL


# --- from one response to the next ----------------------------------------------------------------


class Silent(Edges):
    """Brokers that say nothing about what is before a fetch."""

    def __init__(self) -> None:
        super().__init__(None)
        self.settings = ClusterSettings("kafka", ())
        self.dialect = cast(Any, _SilentDialect(self.dialect))

    def call_all(self, address: Address, questions: Sequence[BrokerRequest]) -> list[Any]:
        return []


class _SilentDialect(_Dialect):
    def read_records(self, *_: Any) -> FetchResult:
        return FetchResult(ErrorMeaning.OK, "", ())


def read_through(action: Action, *responses: bytes, until: int = 12) -> list[SliceChunk]:
    """As a task reads: each response through the fetcher and the decoder."""
    piece = Slice(0, P, 0, until, leader=B1)
    settings = ReadSettings(ClusterSettings("kafka", (B1,)), policy=Policy(corrupt=action))
    brokers = cast(ConnectionPool, Silent())
    fetcher = FetchThread([piece], settings, FetchLimits(), brokers=brokers)
    pieces: list[FetchedPiece] = []
    for stored in responses:
        ask = fetcher._loop.next(0)
        assert isinstance(ask, SendFetch), ask
        part = FetchedPartition(
            P, ErrorMeaning.OK, "", fetched_at(stored, ask.requests[0].offset), 1 << 30
        )
        taken_one = fetcher._responses.read(B1, ask.requests[0], part, throttled=False)
        assert taken_one is not None
        pieces.append(replace(taken_one, sender=Sender.LEADER))
    reader = SliceReader([piece], settings, load_dialect("kafka"))
    return list(reader.read(iter(pieces)))


def test_a_batch_does_not_begin_before_the_end_of_the_response_before() -> None:
    """Base 11 stored as 10: its rows would hold the values of other offsets, and one be lost."""
    responses = (four(0) + four(4)[:20], four(4) + encode(Batch(8, [Record(b"k", b"v")] * 3)))
    shifted = at(four(11), 10) + four(15)
    with pytest.raises(BadRecord, match="follows offset 10, but claims to be at 10"):
        read_through(Action.FAIL, *responses, shifted, until=19)
    found = read_through(Action.SKIP, *responses, shifted, four(15), until=19)
    assert lost(found) == [(11, 15)]
    assert offsets(found) == [*range(11), *range(15, 19)]


def test_a_batch_may_begin_before_the_slice_that_is_read_first() -> None:
    found = chunks(Action.FAIL, four(0), until=4)
    assert offsets(found) == [0, 1, 2, 3]
    piece = Slice(0, P, 2, 8, leader=B1)
    settings = ReadSettings(ClusterSettings("kafka", (B1,)))
    brokers = cast(ConnectionPool, Edges(None))
    fetcher = FetchThread([piece], settings, FetchLimits(), brokers=brokers)
    ask = fetcher._loop.next(0)
    assert isinstance(ask, SendFetch)
    part = FetchedPartition(P, ErrorMeaning.OK, "", fetched_at(four(0) + four(4), 2), 8)
    taken_one = fetcher._responses.read(B1, ask.requests[0], part, throttled=False)
    assert taken_one is not None
    assert (taken_one.from_offset, taken_one.until_offset) == (2, 8)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_whose_codec_is_flipped_does_not_end_a_range_unchecked(magic: int) -> None:
    """It becomes a plain message at its last offset: everything before that would be compacted."""
    inside = [Message(n, b"k", b"v", magic) for n in range(4, 14)]
    wrapped = bytearray(encode_wrapper(Wrapper(inside, "gzip", magic)))
    attributes_at = 17
    assert wrapped[attributes_at] & 7 == 1
    wrapped[attributes_at] ^= 1
    before = b"".join(encode_message(Message(n, b"k", b"v", magic)) for n in range(4))
    for stored in ((before, bytes(wrapped)), (before + bytes(wrapped),)):
        with pytest.raises(BadRecord, match="checksum is wrong"):
            read_through(Action.FAIL, *stored, until=10)
        found = read_through(Action.SKIP, *stored, until=10)
        assert total(found) == Counts(landed=4, lost=6)
        assert lost(found) == [(4, 10)]


# --- where a damaged wrapper ends -----------------------------------------------------------------


def wrapper(base: int, magic: int, **changes: Any) -> bytes:
    inside = [Message(offset, b"k", b"v", magic) for offset in range(base, base + 10)]
    return encode_wrapper(Wrapper(inside, "gzip", magic, **changes))


@pytest.mark.parametrize("stored_at", [8, 10, 15, 18, FAR])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("action", PASSING)
def test_a_misplaced_wrapper_ends_where_the_next_entry_begins(
    action: Action, magic: int, stored_at: int
) -> None:
    """Its own offset is what is wrong, so the offsets up to the next entry are not compacted."""
    stored = (wrapper(0, magic), at(wrapper(10, magic), stored_at), wrapper(20, magic))
    found = chunks(action, *stored, until=30)
    ((first, until),) = lost(found)
    assert first <= 10
    assert until == 20
    assert total(found).compacted == 0
    assert offsets(found) == [*range(first), *range(20, 30)]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_whose_bytes_are_damaged_too_ends_where_the_next_entry_begins(magic: int) -> None:
    damaged = at(wrapper(10, magic, crc=1), 15)
    found = chunks(Action.SKIP, wrapper(0, magic), damaged, wrapper(20, magic), until=30)
    assert (lost(found), total(found)) == ([(10, 20)], Counts(landed=20, lost=10))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("action", PASSING)
def test_a_misplaced_wrapper_that_nothing_follows_has_no_known_end(
    action: Action, magic: int
) -> None:
    with pytest.raises(BadRecord, match="its end is unknown"):
        chunks(action, wrapper(0, magic), at(wrapper(10, magic), 15), until=30)


def test_a_wrapper_that_nothing_contradicts_ends_where_it_says() -> None:
    found = chunks(Action.SKIP, wrapper(0, 1), wrapper(10, 1, crc=1), until=20)
    assert (lost(found), total(found)) == ([(10, 20)], Counts(landed=10, lost=10))


@pytest.mark.parametrize("stored_at", [21, 23])
@pytest.mark.parametrize("until", [22, 25, 30])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_after_a_gap_must_not_overlap_the_next_one(
    magic: int, until: int, stored_at: int
) -> None:
    """In format 1 its offset is that of all its messages, and a compacted log may have gaps. Even
    where the range ends inside the next wrapper, that one contradicts it."""
    stored = (wrapper(0, magic), at(wrapper(10, magic), stored_at), wrapper(20, magic))
    with pytest.raises(BadRecord, match="offset 10 cannot be decoded"):
        chunks(Action.FAIL, *stored, until=until)
    found = chunks(Action.SKIP, *stored, until=until)
    assert (lost(found), total(found)) == ([(10, 20)], Counts(landed=until - 10, lost=10))
    assert offsets(found) == [*range(10), *range(20, until)]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_gap_of_a_cleaner_before_a_wrapper_is_not_damage(magic: int) -> None:
    stored = (wrapper(0, magic), wrapper(20, magic), wrapper(40, magic))
    found = chunks(Action.FAIL, *stored, until=45)
    assert total(found) == Counts(landed=25, compacted=20)


# --- a log that is replaced while it is read ------------------------------------------------------


class Rewritten(Log):
    """Its leader restarts after the first response with the beginning of its log only, and is
    written to again. It has no epochs, and its address stays the same."""

    def __init__(self, before: Sequence[bytes], after: Sequence[bytes]) -> None:
        super().__init__(entries_of(before), joined=2)
        self.after = entries_of(after)

    def from_offset(self, offset: int) -> list[tuple[int, int, bytes]]:
        found = super().from_offset(offset)
        self.entries = self.after
        return found


def entries_of(stored: Sequence[bytes]) -> list[tuple[int, int, bytes]]:
    heads = [struct.unpack_from(">q15xi", data) for data in stored]
    return [(b, b + d + 1, data) for (b, d), data in zip(heads, stored, strict=True)]


def of(base: int, count: int) -> bytes:
    return encode(Batch(base, [Record(b"new", b"v")] * count))


BEFORE = (four(0), four(4), four(8))


def test_the_end_of_a_log_that_was_replaced_is_truncated_and_not_damaged() -> None:
    log = Rewritten(BEFORE, (four(0), of(4, 2), of(6, 4), of(10, 2)))
    with pytest.raises(RangeLost, match="truncated") as caught:
        read_log("kafka", log, 0, 12)
    assert "an entry ended at 8, and now one in its place extends past it" in str(caught.value)


def test_what_replaced_the_end_of_a_log_may_be_skipped() -> None:
    log = Rewritten(BEFORE, (four(0), of(4, 8)))
    found = read_log("kafka", log, 0, 12, policy=Policy(truncated=Action.SKIP))
    assert found.receipt.counts == Counts(landed=8, lost=4)


@pytest.mark.parametrize("replaced", [of(4, 4)[:-1] + b"!", of(4, 4)], ids=["damaged", "as before"])
def test_only_an_intact_entry_shows_that_a_log_was_replaced(replaced: bytes) -> None:
    log = Rewritten(BEFORE, (four(0), replaced, at(four(8), 6)))
    log.after[2] = (8, 12, log.after[2][2])  # the broker finds it by its index
    with pytest.raises(BadRecord, match="follows offset 7, but claims to be at"):
        read_log("kafka", log, 0, 12)
