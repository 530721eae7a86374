"""Judges the records that came for one slice: how far they can be decoded, and what contradicts
them.

Bytes are trusted unless something contradicts them. Even then, the sender is asked before they
count as damaged: its log may have grown or been overwritten since it answered. So a judgement may
be a question. ``judge_records`` and ``judge_log_end`` judge again with the answer, which may lead
to another question; ``judge_silence`` judges if there is no answer. This module itself asks
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, assert_never

from rangeland.dialects.dialect import Dialect
from rangeland.dialects.fetch_values import (
    FetchedPartition,
    FetchedRecords,
    Scan,
    UnconfirmedGap,
)
from rangeland.errors import BadRecord, Damage
from rangeland.fetch.fetched_pieces import EntryEnd
from rangeland.fetch.loss_judgement import located_damage_error, passable_until
from rangeland.fetch.replica_choice import Sender
from rangeland.fetch.slice_state import SliceRequest
from rangeland.model import Address

MIN_FETCH_BYTES = 1 << 16
"""The entry at an offset may be longer than the one that was sent for it before."""


@dataclass(frozen=True, slots=True)
class SliceResponse:
    """Records that came for one slice, with the known facts about them."""

    dialect: Dialect
    address: Address
    request: SliceRequest
    records: FetchedRecords
    """The floor of these is the requested offset if an entry ended there: then the next entry
    begins there or later. The floor is unknown if, for example, a slice begins inside an entry."""
    readable_end: int | None
    sender: Sender
    cut_why: str | None = None
    """Why an earlier response was damaged at the requested offset, and was cut off there."""

    @property
    def offset(self) -> int:
        return self.request.offset


def floor_of(request: SliceRequest, address: Address, end: EntryEnd | None) -> int | None:
    """The requested offset, if earlier reading ended there at the end of an entry that the broker
    at ``address`` also has; None if that is unknown. ``end``: where earlier reading ended."""
    if end is None or end.offset != request.offset:
        return None
    return request.offset if end.is_seen_by(str(address), request.epoch) else None


# --- judgements ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Take:
    """Decode the records up to ``until_offset``. If they are damaged, only decoding shows where
    they really end."""

    until_offset: int
    is_damaged: bool = False
    cut_why: str | None = None
    """Why records are damaged from ``until_offset`` on, if the end of the damage is unknown."""


@dataclass(frozen=True, slots=True)
class TooSmall:
    """No entry is complete."""


@dataclass(frozen=True, slots=True)
class AllDamaged:
    """Nothing can be decoded."""

    error: BadRecord


@dataclass(frozen=True, slots=True)
class Overwritten:
    """The end of the log has been overwritten since the slice was read up to the offset."""


@dataclass(frozen=True, slots=True)
class Inconclusive:
    """The answer proves nothing, so the records are requested again."""


@dataclass(frozen=True, slots=True)
class SenderUnreachable:
    """The sender cannot be reached."""

    why: str


@dataclass(frozen=True, slots=True)
class RecordsQuestion:
    """A question whose answer is the records that the sender returns at ``offset``."""

    waits: ClassVar[bool] = True
    """Whether the sender gets time to answer: remote storage needs some."""
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class AskWhetherOverwritten(RecordsQuestion):
    """Ask for the entry before the requested offset, which no longer ends there if the log has been
    overwritten. ``error``: the apparent damage."""

    waits: ClassVar[bool] = False
    error: BadRecord


@dataclass(frozen=True, slots=True)
class AskWhetherDamaged(RecordsQuestion):
    """Ask for the entry before the requested offset and for what follows. Records were found
    damaged there, and now the sender's response begins after them. Unless the answer is intact and
    has an entry that ends after the requested offset, they are still damaged, not compacted."""

    first_offset: int
    """The first offset that the sender has returned."""
    scan: Scan
    """The scan of the response."""
    why: str


@dataclass(frozen=True, slots=True)
class AskForGapEntry(RecordsQuestion):
    """Ask for the entry after a gap by its last offset. If the stored offset of this entry is
    damaged, the records of the gap may be in the next segment, and other records are returned."""

    gap: UnconfirmedGap


@dataclass(frozen=True, slots=True)
class AskWhetherMisplaced(RecordsQuestion):
    """Ask whether that entry still comes at the requested offset, since other records are at the
    offset stored in it."""

    gap: UnconfirmedGap


@dataclass(frozen=True, slots=True)
class AskForNextEntry(RecordsQuestion):
    """Ask for the entry at the offset where the last one claims to end: if the last one is damaged,
    the next may begin earlier."""


@dataclass(frozen=True, slots=True)
class AskLogEnd:
    """Ask where the log ends: the records continue after the readable end, which the broker had
    determined before it read them. Either the log has grown, or the stored offset of the last
    record is damaged."""

    next_offset: int


AboutRecords = (
    AskWhetherOverwritten
    | AskWhetherDamaged
    | AskForGapEntry
    | AskWhetherMisplaced
    | AskForNextEntry
)
Question = AboutRecords | AskLogEnd
Judgement = Take | TooSmall | AllDamaged | Overwritten | Inconclusive | SenderUnreachable | Question


# --- judging ------------------------------------------------------------------------------


def judge_response(response: SliceResponse) -> Judgement:
    """The first judgement, before anything is asked."""
    dialect = response.dialect
    records = response.records
    offset = response.offset
    try:
        scan = dialect.scan(records)
    except BadRecord as error:
        # If a broker accounts for the offsets itself, the records contradict only that account.
        # Where offsets are bytes, no offset before the next entry can be requested.
        may_be_overwritten = records.floor is not None and not records.context.spans
        if may_be_overwritten and not dialect.capabilities.offsets_are_bytes:
            return AskWhetherOverwritten(offset - 1, response.request.max_bytes, error)
        return _take_to_damage(response, error)
    if scan.next_offset is None:
        return TooSmall()
    if response.cut_why is not None:
        first = dialect.first_offset(records, offset)
        max_bytes = response.request.max_bytes
        if first > offset:
            return AskWhetherDamaged(offset - 1, max_bytes, first, scan, response.cut_why)
    return _judge_end(response, scan)


def judge_records(
    response: SliceResponse, question: AboutRecords, answer: FetchedPartition | None
) -> Judgement:
    """The judgement after the answer to a question, which is None if the broker sent an error."""
    match question:
        case AskWhetherOverwritten(error=error):
            if answer is not None and _has_entry_across(response, answer, response.offset):
                return Overwritten()
            return _take_to_damage(response, error)
        case AskForNextEntry():
            return _judge_next_entry(response, question.offset, answer)
        case AskWhetherDamaged():
            return _judge_missing_entry(response, question, answer)
        case AskForGapEntry(gap=gap):
            return _judge_gap_entry(response, gap, _begins_with(answer, gap.entry))
        case AskWhetherMisplaced(gap=gap):
            if not _begins_with(answer, gap.entry):
                return Inconclusive()  # the cleaner has removed the entry meanwhile
            why = f"it says that it is at {gap.until_offset} to {gap.last_offset}, where others are"
            return _damaged_entry(response, why, Damage(response.offset))
        case _:
            assert_never(question)


def judge_log_end(response: SliceResponse, question: AskLogEnd, log_end: int) -> Judgement:
    """The judgement once it is known where the log ends."""
    if question.next_offset <= log_end:
        return Take(question.next_offset)
    why = f"it ends at offset {question.next_offset}, and the log ends at {log_end}"
    return _damaged_entry(response, why)


def judge_silence(question: Question, why: str) -> Judgement:
    """The judgement if the question cannot be answered."""
    return Inconclusive() if isinstance(question, AskLogEnd) else SenderUnreachable(why)


def _take_to_damage(response: SliceResponse, error: BadRecord) -> Take | AllDamaged:
    """How much of a damaged response to decode. ``loss_judgement`` decides what is lost."""
    until = passable_until(error, response.offset, response.sender)
    if until is None:
        return _all_damaged(response, error)
    has_no_end = error.damage is not None and error.damage.next_offset is None
    is_cut_off = has_no_end and response.sender.proves_range
    until = min(until, response.request.until_offset)
    return Take(until, is_damaged=True, cut_why=error.why if is_cut_off else None)


def _judge_end(response: SliceResponse, scan: Scan) -> Judgement:
    """How far to read intact records."""
    readable_end = response.readable_end
    next_offset = scan.next_offset
    assert next_offset is not None
    if readable_end is not None and readable_end < next_offset:
        until = _end_within(response, readable_end)
        return AskLogEnd(next_offset) if until is None else Take(until)
    gap = scan.unconfirmed_gap
    if gap is not None:
        return AskForGapEntry(gap.last_offset, max(len(gap.entry), MIN_FETCH_BYTES), gap)
    if readable_end == next_offset or scan.has_certain_end:
        return Take(next_offset)
    return AskForNextEntry(next_offset, response.request.max_bytes)


def _end_within(response: SliceResponse, readable_end: int) -> int | None:
    """The offset at which the last record within the readable end ends; None if there is none."""
    dialect = response.dialect
    records = response.records
    offset = response.offset
    within = dialect.cut_out(replace(records, requested_offset=None), offset, readable_end)
    if not len(within):
        return None
    until = dialect.scan(FetchedRecords(within, offset, floor=records.floor)).next_offset
    return until if until is not None and offset < until <= readable_end else None


def _judge_missing_entry(
    response: SliceResponse, question: AskWhetherDamaged, answer: FetchedPartition | None
) -> Judgement:
    if answer is None or not len(answer.records):
        where = f"{response.request.partition} at {question.offset}"
        return SenderUnreachable(f"{response.address} returned no records of {where}")
    try:
        asked = replace(answer.records, requested_offset=question.offset)
        end = response.dialect.scan(asked).next_offset
    except BadRecord:
        end = None
    if end is not None and end > response.offset:
        return _judge_end(response, question.scan)
    # The entry is still damaged, or only the entry before it was returned.
    damage = Damage(response.offset, question.first_offset, has_bytes=False)
    return _damaged_entry(response, question.why, damage)


def _judge_next_entry(
    response: SliceResponse, claimed_end: int, answer: FetchedPartition | None
) -> Take | Inconclusive:
    """Takes everything up to the end of the last entry, which is damaged. If an intact entry
    crosses its claimed end, it ends where that one begins; otherwise, at the claimed end. The log
    continues, so an answer without records proves nothing."""
    if answer is None or not len(answer.records):
        return Inconclusive()
    if not _has_entry_across(response, answer, claimed_end):
        return Take(claimed_end, is_damaged=True)
    begin = response.dialect.first_offset(answer.records, 0)
    return Take(begin if begin > response.offset else claimed_end, is_damaged=True)


def _judge_gap_entry(
    response: SliceResponse, gap: UnconfirmedGap, is_there: bool | None
) -> Judgement:
    if is_there is None:
        return Inconclusive()
    if is_there:
        return Take(gap.last_offset + 1)
    if gap.from_offset > response.offset:
        return Take(gap.from_offset)  # the entry is requested again, without those before it
    return AskWhetherMisplaced(response.offset, max(len(gap.entry), MIN_FETCH_BYTES), gap)


def _begins_with(answer: FetchedPartition | None, entry: memoryview) -> bool | None:
    """Whether the answer begins with the entry; None for one without records, which proves
    nothing."""
    if answer is None or not len(answer.records):
        return None
    return answer.records.data[: len(entry)] == entry


def _has_entry_across(response: SliceResponse, answer: FetchedPartition, offset: int) -> bool:
    """Whether the first entry of the answer is intact, begins before the offset and ends after
    it."""
    dialect = response.dialect
    preceding = offset - 1
    try:
        stored = dialect.cut_out(answer.records, preceding, offset)
        entry = replace(answer.records, data=stored, from_offset=0)  # so that none is passed over
        end = dialect.scan(entry).next_offset or offset
        chunks = dialect.decode_chunks(entry, preceding, end)
        is_first = stored == answer.records.data[: len(stored)]
        return is_first and end > offset and sum(1 for _ in chunks) > 0
    except BadRecord:
        return False


def _damaged_entry(response: SliceResponse, why: str, damage: Damage | None = None) -> AllDamaged:
    what = f"the entry at offset {response.offset} cannot be decoded"
    return _all_damaged(response, BadRecord(what, why=why, damage=damage))


def _all_damaged(response: SliceResponse, error: BadRecord) -> AllDamaged:
    partition = response.request.partition
    capabilities = response.dialect.capabilities
    return AllDamaged(located_damage_error(error, partition, str(response.address), capabilities))
