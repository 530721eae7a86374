"""``sample``: what the newest records of a job look like, without Spark. Lands nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.decode.columns import VALUE
from rangeland.decode.payload.confluent_framing import count_schema_ids
from rangeland.decode.payload.json_inference import InferredField, infer_json_schema
from rangeland.errors import UsageError
from rangeland.fetch.simple_consumer import read_slices
from rangeland.groups.job_survey import survey_of
from rangeland.job import Job
from rangeland.job.source_settings import cluster_settings, wanted_of
from rangeland.model import LogState, Slice
from rangeland.progress_events import Progress
from rangeland.results import WriterSchema

SHOWN_ROWS = 5


@dataclass(frozen=True, slots=True)
class SampleResult:
    """``formats``: how many values are JSON objects, framed with a schema id, other text, other
    bytes, or null. ``schema``: for JSON, as Spark DDL; empty without any. ``rows`` are some values
    as they are."""

    records: int
    formats: dict[str, int]
    schemas: tuple[WriterSchema, ...]
    schema: str
    fields: tuple[InferredField, ...] = ()
    rows: tuple[bytes | None, ...] = ()

    def to_json(self) -> dict[str, Any]:
        schemas = [{"id": s.id, "subject": s.subject, "records": s.records} for s in self.schemas]
        return {
            "records": self.records,
            "formats": self.formats,
            "schemas": schemas,
            "schema": self.schema,
        }


def sample(job: Job, progress: Progress, records: int) -> SampleResult:
    """The newest ``records`` of each partition. Raises whatever a survey and reading raise."""
    progress.step(f"asking {job.source.where} for the ends of the logs")
    settings = cluster_settings(job)
    survey = survey_of(job, wanted_of(job))
    progress.step("reading the newest records")
    values = newest(survey.logs.values(), settings.knowing(survey), records)
    return described(values)


def newest(logs: Iterable[LogState], settings: ClusterSettings, records: int) -> list[bytes | None]:
    """The values of the newest records of each log; of the oldest where offsets are bytes."""
    together: list[Slice] = []
    alone: list[list[Slice]] = []
    for index, log in enumerate(logs):
        piece = Slice(
            index,
            log.partition,
            log.start_offset,
            log.end_offset,
            topic_id=log.leader.topic_id,
            leader=log.leader.address,
        )
        if log.start_offset >= log.end_offset:
            continue
        if log.borders is None:
            begin = max(log.start_offset, log.end_offset - records)
            together.append(replace(piece, from_offset=begin))
        else:
            # Where the newest begin is unknown, so the reading stops early, which ends all slices.
            alone.append([piece])
    groups = [together, *alone] if together else alone
    return [value for slices in groups for value in _values(slices, settings, records)]


def _values(slices: list[Slice], settings: ClusterSettings, records: int) -> list[bytes | None]:
    """At most ``records`` of each slice, in order."""
    found: dict[int, list[bytes | None]] = {piece.index: [] for piece in slices}
    with closing(read_slices(slices, settings)) as chunks:
        for chunk in chunks:
            if chunk.batch is not None:
                found[chunk.slice_index] += chunk.batch.column(VALUE.name).to_pylist()
            if all(len(values) >= records for values in found.values()):
                break
    return [value for values in found.values() for value in values[:records]]


def described(values: list[bytes | None]) -> SampleResult:
    """What these values are."""
    census = count_schema_ids(pa.array(values, pa.binary()))
    framed = sum(census.schema_ids.values())
    kinds = Counter(_kind(value) for value in values)
    bare = [value for value in values if value is not None and _kind(value) != "framed"]
    inferred = infer_json_schema(bare)
    formats = {
        "json": inferred.records,
        "framed": framed,
        "text": kinds["text"] - inferred.records,
        "bytes": kinds["framed"] + kinds["bytes"] - framed,
        "null": kinds["null"],
    }
    return SampleResult(
        records=len(values),
        formats={name: count for name, count in formats.items() if count},
        schemas=tuple(WriterSchema(*pair) for pair in sorted(census.schema_ids.items())),
        schema=inferred.ddl,
        fields=tuple(inferred.fields),
        rows=tuple(values[:SHOWN_ROWS]),
    )


def _kind(value: bytes | None) -> str:
    if value is None:
        return "null"
    if value[:1] == b"\0":
        return "framed"
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes"
    return "text"


def write_schema(result: SampleResult, path: Path) -> None:
    """Raises UsageError if there is no schema, or the file cannot be written."""
    if not result.schema:
        raise UsageError(
            f"--out {path}: there is no schema to write",
            why="none of the records that were read is a JSON object with fields",
            do="Read more of them with --records",
        )
    try:
        path.write_text(result.schema + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"--out {path}: it cannot be written",
            why=error.strerror or str(error),
            do="Name a file in a folder that exists and can be written to",
        ) from error


def shown_rows(result: SampleResult, width: int = 100) -> Iterator[str]:
    """The first values, escaped and cut."""
    for value in result.rows:
        text = "null" if value is None else repr(value)[2:-1]
        yield text if len(text) <= width else f"{text[: width - 3]}..."
