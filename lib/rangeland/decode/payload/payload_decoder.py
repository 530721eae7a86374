"""The interface of all payload formats: a frozen format, its decoder, and the result.

A ``PayloadFormat`` is a value: the driver makes it from the job file and its schemas and sends it,
pickled, to the tasks, where it makes one ``PayloadDecoder`` per task. A decoder turns an array of
payloads into an array with a value for each, or only for the first ones if all values together
would take too much memory. It never raises because of a payload: one that cannot be decoded is null
in the values and has an entry in ``undecodable``, with the reason. A null payload is null in the
values and has no such entry.

Payloads may name the schemas with which they were written. If a decoder does not know one of them,
it decodes nothing and returns the ids: its caller finds the schemas, adds them, and calls it again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, TypeAlias

import pyarrow as pa

from rangeland.decode.payload.schema_ids.schema_catalogue import FoundSchema
from rangeland.errors import Bug

MAX_REASON: Final = 200
"""The most characters of a reason."""

MAX_DECODED_BYTES: Final = 64 << 20
"""A few bytes may stand for many values. So payloads are decoded until their values take up this
much memory; the rest is left for the next call."""

PayloadArray: TypeAlias = pa.BinaryArray | pa.LargeBinaryArray


class UnknownFields(Enum):
    """What to do about fields of a payload that the schema lacks."""

    DROP = "drop"
    FAIL = "fail"
    KEEP = "keep"


class PayloadSchemaError(ValueError):
    """A schema that cannot be used: *what* is wrong, and where in its text, if known.

    The caller knows where the schema comes from (a field of the job file, a file, a registry's
    subject). Lines and columns count from 1. ``do``: what to do about it, unless it is to correct
    the schema.
    """

    def __init__(
        self, what: str, *, line: int | None = None, column: int | None = None, do: str = ""
    ) -> None:
        self.what = what
        self.do = do
        self.line = line
        self.column = column
        place = f"line {line}, column {column}: " if line is not None else ""
        super().__init__(f"{place}{what}")


@dataclass(frozen=True)
class Undecodable:
    """One payload that could not be decoded."""

    row: int
    """Its index in the array that was passed to the decoder."""
    reason: str
    """Plain English, one line, at most ``MAX_REASON`` characters."""
    schema_id: int | None = None
    """The writer's schema, if the payload named one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", one_line(self.reason))


@dataclass(frozen=True)
class DecodedPayloads:
    """The values of an array of payloads, or of the first ones in it."""

    values: pa.Array
    """An array of the decoder's ``arrow_type``; null where the payload is null or undecodable. It
    has fewer values than there are payloads only if all of them would exceed ``MAX_DECODED_BYTES``,
    and then at least one."""
    undecodable: Sequence[Undecodable] = ()
    """The payloads that could not be decoded, in ascending order of rows."""
    rescued: pa.Array | None = None
    """The rescued data of each value: the JSON text of the fields that the schema lacks; null if
    there are none. None unless unknown fields are kept."""
    schema_ids: Mapping[int, int] = field(default_factory=dict)
    """How many payloads name each writer's schema, by its id."""

    def first(self, count: int) -> DecodedPayloads:
        """Only the first values, but with the schema ids of all."""
        if count == len(self.values):
            return self
        return replace(
            self,
            values=self.values.slice(0, count),
            undecodable=[failure for failure in self.undecodable if failure.row < count],
            rescued=None if self.rescued is None else self.rescued.slice(0, count),
        )


@dataclass(frozen=True, slots=True)
class MissingSchemas:
    """The schema ids that payloads name but their decoder does not know, in ascending order."""

    ids: tuple[int, ...]


class PayloadDecoder(ABC):
    """Decodes payloads of one format. Made once per task; not shared between threads."""

    arrow_type: pa.DataType

    @abstractmethod
    def decode(self, payloads: PayloadArray) -> DecodedPayloads | MissingSchemas:
        """A value for each payload, or for the first ones; or the ids of missing schemas. Never
        raises because of a payload."""

    def add_schema(self, schema_id: int, found: FoundSchema) -> None:
        """Adds the schema for an id that was missing. Raises JobFileError for a schema for which
        the table has no columns."""
        raise Bug(f"payloads without schema ids have no schema {schema_id}")


class PayloadFormat(ABC):
    """A format with its schema and options: a frozen value that can be pickled and compared."""

    name: str
    """Its name in the job file: bytes, string, json, avro, protobuf."""

    @property
    @abstractmethod
    def arrow_type(self) -> pa.DataType:
        """The type of decoded values; a struct for formats that have fields."""

    def of_topic(self, topic: str) -> PayloadFormat:
        """The format for payloads of this topic, with the same type."""
        return self

    @abstractmethod
    def decoder(self) -> PayloadDecoder:
        """A new decoder for payloads of one topic."""


def one_line(reason: str) -> str:
    """A reason in a form that can be shown and stored: printable, on one line, of limited
    length."""
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in reason)
    return shown if len(shown) <= MAX_REASON else shown[: MAX_REASON - 1] + "…"
