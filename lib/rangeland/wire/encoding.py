"""Encodes and decodes any declared message in any of its versions.

``declarations`` has the types with which messages are declared, and ``codec_compiler`` compiles the
declarations into codecs. A field that a version lacks is read as its default. Writing any other
value in such a version is an error, unless the field is declared as ignorable.

For any bytes, ``decode`` returns a value or raises ``RemoteProtocolError`` with the facts
``message, version, field, offset, size, reason``. A value that cannot be sent raises
``LocalProtocolError``. This module knows no messages, no headers and no sockets.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from rangeland.errors import LocalProtocolError, RemoteProtocolError
from rangeland.wire.codec_compiler import compile_codec
from rangeland.wire.codec_errors import LEFT_OVER, UnreadableBytes, UnwritableValue, decode_error
from rangeland.wire.declarations import spec_of
from rangeland.wire.primitives import Buffer, FieldCodec

T = TypeVar("T")


def encode(message: Any, version: int) -> bytes:
    """The bytes of ``message`` in ``version``, without a header.

    Raises ``LocalProtocolError`` for a value that this version cannot represent."""
    return b"".join(encode_buffers(message, version))


def encode_buffers(message: Any, version: int) -> list[Buffer]:
    """The same as ``encode``, but in parts that are not joined."""
    cls = type(message)
    codec = codec_of(cls, version)
    buffers: list[Buffer] = []
    try:
        codec.write(message, buffers)
    except UnwritableValue as error:
        _name_local(error, cls, version)
    return buffers


def decode(cls: type[T], version: int, buffer: Buffer, offset: int = 0) -> T:
    """The value that ``buffer`` contains from ``offset`` on; trailing bytes are an error.

    Its ``Records`` are slices of ``buffer``; everything else is copied.
    """
    value, end = decode_from(cls, version, buffer, offset)
    if end != len(buffer):
        why = f"{len(buffer) - end} bytes are left over at byte {end} of {len(buffer)}"
        error = decode_error(LEFT_OVER, why, memoryview(buffer), end)
        _name_remote(error, cls, version)
    return value


def decode_from(cls: type[T], version: int, buffer: Buffer, offset: int = 0) -> tuple[T, int]:
    """The value at ``offset``, and where it ends; the bytes after it are ignored."""
    codec = codec_of(cls, version)
    try:
        value, end = codec.read(memoryview(buffer), offset)
    except UnreadableBytes as error:
        _name_remote(error, cls, version)
    return value, end


def codec_of(cls: type[Any], version: int) -> FieldCodec:
    """The codec of a message in one version. Raises ``LocalProtocolError`` if the version is not
    declared."""
    spec = spec_of(cls)
    low, high = spec.versions
    if not low <= version <= high:
        raise LocalProtocolError(
            f"{cls.__name__} version {version} is not declared",
            why=f"versions {low} to {high} are declared",
            message=cls.__name__,
            version=version,
        )
    return compile_codec(cls, version, spec.flexible(version))


def _name_remote(error: UnreadableBytes, cls: type[Any], version: int) -> NoReturn:
    facts = {"field": "", **error.facts, "message": cls.__name__, "version": version}
    place = f"{cls.__name__} v{version} {error.field}".rstrip()
    raise RemoteProtocolError(
        f"{place} cannot be read",
        why=error.why or error.what,
        do="check that the peer is a broker of this dialect, in a supported version",
        **facts,
    ) from error


def _name_local(error: UnwritableValue, cls: type[Any], version: int) -> NoReturn:
    facts = {"field": "", **error.facts, "message": cls.__name__, "version": version}
    place = f"{cls.__name__} v{version} {error.field}".rstrip()
    why = f"{error.what}: {error.why}" if error.why else error.what
    raise LocalProtocolError(f"{place} cannot be sent", why=why, **facts) from error
