"""Parsers for the values in a job file: sizes, times, bounds, references to secrets.

``8GiB`` is a number of bytes, ``2026-01-01T00:00Z`` is an instant, ``earliest`` is a bound. Each
kind of value has a parser, and for editors a JSON schema of what the parser accepts; a test checks
that the two agree. Parsers raise ValueError, which says what values were expected.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import unquote

from pydantic import BeforeValidator, Field, WithJsonSchema

from rangeland.model import (
    Address,
    AtOffset,
    AtTime,
    Bound,
    Bounds,
    Earliest,
    FromCheckpoint,
    GroupOffset,
    Latest,
    Partition,
)
from rangeland.untrusted import MAX_INT64, parse_address

Schema = dict[str, Any]

TOPIC_FIELD = "{topic}"
"""The placeholder for a topic's name in the name of a table."""

# Strict: `true` is not a number, although Python treats it as 1.
Whole = Annotated[int, Field(strict=True)]
# At most a week: protocols have 32 bits for it, and sockets have limits of their own.
Milliseconds = Annotated[int, Field(strict=True, gt=0, le=7 * 86_400_000)]

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
WORDS: dict[str, Bound] = {
    "checkpoint": FromCheckpoint(),
    "earliest": Earliest(),
    "latest": Latest(),
}
EXPECTED_UNTIL = "earliest, latest, an ISO time, group:<id>, or {topic: {partition: offset}}"
EXPECTED_FROM = f"checkpoint, {EXPECTED_UNTIL}"
EXPECTED_FIRST = "earliest, latest, an ISO time or group:<id>"
_DAY = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_CLOCK = r"[0-9]{2}(:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?"

# --- sizes ------------------------------------------------------------------------------


def parse_size(value: object) -> object:
    """``128MiB`` as bytes; a plain number is already in bytes."""
    if isinstance(value, bool) or not isinstance(value, str):
        return value
    # Stripped first: two runs of blanks in one pattern would take quadratic time.
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", value.strip())
    if not match or match[2].upper() not in UNITS:
        raise ValueError("a size such as 128MiB, 8GiB or a number of bytes")
    size = float(match[1]) * UNITS[match[2].upper()]
    if size > MAX_INT64:
        raise ValueError("a size of at most 8 EiB")
    return int(size)


def size_text(size_bytes: int) -> str:
    """``134217728`` as ``128MiB``: the largest unit that divides it."""
    units = [(factor, f"{name[0]}iB") for name, factor in UNITS.items() if name.endswith("IB")]
    for factor, name in sorted(units, reverse=True):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{name}"
    return str(size_bytes)


SIZE: Schema = {
    "title": "size",
    "anyOf": [
        {
            "type": "string",
            "pattern": r"^\s*(?=[0-9.]*[1-9])[0-9]+(\.[0-9]+)?\s*(([KMGTkmgt][Ii]?)?[Bb])?\s*$",
            "examples": ["128MiB", "8GiB"],
        },
        {"type": "integer", "minimum": 1},
    ],
}
Size = Annotated[Whole, BeforeValidator(parse_size), Field(gt=0), WithJsonSchema(SIZE)]

# --- tables -----------------------------------------------------------------------------


def without_secrets(uri: str) -> str:
    """The URI of a table. If it contains a key or a password, raises ValueError, which does not
    repeat it: it would appear in plans, in the ledger and in messages."""
    scheme, colon, path = uri.partition(":")
    if not colon or "/" in scheme or scheme.lower() == "file":
        return uri  # Here '?' and '=' are part of a folder's name.
    # Keys are refused after any number of slashes, since one too few or too many is a likely
    # mistake.
    authority, _, query = re.split(r"[/#]", path.lstrip("/"), maxsplit=1)[0].partition("?")
    user, at, host = unquote(authority).rpartition("@")
    port = re.sub(r"^\[[^\]]*\]", "", host).partition(":")[2]
    is_bucket = scheme.lower() in ("s3", "s3a", "s3n")
    if ":" in user or (port and not port.isdigit()) or (is_bucket and (at or port)):
        raise ValueError(
            "a URI without user and password: keys belong in Spark's own settings, such as "
            "spark.hadoop.fs.s3a.access.key, or in the environment"
        )
    if "=" in query or any("=" in part.partition("?")[2] for part in path.split("/")):
        raise ValueError("a URI without a query: tokens belong in Spark's own settings")
    return uri


# --- bounds -----------------------------------------------------------------------------


def parse_time_ms(text: str) -> int:
    """An ISO 8601 time as ms since 1970; without a time zone it is UTC. Raises ValueError, also
    for a time before 1970."""
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # Integer arithmetic: a float would lose milliseconds.
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    time_ms = (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    if time_ms < 0:
        # Protocols use negative times for special values such as "latest".
        raise ValueError(f"{text.strip()} is before 1970")
    return time_ms


def parse_bound(value: object, *, expected: str = EXPECTED_FROM) -> Bound:
    """One bound as it is written in a job file. Raises ValueError, which gives the expected values
    of its field."""
    if isinstance(value, bool):
        raise ValueError(expected)
    if isinstance(value, int):
        if not 0 <= value <= MAX_INT64:
            raise ValueError(f"a non-negative 64-bit offset, not {value}")
        return AtOffset(value)
    if isinstance(value, str):
        word = value.strip()
        if word in WORDS:
            return WORDS[word]
        if word.startswith("group:") and len(word) > len("group:"):
            return GroupOffset(word.removeprefix("group:"))
        if re.match(r"\d{4}-\d\d-\d\d", word):
            try:
                return AtTime(parse_time_ms(word))
            except ValueError as error:
                raise ValueError(f"an ISO time such as 2026-01-31T06:00:00Z ({error})") from error
    raise ValueError(f"{expected}, not {value!r}")


def parse_bounds(value: object, *, expected: str = EXPECTED_FROM) -> Bounds:
    """One side of a range: one bound for all partitions, or a mapping that lists them."""
    if isinstance(value, Bounds):
        return value
    if not isinstance(value, dict):
        if isinstance(value, int):
            raise ValueError(f"{expected}; a bare offset needs its topic and partition")
        return Bounds(parse_bound(value, expected=expected))
    by_partition: dict[Partition, Bound] = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict) or not partitions:
            raise ValueError(f"{{partition: offset}} for topic {topic!r}")
        for number, bound in partitions.items():
            by_partition[parse_partition(str(topic), number)] = parse_bound(
                bound, expected=expected
            )
    if not by_partition:
        raise ValueError("at least one topic and partition")
    return Bounds(Earliest(), by_partition, only_listed=True)


def parse_partition(topic: str, text: object) -> Partition:
    """``0``; or ``1-0`` for partition 0 of broker 1 if brokers number their own partitions. Raises
    ValueError."""
    match = re.fullmatch(r"(?:(.+)-)?([0-9]+)", str(text))
    if match is None or len(match[2]) > 9:
        raise ValueError(f"partition numbers for topic {topic!r}, or broker-number, not {text!r}")
    return Partition(topic, int(match[2]), match[1] or "")


def parse_named_broker(text: str) -> tuple[str, Address]:
    """A broker as ``host:port``, or as ``id:host:port`` if brokers are known by their ids. Its name
    is the id if there is one, otherwise the address. Raises ValueError."""
    match = re.fullmatch(r"(?:([0-9]+):)?((?:\[[^\]]+\]|[^:/?#%\[\]]+):[0-9]+)", text)
    if match is None:
        raise ValueError(f"{text!r} is not host:port")
    return match[1] or match[2], parse_address(match[2])


def parse_until(value: object) -> Bounds:
    """The same as ``parse_bounds``, for the end of a range."""
    bounds = parse_bounds(value, expected=EXPECTED_UNTIL)
    if any(isinstance(b, FromCheckpoint) for b in bounds.every):
        raise ValueError("latest, a time or an offset: a range cannot end at the checkpoint")
    return bounds


def parse_first(value: object) -> Bound:
    """A bound that makes sense for a job that has landed nothing yet."""
    bound = parse_bound(value, expected=EXPECTED_FIRST)
    if isinstance(bound, FromCheckpoint | AtOffset):
        raise ValueError(EXPECTED_FIRST)
    return bound


def _word_schemas(*words: str) -> list[Schema]:
    return [
        {"enum": list(words)},
        {
            "title": "ISO time",
            "type": "string",
            "pattern": f"^{_DAY}([T ]{_CLOCK})?$",
            "examples": ["2026-01-31T06:00:00Z"],
        },
        {
            "title": "group:<id>",
            "type": "string",
            "pattern": "^group:.+$",
            "examples": ["group:billing"],
        },
    ]


def _bounds_schema(*words: str) -> Schema:
    offset = {"title": "offset", "type": "integer", "minimum": 0}
    by_number = {
        "type": "object",
        "minProperties": 1,
        "patternProperties": {"^(.+-)?[0-9]+$": {"anyOf": [*_word_schemas(*words), offset]}},
        "additionalProperties": False,
    }
    by_topic = {
        "title": "topic: {partition: bound}",
        "type": "object",
        "minProperties": 1,
        "additionalProperties": by_number,
        "examples": [{"orders": {"0": 23, "1": "earliest"}}],
    }
    return {"title": "bound", "anyOf": [*_word_schemas(*words), by_topic]}


FROM = _bounds_schema("checkpoint", "earliest", "latest")
UNTIL = _bounds_schema("latest", "earliest")
FIRST: Schema = {"title": "bound", "anyOf": _word_schemas("earliest", "latest")}

From = Annotated[Any, BeforeValidator(parse_bounds), WithJsonSchema(FROM)]
Until = Annotated[Any, BeforeValidator(parse_until), WithJsonSchema(UNTIL)]
FirstRun = Annotated[Any, BeforeValidator(parse_first), WithJsonSchema(FIRST)]

# --- names ------------------------------------------------------------------------------

Server = Annotated[
    str,
    WithJsonSchema(
        {
            "title": "host:port",
            "type": "string",
            "pattern": r"^([0-9]+:)?(\[[^\]@\s]+\]|[^:@/?#%\s\[\]]+):[0-9]{1,5}$",
            "examples": ["broker-1:9092"],
        }
    ),
]


def parse_partition_name(value: object) -> object:
    """A partition's number, or ``broker-number``."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and re.fullmatch(r".+-[0-9]+", value):
        return value
    raise ValueError("a partition's number, or broker-number such as 1-0")


PARTITION_NAME: Schema = {
    "title": "partition",
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": "^.+-[0-9]+$", "examples": ["1-0"]},
    ],
}
PartitionName = Annotated[
    Any, BeforeValidator(parse_partition_name), WithJsonSchema(PARTITION_NAME)
]
Topic = Annotated[
    str,
    WithJsonSchema(
        {
            "title": "topic name",
            "type": "string",
            "pattern": r"^(?!\.{1,2}$)[A-Za-z0-9._%|-]{1,249}$",
        }
    ),
]
