"""The interface of all payload formats: a frozen format, its decoder, and the result.

A ``PayloadFormat`` is a value: it is made in the driver from the job file and its schemas, is sent
to the tasks by pickle, and makes one ``PayloadDecoder`` per task there. A decoder turns an array of
payloads into an array with a value for each, or only for the first ones if all values together
would take too much memory. It never raises because of a payload: one that cannot be decoded is null
in the values and has an entry in ``undecodable``, with the reason. A null payload is null in the
values and has no such entry.

Payloads may name the schemas that they were written with. A decoder that does not know one of them
decodes nothing, and returns the ids: its caller finds the schemas, adds them, and calls it again.
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
"""A few bytes may stand for many values. So payloads are decoded until their values take this much
memory; the rest is for the next call."""

PayloadArray: TypeAlias = pa.BinaryArray | pa.LargeBinaryArray


class UnknownFields(Enum):
    """The treatment of fields of a payload that the schema lacks."""

    DROP = "drop"
    FAIL = "fail"
    KEEP = "keep"


class PayloadSchemaError(ValueError):
    """A schema that cannot be used: *what* is wrong, and where in its text, if known.

    The caller knows whose schema it is (a field of the job file, a file, a registry's subject).
    Lines and columns count from 1. ``do``: the remedy, unless it is to correct the schema.
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
    """Its index in the array that was given to the decoder."""
    reason: str
    """Plain English, one line, at most ``MAX_REASON`` characters."""
    schema_id: int | None = None
    """The writer's schema, if the payload named one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", one_line(self.reason))


@dataclass(frozen=True)
class DecodedPayloads:
    """The values of an array of payloads, or of its first ones."""

    values: pa.Array
    """An array of the decoder's ``arrow_type``; null where the payload is null or undecodable.
    There are fewer than payloads only if all would exceed ``MAX_DECODED_BYTES``, and then at least
    one."""
    undecodable: Sequence[Undecodable] = ()
    """The payloads that could not be decoded, in ascending order of rows."""
    rescued: pa.Array | None = None
    """The rescued data of each value: the JSON text of the fields that the schema lacks, null
    without any. None unless unknown fields are kept."""
    schema_ids: Mapping[int, int] = field(default_factory=dict)
    """How many payloads named each writer's schema."""

    def first(self, count: int) -> DecodedPayloads:
        """The first values only, but with the schema ids of all."""
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
    """The schema ids that payloads name and their decoder does not know, in ascending order."""

    ids: tuple[int, ...]


class PayloadDecoder(ABC):
    """Decodes payloads of one format. Made once per task; not shared between threads."""

    arrow_type: pa.DataType

    @abstractmethod
    def decode(self, payloads: PayloadArray) -> DecodedPayloads | MissingSchemas:
        """A value for each payload, or for the first ones, unless schemas of some are missing.
        Never raises because of a payload."""

    def add_schema(self, schema_id: int, found: FoundSchema) -> None:
        """Adds the schema of an id that was missing. Raises JobFileError for one that the table has
        no columns for."""
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
        """The format of payloads of this topic, with the same type."""
        return self

    @abstractmethod
    def decoder(self) -> PayloadDecoder:
        """A new decoder, for payloads of one topic."""


def one_line(reason: str) -> str:
    """A reason as it may be shown and stored: printable, on one line, bounded."""
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in reason)
    return shown if len(shown) <= MAX_REASON else shown[: MAX_REASON - 1] + "…"
