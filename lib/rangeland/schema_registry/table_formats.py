"""The formats of a table's keys and values, made from the schemas of a registry.

The latest schema of a subject determines the columns, and the types as which its records are read.
Topics with other subjects share the table if their schemas agree on the types of fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from rangeland.decode.payload.avro.avro_format import AvroFormat
from rangeland.decode.payload.json.json_format import JsonFormat
from rangeland.decode.payload.json.json_schema import parse_json_schema
from rangeland.decode.payload.payload_decoder import (
    PayloadFormat,
    PayloadSchemaError,
    UnknownFields,
)
from rangeland.decode.payload.protobuf.protobuf_format import ProtobufFormat
from rangeland.decode.payload.schema_ddl import print_type
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    LatestSchema,
    RecordField,
    RegisteredSchema,
    SchemaCatalogue,
    SchemaFormat,
    TopicField,
)
from rangeland.decode.payload.schema_ids.subject_formats import (
    SubjectFormats,
    TypeConflict,
    merge_types,
)
from rangeland.decode.payload.schema_ids.subject_writers import SubjectWriters
from rangeland.errors import JobFileError, TableRefused
from rangeland.schema_registry.proto_compiler import compile_proto
from rangeland.schema_registry.registry_settings import FIELD
from rangeland.schema_registry.subject_names import SubjectNameStrategy, own_prefix, subject_name


@dataclass(frozen=True)
class TableFormats:
    """Makes the formats of a table's keys and values. ``seen``: the schema ids in the keys and
    values of a run's topics."""

    catalogue: SchemaCatalogue
    strategy: SubjectNameStrategy
    seen: Mapping[TopicField, tuple[int, ...]]

    def with_schema(
        self, field: RecordField, make: Callable[[SubjectWriters], PayloadFormat]
    ) -> PayloadFormat:
        """The format for payloads that name their schemas, if the table's schema is in the job
        file."""
        any_subject = make(SubjectWriters())
        topics: dict[str, dict[str, PayloadFormat]] = {}
        for topic, subjects in self._subjects(field).items():
            if self.strategy.names_the_record:  # then not all subjects of a topic are known
                topics[topic] = {"": any_subject}
            else:
                topics[topic] = {name: make(SubjectWriters(name)) for name in subjects}
        return SubjectFormats(any_subject.name, any_subject.arrow_type, topics)

    def without_schema(
        self, field: RecordField, name: str, message: str, unknown: UnknownFields
    ) -> PayloadFormat:
        """The format for payloads that are read as the latest schemas of their subjects."""
        topics = self._subjects(field)
        latest = self.catalogue.latest
        prefixes = {
            subject: own_prefix(self.strategy, topic)
            for topic, subjects in topics.items()
            for subject in subjects
        }
        formats = {
            subject: self._make(
                SubjectWriters(subject, prefixes[subject]),
                latest[subject],
                name,
                message,
                unknown,
            )
            for subject in sorted(prefixes)
            if subject in latest
        }
        if not formats:
            raise _no_schema_error(field, sorted(prefixes))
        kind = _together({subject: x.arrow_type for subject, x in formats.items()}, latest)
        by_topic = {
            topic: {subject: formats[subject] for subject in subjects if subject in formats}
            for topic, subjects in topics.items()
        }
        ids = {subject: latest[subject].id for subject in formats}
        own = {topic: own_prefix(self.strategy, topic) for topic in topics}
        lacking = {
            topic: subjects[0]
            for topic, subjects in topics.items()
            if own[topic] is None and not by_topic[topic]
        }
        return SubjectFormats(name, kind, by_topic, ids, own, lacking)

    def _subjects(self, field: RecordField) -> dict[str, list[str]]:
        """The subjects of each topic."""
        return {of.topic: self._subjects_of(of) for of in sorted(self.seen) if of.field == field}

    def _subjects_of(self, of: TopicField) -> list[str]:
        by_id = self.catalogue.schemas
        of_records = (by_id.get(schema_id) for schema_id in self.seen[of])
        usable = [schema for schema in of_records if isinstance(schema, RegisteredSchema)]
        schemas = usable if self.strategy.names_the_record else [None]
        names = {subject_name(self.strategy, of, schema) for schema in schemas}
        return sorted(name for name in names if name is not None)

    def _make(
        self,
        writers: SubjectWriters,
        latest: LatestSchema,
        name: str,
        message: str,
        unknown: UnknownFields,
    ) -> PayloadFormat:
        format_name = latest.schema.format.value.lower()
        try:
            if format_name != name:
                raise PayloadSchemaError(f"it is {format_name}, and the job file says {name}")
            return registered_format(
                latest.schema,
                writers,
                message=message,
                unknown_fields=unknown,
                schema_id=latest.id,
            )
        except PayloadSchemaError as error:
            raise JobFileError(
                f"the latest schema of {writers.subject} cannot be used",
                why=f"version {latest.version}, id {latest.id}: {error}",
                do=error.do or "correct it in the schema registry, or decode in the job file",
                subject=writers.subject,
                id=latest.id,
            ) from error


def _together(kinds: Mapping[str, pa.DataType], latest: Mapping[str, LatestSchema]) -> pa.DataType:
    """One type for all subjects. Raises TableRefused if two of them disagree."""
    merged, *others = kinds.values()
    for subject, kind in zip(list(kinds)[1:], others, strict=True):
        result = merge_types(merged, kind)
        if isinstance(result, TypeConflict):
            conflicting = next(
                s for s in kinds if isinstance(merge_types(kinds[s], kind), TypeConflict)
            )
            subjects = (conflicting, latest[conflicting]), (subject, latest[subject])
            raise _two_types_error(result, *subjects)
        merged = result
    return merged


def _two_types_error(
    conflict: TypeConflict, one: tuple[str, LatestSchema], other: tuple[str, LatestSchema]
) -> TableRefused:
    (subject, first), (beside, second) = one, other
    old, new = print_type(conflict.one), print_type(conflict.other)
    return TableRefused(
        f"the field {conflict.path} would have two types in one table",
        why=f"it is {old} in schema {first.id}, the latest of {subject}, and {new} in schema "
        f"{second.id}, the latest of {beside}",
        do="land these topics in different tables, or name a schema for both in the job file",
        field=conflict.path,
        old_type=old,
        new_type=new,
        schema_ids=[first.id, second.id],
    )


def _no_schema_error(field: RecordField, subjects: list[str]) -> JobFileError:
    shown = ", ".join(subjects[:5])
    return JobFileError(
        f"the schema registry has no schema for the job's {field}s",
        why=f"there is no subject {shown}" if shown else "no record shows their subject",
        do=f"register a schema, correct {FIELD}.subject_name_strategy, or name a schema in "
        f"decode.{field}.schema",
        subjects=subjects[:100],
    )


MAIN_FILE: Final = "rangeland_main.proto"
"""The path of the main Protobuf file; a registry names only the files that it imports."""


def registered_format(
    schema: RegisteredSchema,
    writers: SubjectWriters,
    *,
    message: str = "",
    unknown_fields: UnknownFields = UnknownFields.DROP,
    schema_id: int | None = None,
) -> PayloadFormat:
    """The format for payloads whose table has the latest schema of a subject. ``schema``: the
    table's, with this id. ``message``: which message of a Protobuf file, if there are several.
    ``unknown_fields``: for JSON. Raises PayloadSchemaError for a schema that cannot be used, and
    MissingRequirement if there is no compiler for Protobuf."""
    match schema.format:
        case SchemaFormat.AVRO:
            return AvroFormat(schema.text, writers, schema_id=schema_id)
        case SchemaFormat.PROTOBUF:
            files = {reference.name: reference.text for reference in schema.references}
            if MAIN_FILE in files:
                raise PayloadSchemaError(f"it imports a file that is named {MAIN_FILE}")
            descriptors = compile_proto(MAIN_FILE, {**files, MAIN_FILE: schema.text})
            return ProtobufFormat(descriptors, message, writers)
        case SchemaFormat.JSON:
            referenced = {reference.name: reference.text for reference in schema.references}
            fields = parse_json_schema(schema.text, referenced)
            return JsonFormat(fields, unknown_fields, writers)
