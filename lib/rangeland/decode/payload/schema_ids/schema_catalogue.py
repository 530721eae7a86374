"""The schemas of a run, as the driver found them in a schema registry, and what decoders ask for.

A decoder asks for the schema of each id once. Whoever runs it answers: from the catalogue, which is
sent to the tasks, or, for an id that the driver has not seen, from the registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple

RecordField = Literal["key", "value"]


class TopicField(NamedTuple):
    """The keys or the values of a topic; the two have separate schemas."""

    topic: str
    field: RecordField


class SchemaFormat(StrEnum):
    """The formats of schemas, as a registry names them."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


@dataclass(frozen=True, slots=True, order=True)
class SubjectVersion:
    """The registration of a schema: a subject, and the number of a version in it."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ReferencedSchema:
    """A schema to which another one refers by ``name``: the path of an import in Protobuf, a
    ``$ref`` in JSON Schema."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A single schema. An Avro schema contains the types to which it refers. In other formats they
    are in ``references``, both direct and indirect ones, each after its own references."""

    format: SchemaFormat
    text: str
    references: tuple[ReferencedSchema, ...] = ()


@dataclass(frozen=True, slots=True)
class UnusableSchema:
    """Records with this id are undecodable, for this ``reason``: for example, the registry does not
    have the id, and it is certain that it will not appear later; or the schema cannot be read
    together with the ones to which it refers."""

    reason: str


class FoundSchema(NamedTuple):
    """What a schema id stands for, and the subjects under which it is registered."""

    schema: RegisteredSchema | UnusableSchema
    versions: tuple[SubjectVersion, ...] = ()


@dataclass(frozen=True, slots=True)
class AskSchemas:
    """A request to find the schemas with these ids, which records name. Each one found is passed to
    ``add_schema``."""

    topic_field: TopicField
    ids: tuple[int, ...]


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
    """The schemas with which records were written, by id. If one is missing, the driver has not
    seen it, or the registry did not have it."""
    versions: Mapping[int, tuple[SubjectVersion, ...]] = field(default_factory=dict)
    """The subjects under which an id is registered."""
    latest: Mapping[str, LatestSchema] = field(default_factory=dict)
    """The latest schema of each subject. A subject that is not listed here does not exist."""
    records_name_subjects: bool = False
    """Whether a schema's name tells the subject of its records even if its versions are not
    known."""
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

    def of_id(self, schema_id: int) -> FoundSchema | None:
        """What the driver has found out about an id; None if it has not seen the id, or the
        registry did not have it."""
        schema = self.schemas.get(schema_id)
        return None if schema is None else FoundSchema(schema, self.versions.get(schema_id, ()))
