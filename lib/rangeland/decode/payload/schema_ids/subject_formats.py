"""Payloads of several subjects of a schema registry in one column.

Each topic has its own formats, one for each subject of its records. Together they make the type of
the column: a field that only one of them has is null in the values of the others.
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
    """Looks up the subjects that a schema id is registered under. Its errors end the decoding."""

    @property
    def seen(self) -> Iterable[int]:
        """The ids that were looked up in the driver."""

    def of_id(self, schema_id: int) -> object: ...

    def versions_of(self, schema_id: int) -> Iterable[SubjectVersion]: ...

    def of_records(self, written: WrittenBefore) -> SubjectLookup: ...


class TypeConflict(NamedTuple):
    """A field whose two types cannot be merged."""

    path: str
    one: pa.DataType
    other: pa.DataType


@dataclass(frozen=True)
class SubjectFormats(PayloadFormat):
    """The formats of several subjects whose payloads share a column."""

    name: str
    kind: pa.DataType
    """The type of all formats together."""
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
        """The format of a topic's payloads with this id, and its subject. None for an id that is
        only registered under other subjects. Raises the errors of the lookup."""
        formats = self.topics.get(topic, {})
        names = ("", *(version.subject for version in self.lookup.versions_of(schema_id)))
        subject = next((name for name in names if name in formats), None)
        return None if subject is None else (subject, formats[subject])

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
            decoded = decoder.decode(payloads)
            return replace(decoded, values=fit_values(decoded.values, self.arrow_type))
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
        decoded = [
            decoder.decode(payloads.take(pa.array(indexes)))
            for decoder, indexes in zip(self._decoders.values(), rows, strict=True)
        ]
        # A decoder may leave payloads for the next call, and then this one does, too.
        count = min(
            [len(payloads)]
            + [
                int(indexes[len(part.values)])
                for part, indexes in zip(decoded, rows, strict=True)
                if len(part.values) < len(indexes)
            ]
        )
        rows = [indexes[indexes < count] for indexes in rows]
        decoded = [part.first(len(indexes)) for part, indexes in zip(decoded, rows, strict=True)]
        place = pa.array(np.argsort(np.concatenate(rows), kind="stable"))
        values = pa.concat_arrays([fit_values(part.values, self.arrow_type) for part in decoded])
        undecodable = [
            replace(bad, row=int(indexes[bad.row]))
            for part, indexes in zip(decoded, rows, strict=True)
            for bad in part.undecodable
        ]
        return DecodedPayloads(
            values.take(place),
            sorted(undecodable, key=lambda bad: bad.row),
            _join_rescued(decoded, place),
            count_ids(ids[:count]),
        )

    def _subject_of(self, schema_id: int) -> str:
        """The subject whose decoder reads this id. If none has it, the first one: its decoder then
        reports the reason."""
        if schema_id not in self._subjects:
            versions: Iterable[SubjectVersion] = ()
            if schema_id:
                self._lookup.of_id(schema_id)  # after that, its versions do not change
                versions = self._lookup.versions_of(schema_id)
            subjects = (
                version.subject for version in versions if version.subject in self._decoders
            )
            self._subjects[schema_id] = next(subjects, next(iter(self._decoders)))
        return self._subjects[schema_id]


def _join_rescued(decoded: Sequence[DecodedPayloads], place: pa.Array) -> pa.Array | None:
    parts = [part.rescued for part in decoded if part.rescued is not None]
    return pa.concat_arrays(parts).take(place) if parts else None


def registered_as(payloads: PayloadFormat | None, schema_id: int) -> SubjectVersion | None:
    """The registration of an id: the newest version in a subject of these payloads, or else the
    first of another subject; None if it is in none. Raises the errors of the lookup."""
    if not isinstance(payloads, SubjectFormats):
        return None
    own = {subject for formats in payloads.topics.values() for subject in formats}
    versions = sorted(payloads.lookup.versions_of(schema_id))
    own_versions = [version for version in versions if version.subject in own]
    return max(own_versions, default=None) or min(versions, default=None)


# --- types ----------------------------------------------------------------------------------


_WIDENING: Final = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
)


def merge_types(one: pa.DataType, other: pa.DataType) -> pa.DataType | TypeConflict:
    """A type with the fields of both, the first one's in front, and with the wider types."""
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
    """A struct with the fields of both. Names match as in Delta, ignoring case."""
    remaining = {f.name.lower(): f for f in other}
    fields = []
    for f in one:
        twin = remaining.pop(f.name.lower(), None)
        kind = f.type if twin is None else _merge(f.type, twin.type, f"{path}.{f.name}")
        if isinstance(kind, TypeConflict):
            return kind
        fields.append(pa.field(f.name, kind))
    return pa.struct([*fields, *remaining.values()])


def fit_values(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values as this type, which has all of their fields; null in fields that they lack."""
    if values.type.equals(kind):
        return values
    if pt.is_struct(kind):
        indexes = {f.name.lower(): index for index, f in enumerate(values.type)}
        children = values.flatten()
        columns = [
            fit_values(children[indexes[f.name.lower()]], f.type)
            if f.name.lower() in indexes
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
