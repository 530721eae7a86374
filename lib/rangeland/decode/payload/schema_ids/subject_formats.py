"""Payloads of several subjects of a schema registry in one column.

Each topic has its own formats, one for each subject of its records. Together they determine the
type of the column: a field that only one of them has is null in the values of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from rangeland.decode.payload.payload_bytes import payload_bytes
from rangeland.decode.payload.payload_decoder import (
    DecodedPayloads,
    MissingSchemas,
    PayloadArray,
    PayloadDecoder,
    PayloadFormat,
    Undecodable,
)
from rangeland.decode.payload.row_format import nullable_type
from rangeland.decode.payload.schema_ids.confluent_framing import count_ids, read_schema_ids
from rangeland.decode.payload.schema_ids.schema_catalogue import FoundSchema, SubjectVersion
from rangeland.decode.payload.schema_ids.subject_writers import check_is_of_others, subjects_of
from rangeland.errors import Bug


class TypeConflict(NamedTuple):
    """A field with two types that cannot be merged."""

    path: str
    one: pa.DataType
    other: pa.DataType


@dataclass(frozen=True)
class SubjectFormats(PayloadFormat):
    """The formats of several subjects whose payloads share a column."""

    name: str
    kind: pa.DataType
    """The type that covers all formats."""
    topics: Mapping[str, Mapping[str, PayloadFormat]]
    """The formats of each topic, by subject."""
    latest: Mapping[str, int] = field(default_factory=dict)
    """The ids of the schemas from which they were made, by subject."""
    own: Mapping[str, str | None] = field(default_factory=dict)
    """The prefix of a topic's subjects, if subjects are named after records."""
    lacking: Mapping[str, str] = field(default_factory=dict)
    """The only subject of a topic, if the registry had no schema for it."""

    @property
    def arrow_type(self) -> pa.DataType:
        return self.kind

    def of_topic(self, topic: str) -> PayloadFormat:
        return replace(self, topics={topic: self.topics.get(topic, {})})

    def format_of(
        self, topic: str, versions: Iterable[SubjectVersion]
    ) -> tuple[str, PayloadFormat] | None:
        """The format for those payloads of a topic whose schema has these registrations, and its
        subject. None for a schema that is registered only under other subjects."""
        formats = self.topics.get(topic, {})
        names = ("", *(version.subject for version in versions))
        subject = next((name for name in names if name in formats), None)
        return None if subject is None else (subject, formats[subject])

    def registration_among(self, versions: Collection[SubjectVersion]) -> SubjectVersion | None:
        """Which of a schema's registrations to show: the newest version in a subject of these
        payloads, or else the first one in another subject; None if there is none."""
        own = {subject for formats in self.topics.values() for subject in formats}
        own_versions = [version for version in versions if version.subject in own]
        return max(own_versions, default=None) or min(versions, default=None)

    def decoder(self) -> PayloadDecoder:
        ((topic, formats),) = self.topics.items()
        own = self.own.get(topic)
        return SubjectsDecoder(topic, formats, self.kind, own, self.lacking.get(topic, ""))


class SubjectsDecoder(PayloadDecoder):
    """Decodes the payloads of one topic. ``own``: the prefix of its subjects, if subjects are named
    after records. ``lacking``: its only subject, if that has no format."""

    def __init__(
        self,
        topic: str,
        formats: Mapping[str, PayloadFormat],
        kind: pa.DataType,
        own: str | None = None,
        lacking: str = "",
    ) -> None:
        self.arrow_type = kind
        self._topic = topic
        self._own = own
        self._lacking = lacking
        self._decoders = {subject: one.decoder() for subject, one in formats.items()}
        self._subjects: dict[int, str] = {}

    def add_schema(self, schema_id: int, found: FoundSchema) -> None:
        """Adds a schema to the decoder of its subject. If no decoder has that subject, the first
        one reports the reason. Raises what a ``SubjectWriters`` raises."""
        if not self._decoders:
            check_is_of_others(schema_id, found, self._topic, self._lacking, self._own)
            self._subjects[schema_id] = ""
            return
        subjects = subjects_of(found, self._own)
        own = (subject for subject in subjects if subject in self._decoders)
        self._subjects[schema_id] = next(own, next(iter(self._decoders)))
        self._decoders[self._subjects[schema_id]].add_schema(schema_id, found)

    def decode(self, payloads: PayloadArray) -> DecodedPayloads | MissingSchemas:
        if len(self._decoders) == 1:
            (decoder,) = self._decoders.values()
            decoded = decoder.decode(payloads)
            if isinstance(decoded, MissingSchemas):
                return decoded
            return replace(decoded, values=fit_values(decoded.values, self.arrow_type))
        return self._by_subject(payloads) if self._decoders else self._without_schema(payloads)

    def _without_schema(self, payloads: PayloadArray) -> DecodedPayloads | MissingSchemas:
        if missing := self._missing(count_ids(read_schema_ids(payload_bytes(payloads)))):
            return MissingSchemas(missing)
        reason = f"the schema registry had no schema for {self._topic} when the run began"
        rows = np.flatnonzero(payloads.is_valid().to_numpy(zero_copy_only=False)).tolist()
        return DecodedPayloads(
            pa.nulls(len(payloads), self.arrow_type), [Undecodable(row, reason) for row in rows]
        )

    def _missing(self, ids: Iterable[int]) -> tuple[int, ...]:
        return tuple(schema_id for schema_id in ids if schema_id not in self._subjects)

    def _by_subject(self, payloads: PayloadArray) -> DecodedPayloads | MissingSchemas:
        ids = read_schema_ids(payload_bytes(payloads))
        counts = count_ids(ids)
        if missing := self._missing(counts):
            return MissingSchemas(missing)
        numbers = {subject: index for index, subject in enumerate(self._decoders)}
        owners = np.zeros(len(payloads), np.int64)  # those without an id go to the first decoder
        for schema_id in counts:
            owners[ids == schema_id] = numbers[self._subjects[schema_id]]
        rows = [np.flatnonzero(owners == index) for index in numbers.values()]
        decoded = [
            _decode_known(decoder, payloads.take(pa.array(indexes)))
            for decoder, indexes in zip(self._decoders.values(), rows, strict=True)
        ]
        # A decoder may leave payloads for the next call; then this one does so as well.
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
            replace(failure, row=int(indexes[failure.row]))
            for part, indexes in zip(decoded, rows, strict=True)
            for failure in part.undecodable
        ]
        return DecodedPayloads(
            values.take(place),
            sorted(undecodable, key=lambda failure: failure.row),
            _join_rescued(decoded, place),
            count_ids(ids[:count]),
        )


def _decode_known(decoder: PayloadDecoder, payloads: PayloadArray) -> DecodedPayloads:
    decoded = decoder.decode(payloads)
    if isinstance(decoded, MissingSchemas):
        raise Bug(f"the schemas {decoded.ids} were added to the decoder of another subject")
    return decoded


def _join_rescued(decoded: Sequence[DecodedPayloads], place: pa.Array) -> pa.Array | None:
    parts = [part.rescued for part in decoded if part.rescued is not None]
    return pa.concat_arrays(parts).take(place) if parts else None


# --- types ----------------------------------------------------------------------------------


_WIDENING: Final = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
)


def merge_types(one: pa.DataType, other: pa.DataType) -> pa.DataType | TypeConflict:
    """A type with the fields of both, those of the first in front, and with the wider types."""
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
    """A struct with the fields of both. Names match regardless of case, as in Delta."""
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
    """The values, converted to this type, which has all of their fields; fields that they lack are
    null."""
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
