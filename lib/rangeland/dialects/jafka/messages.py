"""Jafka's messages: requests as declarations, responses as values that refer to their request.

A request is ``int32 size | int16 key | body``, a response ``int32 size | int16 error | body``.
There are no versions, correlation ids or client ids: responses arrive on a connection in the order
of the requests, and only the request says what a response is about.

Lists have an int16 count or none at all, which no type in ``wire`` supports, so those few bytes are
read and written here. Whatever the bytes are, reading returns a value or raises
RemoteProtocolError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rangeland.errors import LocalProtocolError, RemoteProtocolError
from rangeland.wire.codec_errors import BAD_LENGTH, LEFT_OVER, decode_error, take
from rangeland.wire.declarations import (
    Array,
    Int32,
    Int64,
    Records,
    String,
    message,
    since,
    spec_of,
)
from rangeland.wire.encoding import decode_from, encode
from rangeland.wire.fixed_layouts import I8, I16, I32, U32, StructLayout
from rangeland.wire.primitives import Buffer

LATEST_TIME: Final = -1
EARLIEST_TIME: Final = -2
MAX_FETCHES: Final = 2**15 - 1
MULTI_FETCH_KEY: Final = 2


class RequestHeader(NamedTuple):
    """The header before the body of every request."""

    key: I16


class ResponseHeader(NamedTuple):
    """The header before the body of every response."""

    error_code: I16


class SingleHeader(NamedTuple):
    """The header before each response within a multi-fetch. ``size`` counts the bytes after it."""

    size: I32
    error_code: I16


class EntryHeader(NamedTuple):
    """The beginning of every entry of a log. ``length`` counts the bytes after it; ``crc`` is the
    CRC-32 of the payload only."""

    length: I32
    magic: I8
    attributes: I8
    crc: U32


REQUEST_HEADER = StructLayout(RequestHeader)
RESPONSE_HEADER = StructLayout(ResponseHeader)
SINGLE_HEADER = StructLayout(SingleHeader)
ENTRY_HEADER = StructLayout(EntryHeader)
_SIZE_BYTES: Final = SINGLE_HEADER.byte_index_of("error_code")


# --- requests ---------------------------------------------------------------------------


@message(key=0, versions=(0, 0))
class ProduceRequest:
    """There is no response. ``partition`` -1: the broker chooses one."""

    topic: String
    partition: Int32
    messages: Records


@message(key=1, versions=(0, 0))
class FetchRequest:
    topic: String
    partition: Int32
    offset: Int64
    max_bytes: Int32


@dataclass(frozen=True, slots=True)
class MultiFetchRequest:
    """Several fetches in one request, at most ``MAX_FETCHES``."""

    fetches: tuple[FetchRequest, ...]


@message(key=4, versions=(0, 0))
class OffsetsRequest:
    """``time_ms`` may be ``LATEST_TIME`` or ``EARLIEST_TIME``. ``broker`` is the name of the broker
    to ask; it is not sent."""

    topic: String
    partition: Int32
    time_ms: Int64
    max_count: Int32
    broker: String = since(1, default="", ignorable=True)


Request = ProduceRequest | FetchRequest | MultiFetchRequest | OffsetsRequest


def encode_request(request: Request) -> list[Buffer]:
    """The key and body of a request. Raises LocalProtocolError for a request that cannot be
    sent."""
    if not isinstance(request, MultiFetchRequest):
        return [REQUEST_HEADER.write(RequestHeader(spec_of(type(request)).key)), encode(request, 0)]
    count = len(request.fetches)
    if count > MAX_FETCHES:
        raise LocalProtocolError(
            f"a request of {count} fetches cannot be sent",
            why=f"at most {MAX_FETCHES} fit in a request",
            fetches=count,
        )
    head = REQUEST_HEADER.write(RequestHeader(MULTI_FETCH_KEY)) + count.to_bytes(2, "big")
    return [head, *(encode(fetch, 0) for fetch in request.fetches)]


# --- responses --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """``records`` are entries as stored in the log; the last may be incomplete."""

    request: FetchRequest
    error_code: int
    records: memoryview


@dataclass(frozen=True, slots=True)
class MultiFetchResponse:
    """``error_code`` is always 0: each of the responses has a code of its own."""

    error_code: int
    responses: tuple[FetchResponse, ...]


@dataclass(frozen=True, slots=True)
class OffsetsResponse:
    """``offsets`` are segment starts, newest first; for ``LATEST_TIME`` the log's end comes before
    them."""

    request: OffsetsRequest
    error_code: int
    offsets: tuple[int, ...]


Response = FetchResponse | MultiFetchResponse | OffsetsResponse


@message(key=4, versions=(0, 0))
class _OffsetList:
    offsets: Array[Int64]


def read_response(request: Request, buffer: memoryview, offset: int = 0) -> tuple[Response, int]:
    """The response to ``request`` that begins at ``offset``, and where it ends. The response to a
    plain fetch extends to the end of the buffer."""
    try:
        return _READERS[type(request)](request, buffer, offset)
    except RemoteProtocolError as error:
        name = type(request).__name__.replace("Request", "Response")
        named_error = error.with_words(
            what=f"{name} cannot be read",
            why=error.why or error.what,
            do="check that the peer is a broker of this dialect",
        )
        raise named_error.with_facts(message=name) from error


def read_whole(request: Request, buffer: memoryview) -> Response:
    """The response that fills ``buffer``; trailing bytes are an error."""
    value, end = read_response(request, buffer)
    if end == len(buffer):
        return value
    why = f"{len(buffer) - end} bytes are left over at byte {end} of {len(buffer)}"
    raise decode_error(LEFT_OVER, why, buffer, end)


def _read_error_code(buffer: memoryview, offset: int) -> tuple[int, int]:
    end = take(buffer, offset, RESPONSE_HEADER.size)
    return RESPONSE_HEADER.read(buffer, offset).error_code, end


def _read_fetch(
    request: FetchRequest, buffer: memoryview, offset: int
) -> tuple[FetchResponse, int]:
    error_code, start = _read_error_code(buffer, offset)
    return FetchResponse(request, error_code, buffer[start:]), len(buffer)


def _read_multi_fetch(
    request: MultiFetchRequest, buffer: memoryview, offset: int
) -> tuple[MultiFetchResponse, int]:
    """The response to each of the fetches; each has its own length and error code."""
    error_code, byte_index = _read_error_code(buffer, offset)
    responses = []
    for fetch in request.fetches:
        start = take(buffer, byte_index, SINGLE_HEADER.size)
        header = SINGLE_HEADER.read(buffer, byte_index)
        if header.size < SINGLE_HEADER.size - _SIZE_BYTES:
            raise decode_error(
                BAD_LENGTH, f"a response of length {header.size}", buffer, byte_index
            )
        byte_index = take(buffer, byte_index + _SIZE_BYTES, header.size)
        responses.append(FetchResponse(fetch, header.error_code, buffer[start:byte_index]))
    return MultiFetchResponse(error_code, tuple(responses)), byte_index


def _read_offsets(
    request: OffsetsRequest, buffer: memoryview, offset: int
) -> tuple[OffsetsResponse, int]:
    error_code, start = _read_error_code(buffer, offset)
    body, end = decode_from(_OffsetList, 0, buffer, start)
    return OffsetsResponse(request, error_code, body.offsets), end


_READERS: Final[dict[type[Any], Callable[[Any, memoryview, int], tuple[Response, int]]]] = {
    FetchRequest: _read_fetch,
    MultiFetchRequest: _read_multi_fetch,
    OffsetsRequest: _read_offsets,
}
