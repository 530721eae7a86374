"""Encode and decode any declared message in any of its versions.

``declarations`` describes messages, ``compiler`` makes codecs of the descriptions; modules that
declare or use messages import from here. A field that a version does not have is read as its
default; writing another value is an error, unless the field is declared ignorable.

Whatever the bytes are, ``decode`` gives a value or raises ``RemoteProtocolError`` with the
facts ``message, version, field, offset, size, reason``. What cannot be sent raises
``LocalProtocolError``. No message is named here, no header and no socket.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from rangeland.errors import LocalProtocolError, RemoteProtocolError
from rangeland.wire.compiler import compiled
from rangeland.wire.declarations import (
    Array,
    Bool,
    Bytes,
    FieldSpec,
    Int8,
    Int16,
    Int32,
    Int64,
    LegacyString,
    MessageSpec,
    Records,
    String,
    UInt16,
    UInt32,
    Uuid,
    UVarint,
    Varint,
    Varlong,
    field_spec,
    message,
    since,
    spec_of,
    struct,
    tagged,
)
from rangeland.wire.malformed import LEFT_OVER, refusal
from rangeland.wire.primitives import FieldCodec, Part

__all__ = [
    "Array",
    "Bool",
    "Bytes",
    "FieldSpec",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "LegacyString",
    "MessageSpec",
    "Records",
    "String",
    "UInt16",
    "UInt32",
    "UVarint",
    "Uuid",
    "Varint",
    "Varlong",
    "codec_of",
    "decode",
    "decode_from",
    "encode",
    "encode_parts",
    "field_spec",
    "message",
    "since",
    "spec_of",
    "struct",
    "tagged",
]

T = TypeVar("T")


def encode(message: Any, version: int) -> bytes:
    """The bytes of ``message`` in ``version``, without any header.

    Raises ``LocalProtocolError`` for a value that this version cannot carry."""
    return b"".join(encode_parts(message, version))


def encode_parts(message: Any, version: int) -> list[Part]:
    """As ``encode``, as pieces that are not joined."""
    cls = type(message)
    parts: list[Part] = []
    try:
        codec_of(cls, version).write(message, parts)
    except LocalProtocolError as error:
        _name_local(error, cls, version)
    return parts


def decode(cls: type[T], version: int, buffer: Part, offset: int = 0) -> T:
    """The value of all of ``buffer`` from ``offset`` on; remaining bytes are an error.

    ``Records`` of the value are slices of ``buffer``, everything else is copied."""
    value, used = decode_from(cls, version, buffer, offset)
    if used != len(buffer):
        why = f"{len(buffer) - used} bytes are left over at byte {used} of {len(buffer)}"
        error = refusal(LEFT_OVER, why, memoryview(buffer), used)
        _name_remote(error, cls, version)
    return value


def decode_from(cls: type[T], version: int, buffer: Part, offset: int = 0) -> tuple[T, int]:
    """The value at ``offset`` and where it ends; bytes after it are ignored."""
    codec = codec_of(cls, version)
    try:
        value, used = codec.read(memoryview(buffer), offset)
    except RemoteProtocolError as error:
        _name_remote(error, cls, version)
    return value, used


def codec_of(cls: type[Any], version: int) -> FieldCodec:
    """The compiled form of a message in one version. Raises ``LocalProtocolError`` for a
    version that is not declared."""
    spec = spec_of(cls)
    low, high = spec.versions
    if not low <= version <= high:
        raise LocalProtocolError(
            f"{cls.__name__} version {version} is not declared",
            why=f"versions {low} to {high} are",
            message=cls.__name__,
            version=version,
        )
    return compiled(cls, version, spec.flexible(version))


def _name_remote(error: RemoteProtocolError, cls: type[Any], version: int) -> NoReturn:
    facts = {"field": "", **error.facts, "message": cls.__name__, "version": version}
    place = f"{cls.__name__} v{version} {facts['field']}".rstrip()
    raise RemoteProtocolError(
        f"{place} cannot be read",
        why=error.why or error.what,
        do="Check that the peer is a broker of this dialect, and its version",
        **facts,
    ) from error


def _name_local(error: LocalProtocolError, cls: type[Any], version: int) -> NoReturn:
    facts = {"field": "", **error.facts, "message": cls.__name__, "version": version}
    place = f"{cls.__name__} v{version} {facts['field']}".rstrip()
    why = f"{error.what}: {error.why}" if error.why else error.what
    raise LocalProtocolError(f"{place} cannot be sent", why=why, **facts) from error
