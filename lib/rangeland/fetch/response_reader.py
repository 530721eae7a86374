"""What the response to a fetch holds for one slice: how far it can be read, and what it
contradicts.

Bytes are believed as far as nothing contradicts them. Where something does, the leader is asked
again before it counts as damage: since it answered, its log may have grown or been replaced.
Everything found is reported to the loop; only bytes to decode are returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rangeland.connection.failures import ConnectionLost
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import (
    NO_CONTEXT,
    FetchContext,
    FetchedPartition,
    UnconfirmedGap,
)
from rangeland.errors import BadRecord, Damage
from rangeland.fetch.broker_questions import AskedLeader
from rangeland.fetch.fetch_loop import FetchLoop
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.replica_choice import Sender
from rangeland.fetch.slice_failures import located_damage_error, passable_until
from rangeland.fetch.slice_state import SliceRequest
from rangeland.loss import Loss
from rangeland.model import Address, Latest

NO_BYTES = memoryview(b"")


@dataclass(frozen=True, slots=True)
class EntryEnd:
    """An entry ended at this offset in the log of a leader. Where another leader has replaced the
    end of the log, one of its entries may begin before that offset."""

    offset: int
    leader: str
    epoch: int | None

    def is_seen_by(self, leader: str, epoch: int | None) -> bool:
        """Whether entries also end there for this leader, as far as is known."""
        if self.epoch is not None and epoch is not None:
            return self.epoch == epoch
        return self.leader == leader


@dataclass(frozen=True, slots=True)
class FetchedPiece:
    """Raw bytes of one slice, from the offset that was requested; or a loss. ``epoch``: that of the
    leader, if it was known."""

    index: int
    from_offset: int
    until_offset: int
    records: memoryview = NO_BYTES
    aborted: tuple[tuple[int, int], ...] = ()
    leader: str = ""
    loss: Loss | None = None
    context: FetchContext = NO_CONTEXT
    sender: Sender = Sender.LEADER
    epoch: int | None = None

    @property
    def is_empty(self) -> bool:
        """There is nothing to decode."""
        return not len(self.records) and not self.context.spans


class ResponseReader:
    """Takes from responses what can be decoded, and reports all else to ``loop``. It belongs to the
    thread that carries out the steps of that loop.

    ``floors``: up to where slices have been read already, by index.
    """

    def __init__(
        self,
        brokers: ConnectionPool,
        loop: FetchLoop,
        settings: ReadSettings,
        floors: Mapping[int, EntryEnd],
    ) -> None:
        self._brokers = brokers
        self._loop = loop
        self._settings = settings
        self._floors = dict(floors)
        self._cut: dict[int, tuple[int, str]] = {}  # by slice: where damage was cut off, and why

    def read(
        self,
        address: Address,
        request: SliceRequest,
        part: FetchedPartition | None,
        throttled: bool,
    ) -> FetchedPiece | None:
        """Reports to the loop what came for one slice. Returns what there is to decode."""
        leader = AskedLeader(self._brokers, address, request)
        if part is None or (part.meaning is ErrorMeaning.OK and part.is_empty):
            if part is None or not self._moves_on(request, part):
                end = part.readable_end if part is not None else None
                self._loop.on_empty(request, end, throttled)
            return None
        if part.meaning is not ErrorMeaning.OK:
            self._loop.on_error(request, part.meaning, part.code, part.leader_hint)
            return None
        context = replace(
            part.context,
            floor=self._floor(leader),
            asked_at=request.offset,
            max_batch_bytes=self._settings.cluster.max_batch_bytes,
        )
        found = self._find_readable_end(leader, part, context)
        if found is None:
            return None
        next_offset, is_damaged = found
        sender = self._loop.sender_of(request)
        if not self._loop.on_records(request, next_offset):
            return None
        if not is_damaged:
            self._floors[request.index] = EntryEnd(next_offset, str(address), request.epoch)
        self._moves_on(request, part)
        return FetchedPiece(
            request.index,
            request.offset,
            min(next_offset, request.until_offset),
            part.records,
            part.aborted,
            str(address),
            context=context,
            sender=sender,
            epoch=request.epoch,
        )

    def _find_readable_end(
        self, leader: AskedLeader, part: FetchedPartition, context: FetchContext
    ) -> tuple[int, bool] | None:
        """How far a response can be decoded, and whether it is damaged. None if it cannot be; the
        loop knows why."""
        dialect = self._brokers.dialect
        try:
            next_offset = dialect.next_offset(part.records, leader.request.offset, context)
        except BadRecord as error:
            until = self._passable_until(leader, error, context)
            # Damaged bytes do not prove where they end: decoding decides.
            return None if until is None else (min(until, leader.request.until_offset), True)
        if next_offset is None:
            self._loop.on_too_small(leader.request)
            return None
        if self._is_left_out(leader, part):
            return None
        if part.readable_end is not None and part.readable_end < next_offset:
            next_offset = self._confirmed_end(leader, part, part.readable_end, next_offset)
        elif gap := dialect.unconfirmed_gap(part.records, leader.request.offset, context):
            next_offset = self._confirmed_gap(leader, gap)
        return None if next_offset is None else (next_offset, False)

    def _passable_until(
        self, leader: AskedLeader, error: BadRecord, context: FetchContext
    ) -> int | None:
        # Where a broker accounts for the offsets itself, that account is what they contradict.
        if context.floor and not context.spans and self._is_replaced(leader):
            return None
        sender = self._loop.sender_of(leader.request)
        until = passable_until(error, leader.request.offset, sender)
        if until is None:
            self._report_damage(leader, error)
        elif error.damage is not None and error.damage.next_offset is None and sender.proves_range:
            self._cut[leader.request.index] = (until, error.why)
        return until

    def _is_left_out(self, leader: AskedLeader, part: FetchedPartition) -> bool:
        """Whether damaged bytes were cut off at the offset that was asked for, and now the broker
        leaves them out: by the offset stored in them they are elsewhere. What they held is
        not compacted. Reports it."""
        offset, why = self._cut.get(leader.request.index, (-1, ""))
        if offset != leader.request.offset:
            return False
        first = self._brokers.dialect.first_offset(part.records, offset)
        if first <= offset:
            return False
        try:
            if not leader.is_still_damaged():
                return False
        except ConnectionLost as error:
            self._report_lost(leader, error)
            return True
        what = f"the batch at offset {offset} cannot be decoded"
        damage = Damage(offset, first, has_bytes=False)
        self._report_damage(leader, BadRecord(what, why=why, damage=damage))
        return True

    def _floor(self, leader: AskedLeader) -> int:
        """The offset, if an entry ended there: then the next one begins there or later. Where a
        slice begins in the middle of a batch, that batch begins before it."""
        known = self._floors.get(leader.request.index)
        if known is None or known.offset != leader.request.offset:
            return 0
        return (
            leader.request.offset
            if known.is_seen_by(str(leader.address), leader.request.epoch)
            else 0
        )

    def _is_replaced(self, leader: AskedLeader) -> bool:
        """Finds out, after records that contradict those before them, whether the broker has
        replaced the end of its log since, so that nothing is damaged; or the connection broke.
        Reports either."""
        try:
            if not leader.is_inside_entry(leader.request.offset):
                return False
        except ConnectionLost as error:
            self._report_lost(leader, error)
            return True
        self._loop.on_replaced(leader.request)
        return True

    def _moves_on(self, request: SliceRequest, part: FetchedPartition) -> bool:
        named = part.preferred
        return named is not None and self._loop.on_preferred(request.index, named)

    def _confirmed_end(
        self, leader: AskedLeader, part: FetchedPartition, end: int, next_offset: int
    ) -> int | None:
        """How far to read if records end after the readable end: a broker determines that end
        before it reads, so the log may have grown; or the offset stored in the last of them is
        damaged. What comes before it is taken."""
        dialect = self._brokers.dialect
        context = replace(part.context, floor=self._floor(leader))
        within = dialect.cut_out(
            part.records, leader.request.offset, leader.request.offset, end, context
        )
        known = FetchContext(floor=context.floor)
        until = dialect.next_offset(within, leader.request.offset, known) if len(within) else None
        if until is not None and leader.request.offset < until <= end:
            return until
        try:
            latest = leader.log_edge(Latest(), self._settings.isolation)
        except ConnectionLost:
            self._loop.on_empty(leader.request, None, throttled=False)
            return None
        if next_offset <= latest:
            return next_offset
        error = BadRecord(
            f"the batch at offset {leader.request.offset} cannot be decoded",
            why=f"it ends at offset {next_offset}, and the log ends at {latest}",
        )
        self._report_damage(leader, error)
        return None

    def _confirmed_gap(self, leader: AskedLeader, gap: UnconfirmedGap) -> int | None:
        try:
            until = leader.confirmed_until(gap)
        except BadRecord as error:
            self._report_damage(leader, error)
            return None
        except ConnectionLost as error:
            self._report_lost(leader, error)
            return None
        if until is None:
            self._loop.on_empty(leader.request, None, throttled=False)
        return until

    def _report_damage(self, leader: AskedLeader, error: BadRecord) -> None:
        capabilities = self._brokers.dialect.capabilities
        self._loop.on_damaged(
            leader.request,
            located_damage_error(
                error, leader.request.partition, str(leader.address), capabilities
            ),
        )

    def _report_lost(self, leader: AskedLeader, error: ConnectionLost) -> None:
        self._loop.on_lost(leader.address, f"{error.what}: {error.why}")
