"""The thread that fetches ahead: carries out the loop's steps and hands raw pieces over in order.

It determines where a response ends, sends the next request at once, and only then hands the
response over, so that the broker works while the consumer decodes. The number of bytes that are
fetched but not yet decoded is limited. Errors are raised where the pieces are consumed.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from rangeland.clock import monotonic_ms
from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.failures import ConnectionLost, ResponseTimedOut
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchOptions, FetchResult
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import Unreachable
from rangeland.fetch.backoff import Throttle, limits_at_rate
from rangeland.fetch.fetch_loop import FetchLoop
from rangeland.fetch.fetch_size import FetchLimits, limits_within
from rangeland.fetch.fetch_steps import AllRead, AskLogRange, FindLeaders, SendFetch, WaitUntil
from rangeland.fetch.fetched_pieces import EntryEnd, FetchedPiece, Piece
from rangeland.fetch.leader_judgement import FoundLeaders, proved_end
from rangeland.fetch.leader_lookup import MAX_WAIT_MS, AskedBroker, look_up_leaders
from rangeland.fetch.log_lines import log_all
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.response_reader import ResponseReader
from rangeland.fetch.slice_state import Fail, SliceRequest
from rangeland.model import Address, Earliest, Latest, Slice

PREFETCH_BYTES = 48 << 20
"""Enough to keep the decoder busy while waiting for responses, and a small part of a task's
memory."""


class FetchThread:
    """Fetches the slices of one task ahead of their decoding. Start it, consume its pieces, and
    stop it."""

    def __init__(
        self,
        slices: Sequence[Slice],
        settings: ReadSettings,
        limits: FetchLimits,
        *,
        leader_only: bool = False,
        floors: Mapping[int, EntryEnd] | None = None,
        brokers: ConnectionPool | None = None,
    ) -> None:
        """``floors``: where earlier reading of slices ended, by index. ``brokers``: the connections
        to use, by default a new pool; they are closed at the end in either case."""
        self.brokers = brokers or ConnectionPool(settings.cluster)
        self._settings = settings
        limits = limits_within(limits, settings.cluster.max_answer_bytes)
        limits = limits_at_rate(limits, settings.rates)
        self._options = FetchOptions(
            settings.isolation,
            MAX_WAIT_MS,
            limits.request_bytes,
            rack=settings.cluster.rack,
            tags=settings.tags,
        )
        capabilities = self.brokers.dialect.capabilities
        # If only the leader may be read, metadata has to name it.
        if capabilities.numbered_per_broker and not leader_only:
            slices = _with_present_leaders(slices, settings.cluster)
        throttle = Throttle(dict(settings.rates))
        self._loop = FetchLoop(
            slices, limits, settings.policy, monotonic_ms(), capabilities, throttle, leader_only
        )
        self._responses = ResponseReader(self.brokers, self._loop, settings, floors or {})
        self._pieces: queue.SimpleQueue[Piece | BaseException | None] = queue.SimpleQueue()
        self._budget = PrefetchBudget(PREFETCH_BYTES)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rangeland-fetch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread: the caller has all pieces, or has failed."""
        self._stopped.set()
        self._budget.close()
        self.brokers.close()
        self._thread.join()

    def pieces(self) -> Iterator[Piece]:
        while True:
            item = self._pieces.get()
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item
            if isinstance(item, FetchedPiece):
                self._budget.give_back(len(item.records))

    def _run(self) -> None:
        try:
            self._carry_out_steps()
            self._pieces.put(None)
        except BaseException as error:  # raised again in the consumer's thread
            self._pieces.put(error)
        finally:
            log_all(self._loop.take_unlogged())

    def _carry_out_steps(self) -> None:
        pending: SendFetch | Fail | None = None
        while not self._stopped.is_set():
            step = pending or self._loop.next(monotonic_ms())
            log_all(self._loop.take_unlogged())
            if isinstance(step, Fail):
                raise step.error
            self._hand_over_losses()
            match step:
                case AllRead():
                    return
                case WaitUntil(at_ms):
                    self._stopped.wait(max(0, at_ms - monotonic_ms()) / 1000)
                case FindLeaders():
                    self._find(step)
                case AskLogRange(address, request):
                    self._measure(address, request)
                case SendFetch():
                    pending = self._fetch(step, is_sent=step is pending)
                case _:
                    assert_never(step)

    def _hand_over_losses(self) -> None:
        for lost in self._loop.take_losses():
            self._pieces.put(lost)

    # --- records ----------------------------------------------------------------------

    def _fetch(self, step: SendFetch, *, is_sent: bool) -> SendFetch | Fail | None:
        """Handles one response. Returns the next request, which is sent before the pieces of this
        response are handed over. If the response ends the run, no piece of it is handed over."""
        try:
            response = self._result(step, is_sent)
        except ConnectionLost as error:
            if not self._stopped.is_set():
                is_slow = isinstance(error, ResponseTimedOut)
                self._loop.on_lost(step.address, f"{error.what}: {error.why}", is_slow=is_slow)
            return None
        size = sum(len(fetched.records) for fetched in response.partitions)
        self._loop.on_response(step.address, size, response.throttle_ms, monotonic_ms())
        if response.meaning is not ErrorMeaning.OK:
            for request in step.requests:
                self._loop.on_error(request, response.meaning, response.code_name)
            return None
        fetched = {result.partition: result for result in response.partitions}
        throttled = response.throttle_ms > 0
        pieces = [
            self._responses.read(
                step.address, request, fetched.get(request.partition), throttled=throttled
            )
            for request in step.requests
            if self._loop.is_reading(request)
        ]
        pending = self._send_ahead()
        if isinstance(pending, Fail):
            return pending
        for piece in pieces:
            if piece is None:
                continue
            if not self._budget.take(len(piece.records)):
                return None
            self._pieces.put(piece)
        return pending

    def _broker_requests(self, step: SendFetch) -> list[BrokerRequest]:
        options = replace(self._options, rack="") if step.stays else self._options
        return self.brokers.dialect.records_requests(step.requests, options)

    def _result(self, step: SendFetch, is_sent: bool) -> FetchResult:
        requests = self._broker_requests(step)
        receive = self.brokers.receive_or_call_again if is_sent else self.brokers.call_all
        responses = receive(step.address, requests)
        isolation = self._settings.isolation
        return self.brokers.dialect.read_records(responses, step.requests, isolation)

    def _send_ahead(self) -> SendFetch | Fail | None:
        """Sends the next fetch if the loop has one now; its response is received later. If the next
        step ends the run, returns that step."""
        step = self._loop.next(monotonic_ms())
        if isinstance(step, Fail):
            return step
        if not isinstance(step, SendFetch):
            return None
        try:
            self.brokers.send_all(step.address, self._broker_requests(step))
        except ConnectionLost:
            self.brokers.drop(step.address)
            return None
        return step

    # --- leaders ----------------------------------------------------------------------

    def _find(self, step: FindLeaders) -> None:
        try:
            found = look_up_leaders(self.brokers, step)
        except Unreachable as error:
            reasons = dict.fromkeys(step.partitions, f"{error.what}: {error.why}")
            found = FoundLeaders(unreachable=reasons)
        self._loop.on_leaders(found)

    def _measure(self, address: Address, request: SliceRequest) -> None:
        """Asks a broker for the readable range of its log, and for the end of the log itself."""
        broker = AskedBroker(self.brokers, address, request)
        leader = self._loop.leader_of(request)
        try:
            start = broker.log_edge(Earliest())
            end = broker.log_edge(Latest())
            epoch_end = broker.epoch_end(leader)
        except ConnectionLost as error:
            self._loop.on_lost(address, f"{error.what}: {error.why}" if error.why else error.what)
            return
        has_epochs = self.brokers.dialect.capabilities.has_epochs
        written_end = proved_end(leader, end, epoch_end, has_epochs=has_epochs)
        self._loop.on_log_range(request, start, end, written_end)


def _with_present_leaders(slices: Sequence[Slice], cluster: ClusterSettings) -> Sequence[Slice]:
    """The slices with the current addresses of their brokers, if brokers have names: another broker
    at the old address would answer with other records."""
    named = {name: address for name, address in cluster.named_brokers if name != str(address)}
    return [replace(s, leader=named.get(s.partition.broker)) for s in slices] if named else slices


class PrefetchBudget:
    """A bound on bytes that are fetched and not yet decoded. One piece always fits."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held = 0
        self._changed = threading.Condition()
        self._closed = False

    def take(self, size: int) -> bool:
        """Waits until there is room. False once closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._held == 0 or self._held + size <= self._limit
            )
            self._held += size
            return not self._closed

    def give_back(self, size: int) -> None:
        with self._changed:
            self._held -= size
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
