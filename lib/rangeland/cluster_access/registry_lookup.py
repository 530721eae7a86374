"""Looks up the row format of a job, with those schemas of its schema registry that records name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TypeAlias

from rangeland.cluster_access.cluster_lookup import look_up_cluster, registry_settings
from rangeland.connection.pool import ConnectionPool
from rangeland.decode.payload.row_format import RowFormat
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    SchemaCatalogue,
    SubjectVersion,
    TopicField,
)
from rangeland.decode.payload.schema_ids.subject_formats import SubjectFormats
from rangeland.job import Job
from rangeland.job.connection_settings import schema_registry_settings
from rangeland.job.payload_formats import make_row_format
from rangeland.model import Slice, Survey
from rangeland.schema_registry.executor_schemas import ExecutorSchemas
from rangeland.schema_registry.registry_client import FIRST_RESPONSE_MS, RegistryClient
from rangeland.schema_registry.registry_settings import WrittenBefore
from rangeland.schema_registry.schema_lookup import make_catalogue
from rangeland.schema_registry.table_formats import TableFormats
from rangeland.survey.seen_schema_ids import seen_schema_ids

MAX_SEEN_IDS = 50
"""The most ids per topic. If there are more, they are probably not schema ids, and each of them
would be requested."""

SeenIds: TypeAlias = Mapping[TopicField, Iterable[int]]
"""The schema ids in the keys and values of a run's topics."""


def schema_ids_in(
    job: Job, slices: Iterable[Slice], survey: Survey
) -> dict[TopicField, Counter[int]]:
    """The schema ids in the first and last records of slices."""
    with ConnectionPool(look_up_cluster(job).with_versions_of(survey)) as brokers:
        return seen_schema_ids(brokers, slices, job.decode.fields_with_schema_ids)


def look_up_row_format(job: Job, seen: SeenIds | None = None) -> RowFormat | None:
    """The row format of a job; None if keys and values stay bytes. ``seen``: the ids whose schemas
    are requested, for a job with a schema registry. Raises what ``make_row_format`` raises,
    TableRefused for schemas that do not fit into one table, and Unreachable for a registry that
    does not answer."""
    return make_row_format(job, _table_formats(job, seen or {}))


def schemas_of(
    job: Job, row_format: RowFormat | None, written: WrittenBefore | None = None
) -> ExecutorSchemas:
    """Looks up schemas in the driver, for a row format of the job. ``written``: how old the records
    are known to be."""
    catalogue = SchemaCatalogue() if row_format is None else row_format.catalogue
    return ExecutorSchemas(catalogue, registry_settings(job), written)


def registered_as(
    schemas: ExecutorSchemas, row_format: RowFormat | None, schema_id: int
) -> SubjectVersion | None:
    """Which registration to show for an id in values; None if it has none, or if values have no
    schema ids. Raises the errors of the lookup."""
    values = None if row_format is None else row_format.value
    if not isinstance(values, SubjectFormats):
        return None
    return values.registration_among(schemas.versions_of(schema_id))


def _table_formats(job: Job, seen: SeenIds) -> TableFormats | None:
    """The schemas of a registry, frozen; None if there is no registry."""
    registry = job.decode.registry
    if registry is None:
        return None
    settings = schema_registry_settings(job, registry)
    client = RegistryClient(settings, first_response_ms=FIRST_RESPONSE_MS)
    strategy = registry.subject_name_strategy
    without_schema = [
        f for f in job.decode.fields_with_schema_ids if not job.decode.payload(f).schema_
    ]
    ids = {field: tuple(islice(ids, MAX_SEEN_IDS)) for field, ids in seen.items()}
    catalogue = make_catalogue(client, strategy, ids, without_schema)
    return TableFormats(catalogue, strategy, ids)
