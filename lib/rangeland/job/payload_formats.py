"""The formats of a job's keys and values, made from its section ``decode``.

Schemas in files are read here, in the driver and once per run; tasks get formats as values. So even
if a file changes meanwhile, the types of rows and table still agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from rangeland.decode.payload.avro.avro_format import AvroFormat
from rangeland.decode.payload.json.json_format import JsonFormat
from rangeland.decode.payload.json.json_schema import parse_json_schema
from rangeland.decode.payload.payload_decoder import (
    PayloadFormat,
    PayloadSchemaError,
    UnknownFields,
)
from rangeland.decode.payload.protobuf.protobuf_format import ProtobufFormat
from rangeland.decode.payload.row_format import RowFormat
from rangeland.decode.payload.schema_ddl import parse_ddl
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    RecordField,
    SchemaCatalogue,
)
from rangeland.decode.payload.schema_ids.subject_writers import SubjectWriters
from rangeland.decode.payload.string_format import StringFormat
from rangeland.dialects.row_schema import typed_rows
from rangeland.errors import JobFileError
from rangeland.job.decode_section import PayloadSpec, names_file
from rangeland.job.job_file import Job
from rangeland.schema_registry.proto_compiler import compile_proto
from rangeland.schema_registry.table_formats import TableFormats

MAX_SCHEMA_BYTES = 4 << 20
_IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"]+)"\s*;', re.MULTILINE)


class _UnreadableFile(Exception):
    def __init__(self, path: Path, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(why)


def make_row_format(job: Job, schemas: TableFormats | None = None) -> RowFormat | None:
    """Makes the row format of a job; None if keys and values stay bytes. ``schemas``: those from
    its schema registry, if it has one. Raises JobFileError for a schema that cannot be read or
    used."""
    decode = job.decode
    unknown = UnknownFields(decode.unknown_fields)
    # Unknown fields are kept only for values: keys have no column for them.
    of_keys = UnknownFields.DROP if unknown is UnknownFields.KEEP else unknown
    key = _format(job, of_keys, "key", schemas)
    value = _format(job, unknown, "value", schemas)
    if key is None and value is None:
        return None
    try:
        row_format = RowFormat(
            key,
            value,
            decode.layout == "flat",
            unknown is UnknownFields.KEEP,
            SchemaCatalogue() if schemas is None else schemas.catalogue,
        )
        typed_rows(job.source.dialect, row_format)
    except PayloadSchemaError as error:
        refused = _schema_error("decode.value.schema", error)
        raise job.placed_error(refused, ("decode", "value", "schema")) from error
    return row_format


def check_schemas_are_usable(job: Job) -> None:
    """Raises JobFileError if a schema in the job file, or in a file that it names, cannot be read
    or used. Asks no server, so it is cheap to do first."""
    decode = job.decode
    if decode.registry is None:
        make_row_format(job)
        return
    if decode.key.schema_:
        _format(job, UnknownFields.DROP, "key", None)
    if decode.value.schema_:
        _format(job, UnknownFields.DROP, "value", None)


def whole_schema_file(job: Job, name: RecordField) -> tuple[str, bytes]:
    """The suffix and the content of a schema file that needs no other files: a ``.proto`` file
    becomes a descriptor set, which includes its imports. Raises JobFileError, as
    ``make_row_format`` does."""
    path = job.decode.schema_files[name]
    with _placed_errors(job, name):
        if path.suffix.lower() == ".proto":
            return ".desc", _compile(path)
        return path.suffix, _read_bytes(path)


def _format(
    job: Job, unknown: UnknownFields, name: RecordField, schemas: TableFormats | None
) -> PayloadFormat | None:
    payload = job.decode.payload(name)
    if payload.format == "bytes":
        return None
    if payload.format == "string":
        return StringFormat()
    schema = (payload.schema_ or "").strip()
    with _placed_errors(job, name):
        if schemas is None:
            return _with_fields(payload, schema, unknown, None)
        if schema:
            return schemas.with_schema(
                name, lambda writers: _with_fields(payload, schema, unknown, writers)
            )
        return schemas.without_schema(name, payload.format, payload.message or "", unknown)


@contextmanager
def _placed_errors(job: Job, name: RecordField) -> Iterator[None]:
    """Turns problems with a schema into a JobFileError that says where the schema is."""
    field = f"decode.{name}.schema"
    schema = (job.decode.payload(name).schema_ or "").strip()
    file = schema if names_file(schema) else ""
    path = ("decode", name, "schema")
    try:
        yield
    except PayloadSchemaError as error:
        raise job.placed_error(_schema_error(field, error, file), path) from error
    except _UnreadableFile as error:
        raise job.placed_error(_unreadable_file_error(field, error), path) from error


def _with_fields(
    payload: PayloadSpec,
    schema: str,
    unknown: UnknownFields,
    writers: SubjectWriters | None,
) -> PayloadFormat:
    path = Path(schema)
    if payload.format == "avro":
        return AvroFormat(_read_text(path), writers)
    if payload.format == "protobuf":
        is_text = path.suffix.lower() == ".proto"
        descriptors = _compile(path) if is_text else _read_bytes(path)
        return ProtobufFormat(descriptors, payload.message or "", writers)
    parse = parse_json_schema if path.suffix.lower() == ".json" else parse_ddl
    fields = parse(_read_text(path)) if names_file(schema) else parse_ddl(schema)
    return JsonFormat(fields, unknown, writers)


def _compile(path: Path) -> bytes:
    """The descriptors of a file and of its imports, which may be in its own folder or in folders
    below."""
    files: dict[str, str] = {}
    waiting = [path.name]
    while waiting:
        name = waiting.pop()
        file = path.parent / name
        if name in files or (files and not file.is_file()):
            continue  # one of Google's own files, or a missing one, which the compiler reports
        files[name] = _read_text(file)
        waiting += _IMPORT.findall(files[name])
    return _descriptors(path.name, tuple(files.items()))


@lru_cache(maxsize=8)
def _descriptors(main: str, files: tuple[tuple[str, str], ...]) -> bytes:
    return compile_proto(main, dict(files))


def _read_text(path: Path) -> str:
    try:
        return _read_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise _UnreadableFile(path, "it is not UTF-8") from None


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SCHEMA_BYTES + 1)
    except OSError as error:
        raise _UnreadableFile(path, error.strerror or type(error).__name__) from error
    if len(data) > MAX_SCHEMA_BYTES:
        raise _UnreadableFile(path, f"it has more than {MAX_SCHEMA_BYTES} bytes")
    return data


def _unreadable_file_error(field: str, error: _UnreadableFile) -> JobFileError:
    return JobFileError(
        f"{field}: the schema file {error.path} cannot be read",
        why=error.why,
        field=field,
        do="name a file that can be read; a relative path starts in the working directory",
    )


def _schema_error(field: str, error: PayloadSchemaError, file: str = "") -> JobFileError:
    where, do = field, "correct the schema"
    if file:
        where, do = f"{field} ({file})", f"correct {file}"
    if file.endswith(".proto"):
        do = f"{do}; the files it imports must be in its folder, or below it"
    return JobFileError(f"{where} cannot be used", why=str(error), do=error.do or do, field=where)
