"""Payloads of several subjects of a schema registry in one column.

Each topic has formats of its own: one for each subject that its records have. All of them together
make the type of the column: a field that only one of them has is null in the values of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from rangeland.decode.payload.payload_bytes import payload_bytes
from rangeland.decode.payload.payload_decoder import (
    DecodedPayloads,
    PayloadArray,
    PayloadDecoder,
    PayloadFormat,
    Undecodable,
)
from rangeland.decode.payload.row_format import nullable_type
from rangeland.decode.payload.schema_ids.confluent_framing import count_ids, read_schema_ids
from rangeland.decode.payload.schema_ids.schema_catalogue import SubjectVersion, WrittenBefore


class SubjectLookup(Protocol):
    """Looks up the subjects that a schema id is registered under. What it raises ends the
    decoding."""

    @property
    def seen(self) -> Iterable[int]:
        """The ids that were looked up in the driver."""

    def of_id(self, schema_id: int) -> object: ...

    def versions_of(self, schema_id: int) -> Iterable[SubjectVersion]: ...

    def of_records(self, written: WrittenBefore) -> SubjectLookup: ...


class TypeConflict(NamedTuple):
    """A field that two types cannot have in common."""

    path: str
    one: pa.DataType
    other: pa.DataType


@dataclass(frozen=True)
class SubjectFormats(PayloadFormat):
    """The formats of several subjects whose payloads share a column."""

    name: str
    kind: pa.DataType
    """What the formats are together."""
    topics: Mapping[str, Mapping[str, PayloadFormat]]
    """The formats of each topic, by subject."""
    lookup: SubjectLookup
    latest: Mapping[str, int] = field(default_factory=dict)
    """The ids of the schemas that they were made from, by subject."""

    @property
    def arrow_type(self) -> pa.DataType:
        return self.kind

    def of_topic(self, topic: str) -> PayloadFormat:
        return replace(self, topics={topic: self.topics.get(topic, {})})

    def of_records(self, written: WrittenBefore) -> PayloadFormat:
        topics = {
            topic: {subject: one.of_records(written) for subject, one in formats.items()}
            for topic, formats in self.topics.items()
        }
        return replace(self, topics=topics, lookup=self.lookup.of_records(written))

    def format_of(self, topic: str, schema_id: int) -> tuple[str, PayloadFormat] | None:
        """The format in which payloads of a topic with this id are read, and its subject. None for
        an id that is only registered under other subjects. Raises what a lookup raises."""
        formats = self.topics.get(topic, {})
        known = (one.subject for one in self.lookup.versions_of(schema_id))
        own = next((subject for subject in ("", *known) if subject in formats), None)
        return None if own is None else (own, formats[own])

    def decoder(self) -> PayloadDecoder:
        ((topic, formats),) = self.topics.items()
        return SubjectsDecoder(topic, formats, self.kind, self.lookup)


class SubjectsDecoder(PayloadDecoder):
    """Decodes the payloads of one topic."""

    def __init__(
        self,
        topic: str,
        formats: Mapping[str, PayloadFormat],
        kind: pa.DataType,
        lookup: SubjectLookup,
    ) -> None:
        self.arrow_type = kind
        self._topic = topic
        self._decoders = {subject: one.decoder() for subject, one in formats.items()}
        self._lookup = lookup
        self._subjects: dict[int, str] = {}

    def decode(self, payloads: PayloadArray) -> DecodedPayloads:
        if len(self._decoders) == 1:
            (decoder,) = self._decoders.values()
            found = decoder.decode(payloads)
            return replace(found, values=fit_values(found.values, self.arrow_type))
        return self._by_subject(payloads) if self._decoders else self._without_schema(payloads)

    def _without_schema(self, payloads: PayloadArray) -> DecodedPayloads:
        reason = f"the schema registry had no schema for {self._topic} when the run began"
        rows = np.flatnonzero(payloads.is_valid().to_numpy(zero_copy_only=False)).tolist()
        return DecodedPayloads(
            pa.nulls(len(payloads), self.arrow_type), [Undecodable(row, reason) for row in rows]
        )

    def _by_subject(self, payloads: PayloadArray) -> DecodedPayloads:
        ids = read_schema_ids(payload_bytes(payloads))
        numbers = {subject: index for index, subject in enumerate(self._decoders)}
        owners = np.zeros(len(payloads), np.int64)
        for schema_id in np.unique(ids).tolist():
            owners[ids == schema_id] = numbers[self._subject_of(schema_id)]
        rows = [np.flatnonzero(owners == index) for index in numbers.values()]
        found = [
            decoder.decode(payloads.take(pa.array(taken)))
            for decoder, taken in zip(self._decoders.values(), rows, strict=True)
        ]
        # A decoder may leave some for the next call, and then so does this one.
        count = min(
            [len(payloads)]
            + [
                int(taken[len(one.values)])
                for one, taken in zip(found, rows, strict=True)
                if len(one.values) < len(taken)
            ]
        )
        rows = [taken[taken < count] for taken in rows]
        found = [one.first(len(taken)) for one, taken in zip(found, rows, strict=True)]
        place = pa.array(np.argsort(np.concatenate(rows), kind="stable"))
        values = pa.concat_arrays([fit_values(one.values, self.arrow_type) for one in found])
        undecodable = [
            replace(bad, row=int(taken[bad.row]))
            for one, taken in zip(found, rows, strict=True)
            for bad in one.undecodable
        ]
        return DecodedPayloads(
            values.take(place),
            sorted(undecodable, key=lambda bad: bad.row),
            _join_rescued(found, place),
            count_ids(ids[:count]),
        )

    def _subject_of(self, schema_id: int) -> str:
        """The subject whose decoder reads this id. If none of them has it, the first one: its
        decoder then says what is wrong."""
        if schema_id not in self._subjects:
            known: Iterable[SubjectVersion] = ()
            if schema_id:
                self._lookup.of_id(schema_id)  # what is known of it is final from then on
                known = self._lookup.versions_of(schema_id)
            own = (one.subject for one in known if one.subject in self._decoders)
            self._subjects[schema_id] = next(own, next(iter(self._decoders)))
        return self._subjects[schema_id]


def _join_rescued(found: Sequence[DecodedPayloads], place: pa.Array) -> pa.Array | None:
    parts = [one.rescued for one in found if one.rescued is not None]
    return pa.concat_arrays(parts).take(place) if parts else None


def registered_as(payloads: PayloadFormat | None, schema_id: int) -> SubjectVersion | None:
    """The place where an id is registered: the newest version in a subject of these payloads, or
    else the first of another subject; None if it is in none. Raises what a lookup raises."""
    if not isinstance(payloads, SubjectFormats):
        return None
    own = {subject for formats in payloads.topics.values() for subject in formats}
    known = sorted(payloads.lookup.versions_of(schema_id))
    mine = [one for one in known if one.subject in own]
    return max(mine, default=None) or min(known, default=None)


# --- types ----------------------------------------------------------------------------------


_WIDENING: Final = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
)


def merge_types(one: pa.DataType, other: pa.DataType) -> pa.DataType | TypeConflict:
    """A type that has the fields of both, those of the first one in front, and the wider types."""
    return _merge(nullable_type(one), nullable_type(other), "")


def _merge(one: pa.DataType, other: pa.DataType, path: str) -> pa.DataType | TypeConflict:
    if one.equals(other):
        return one
    if pt.is_struct(one) and pt.is_struct(other):
        return _merge_structs(one, other, path)
    if pt.is_list(one) and pt.is_list(other):
        element = _merge(one.value_type, other.value_type, f"{path}.element")
        return element if isinstance(element, TypeConflict) else nullable_type(pa.list_(element))
    if pt.is_map(one) and pt.is_map(other) and one.key_type.equals(other.key_type):
        item = _merge(one.item_type, other.item_type, f"{path}.value")
        return (
            item if isinstance(item, TypeConflict) else nullable_type(pa.map_(one.key_type, item))
        )
    for kinds in _WIDENING:
        if one in kinds and other in kinds:
            return max(one, other, key=kinds.index)
    return TypeConflict(path.removeprefix("."), one, other)


def _merge_structs(
    one: pa.StructType, other: pa.StructType, path: str
) -> pa.DataType | TypeConflict:
    """Names match as in Delta, ignoring case."""
    theirs = {f.name.lower(): f for f in other}
    fields = []
    for f in one:
        twin = theirs.pop(f.name.lower(), None)
        kind = f.type if twin is None else _merge(f.type, twin.type, f"{path}.{f.name}")
        if isinstance(kind, TypeConflict):
            return kind
        fields.append(pa.field(f.name, kind))
    return pa.struct([*fields, *theirs.values()])


def fit_values(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values as this type, which has all of their fields; null in those that they lack."""
    if values.type.equals(kind):
        return values
    if pt.is_struct(kind):
        given = {f.name.lower(): index for index, f in enumerate(values.type)}
        children = values.flatten()
        columns = [
            fit_values(children[given[f.name.lower()]], f.type)
            if f.name.lower() in given
            else pa.nulls(len(values), f.type)
            for f in kind
        ]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=values.is_null())
    if pt.is_list(kind):
        inner = fit_values(values.values, kind.value_type)
        return pa.ListArray.from_arrays(values.offsets, inner, type=kind, mask=_mask(values))
    if pt.is_map(kind):
        items = fit_values(values.items, kind.item_type)
        parts = (values.offsets, values.keys, items)
        return pa.MapArray.from_arrays(*parts, type=kind, mask=_mask(values))
    return values.cast(kind)


def _mask(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None
