"""What the records of a response show, and what is asked before it is believed: of a broker that is
slow, wrong, restarted, or another one."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any, cast

import pytest

from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.dialect import Dialect, load_dialect
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchContext, FetchedPartition, ResponseSpan, Scan
from rangeland.errors import BadRecord, Damage
from rangeland.fetch.fetched_pieces import EntryEnd
from rangeland.fetch.replica_choice import Sender
from rangeland.fetch.response_judgement import (
    MIN_FETCH_BYTES,
    AllDamaged,
    AskForGapEntry,
    AskForNextEntry,
    AskLogEnd,
    AskWhetherDamaged,
    AskWhetherMisplaced,
    AskWhetherOverwritten,
    Inconclusive,
    Judgement,
    Overwritten,
    SenderUnreachable,
    SliceResponse,
    Take,
    TooSmall,
    floor_of,
    judge_log_end,
    judge_records,
    judge_response,
    judge_silence,
)
from rangeland.fetch.slice_state import SliceRequest
from rangeland.model import Address, Partition
from tests.fetched_records import fetched_at
from tests.record_batches import Batch, Record, encode

P, B1 = Partition("t", 0), Address("b1", 1)
FAR, MAX_BYTES = 1 << 40, 1 << 20
MAY_BE_REPLICAS = [Sender.LEADER_OR_REPLICA, Sender.REPLICA]


def batch(base: int, count: int = 4) -> bytes:
    return encode(Batch(base, [Record(b"k", b"v")] * count))


def at(stored: bytes, base: int) -> bytes:
    """The same batch with another base offset, which its checksum does not cover."""
    return struct.pack(">q", base) + stored[8:]


def claims(stored: bytes, count: int) -> bytes:
    """The same batch with another number of offsets, which its checksum does cover."""
    return stored[:23] + struct.pack(">i", count - 1) + stored[27:]


def found(*stored: bytes, end: int | None = None) -> FetchedPartition:
    return FetchedPartition(P, ErrorMeaning.OK, "", fetched_at(b"".join(stored)), end)


def response(*stored: bytes, at: int = 0, end: int | None = None, **known: Any) -> SliceResponse:
    request = SliceRequest(P, None, None, at, MAX_BYTES, index=0, until_offset=100)
    floor, known = known.pop("floor", None), {"sender": Sender.LEADER} | known
    records = fetched_at(b"".join(stored), at, floor=floor, requested_offset=at)
    return SliceResponse(load_dialect("kafka"), B1, request, records, end, **known)


@pytest.mark.parametrize(
    ("end", "floor"),
    [
        (None, None),
        (EntryEnd(5, "b1:1", 3), 5),
        (EntryEnd(4, "b1:1", 3), None),
        (EntryEnd(5, "b1:1", 2), None),  # another leader may have replaced that entry
        (EntryEnd(5, "b2:1", 3), 5),
        (EntryEnd(5, "b2:1", None), None),
    ],
)
def test_an_offset_is_a_floor_where_an_entry_of_the_same_log_has_ended(
    end: EntryEnd | None, floor: int | None
) -> None:
    request = SliceRequest(P, None, 3, 5, MAX_BYTES, index=0, until_offset=100)
    assert floor_of(request, B1, end) == floor


def error_of(judged: Judgement) -> BadRecord:
    assert isinstance(judged, AllDamaged), judged
    return judged.error


# --- a damaged entry that claims to end where another one is --------------------------------------

LONGER = claims(batch(4), 6)
"""At 4 to 7, as the next batch shows; it claims to be at 4 to 9."""


def test_where_a_damaged_last_entry_ends_is_asked() -> None:
    given = response(batch(0), LONGER, end=50)
    assert judge_response(given) == AskForNextEntry(10, MAX_BYTES)


@pytest.mark.parametrize(
    ("stored", "end"),
    [
        ([batch(0), batch(4)], 50),
        ([batch(0), LONGER], 10),
        ([batch(0), batch(4), batch(8)[:20]], 50),
    ],
)
def test_the_end_of_an_entry_is_not_asked_where_something_shows_it(
    stored: list[bytes], end: int
) -> None:
    assert isinstance(judge_response(response(*stored, end=end)), Take)


@pytest.mark.parametrize(
    ("answer", "until"),
    [
        (found(batch(8)), 8),
        (found(batch(10)), 10),
        (found(claims(batch(8), 9)), 10),
        (found(batch(0, 12)), 10),
    ],
    ids=["another", "next", "damaged, too", "around all"],
)
def test_a_damaged_entry_ends_where_an_intact_one_begins_or_where_it_claims(
    answer: FetchedPartition, until: int
) -> None:
    given = response(batch(0), LONGER, end=50)
    question = AskForNextEntry(10, MAX_BYTES)
    assert judge_records(given, question, answer) == Take(until, is_damaged=True)
    for nothing in (found(), None):
        assert judge_records(given, question, nothing) == Inconclusive()


# --- without a question -----------------------------------------------------------------------


@pytest.mark.parametrize("sender", Sender)
@pytest.mark.parametrize("end", [None, 12, 50])
def test_intact_records_are_taken_from_anyone(sender: Sender, end: int | None) -> None:
    given = response(batch(0), batch(4), batch(8), end=end, sender=sender)
    assert judge_response(given) == Take(12)


def test_the_beginning_of_a_batch_is_too_small() -> None:
    assert judge_response(response(batch(0)[:-1])) == TooSmall()


def test_damage_whose_end_is_known_is_left_to_decoding() -> None:
    given = response(batch(0), at(batch(4), 2), batch(8))
    assert judge_response(given) == Take(8, is_damaged=True)


def test_damage_whose_end_is_unknown_is_cut_off_and_remembered() -> None:
    judged = judge_response(response(batch(0), at(batch(4), 2)))
    assert isinstance(judged, Take)
    assert (judged.until_offset, judged.is_damaged) == (4, True)
    assert "claims to be at 2" in (judged.cut_why or "")


@pytest.mark.parametrize("sender", MAY_BE_REPLICAS)
@pytest.mark.parametrize("after", [(), (batch(8),)])
def test_damage_that_a_replica_may_have_sent_is_never_passed(
    sender: Sender, after: tuple[bytes, ...]
) -> None:
    given = response(batch(0), at(batch(4), 2), *after, sender=sender)
    assert judge_response(given) == Take(4, is_damaged=True)


def test_what_is_taken_of_damage_ends_with_the_slice() -> None:
    given = response(batch(90), at(batch(94), 92), batch(120), batch(124), at=90)
    assert judge_response(given) == Take(100, is_damaged=True)


# --- an entry that begins before one that has been read -----------------------------------------


BACKWARDS = at(batch(8), 6)


def backwards(**known: Any) -> tuple[SliceResponse, AskWhetherOverwritten]:
    given = response(BACKWARDS, batch(12), at=8, floor=8, **known)
    question = judge_response(given)
    assert isinstance(question, AskWhetherOverwritten)
    assert (question.offset, question.max_bytes, question.waits) == (7, MAX_BYTES, False)
    return given, question


def test_a_broker_that_restarted_with_another_log_has_replaced_it() -> None:
    assert judge_records(*backwards(), found(batch(4, 8))) == Overwritten()


@pytest.mark.parametrize(
    "answer",
    [
        None,
        found(),
        found(batch(4), BACKWARDS),
        found(batch(4, 8)[:-1] + b"!"),
        found(batch(4, 8)[:-1]),
    ],
    ids=["an error", "nothing", "as before", "damaged", "incomplete"],
)
def test_only_an_intact_entry_across_the_offset_shows_that_a_log_was_replaced(
    answer: FetchedPartition | None,
) -> None:
    assert judge_records(*backwards(), answer) == Take(12, is_damaged=True)


@pytest.mark.parametrize("sender", MAY_BE_REPLICAS)
def test_a_replica_that_goes_backwards_is_damaged_and_its_leader_decides(sender: Sender) -> None:
    error = error_of(judge_records(*backwards(sender=sender), None))
    assert "follows offset 7, but claims to be at 6" in error.why
    assert error.facts["leader"] == "b1:1"


def test_a_broker_that_is_gone_has_replaced_nothing() -> None:
    assert judge_silence(backwards()[1], "reset") == SenderUnreachable("reset")


def test_what_contradicts_the_broker_s_own_account_is_damage() -> None:
    given, _ = backwards()
    context = FetchContext(spans=(ResponseSpan(len(given.records), 8, 16),))
    told = replace(given, records=replace(given.records, context=context))
    assert judge_response(told) == Take(12, is_damaged=True)


class _Bytes:
    """A log whose offsets are bytes, all damaged."""

    capabilities = Capabilities(offsets_are_bytes=True)

    def scan(self, *_: Any) -> Scan:
        raise BadRecord("the entry cannot be decoded", why="it is", damage=Damage(8))


def test_nothing_is_asked_where_nothing_can_be_read_before_an_offset() -> None:
    given = replace(backwards()[0], dialect=cast(Dialect, _Bytes()))
    assert error_of(judge_response(given)).why == "it is"


# --- what was cut off as damaged ----------------------------------------------------------------


def left_out(*, end: int | None = None) -> tuple[SliceResponse, AskWhetherDamaged]:
    given = response(batch(44), batch(48), at=24, end=end, cut_why="a bit is flipped")
    question = judge_response(given)
    why = "a bit is flipped"
    scan = given.dialect.scan(given.records)
    assert question == AskWhetherDamaged(23, MAX_BYTES, first_offset=44, scan=scan, why=why)
    return given, question


def test_what_was_damaged_on_its_way_once_is_taken() -> None:
    given = response(batch(24), at=24, cut_why="a bit is flipped")
    assert judge_response(given) == Take(28)


@pytest.mark.parametrize(
    "answer",
    [found(batch(20), at(batch(24), 8)), found(batch(20))],
    ids=["damaged as before", "only the entry before"],
)
def test_what_is_left_out_and_still_damaged_is_lost_without_its_bytes(
    answer: FetchedPartition,
) -> None:
    error = error_of(judge_records(*left_out(), answer))
    assert (error.damage, error.why) == (Damage(24, 44, has_bytes=False), "a bit is flipped")


def test_what_is_left_out_and_not_damaged_is_a_gap() -> None:
    assert judge_records(*left_out(), found(batch(20), batch(44))) == Take(52)


def test_the_answer_to_one_question_may_lead_to_another() -> None:
    given, question = left_out(end=44)
    assert judge_records(given, question, found(batch(20), batch(44))) == AskLogEnd(52)


@pytest.mark.parametrize("answer", [None, found()])
def test_a_broker_without_records_does_not_show_what_it_leaves_out(
    answer: FetchedPartition | None,
) -> None:
    why = "b1:1 returned no records of t/0 at 23"
    assert judge_records(*left_out(), answer) == SenderUnreachable(why)
    assert judge_silence(left_out()[1], "reset") == SenderUnreachable("reset")


# --- records after the readable end -------------------------------------------------------------


def test_records_within_the_readable_end_are_taken_without_asking() -> None:
    assert judge_response(response(batch(0), at(batch(4), FAR), end=12)) == Take(4)


def beyond(stored: bytes, at: int) -> tuple[SliceResponse, AskLogEnd]:
    given = response(stored, at=at, end=12)
    question = judge_response(given)
    assert isinstance(question, AskLogEnd)
    return given, question


@pytest.mark.parametrize("log_end", [16, 500])
def test_a_log_that_has_grown_is_read_on(log_end: int) -> None:
    given, question = beyond(batch(12), 12)
    assert judge_log_end(given, question, log_end) == Take(16)


@pytest.mark.parametrize("log_end", [0, 12, FAR])
def test_a_batch_that_says_it_is_after_the_end_of_the_log_is_damaged(log_end: int) -> None:
    given, question = beyond(at(batch(0), FAR), 0)
    error = error_of(judge_log_end(given, question, log_end))
    assert error.why == f"it ends at offset {FAR + 4}, and the log ends at {log_end}"
    assert error.damage is None


def test_a_broker_that_cannot_be_asked_for_the_end_proves_nothing() -> None:
    assert judge_silence(beyond(batch(12), 12)[1], "reset") == Inconclusive()


# --- a gap before the last entry ----------------------------------------------------------------


def gap(*before: bytes, at: int) -> tuple[SliceResponse, AskForGapEntry]:
    given = response(*before, batch(8), at=at)
    question = judge_response(given)
    assert isinstance(question, AskForGapEntry)
    assert (question.offset, question.max_bytes) == (11, MIN_FETCH_BYTES)
    assert question.waits, "remote storage needs some time"
    return given, question


def misplaced() -> tuple[SliceResponse, AskWhetherMisplaced]:
    given, question = gap(at=4)
    then = judge_records(given, question, found(batch(9)))
    assert isinstance(then, AskWhetherMisplaced)
    assert (then.offset, then.max_bytes) == (4, MIN_FETCH_BYTES)
    return given, then


def test_an_entry_that_is_where_it_says_shows_a_gap() -> None:
    assert judge_records(*gap(batch(0), at=0), found(batch(8), batch(12))) == Take(12)
    assert judge_records(*gap(at=4), found(batch(8))) == Take(12)


def test_an_entry_where_others_are_is_requested_without_those_before_it() -> None:
    assert judge_records(*gap(batch(0), at=0), found(batch(9))) == Take(4)


def test_an_entry_that_comes_at_an_offset_and_says_it_is_elsewhere_is_damaged() -> None:
    error = error_of(judge_records(*misplaced(), found(batch(8))))
    assert error.why == "it says that it is at 8 to 11, where others are"
    assert error.damage == Damage(4)


def test_an_entry_that_the_cleaner_has_taken_meanwhile_is_not_damaged() -> None:
    assert judge_records(*misplaced(), found(batch(9))) == Inconclusive()


@pytest.mark.parametrize("answer", [None, found()])
def test_an_answer_without_records_proves_no_gap(answer: FetchedPartition | None) -> None:
    assert judge_records(*gap(batch(0), at=0), answer) == Inconclusive()
    assert judge_records(*misplaced(), answer) == Inconclusive()


def test_a_broker_that_is_gone_proves_no_gap() -> None:
    assert judge_silence(gap(at=4)[1], "reset") == SenderUnreachable("reset")
    assert judge_silence(misplaced()[1], "reset") == SenderUnreachable("reset")
