"""What the records that came for one slice show: how far they can be decoded, and what they
contradict.

Bytes are believed as far as nothing contradicts them. Where something does, their sender is asked
before it counts as damage: since it answered, its log may have grown or been replaced. So a
judgement may be a question. ``judge_records`` and ``judge_log_end`` judge again with the answer,
which may lead to another question, and ``judge_silence`` does without one. Nothing here asks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from rangeland.dialects.dialect import Dialect
from rangeland.dialects.fetch_values import FetchContext, FetchedPartition, UnconfirmedGap
from rangeland.errors import BadRecord, Damage
from rangeland.fetch.loss_judgement import located_damage_error, passable_until
from rangeland.fetch.replica_choice import Sender
from rangeland.fetch.slice_state import SliceRequest
from rangeland.model import Address, Isolation
from rangeland.wire.memory_budget import MAX_BATCH_BYTES

MIN_FETCH_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class SliceResponse:
    """Records that came for one slice, and what is known about them."""

    dialect: Dialect
    address: Address
    request: SliceRequest
    fetched: FetchedPartition
    sender: Sender
    isolation: Isolation
    floor: int = 0
    """The requested offset, if an entry ended there: then the next one begins there or later. 0 if
    that is unknown, as where a slice begins in the middle of a batch."""
    cut_why: str | None = None
    """Why an earlier response was damaged from the requested offset on, and was cut off there."""
    max_batch_bytes: int = MAX_BATCH_BYTES

    @property
    def offset(self) -> int:
        return self.request.offset

    @property
    def context(self) -> FetchContext:
        return replace(
            self.fetched.context,
            floor=self.floor,
            asked_at=self.offset,
            max_batch_bytes=self.max_batch_bytes,
        )


# --- judgements ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Take:
    """Decode the records up to ``until_offset``. Damaged ones do not prove where they end: decoding
    decides."""

    until_offset: int
    is_damaged: bool = False
    cut_why: str | None = None
    """Why records are damaged from ``until_offset`` on, if nothing shows where the damage ends."""


@dataclass(frozen=True, slots=True)
class TooSmall:
    """No entry is complete."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """Nothing can be decoded."""

    error: BadRecord


@dataclass(frozen=True, slots=True)
class Replaced:
    """The end of the log has been replaced since the slice was read up to the requested offset."""


@dataclass(frozen=True, slots=True)
class Inconclusive:
    """The answer proves nothing, so the records have to be requested again."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The sender is not there to be asked."""

    why: str


@dataclass(frozen=True, slots=True)
class RecordsQuestion:
    """A question that is answered by the records that the sender returns at ``offset``."""

    offset: int
    max_bytes: int

    @property
    def waits(self) -> bool:
        """Whether the sender is given time: remote storage needs some."""
        return True


@dataclass(frozen=True, slots=True)
class AskWhetherReplaced(RecordsQuestion):
    """Ask for the entry before the requested offset, which no longer ends there if the log has been
    replaced. ``error``: what the records seem to show."""

    error: BadRecord

    @property
    def waits(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class AskWhetherDamaged(RecordsQuestion):
    """Ask for the entry before the requested offset and what follows: damaged records were cut off
    there, and now the sender leaves them out. By the offset stored in them they are elsewhere. What
    they held is not compacted."""

    first_offset: int
    """The first offset that the sender has not left out."""
    next_offset: int
    why: str


@dataclass(frozen=True, slots=True)
class AskForGapEntry(RecordsQuestion):
    """Ask for the entry after a gap by its last offset: the offset stored in it may be damaged, and
    the gap full of records that are in the next segment. Then others come, and not the entry."""

    gap: UnconfirmedGap


@dataclass(frozen=True, slots=True)
class AskWhetherMisplaced(RecordsQuestion):
    """Ask whether that entry still comes at the requested offset: others are where it claims to
    be."""

    gap: UnconfirmedGap


@dataclass(frozen=True, slots=True)
class AskForNextEntry(RecordsQuestion):
    """Ask for the entry at the offset at which the last one claims to end: that one is damaged, and
    the next may begin earlier."""


@dataclass(frozen=True, slots=True)
class AskLogEnd:
    """Ask where the log ends: the records go on after the readable end, which a broker determines
    before it reads. Either the log has grown, or the offset stored in the last of them is
    damaged."""

    next_offset: int


AboutRecords = (
    AskWhetherReplaced | AskWhetherDamaged | AskForGapEntry | AskWhetherMisplaced | AskForNextEntry
)
Question = AboutRecords | AskLogEnd
Judgement = Take | TooSmall | Damaged | Replaced | Inconclusive | NoAnswer | Question


# --- judging ------------------------------------------------------------------------------


def judge_response(response: SliceResponse) -> Judgement:
    """The first judgement, before anything is asked."""
    dialect, records, offset = response.dialect, response.fetched.records, response.offset
    try:
        next_offset = dialect.next_offset(records, offset, response.context)
    except BadRecord as error:
        # Where a broker accounts for the offsets itself, that account is what they contradict.
        # Where offsets are bytes, nothing can be requested that is before the next entry.
        may_be_replaced = response.floor and not response.fetched.context.spans
        if may_be_replaced and not dialect.capabilities.offsets_are_bytes:
            return AskWhetherReplaced(offset - 1, response.request.max_bytes, error)
        return _take_to_damage(response, error)
    if next_offset is None:
        return TooSmall()
    if response.cut_why is not None:
        first, max_bytes = dialect.first_offset(records, offset), response.request.max_bytes
        if first > offset:
            return AskWhetherDamaged(offset - 1, max_bytes, first, next_offset, response.cut_why)
    return _judge_end(response, next_offset)


def judge_records(
    response: SliceResponse, question: AboutRecords, found: FetchedPartition | None
) -> Judgement:
    """The judgement with the answer to a question. ``found`` is None if that is an error."""
    match question:
        case AskWhetherReplaced(error=error):
            is_replaced = found is not None and _has_entry_across(response, found, response.offset)
            return Replaced() if is_replaced else _take_to_damage(response, error)
        case AskForNextEntry():
            return _judge_next_entry(response, question.offset, found)
        case AskWhetherDamaged():
            return _judge_left_out(response, question, found)
        case AskForGapEntry(gap=gap):
            return _judge_gap_entry(response, gap, _begins_with(found, gap.entry))
        case AskWhetherMisplaced(gap=gap):
            if not _begins_with(found, gap.entry):
                return Inconclusive()  # the cleaner has taken the entry meanwhile
            why = f"it says that it is at {gap.until_offset} to {gap.last_offset}, where others are"
            return _damaged_batch(response, why, Damage(response.offset))
        case _:
            assert_never(question)


def judge_log_end(response: SliceResponse, question: AskLogEnd, log_end: int) -> Judgement:
    """The judgement once it is known where the log ends."""
    if question.next_offset <= log_end:
        return Take(question.next_offset)
    why = f"it ends at offset {question.next_offset}, and the log ends at {log_end}"
    return _damaged_batch(response, why)


def judge_silence(question: Question, why: str) -> Judgement:
    """The judgement if the question cannot be answered."""
    return Inconclusive() if isinstance(question, AskLogEnd) else NoAnswer(why)


def _take_to_damage(response: SliceResponse, error: BadRecord) -> Take | Damaged:
    """How much of a damaged response to decode. ``loss_judgement`` says what is lost by it."""
    until = passable_until(error, response.offset, response.sender)
    if until is None:
        return _located(response, error)
    has_no_end = error.damage is not None and error.damage.next_offset is None
    is_cut_off = has_no_end and response.sender.proves_range
    until = min(until, response.request.until_offset)
    return Take(until, is_damaged=True, cut_why=error.why if is_cut_off else None)


def _judge_end(response: SliceResponse, next_offset: int) -> Judgement:
    """How far to read records that are intact, and end at ``next_offset``."""
    fetched, readable_end = response.fetched, response.fetched.readable_end
    if readable_end is not None and readable_end < next_offset:
        until = _end_within(response, readable_end)
        return AskLogEnd(next_offset) if until is None else Take(until)
    gap = response.dialect.unconfirmed_gap(fetched.records, response.offset, response.context)
    if gap is not None:
        return AskForGapEntry(gap.last_offset, max(len(gap.entry), MIN_FETCH_BYTES), gap)
    is_log_end = readable_end == next_offset
    if is_log_end or response.dialect.has_certain_end(fetched.records, response.context):
        return Take(next_offset)
    return AskForNextEntry(next_offset, response.request.max_bytes)


def _end_within(response: SliceResponse, readable_end: int) -> int | None:
    """The offset at which the last record within the readable end ends; None if there is none."""
    dialect, fetched, offset = response.dialect, response.fetched, response.offset
    context = replace(fetched.context, floor=response.floor)
    within = dialect.cut_out(fetched.records, offset, offset, readable_end, context)
    if not len(within):
        return None
    until = dialect.next_offset(within, offset, FetchContext(floor=response.floor))
    return until if until is not None and offset < until <= readable_end else None


def _judge_left_out(
    response: SliceResponse, question: AskWhetherDamaged, found: FetchedPartition | None
) -> Judgement:
    if found is None or not len(found.records):
        where = f"{response.request.partition} at {question.offset}"
        return NoAnswer(f"{response.address} returned no records of {where}")
    try:
        context = FetchContext(asked_at=question.offset)
        end = response.dialect.next_offset(found.records, question.offset, context)
    except BadRecord:
        end = None
    if end is not None and end > response.offset:
        return _judge_end(response, question.next_offset)
    # Damaged as it was; or only the entry before it came.
    damage = Damage(response.offset, question.first_offset, has_bytes=False)
    return _damaged_batch(response, question.why, damage)


def _judge_next_entry(
    response: SliceResponse, claimed_end: int, found: FetchedPartition | None
) -> Take | Inconclusive:
    """The last entry is damaged. It ends where an intact one begins that goes on after the end that
    it claims; otherwise there. The log goes on, so an answer without records proves nothing."""
    if found is None or not len(found.records):
        return Inconclusive()
    if not _has_entry_across(response, found, claimed_end):
        return Take(claimed_end, is_damaged=True)
    begin = response.dialect.first_offset(found.records, 0)
    return Take(begin if begin > response.offset else claimed_end, is_damaged=True)


def _judge_gap_entry(
    response: SliceResponse, gap: UnconfirmedGap, is_there: bool | None
) -> Judgement:
    if is_there is None:
        return Inconclusive()
    if is_there:
        return Take(gap.last_offset + 1)
    if gap.from_offset > response.offset:
        return Take(gap.from_offset)  # the entry is asked for again, without those before it
    return AskWhetherMisplaced(response.offset, max(len(gap.entry), MIN_FETCH_BYTES), gap)


def _begins_with(found: FetchedPartition | None, entry: memoryview) -> bool | None:
    """None for an answer without records, which proves nothing."""
    if found is None or not len(found.records):
        return None
    return found.records[: len(entry)] == entry


def _has_entry_across(response: SliceResponse, found: FetchedPartition, offset: int) -> bool:
    """Whether one intact entry, the first that was found, begins before the offset and ends after
    it."""
    dialect, context, isolation = response.dialect, found.context, response.isolation
    preceding = offset - 1
    try:
        stored = dialect.cut_out(found.records, preceding, preceding, offset, context)
        end = dialect.next_offset(stored, 0, context) or offset
        chunks = dialect.decode_chunks(stored, preceding, end, isolation, found.aborted, context)
        is_first = stored == found.records[: len(stored)]
        return is_first and end > offset and sum(1 for _ in chunks) > 0
    except BadRecord:
        return False


def _damaged_batch(response: SliceResponse, why: str, damage: Damage | None = None) -> Damaged:
    what = f"the batch at offset {response.offset} cannot be decoded"
    return _located(response, BadRecord(what, why=why, damage=damage))


def _located(response: SliceResponse, error: BadRecord) -> Damaged:
    partition, capabilities = response.request.partition, response.dialect.capabilities
    return Damaged(located_damage_error(error, partition, str(response.address), capabilities))
