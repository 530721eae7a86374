"""Reads one slice's part of a fetch response: asks the questions of ``response_judgement`` and
reports the result to the loop. Only bytes to decode are returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from rangeland.connection.failures import ConnectionLost
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition
from rangeland.fetch.fetch_loop import FetchLoop
from rangeland.fetch.fetched_pieces import EntryEnd, FetchedPiece
from rangeland.fetch.leader_lookup import MAX_WAIT_MS, AskedBroker
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.response_judgement import (
    AllDamaged,
    AskLogEnd,
    Inconclusive,
    Judgement,
    Overwritten,
    Question,
    RecordsQuestion,
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
from rangeland.model import Address, Latest


class ResponseReader:
    """Takes what can be decoded from responses, and reports everything else to ``loop``. It belongs
    to the thread that carries out the steps of that loop.

    ``floors``: where earlier reading of slices ended, by index.
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
        self._cut_why: dict[tuple[int, int], str] = {}
        """Why damaged records were cut off, by slice and offset."""

    def read(
        self,
        address: Address,
        request: SliceRequest,
        fetched: FetchedPartition | None,
        *,
        throttled: bool,
    ) -> FetchedPiece | None:
        """Reports to the loop what was received for one slice. Returns the bytes to decode, if
        any."""
        if fetched is None:
            self._loop.on_empty(request, None, throttled=throttled)
        elif fetched.meaning is not ErrorMeaning.OK:
            self._loop.on_error(request, fetched.meaning, fetched.code_name, fetched.leader_hint)
        elif fetched.is_empty:
            end, preferred = fetched.readable_end, fetched.preferred
            self._loop.on_empty(request, end, throttled=throttled, preferred=preferred)
        else:
            response = self._response(address, request, fetched)
            judgement = judge_response(response)
            while isinstance(judgement, Question):
                judgement = self._ask(response, judgement)
            if isinstance(judgement, Take):
                return self._take(response, judgement, fetched)
            self._report(response, judgement)
        return None

    def _response(
        self, address: Address, request: SliceRequest, fetched: FetchedPartition
    ) -> SliceResponse:
        records = replace(
            fetched.records,
            floor=floor_of(request, address, self._floors.get(request.index)),
            requested_offset=request.offset,
            max_batch_bytes=self._settings.cluster.max_batch_bytes,
        )
        return SliceResponse(
            self._brokers.dialect,
            address,
            request,
            records,
            fetched.readable_end,
            self._loop.sender_of(request),
            cut_why=self._cut_why.get((request.index, request.offset)),
        )

    def _ask(self, response: SliceResponse, question: Question) -> Judgement:
        """The judgement once the question has been asked."""
        broker = AskedBroker(self._brokers, response.address, response.request)
        try:
            match question:
                case AskLogEnd():
                    log_end = broker.log_edge(Latest(), self._settings.isolation)
                    return judge_log_end(response, question, log_end)
                case RecordsQuestion(offset, max_bytes):
                    wait_ms = MAX_WAIT_MS if question.waits else 0
                    answer = broker.fetch_at(offset, max_bytes, wait_ms)
                    return judge_records(response, question, answer)
        except ConnectionLost as error:
            return judge_silence(question, f"{error.what}: {error.why}")

    def _take(
        self, response: SliceResponse, take: Take, fetched: FetchedPartition
    ) -> FetchedPiece | None:
        request = response.request
        address = str(response.address)
        until_offset = take.until_offset
        if not self._loop.on_records(request, until_offset):
            return None
        if not take.is_damaged:
            self._floors[request.index] = EntryEnd(until_offset, address, request.epoch)
        if take.cut_why is not None:
            self._cut_why[request.index, until_offset] = take.cut_why
        if fetched.preferred is not None:
            self._loop.on_preferred(request, fetched.preferred)
        return FetchedPiece(
            request.index,
            response.records,
            min(until_offset, request.until_offset),
            address,
            response.sender,
            request.epoch,
        )

    def _report(
        self,
        response: SliceResponse,
        judgement: TooSmall | AllDamaged | Overwritten | Inconclusive | SenderUnreachable,
    ) -> None:
        request = response.request
        match judgement:
            case TooSmall():
                self._loop.on_too_small(request)
            case AllDamaged(error):
                self._loop.on_damaged(request, error)
            case Overwritten():
                self._loop.on_overwritten(request)
            case Inconclusive():
                self._loop.on_empty(request, None, throttled=False)
            case SenderUnreachable(why):
                self._loop.on_lost(response.address, why)
            case _:
                assert_never(judgement)
