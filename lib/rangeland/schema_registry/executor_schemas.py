"""Answers decoders that ask for schemas: from the driver's catalogue, or, for ids that are not in
it, from the registry, once per process and run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from rangeland.decode.payload.schema_ids.schema_catalogue import (
    AskSchemas,
    FoundSchema,
    RegisteredSchema,
    SchemaCatalogue,
    SubjectVersion,
    TopicField,
    UnusableSchema,
)
from rangeland.errors import JobFileError
from rangeland.schema_registry.registry_client import Absence, RegistryClient
from rangeland.schema_registry.registry_responses import SchemaResponse
from rangeland.schema_registry.registry_settings import FIELD, RegistrySettings, WrittenBefore
from rangeland.schema_registry.schema_lookup import RegistrySchemas, absence_of_versions
from rangeland.schema_registry.unknown_ids import UnknownIds

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ExecutorSchemas:
    """Looks up schemas: first in the driver's catalogue, then in the registry. ``settings`` is None
    if there is no registry. ``written`` says how old the records are known to be; the registry may
    not have the id of a record that was just written."""

    catalogue: SchemaCatalogue
    settings: RegistrySettings | None = None
    written: WrittenBefore | None = None

    def answer(
        self,
        results: Iterable[Result | AskSchemas],
        add_schema: Callable[[TopicField, int, FoundSchema], None],
    ) -> Iterator[Result]:
        """The results of a decoder, whose questions are answered through ``add_schema``. Raises
        what ``of_id`` and ``add_schema`` raise."""
        for result in results:
            if isinstance(result, AskSchemas):
                for schema_id in result.ids:
                    add_schema(result.topic_field, schema_id, self.of_id(schema_id))
            else:
                yield result

    def of_id(self, schema_id: int) -> FoundSchema:
        """The schema with this id. Raises Unreachable, AccessDenied and JobFileError, as
        ``RegistryClient`` does."""
        found = self.catalogue.of_id(schema_id)
        if found is not None:
            return found
        if self.settings is None:
            reason = f"schema id {schema_id} is not known, and there is no registry"
            return FoundSchema(UnusableSchema(reason))
        return _of_run(self.catalogue, self.settings).of_id(schema_id, self.written)

    def versions_of(self, schema_id: int) -> tuple[SubjectVersion, ...]:
        """The registrations of an id; empty for an unregistered id. Raises what ``of_id``
        raises."""
        if schema_id in self.catalogue.schemas or self.settings is None:
            return self.catalogue.versions.get(schema_id, ())
        return _of_run(self.catalogue, self.settings).versions_of(schema_id)


class _FetchedSchemas:
    """The schemas that one process has fetched for one run. Only one thread fetches at a time."""

    def __init__(self, catalogue: SchemaCatalogue, settings: RegistrySettings) -> None:
        self._registry = RegistryClient(settings)
        self._absence = absence_of_versions(catalogue.records_name_subjects)
        self._schemas_of = RegistrySchemas(self._registry)
        self._ids = UnknownIds(self._registry, catalogue.known_ids, settings.no_progress_ms)
        self._lock = threading.Lock()
        self._found: dict[int, FoundSchema] = {}

    def of_id(self, schema_id: int, written: WrittenBefore | None) -> FoundSchema:
        with self._lock:
            if schema_id not in self._found:
                self._check_few_are_unusable()
                self._found[schema_id] = self._fetch(schema_id, written)
            return self._found[schema_id]

    def _fetch(self, schema_id: int, written: WrittenBefore | None) -> FoundSchema:
        response = self._ids.schema(schema_id, written)
        if isinstance(response, SchemaResponse):
            schema = self._schemas_of.whole(response)
        else:
            schema = response
        is_usable = isinstance(schema, RegisteredSchema)
        return FoundSchema(
            schema, self._registry.versions(schema_id, self._absence) if is_usable else ()
        )

    def _check_few_are_unusable(self) -> None:
        """Raises JobFileError if there are too many unknown ids: each takes several requests to
        confirm, and any bytes can look like an id."""
        unusable = sum(isinstance(x.schema, UnusableSchema) for x in self._found.values())
        if unusable >= MAX_UNUSABLE_IDS:
            raise JobFileError(
                f"records name more than {MAX_UNUSABLE_IDS} schema ids that the schema registry "
                "does not have",
                why="so many suggest that the topic was not written with this registry",
                do=f"correct {FIELD}.url, or decode.value.format and decode.key.format",
            )

    def versions_of(self, schema_id: int) -> tuple[SubjectVersion, ...]:
        """The versions of an id. If ``of_id`` was not called for it, the registry is asked; an id
        that it does not have has no versions."""
        with self._lock:
            found = self._found.get(schema_id)
            if found is not None:
                return found.versions
            return self._registry.versions(schema_id, Absence.BELIEVED_ONCE_CONFIRMED)


KEPT_RUNS = 4
"""For how many runs a process keeps schemas: only a few share a Python worker at a time, and a run
whose schemas are dropped too early fetches them again."""
MAX_UNUSABLE_IDS = 100
"""The most unusable ids in one process and run."""
_lock = threading.Lock()
_of_runs: dict[str, _FetchedSchemas] = {}


def _of_run(catalogue: SchemaCatalogue, settings: RegistrySettings) -> _FetchedSchemas:
    """The fetched schemas of a run. A process may serve several runs, one after another or at
    once."""
    run = catalogue.made_as
    with _lock:
        if run not in _of_runs:
            while len(_of_runs) >= KEPT_RUNS:
                del _of_runs[next(iter(_of_runs))]
            _of_runs[run] = _FetchedSchemas(catalogue, settings)
        return _of_runs[run]
