"""The formats of a job's keys and values, made from its section ``decode``.

Schemas in files are read here, in the driver: tasks get formats as values.
"""

from __future__ import annotations

from pathlib import Path

from rangeland.decode.payload.json_format import JsonFormat
from rangeland.decode.payload.payload_decoder import (
    PayloadFormat,
    PayloadSchemaError,
    UnknownFields,
)
from rangeland.decode.payload.raw_formats import StringFormat
from rangeland.decode.payload.row_format import RowFormat
from rangeland.decode.payload.schema_ddl import parse_ddl
from rangeland.dialects.row_schema import typed_rows
from rangeland.errors import JobFileError
from rangeland.job.decode_section import PayloadSpec, names_file
from rangeland.job.job_file import Job

MAX_SCHEMA_BYTES = 1 << 20


def row_format_of(job: Job) -> RowFormat | None:
    """None where keys and values stay bytes. Raises JobFileError for a schema that cannot be read
    or used."""
    decode = job.decode
    unknown = UnknownFields(decode.unknown_fields)
    # What is kept of unknown fields is that of values: keys have no column for it.
    of_keys = UnknownFields.DROP if unknown is UnknownFields.KEEP else unknown
    key = _format(decode.key, of_keys, "decode.key.schema")
    value = _format(decode.value, unknown, "decode.value.schema")
    if key is None and value is None:
        return None
    try:
        made = RowFormat(key, value, decode.layout == "flat", unknown is UnknownFields.KEEP)
        typed_rows(job.source.dialect, made)
    except PayloadSchemaError as error:
        raise _refused("decode.value.schema", error) from error
    return made


def _format(payload: PayloadSpec, unknown: UnknownFields, field: str) -> PayloadFormat | None:
    if payload.format == "bytes":
        return None
    if payload.format == "string":
        return StringFormat()
    schema = payload.schema_ or ""
    where, text = field, schema
    if names_file(schema):
        where, text = f"{field} ({schema})", _text(Path(schema.strip()), field)
    try:
        return JsonFormat(parse_ddl(text), unknown)
    except PayloadSchemaError as error:
        raise _refused(where, error) from error


def _text(path: Path, field: str) -> str:
    why = ""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SCHEMA_BYTES + 1)
        if len(data) <= MAX_SCHEMA_BYTES:
            return data.decode("utf-8")
        why = f"it has more than {MAX_SCHEMA_BYTES} bytes"
    except UnicodeDecodeError:
        why = "it is not UTF-8"
    except OSError as error:
        why = error.strerror or type(error).__name__
    raise JobFileError(
        f"{field}: the schema file {path} cannot be read",
        why=why,
        do="name a file that can be read; a relative path starts in the working directory",
    )


def _refused(where: str, error: PayloadSchemaError) -> JobFileError:
    return JobFileError(
        f"{where} cannot be used", why=str(error), do="correct the schema", field=where
    )
