"""``sample``: shows the formats and fields of a job's newest records, without Spark. Lands
nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa

from rangeland.cluster_access.cluster_lookup import look_up_read_settings
from rangeland.cluster_access.job_survey import survey_of
from rangeland.cluster_access.registry_lookup import look_up_row_format, registered_as, schemas_of
from rangeland.decode.columns import TOPIC, VALUE
from rangeland.decode.payload.json.json_inference import infer_json_schema
from rangeland.decode.payload.row_format import RowFormat
from rangeland.decode.payload.schema_ddl import print_ddl
from rangeland.decode.payload.schema_ids.confluent_framing import count_schema_ids
from rangeland.decode.payload.schema_ids.schema_catalogue import TopicField
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.slice_reading import read_slices
from rangeland.job import Job
from rangeland.job.connection_settings import request_for_range
from rangeland.model import LogState, Slice
from rangeland.progress_events import Progress
from rangeland.query_results import SampleResult, ShownValue
from rangeland.results import WriterSchema
from rangeland.schema_registry.executor_schemas import ExecutorSchemas
from rangeland.schema_registry.registry_settings import LONG_AGO

SHOWN_ROWS = 5


def sample(job: Job, progress: Progress, records: int) -> SampleResult:
    """Describes the newest ``records`` of each partition. Raises the errors of a survey and of
    reading."""
    progress.step(f"asking {job.source.where} for the ends of the logs")
    settings = look_up_read_settings(job)
    survey = survey_of(job, request_for_range(job), settings.cluster)
    progress.step("reading the newest records")
    rows = newest_records(survey.logs.values(), settings.with_versions_of(survey), records)
    topics = {partition.topic for partition in survey.logs}
    row_format = look_up_row_format(job, schema_ids_of(job, topics, rows))
    # Nothing depends on a sample, so it need not wait for an unknown schema.
    return describe_rows(rows, schemas_of(job, row_format, LONG_AGO), row_format)


def schema_ids_of(
    job: Job, topics: Iterable[str], rows: Iterable[pa.RecordBatch]
) -> dict[TopicField, Counter[int]]:
    """The schema ids that the keys and values of these rows name, for all topics."""
    fields = job.decode.fields_with_schema_ids
    by_field = {TopicField(topic, field): Counter[int]() for topic in topics for field in fields}
    for batch in rows:
        for field in fields:
            counts = count_schema_ids(batch.column(field))
            by_field[TopicField(_topic_of(batch), field)].update(counts)
    return by_field


def newest_records(
    logs: Iterable[LogState], settings: ReadSettings, records: int
) -> list[pa.RecordBatch]:
    """The newest records of each log, or the oldest if its offsets are bytes."""
    together: list[Slice] = []
    alone: list[list[Slice]] = []
    for index, log in enumerate(logs):
        if log.start_offset >= log.end_offset:
            continue
        if log.borders is None:
            begin = max(log.start_offset, log.end_offset - records)
            together.append(log.to_slice(index, begin))
        else:
            # The offset at which the newest records begin is unknown. Reading stops early, which
            # ends all slices that are read together.
            alone.append([log.to_slice(index)])
    groups = [together, *alone] if together else alone
    return [batch for slices in groups for batch in _rows(slices, settings, records)]


def _rows(slices: list[Slice], settings: ReadSettings, records: int) -> Iterator[pa.RecordBatch]:
    """The rows of at most ``records`` of each slice, in order."""
    by_slice: dict[int, list[pa.RecordBatch]] = {slice_.index: [] for slice_ in slices}
    remaining = dict.fromkeys(by_slice, records)
    with closing(read_slices(slices, settings)) as chunks:
        for chunk in chunks:
            index = chunk.slice_index
            if chunk.rows is not None and remaining[index]:
                rows = chunk.rows.slice(0, remaining[index])
                by_slice[index].append(rows)
                remaining[index] -= rows.num_rows
            if not any(remaining.values()):
                break
    for batches in by_slice.values():
        yield from (batch for batch in batches if batch.num_rows)


def describe_rows(
    rows: list[pa.RecordBatch], schemas: ExecutorSchemas, row_format: RowFormat | None
) -> SampleResult:
    """Describes the values of these records: what they look like, and what decoding them gives."""
    values = [value for batch in rows for value in batch.column(VALUE.name).to_pylist()]
    schema_ids = count_schema_ids(pa.array(values, pa.binary()))
    framed_values = sum(schema_ids.values())
    kinds = Counter(_kind(value) for value in values)
    bare = [value for value in values if value is not None and _kind(value) != "framed"]
    json_schema = infer_json_schema(bare)
    formats = {
        "json": json_schema.records,
        "framed": framed_values,
        "text": kinds["text"] - json_schema.records,
        "bytes": kinds["framed"] + kinds["bytes"] - framed_values,
        "null": kinds["null"],
    }
    shown, undecodable = _shown_values(rows, schemas, row_format)
    return SampleResult(
        records=len(values),
        formats={name: count for name, count in formats.items() if count},
        schemas=_schemas(schema_ids, schemas, row_format),
        schema=json_schema.ddl or _ddl(row_format),
        fields=tuple(json_schema.fields),
        rows=tuple(shown),
        undecodable=None if row_format is None else undecodable,
    )


def _schemas(
    counts: Mapping[int, int], schemas: ExecutorSchemas, row_format: RowFormat | None
) -> tuple[WriterSchema, ...]:
    """The schemas with these ids, each with its number of records and its subject, if known."""
    found = []
    for schema_id, count in sorted(counts.items()):
        registration = registered_as(schemas, row_format, schema_id)
        found.append(
            WriterSchema(schema_id, count, None if registration is None else registration.subject)
        )
    return tuple(found)


def _ddl(row_format: RowFormat | None) -> str:
    """The fields of decoded values as Spark DDL; empty if they have none."""
    kind = None if row_format is None or row_format.value is None else row_format.value.arrow_type
    return print_ddl(kind) if kind is not None and pa.types.is_struct(kind) else ""


def _shown_values(
    rows: list[pa.RecordBatch], schemas: ExecutorSchemas, row_format: RowFormat | None
) -> tuple[list[ShownValue], int]:
    """Some values as text, and how many records cannot be decoded."""
    lines: list[ShownValue] = []
    undecodable = 0
    for batch in rows:
        for values, reasons in _decoded_values(batch, schemas, row_format):
            undecodable += len(reasons)
            for row in range(min(len(values), SHOWN_ROWS - len(lines))):
                value = values[row].as_py()
                if row in reasons:
                    lines.append(f"undecodable {reasons[row]}")
                elif isinstance(value, dict):
                    lines.append({name: _text(field) for name, field in value.items()})
                else:
                    lines.append(_text(value))
    return lines, undecodable


def _decoded_values(
    batch: pa.RecordBatch, schemas: ExecutorSchemas, row_format: RowFormat | None
) -> Iterator[tuple[pa.Array, dict[int, str]]]:
    """Pieces of bounded memory: the decoded values, and for each row that cannot be decoded, the
    reason."""
    if row_format is None:
        yield batch.column(VALUE.name), {}
        return
    decoder = row_format.decoder(_topic_of(batch))
    for part in schemas.answer(decoder.decode(batch), decoder.add_schema):
        reasons = {record.row: f"{record.field}: {record.reason}" for record in part.undecodable}
        yield _values_of(part.batch, row_format), reasons


def _values_of(rows: pa.RecordBatch, row_format: RowFormat) -> pa.Array:
    if not row_format.is_flat or row_format.value is None:
        return rows.column(row_format.columns.column_name(VALUE.name))
    return rows.select(row_format.value.arrow_type.names).to_struct_array()


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return repr(value)[2:-1]
    if isinstance(value, dict | list | bool | float):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)


def _topic_of(rows: pa.RecordBatch) -> str:
    return str(rows.column(TOPIC.name)[0].as_py())


def _kind(value: bytes | None) -> str:
    """What a value looks like: null, framed with a schema id, text, or other bytes."""
    if value is None:
        return "null"
    if value[:1] == b"\0":
        return "framed"
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes"
    return "text"


def shown_rows(result: SampleResult, width: int = 100) -> Iterator[str]:
    """The sampled values that have no fields, cut to this width."""
    for text in (row for row in result.rows if isinstance(row, str)):
        yield text if len(text) <= width else f"{text[: width - 3]}..."
