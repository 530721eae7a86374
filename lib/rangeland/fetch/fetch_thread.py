"""The thread that fetches ahead: carries out the loop's steps and hands raw pieces over in order.

It determines where an answer ends, sends the next request at once, and only then hands the answer
over, so the broker works while the consumer decodes. The bytes that are fetched and not yet decoded
are limited. Errors are raised where the pieces are consumed.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.connection.failures import ConnectionLost, NoAnswer
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import (
    FetchAnswer,
    FetchContext,
    FetchedPartition,
    FetchOptions,
    PartitionFetch,
    UnconfirmedGap,
)
from rangeland.dialects.protocol_session import Question
from rangeland.errors import BadRecord, Unreachable
from rangeland.fetch.damage_policy import located, passable_until
from rangeland.fetch.fetch_loop import FetchLoop
from rangeland.fetch.fetched_piece import EntryEnd, FetchedPiece, MemoryBudget
from rangeland.fetch.leader_lookup import look_up_leaders
from rangeland.fetch.log_edges import (
    MAX_WAIT_MS,
    confirmed_until,
    is_inside_entry,
    is_still_damaged,
    log_edge,
    log_end,
)
from rangeland.fetch.loop_actions import (
    AllRead,
    FetchLimits,
    FetchTarget,
    FindLeaders,
    SendFetch,
    SendLogRange,
    WaitUntil,
)
from rangeland.fetch.throttle import Throttle, slowed
from rangeland.model import Address, Earliest, Latest, Slice
from rangeland.planning.policy import Action, LossKind

logger = logging.getLogger(__name__)

PREFETCH_BYTES = 48 << 20


class FetchThread:
    """See the head of this file. Start it, consume its pieces, and stop it."""

    def __init__(
        self,
        slices: Sequence[Slice],
        settings: ClusterSettings,
        limits: FetchLimits,
        *,
        leader_only: bool = False,
        floors: Mapping[int, EntryEnd] | None = None,
    ) -> None:
        """``floors``: up to where slices have been read already, by index."""
        self.brokers = ConnectionPool(settings)
        self._settings = settings
        self._slices = {s.index: s for s in slices}
        limits = slowed(limits, settings.rates)
        self._options = FetchOptions(
            settings.isolation,
            MAX_WAIT_MS,
            limits.request_bytes,
            rack=settings.rack,
            tags=settings.tags,
        )
        self._floors = dict(floors or {})
        self._cut: dict[int, tuple[int, str]] = {}  # by slice: where damage was cut off, and why
        self._members = (
            _named(settings) if self.brokers.dialect.capabilities.numbered_per_broker else {}
        )
        located_slices = [self._with_leader(s) for s in slices]
        capabilities = self.brokers.dialect.capabilities
        throttle = Throttle(dict(settings.rates))
        self._loop = FetchLoop(
            located_slices, limits, settings.policy, _now_ms(), capabilities, throttle, leader_only
        )
        self._pieces: queue.SimpleQueue[FetchedPiece | BaseException | None] = queue.SimpleQueue()
        self._budget = MemoryBudget(PREFETCH_BYTES)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rangeland-fetch", daemon=True)

    def _with_leader(self, piece: Slice) -> Slice:
        """Where brokers number their own partitions, the slice with the present address of its
        broker: another broker at its old address would answer with other records."""
        if not self._members:
            return piece
        return replace(piece, leader=self._members.get(piece.partition.broker))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread: the caller has everything, or has failed."""
        self._stopped.set()
        self._budget.close()
        self.brokers.close()
        self._thread.join()

    def pieces(self) -> Iterator[FetchedPiece]:
        while True:
            item = self._pieces.get()
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item
            self._budget.give_back(len(item.records))

    def _run(self) -> None:
        try:
            self._work()
            self._pieces.put(None)
        except BaseException as error:  # raised again in the consumer's thread
            self._pieces.put(error)

    def _work(self) -> None:
        sent: SendFetch | None = None
        while not self._stopped.is_set():
            step = sent if sent is not None else self._loop.next(_now_ms())
            self._hand_over_losses()
            match step:
                case AllRead():
                    return
                case WaitUntil(at_ms):
                    self._stopped.wait(max(0, at_ms - _now_ms()) / 1000)
                case FindLeaders():
                    self._find(step)
                case SendLogRange(leader, want):
                    self._measure(leader, want)
                case SendFetch():
                    sent = self._fetch(step, is_sent=step is sent)

    def _hand_over_losses(self) -> None:
        for index, loss in self._loop.gone:
            self._pieces.put(FetchedPiece(index, loss.from_offset, loss.until_offset, loss=loss))
        self._loop.gone.clear()

    # --- records ----------------------------------------------------------------------

    def _fetch(self, ask: SendFetch, *, is_sent: bool) -> SendFetch | None:
        """Takes one answer. Returns the next request, sent before the answer is handed over."""
        asked = self._asked(ask)
        try:
            answer = self._answer(ask, asked, is_sent)
        except ConnectionLost as error:
            if not self._stopped.is_set():
                is_slow = isinstance(error, NoAnswer)
                self._loop.on_lost(ask.leader, f"{error.what}: {error.why}", is_slow=is_slow)
            return None
        size = sum(len(part.records) for part in answer.parts)
        self._loop.on_answer(ask.leader, size, answer.throttle_ms, _now_ms())
        if answer.verdict is not ErrorMeaning.OK:
            for want in ask.wants:
                self._loop.on_verdict(want, answer.verdict, answer.code)
            return None
        parts = {part.partition: part for part in answer.parts}
        throttled = answer.throttle_ms > 0
        taken = [
            self._take(ask.leader, want, parts.get(want.partition), throttled) for want in ask.wants
        ]
        sent = self._send_ahead()
        for piece in taken:
            if piece is None:
                continue
            if not self._budget.take(len(piece.records)):
                return None
            self._pieces.put(piece)
        return sent

    def _asked(self, ask: SendFetch) -> list[PartitionFetch]:
        return [
            PartitionFetch(
                w.partition,
                w.topic_id,
                w.epoch,
                w.offset,
                w.max_bytes,
                self._until(w),
            )
            for w in ask.wants
        ]

    def _questions(self, ask: SendFetch, asked: list[PartitionFetch]) -> list[Question]:
        options = replace(self._options, rack="") if ask.stays else self._options
        return self.brokers.dialect.ask_records(asked, options)

    def _answer(self, ask: SendFetch, asked: list[PartitionFetch], is_sent: bool) -> FetchAnswer:
        leader = ask.leader
        questions = self._questions(ask, asked)
        if is_sent:
            try:
                answers = self.brokers.receive_all(leader, questions)
            except ConnectionLost as error:
                # As in SimpleConsumer, the same request once more on a new connection.
                logger.info("Reconnecting to %s: %s", leader, error.why)
                self.brokers.drop(leader)
                answers = self.brokers.call_all(leader, questions)
        else:
            answers = self.brokers.call_all(leader, questions)
        return self.brokers.dialect.read_records(answers, asked, self._settings.isolation)

    def _send_ahead(self) -> SendFetch | None:
        """Sends the next fetch if the loop has one now; its answer is received later."""
        step = self._loop.next(_now_ms())
        if not isinstance(step, SendFetch):
            return None
        try:
            self.brokers.send_all(step.leader, self._questions(step, self._asked(step)))
        except ConnectionLost:
            self.brokers.drop(step.leader)
            return None
        return step

    def _take(
        self, leader: Address, want: FetchTarget, part: FetchedPartition | None, throttled: bool
    ) -> FetchedPiece | None:
        """Reports to the loop what came for one slice. Returns what there is to decode."""
        if part is None or (part.verdict is ErrorMeaning.OK and part.is_empty):
            if part is None or not self._moves_on(want, part):
                end = part.readable_end if part is not None else -1
                self._loop.on_empty(want, end, throttled)
            return None
        if part.verdict is not ErrorMeaning.OK:
            self._loop.on_verdict(want, part.verdict, part.code, part.leader_hint)
            return None
        most = self._settings.max_batch_bytes
        known = replace(part.context, floor=self._floor(leader, want), asked_at=want.offset)
        context = replace(known, max_batch_bytes=most)
        found = self._readable(leader, want, part, context)
        if found is None:
            return None
        next_offset, is_damaged = found
        is_doubtful = self._loop.is_doubtful(want)
        if not self._advanced(leader, want, next_offset, is_damaged):
            return None
        self._moves_on(want, part)
        return FetchedPiece(
            want.index,
            want.offset,
            min(next_offset, self._until(want)),
            part.records,
            part.aborted,
            str(leader),
            context=context,
            is_doubtful=is_doubtful,
            epoch=want.epoch,
        )

    def _readable(
        self, leader: Address, want: FetchTarget, part: FetchedPartition, context: FetchContext
    ) -> tuple[int, bool] | None:
        """How far an answer can be decoded, and whether it is damaged. None if it cannot be; the
        loop knows why."""
        dialect = self.brokers.dialect
        try:
            next_offset = dialect.next_offset(part.records, want.offset, context)
        except BadRecord as error:
            until = self._passable(leader, want, error, context)
            # Damaged bytes do not prove where they end: decoding decides.
            return None if until is None else (min(until, self._until(want)), True)
        if next_offset is None:
            self._loop.on_too_small(want)
            return None
        if self._is_left_out(leader, want, part):
            return None
        if 0 <= part.readable_end < next_offset:
            next_offset = self._confirmed_end(leader, want, part, next_offset)
        elif gap := dialect.unconfirmed_gap(part.records, want.offset, context):
            next_offset = self._confirmed_gap(leader, want, gap)
        return None if next_offset is None else (next_offset, False)

    def _passable(
        self, leader: Address, want: FetchTarget, error: BadRecord, context: FetchContext
    ) -> int | None:
        # Where a broker accounts for the offsets itself, that account is what they contradict.
        if context.floor and not context.spans and self._is_replaced(leader, want):
            return None
        is_replica = self._loop.states[want.index].server.may_be_replica
        until = passable_until(error, want.offset, is_replica=is_replica)
        if until is None:
            self._damaged(want, error, leader)
        elif error.damage is not None and error.damage.next_offset is None and not is_replica:
            self._cut[want.index] = (until, error.why)
        return until

    def _is_left_out(self, leader: Address, want: FetchTarget, part: FetchedPartition) -> bool:
        """Whether damaged bytes were cut off at the offset that was asked for, and now the broker
        leaves them out: by the offset stored in them they are elsewhere. What they held is
        not compacted. Reports it."""
        offset, why = self._cut.get(want.index, (-1, ""))
        if offset != want.offset:
            return False
        first = self.brokers.dialect.first_offset(part.records, offset)
        if first <= offset:
            return False
        try:
            if not is_still_damaged(self.brokers, leader, want):
                return False
        except ConnectionLost as error:
            self._loop.on_lost(leader, f"{error.what}: {error.why}")
            return True
        policy = self._settings.policy.of(LossKind.CORRUPT, want.partition.topic)
        # Bytes that the broker no longer returns cannot be put into quarantine.
        facts: dict[str, Any] = {} if policy is Action.QUARANTINE else {"next_offset": first}
        what = f"the batch at offset {offset} cannot be decoded"
        self._damaged(want, BadRecord(what, why=why, base_offset=offset, **facts), leader)
        return True

    def _until(self, want: FetchTarget) -> int:
        return self._slices[want.index].until_offset

    def _advanced(
        self, leader: Address, want: FetchTarget, next_offset: int, is_damaged: bool
    ) -> bool:
        if not self._loop.on_records(want, next_offset):
            return False
        if not is_damaged:
            self._floors[want.index] = EntryEnd(next_offset, str(leader), want.epoch)
        return True

    def _floor(self, leader: Address, want: FetchTarget) -> int:
        """The offset, if an entry ended there: then the next one begins there or later. Where a
        slice begins in the middle of a batch, that batch begins before it."""
        known = self._floors.get(want.index)
        if known is None or known.offset != want.offset:
            return 0
        return want.offset if known.is_seen_by(str(leader), want.epoch) else 0

    def _is_replaced(self, leader: Address, want: FetchTarget) -> bool:
        """After records that contradict those before them: whether the broker has replaced the end
        of its log since, so that nothing is damaged; or the connection broke. Reports either."""
        try:
            if not is_inside_entry(self.brokers, leader, want, want.offset):
                return False
        except ConnectionLost as error:
            self._loop.on_lost(leader, f"{error.what}: {error.why}")
            return True
        self._loop.on_replaced(want)
        return True

    def _moves_on(self, want: FetchTarget, part: FetchedPartition) -> bool:
        named = part.preferred
        return named is not None and self._loop.on_preferred(want.index, named)

    def _confirmed_end(
        self, leader: Address, want: FetchTarget, part: FetchedPartition, next_offset: int
    ) -> int | None:
        """How far to read if records end after the readable end: a broker determines that end
        before it reads, so the log may have grown; or the offset stored in the last of them is
        damaged. What comes before it is taken."""
        dialect, end = self.brokers.dialect, part.readable_end
        context = replace(part.context, floor=self._floor(leader, want))
        within = dialect.cut_out(part.records, want.offset, want.offset, end, context)
        known = FetchContext(floor=context.floor)
        before = dialect.next_offset(within, want.offset, known) if len(within) else None
        if before is not None and want.offset < before <= end:
            return before
        try:
            latest = log_edge(self.brokers, leader, want, Latest(), self._settings.isolation)
        except ConnectionLost:
            self._loop.on_empty(want, -1, throttled=False)
            return None
        if next_offset <= latest:
            return next_offset
        error = BadRecord(
            f"the batch at offset {want.offset} cannot be decoded",
            why=f"it ends at offset {next_offset}, and the log ends at {latest}",
        )
        self._damaged(want, error, leader)
        return None

    def _confirmed_gap(self, leader: Address, want: FetchTarget, gap: UnconfirmedGap) -> int | None:
        try:
            until = confirmed_until(self.brokers, leader, want, gap)
        except BadRecord as error:
            self._damaged(want, error, leader)
            return None
        except ConnectionLost as error:
            self._loop.on_lost(leader, f"{error.what}: {error.why}")
            return None
        if until is None:
            self._loop.on_empty(want, -1, throttled=False)
        return until

    def _damaged(self, want: FetchTarget, error: BadRecord, leader: Address) -> None:
        capabilities = self.brokers.dialect.capabilities
        self._loop.on_damaged(want, located(error, want.partition, str(leader), capabilities))

    # --- leaders ----------------------------------------------------------------------

    def _find(self, step: FindLeaders) -> None:
        try:
            found = look_up_leaders(self.brokers, step.partitions, step.seeds, self._members)
        except Unreachable as error:
            away = dict.fromkeys(step.partitions, f"{error.what}: {error.why}")
            self._loop.on_leaders({}, away=away)
            return
        self._loop.on_leaders(found.leaders, found.unknown, found.away)

    def _measure(self, address: Address, want: FetchTarget) -> None:
        """Asks the leader for the readable range of its log, and where the log itself ends."""
        leader = self._loop.states[want.index].server.leader
        try:
            start = log_edge(self.brokers, address, want, Earliest())
            end = log_edge(self.brokers, address, want, Latest())
            written_end = log_end(self.brokers, address, want, leader, end)
        except ConnectionLost as error:
            self._loop.on_lost(address, f"{error.what}: {error.why}" if error.why else error.what)
            return
        self._loop.on_log_range(want, start, end, written_end)


def _named(settings: ClusterSettings) -> dict[str, Address]:
    """The brokers by name, if they have names of their own."""
    return {name: at for name, at in settings.members if name != str(at)}


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
