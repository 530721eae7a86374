"""The schemas of a run, as the driver found them in a schema registry: a picklable value.

Tasks decode with it and ask no registry, except for an id that the driver has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, NamedTuple, Protocol

RecordField = Literal["key", "value"]


class TopicField(NamedTuple):
    """The keys or the values of a topic, which have separate schemas."""

    topic: str
    field: RecordField


class SchemaFormat(StrEnum):
    """The formats of schemas, as a registry names them."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


@dataclass(frozen=True, slots=True, order=True)
class SubjectVersion:
    """A registration of a schema: a subject, and the number of its version there."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ReferencedSchema:
    """A schema that another one refers to by ``name``: the path of an import in Protobuf, a
    ``$ref`` in JSON Schema."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """One schema. An Avro schema contains the types that it refers to. In other formats they are in
    ``references``, direct and indirect ones, each after its own references."""

    format: SchemaFormat
    text: str
    references: tuple[ReferencedSchema, ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenBefore:
    """Records that were in their log at ``at_ms``, and are read at ``now_ms`` by the same clock: a
    registry should have had their schemas for that long."""

    at_ms: int
    now_ms: int

    @property
    def age_ms(self) -> int:
        return self.now_ms - self.at_ms


LONG_AGO: Final = WrittenBefore(0, 1 << 62)
"""An age for records whose judgement can wait no longer, or is not final."""


@dataclass(frozen=True, slots=True)
class UnusableSchema:
    """Records with this id are undecodable, for this reason: the registry does not have the id, and
    it is certain that it is not late, or what the schema refers to is not there."""

    reason: str


@dataclass(frozen=True, slots=True)
class LatestSchema:
    """The latest version of a subject, which readers use."""

    id: int
    version: int
    schema: RegisteredSchema


@dataclass(frozen=True, slots=True)
class SchemaCatalogue:
    """The schemas of one run, as the driver has found them in the registry."""

    schemas: Mapping[int, RegisteredSchema | UnusableSchema] = field(default_factory=dict)
    """The schemas that records were written with, by id. The driver has not seen a missing one, or
    the registry did not have it."""
    versions: Mapping[int, tuple[SubjectVersion, ...]] = field(default_factory=dict)
    """The subjects that an id is registered under."""
    latest: Mapping[str, LatestSchema] = field(default_factory=dict)
    """The latest schema of each subject. A subject that is missing here does not exist."""
    made_as: str = ""
    """Distinguishes this catalogue from those of other runs."""

    @property
    def known_ids(self) -> set[int]:
        """The ids that the registry has."""
        unusable = {
            schema_id
            for schema_id, schema in self.schemas.items()
            if isinstance(schema, UnusableSchema)
        }
        return {*self.schemas, *(latest.id for latest in self.latest.values())} - unusable


class WriterSchemas(Protocol):
    """Looks up schemas by id. Its errors end the decoding."""

    def of_id(self, schema_id: int) -> RegisteredSchema | UnusableSchema: ...

    def of_records(self, written: WrittenBefore) -> WriterSchemas:
        """The same schemas, for records that were written before then; an id that is unknown may be
        late."""
        return self
