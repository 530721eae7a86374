"""RocketMQ's frames: a header with named fields, and a body of bytes.

After the length, which all dialects have, a frame is ``uint8 kind, uint24 header length | header |
body``. The header is JSON or a binary layout; servers send either. The values of all fields are
text. Requests are sent with the binary header, which is smaller and faster.

Whatever the bytes are, reading returns a value or raises RemoteProtocolError. What the fields mean
is defined in ``messages``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from rangeland.errors import LocalProtocolError
from rangeland.untrusted import MAX_INT32, JsonFields, Unreadable
from rangeland.wire.codec_errors import (
    BAD_LENGTH,
    BAD_TEXT,
    decode_error,
    negative_length_error,
    take,
)
from rangeland.wire.primitives import Buffer

JSON_HEADER: Final = 0
BINARY_HEADER: Final = 1
RESPONSE: Final = 1
ONE_WAY: Final = 2
PYTHON: Final = 3
"""The number of our language, which servers only display."""

ENTRIES: Final = 4096
"""How many encoded fields are cached: in thousands of pulls, most fields are the same."""

MAX_HEADER_BYTES: Final = (1 << 24) - 1
_PREFIX: Final = struct.Struct(">I")
_FIXED: Final = struct.Struct(">hbhii")
_SIMILAR: Final = struct.Struct(">IIhbhiiii")
"""Length of the frame, kind and length of the header, the fixed part, no remark, length of the
fields."""
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")


NONE: Final[Mapping[str, str]] = MappingProxyType({})


class Frame(NamedTuple):
    """One frame of the remoting protocol. ``code`` is the kind of a request, or the result in a
    response. ``opaque`` is the number of the request, which its response repeats. ``remark`` is the
    server's text about the result."""

    code: int
    opaque: int
    flag: int = 0
    remark: str = ""
    fields: Mapping[str, str] = NONE
    body: Buffer = b""

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE)


def write_frame(frame: Frame) -> list[Buffer]:
    """A frame without the length before it. Raises LocalProtocolError for a frame that cannot be
    sent."""
    fields = b"".join(_entry(key, value) for key, value in frame.fields.items())
    remark = frame.remark.encode()
    header = b"".join(
        (
            _FIXED.pack(frame.code, PYTHON, 0, frame.opaque, frame.flag),
            _INT.pack(len(remark)),
            remark,
            _INT.pack(len(fields)),
            fields,
        )
    )
    if len(header) > MAX_HEADER_BYTES:
        raise LocalProtocolError(
            f"a header of {len(header)} bytes cannot be sent",
            why=f"at most {MAX_HEADER_BYTES} bytes fit",
        )
    return [_PREFIX.pack(BINARY_HEADER << 24 | len(header)), header, frame.body]


class SimilarHeaders:
    """Headers of requests that differ only in a few numbers: the rest is encoded once."""

    def __init__(self, code: int, fields: Mapping[str, str], numbers: Sequence[str]) -> None:
        self._code = code
        self._shared = b"".join(_entry(key, value) for key, value in fields.items())
        self._names = [_SHORT.pack(len(name)) + name.encode() for name in numbers]

    def write(self, opaque: int, *numbers: int) -> bytes:
        """A frame as ``write_frame`` writes it, preceded by its length."""
        fields = self._shared
        for name, number in zip(self._names, numbers, strict=True):
            text = b"%d" % number
            fields += name + _INT.pack(len(text)) + text
        size = _SIMILAR.size - 2 * _PREFIX.size + len(fields)
        lengths = (_PREFIX.size + size, BINARY_HEADER << 24 | size)
        numbers = (self._code, PYTHON, 0, opaque, 0, 0, len(fields))
        return _SIMILAR.pack(*lengths, *numbers) + fields


@lru_cache(ENTRIES)
def _entry(key: str, value: str) -> bytes:
    name = key.encode()
    text = value.encode()
    return b"".join((_SHORT.pack(len(name)), name, _INT.pack(len(text)), text))


class HeaderReader:
    """Reads the frames of one connection, most of which are like the previous one."""

    def __init__(self) -> None:
        self._template = HeaderTemplate()
        self._last: Frame | None = None

    def read(self, buffer: memoryview) -> Frame:
        """Reads one frame, as ``read_frame`` does."""
        end = 0
        if self._last is not None and len(buffer) >= _PREFIX.size:
            (word,) = _PREFIX.unpack_from(buffer)
            end = _PREFIX.size + word  # kind 0 is JSON; any other kind leads past the buffer
            if end <= len(buffer) and (match := self._template.match(buffer, _PREFIX.size, end)):
                last = self._last
                return Frame(last.code, match[0], last.flag, last.remark, match[1], buffer[end:])
        frame = read_frame(buffer)
        header = bytes(buffer[_PREFIX.size : len(buffer) - len(frame.body)])
        self._template.learn(header, frame.fields)
        self._last = frame._replace(body=b"")
        return frame


def read_frame(buffer: memoryview) -> Frame:
    """A whole frame, without the length before it; the body is a slice of ``buffer``."""
    start = take(buffer, 0, _PREFIX.size)
    (word,) = _PREFIX.unpack_from(buffer)
    kind = word >> 24
    end = take(buffer, start, word & MAX_HEADER_BYTES)
    if kind == JSON_HEADER:
        return _read_json(buffer, start, end)
    if kind == BINARY_HEADER:
        return _read_binary(buffer, start, end)
    raise decode_error(BAD_LENGTH, f"a header of the unknown kind {kind}", buffer, 0)


def _read_json(buffer: memoryview, start: int, end: int) -> Frame:
    """The frame with a JSON header at ``[start, end)``."""
    try:
        header = JsonFields.parse(buffer[start:end])
        fields = header.fields("extFields", {})
        return Frame(
            code=header.number("code", -MAX_INT32 - 1, MAX_INT32),
            opaque=header.number("opaque", -MAX_INT32 - 1, MAX_INT32),
            flag=header.number("flag", -MAX_INT32 - 1, MAX_INT32, default=0),
            remark=header.text("remark", ""),
            fields={key: fields.word(key) for key in fields if fields.get(key) is not None},
            body=buffer[end:],
        )
    except Unreadable as error:
        why = f"the JSON of a header is invalid: {error}"
        raise decode_error(BAD_TEXT, why, buffer, start) from None


def _read_binary(buffer: memoryview, start: int, end: int) -> Frame:
    """The frame with a binary header at ``[start, end)``."""
    inside = buffer[:end]
    byte_index = take(inside, start, _FIXED.size)
    code, _, _, opaque, flag = _FIXED.unpack_from(buffer, start)
    remark, byte_index = _text(inside, byte_index, _INT)
    fields_end = take(inside, byte_index, _INT.size)
    (size,) = _INT.unpack_from(inside, byte_index)
    if size < 0:
        raise negative_length_error(size, "fields", buffer, byte_index)
    byte_index = fields_end
    fields_end = take(inside, fields_end, size)
    fields: dict[str, str] = {}
    while byte_index < fields_end:
        key, byte_index = _text(inside[:fields_end], byte_index, _SHORT)
        fields[key], byte_index = _text(inside[:fields_end], byte_index, _INT)
    return Frame(code, opaque, flag, remark, fields, buffer[end:])


def _text(buffer: memoryview, offset: int, length: struct.Struct) -> tuple[str, int]:
    """The text that follows its length, and where it ends."""
    start = take(buffer, offset, length.size)
    (size,) = length.unpack_from(buffer, offset)
    if size < 0:
        raise negative_length_error(size, "text", buffer, offset)
    end = take(buffer, start, size)
    try:
        return str(buffer[start:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise decode_error(BAD_TEXT, f"text that is not UTF-8: {error}", buffer, start) from None


_NUMBERS: Final = re.compile(rb'"(opaque|nextBeginOffset|minOffset|maxOffset)":"?(\d+)')
_NUMBER: Final = rb"(0|[1-9]\d{0,17})"
_OPAQUE: Final = b"opaque"
_NAMES: Final = ["maxOffset", "minOffset", "nextBeginOffset", "opaque"]
_MAX_BYTES: Final = 1 << 10
"""Longer headers contain more than numbers."""


class HeaderTemplate:
    """A template for one connection's headers. Thousands of responses to pulls have headers that
    differ only in a few numbers. So a header that was parsed as JSON becomes a pattern, and headers
    that match the pattern are not parsed as JSON; this takes a third of the time and gives the same
    values."""

    def __init__(self) -> None:
        self._pattern: re.Pattern[bytes] | None = None
        self._names: list[str] = []
        self._fields: Mapping[str, str] = {}

    def match(self, buffer: memoryview, start: int, end: int) -> tuple[int, dict[str, str]] | None:
        """The opaque and the fields of a header that matches the pattern; None if it does not
        match."""
        if self._pattern is None:
            return None
        match = self._pattern.fullmatch(buffer, start, end)
        if match is None:
            return None
        numbers = dict(zip(self._names, map(bytes.decode, match.groups()), strict=True))
        return int(numbers.pop("opaque")), {**self._fields, **numbers}

    def learn(self, header: bytes, fields: Mapping[str, str]) -> None:
        """Creates the pattern. ``fields`` are those of ``header``, which is complete JSON."""
        matches = list(_NUMBERS.finditer(header))
        names = [match[1].decode() for match in matches]
        self._pattern = None
        are_fields = all(
            fields.get(p[1].decode()) == p[2].decode() for p in matches if p[1] != _OPAQUE
        )
        if len(header) > _MAX_BYTES or sorted(names) != _NAMES or not are_fields:
            return
        patterns = []
        end = 0
        for match in matches:
            patterns.append(re.escape(header[end : match.start(2)]))
            end = match.end(2)
        patterns.append(re.escape(header[end:]))
        self._names = names
        self._fields = fields
        self._pattern = re.compile(_NUMBER.join(patterns))
