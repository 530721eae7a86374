"""Makes the catalogue of a run's schemas in the driver; each id and each subject is requested
once."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from functools import cache

from rangeland.decode.payload.schema_ids.schema_catalogue import (
    LatestSchema,
    RecordField,
    RegisteredSchema,
    SchemaCatalogue,
    SubjectVersion,
    TopicField,
    UnusableSchema,
)
from rangeland.errors import JobFileError
from rangeland.schema_registry.registry_client import Absence, RegistryClient
from rangeland.schema_registry.registry_responses import SchemaResponse, VersionResponse
from rangeland.schema_registry.schema_references import resolve_references
from rangeland.schema_registry.subject_names import SubjectNameStrategy, subject_name


class RegistrySchemas:
    """Schemas with everything to which they refer. Each is fetched once."""

    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry
        self._fetch = cache(self._fetch_version)

    def of_id(self, schema_id: int) -> RegisteredSchema | UnusableSchema | None:
        """The schema with this id; None if the registry does not have it at present."""
        response = self._registry.schema(schema_id)
        return None if response is None else self.whole(response)

    def whole(self, response: SchemaResponse) -> RegisteredSchema | UnusableSchema:
        return resolve_references(response, self._fetch)

    def latest(self, subject: str, absence: Absence) -> LatestSchema | None:
        """The latest schema of a subject. Raises JobFileError if it cannot be used."""
        response = self._registry.latest(subject, absence)
        if response is None:
            return None
        schema = self.whole(response.schema)
        if isinstance(schema, UnusableSchema):
            raise _unusable_schema_error(subject, response, schema)
        return LatestSchema(response.id, response.at.version, schema)

    def _fetch_version(self, at: SubjectVersion) -> SchemaResponse:
        return self._registry.referenced_version(at).schema


def make_catalogue(
    registry: RegistryClient,
    strategy: SubjectNameStrategy,
    seen: Mapping[TopicField, Iterable[int]],
    with_latest: Collection[RecordField] = ("key", "value"),
) -> SchemaCatalogue:
    """Makes the catalogue. ``seen``: the ids of keys and values that are known, if any. Ids that
    the registry does not have are left for the tasks to judge. For the fields in ``with_latest``,
    the latest schemas of their subjects are included; other fields do not need them."""
    schemas = RegistrySchemas(registry)
    ids = {field: sorted(set(numbers)) for field, numbers in seen.items()}
    distinct = sorted({schema_id for numbers in ids.values() for schema_id in numbers})
    responses = {schema_id: schemas.of_id(schema_id) for schema_id in distinct}
    known = {n: schema for n, schema in responses.items() if schema is not None}
    usable = {n: schema for n, schema in known.items() if isinstance(schema, RegisteredSchema)}
    subjects = {
        subject_name(strategy, topic_field, schema)
        for topic_field, numbers in ids.items()
        if topic_field.field in with_latest
        for schema in (None, *(usable[n] for n in numbers if n in usable))
    }
    absence = absence_of_versions(strategy.names_the_record)
    versions = {n: registry.versions(n, absence) for n in usable}
    existing = {at.subject for listed in versions.values() for at in listed}
    latest = {
        subject: schemas.latest(
            subject,
            Absence.CONTRADICTED if subject in existing else Absence.BELIEVED_ONCE_CONFIRMED,
        )
        for subject in sorted(filter(None, subjects))
    }
    return SchemaCatalogue(
        schemas=known,
        versions=versions,
        records_name_subjects=strategy.names_the_record,
        latest={subject: schema for subject, schema in latest.items() if schema is not None},
        made_as=uuid.uuid4().hex,
    )


def absence_of_versions(records_name_subjects: bool) -> Absence:
    """What it means that the registry has an id but no versions of it. If records name their
    subjects, the run can do without the versions; otherwise a copy is late."""
    return Absence.BELIEVED_ONCE_CONFIRMED if records_name_subjects else Absence.CONTRADICTED


def _unusable_schema_error(
    subject: str, response: VersionResponse, schema: UnusableSchema
) -> JobFileError:
    return JobFileError(
        f"the latest schema of {subject} cannot be used",
        why=f"version {response.at.version}, id {response.id}: {schema.reason}",
        do="correct it in the schema registry, or name a schema in the job file",
        subject=subject,
        id=response.id,
    )
