"""Makes the catalogue of a run in the driver: each id and each subject is asked for once."""

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
from rangeland.schema_registry.registry_client import RegistryClient
from rangeland.schema_registry.registry_responses import SchemaResponse, VersionResponse
from rangeland.schema_registry.schema_references import resolve_references
from rangeland.schema_registry.subject_names import SubjectNameStrategy, subject_name


class RegistrySchemas:
    """Schemas with all that they refer to. What was fetched once is kept."""

    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry
        self._fetch = cache(self._fetch_version)

    def of_id(self, schema_id: int) -> RegisteredSchema | UnusableSchema | None:
        """The schema with this id; None if the registry does not have it now."""
        response = self._registry.schema(schema_id)
        return None if response is None else self.whole(response)

    def whole(self, response: SchemaResponse) -> RegisteredSchema | UnusableSchema:
        return resolve_references(response, self._fetch)

    def latest(self, subject: str) -> LatestSchema | None:
        """The latest schema of a subject. Raises JobFileError for one that cannot be used."""
        response = self._registry.latest(subject)
        if response is None:
            return None
        schema = self.whole(response.schema)
        if isinstance(schema, UnusableSchema):
            raise _unusable_schema_error(subject, response, schema)
        return LatestSchema(response.id, response.at.version, schema)

    def _fetch_version(self, at: SubjectVersion) -> SchemaResponse | None:
        found = self._registry.version(at)
        return None if found is None else found.schema


def make_catalogue(
    registry: RegistryClient,
    strategy: SubjectNameStrategy,
    seen: Mapping[TopicField, Iterable[int]],
    with_latest: Collection[RecordField] = ("key", "value"),
) -> SchemaCatalogue:
    """Makes the catalogue. ``seen``: the ids that keys or values have, as far as they are known;
    none if nothing is known. What the registry does not have is left to the tasks, which judge it.
    The latest schemas are those of the subjects that these keys and values have, for the fields
    ``with_latest``: others do not need them."""
    schemas = RegistrySchemas(registry)
    ids = {of: sorted(set(found)) for of, found in seen.items()}
    asked = {one: schemas.of_id(one) for one in sorted({one for of in ids.values() for one in of})}
    found = {one: it for one, it in asked.items() if it is not None}
    usable = {one: it for one, it in found.items() if isinstance(it, RegisteredSchema)}
    subjects = {
        subject_name(strategy, of, schema)
        for of, numbers in ids.items()
        if of.field in with_latest
        for schema in (None, *(usable[one] for one in numbers if one in usable))
    }
    latest = {one: schemas.latest(one) for one in sorted(filter(None, subjects))}
    return SchemaCatalogue(
        schemas=found,
        versions={one: registry.versions(one) for one in usable},
        latest={subject: one for subject, one in latest.items() if one is not None},
        made_as=uuid.uuid4().hex,
    )


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
