"""Schemas in a task: from the driver's catalogue. Other ids are fetched once per process and run,
not once per record.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from rangeland.decode.payload.schema_ids.schema_catalogue import (
    RegisteredSchema,
    SchemaCatalogue,
    SubjectVersion,
    UnusableSchema,
    WrittenBefore,
)
from rangeland.errors import JobFileError
from rangeland.schema_registry.registry_client import FIELD, RegistryClient
from rangeland.schema_registry.registry_responses import SchemaResponse
from rangeland.schema_registry.registry_settings import RegistrySettings
from rangeland.schema_registry.schema_lookup import RegistrySchemas
from rangeland.schema_registry.unknown_ids import UnknownIds


@dataclass(frozen=True, slots=True)
class ExecutorSchemas:
    """Looks up schemas in a task: in the driver's catalogue, else in the registry. It can be
    pickled. ``settings`` is None without a registry."""

    catalogue: SchemaCatalogue
    settings: RegistrySettings | None = None
    written: WrittenBefore | None = None

    def of_records(self, written: WrittenBefore) -> ExecutorSchemas:
        return replace(self, written=written)

    @property
    def seen(self) -> list[int]:
        return sorted(self.catalogue.schemas)

    def of_id(self, schema_id: int) -> RegisteredSchema | UnusableSchema:
        """The schema with this id. Raises Unreachable, AccessDenied and JobFileError, as
        ``RegistryClient`` does."""
        schema = self.catalogue.schemas.get(schema_id)
        if schema is not None:
            return schema
        if self.settings is None:
            return UnusableSchema(f"schema id {schema_id} is not known, and there is no registry")
        return _of_run(self.catalogue, self.settings).of_id(schema_id, self.written)

    def versions_of(self, schema_id: int) -> tuple[SubjectVersion, ...]:
        """The places where an id is registered; none for an unregistered id. Raises as ``of_id``
        does."""
        if schema_id in self.catalogue.schemas or self.settings is None:
            return self.catalogue.versions.get(schema_id, ())
        return _of_run(self.catalogue, self.settings).versions_of(schema_id)


@dataclass(frozen=True, slots=True)
class SubjectWriters:
    """The schemas of one subject: an id that is only registered under others is refused. Equal
    schemas have the same id in all subjects, so an id may be registered under several. ``own``: the
    prefix of the topic's subjects, if not all of them are known."""

    schemas: ExecutorSchemas
    subject: str
    own: str | None = None

    def of_records(self, written: WrittenBefore) -> SubjectWriters:
        return replace(self, schemas=self.schemas.of_records(written))

    def of_id(self, schema_id: int) -> RegisteredSchema | UnusableSchema:
        """The schema with this id, if the subject has it. Raises JobFileError, whatever the policy,
        for a schema of the topic that the driver has not seen: its records are sound, and must not
        count as undecodable, but the table has no columns for them."""
        schema = self.schemas.of_id(schema_id)
        if isinstance(schema, UnusableSchema):
            return schema
        subjects = {at.subject for at in self.schemas.versions_of(schema_id)}
        if not subjects or self.subject in subjects:
            return schema
        shown = ", ".join(sorted(subjects)[:3])
        if self.own is not None and any(name.startswith(self.own) for name in subjects):
            raise JobFileError(
                f"the table has no columns for schema {schema_id}, which is registered as {shown}",
                why="the columns come from the subjects of the oldest and the newest records, and "
                "this one only occurs between them",
                do="name a schema that has the fields of all subjects in the job file, under "
                "decode.value.schema or decode.key.schema",
                id=schema_id,
            )
        return UnusableSchema(f"schema {schema_id} is registered as {shown}, not {self.subject}")


class _FetchedSchemas:
    """The schemas that one process has fetched for one run. One thread fetches at a time."""

    def __init__(self, catalogue: SchemaCatalogue, settings: RegistrySettings) -> None:
        self._registry = RegistryClient(settings)
        self._schemas_of = RegistrySchemas(self._registry)
        self._ids = UnknownIds(self._registry, catalogue.known_ids, settings.no_progress_ms)
        self._lock = threading.Lock()
        self._schemas: dict[int, RegisteredSchema | UnusableSchema] = {}
        self._versions: dict[int, tuple[SubjectVersion, ...]] = {}

    def of_id(
        self, schema_id: int, written: WrittenBefore | None
    ) -> RegisteredSchema | UnusableSchema:
        with self._lock:
            if schema_id not in self._schemas:
                self._check_few_are_unusable()
                response = self._ids.schema(schema_id, written)
                if isinstance(response, SchemaResponse):
                    schema = self._schemas_of.whole(response)
                else:
                    schema = response
                if isinstance(schema, RegisteredSchema):
                    self._versions[schema_id] = self._registry.versions(schema_id)
                self._schemas[schema_id] = schema
            return self._schemas[schema_id]

    def _check_few_are_unusable(self) -> None:
        """Raises JobFileError for too many unknown ids: it takes requests to be sure of each, and
        any bytes can look like ids."""
        if len(self._schemas) - len(self._versions) >= MAX_UNUSABLE_IDS:
            raise JobFileError(
                f"records name more than {MAX_UNUSABLE_IDS} schema ids that the schema registry "
                "does not have",
                why="so many mean that the topic was not written with this registry",
                do=f"correct {FIELD}.url, or decode.value.format and decode.key.format",
            )

    def versions_of(self, schema_id: int) -> tuple[SubjectVersion, ...]:
        """The versions of an id; if ``of_id`` was not called for it, asks the registry without
        judging."""
        with self._lock:
            if schema_id not in self._schemas:
                return self._registry.versions(schema_id)
            return self._versions.get(schema_id, ())


KEPT_RUNS = 4
MAX_UNUSABLE_IDS = 100
"""The most unusable ids in one process and run."""
_lock = threading.Lock()
_of_runs: dict[str, _FetchedSchemas] = {}


def _of_run(catalogue: SchemaCatalogue, settings: RegistrySettings) -> _FetchedSchemas:
    """The fetched schemas of a run. A process may serve several runs, in turn or at once."""
    run = catalogue.made_as
    with _lock:
        if run not in _of_runs:
            while len(_of_runs) >= KEPT_RUNS:
                del _of_runs[next(iter(_of_runs))]
            _of_runs[run] = _FetchedSchemas(catalogue, settings)
        return _of_runs[run]
