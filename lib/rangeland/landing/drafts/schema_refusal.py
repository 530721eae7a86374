"""Refuses, before anything is read, registered schemas that a table cannot take; and names them if
the table refuses their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import NamedTuple

from rangeland.decode.payload.avro.avro_format import AvroFormat
from rangeland.decode.payload.avro.avro_resolution import Mismatch
from rangeland.decode.payload.payload_decoder import PayloadFormat
from rangeland.decode.payload.row_format import RowFormat
from rangeland.decode.payload.schema_ids.schema_catalogue import RecordField, TopicField
from rangeland.decode.payload.schema_ids.subject_formats import SubjectFormats
from rangeland.errors import TableRefused
from rangeland.grouping import group_by
from rangeland.landing.target.job_history import JobHistory
from rangeland.loss import Action, LossKind
from rangeland.model import Slice
from rangeland.planning.policy import Policy


@contextmanager
def naming_schemas(history: JobHistory, row_format: RowFormat | None) -> Iterator[None]:
    """A context in which the error of a table that refuses rows also names the schemas of the rows,
    and those of the last landing."""
    try:
        yield
    except TableRefused as error:
        values = None if row_format is None else row_format.value
        new = values.latest if isinstance(values, SubjectFormats) else {}
        old = _last_schema_ids(history) if new else ()
        if not old or set(old) == set(new.values()):
            raise
        latest = ", ".join(f"schema {number}, the latest of {name}" for name, number in new.items())
        earlier = ", ".join(map(str, old))
        why = f"{error.why}; they have {latest}, and the last landing was written with {earlier}"
        ids = [*old, *new.values()]
        raise error.with_words(why=why).with_facts(schema_ids=ids) from error


def _last_schema_ids(history: JobHistory) -> tuple[int, ...]:
    """The ids of the newest landing that has any."""
    for _, outcome in reversed(history.landings()):
        if outcome.schema_ids:
            return tuple(schema_id for schema_id, _ in outcome.schema_ids)
    return ()


IdsIn = Callable[[Sequence[Slice]], Mapping[TopicField, Iterable[int]]]


class UnreadableSchema(NamedTuple):
    """A schema whose records cannot be landed, with the table's schema and the first field that
    does not fit."""

    topic_field: TopicField
    schema_id: int
    subject: str
    table_id: int | None
    field: Mismatch


def check_schemas_are_readable(
    row_format: RowFormat | None, policy: Policy, slices: Sequence[Slice], ids_in: IdsIn
) -> None:
    """Raises TableRefused if records have a schema with a field that cannot be read as the table's.
    All records of that schema would be undecodable: the mistake is in the schema, not the records.
    If the policy keeps such records, they go to quarantine or are held like any others.
    ``ids_in`` returns the schema ids of records in slices; it is only called if some schema does
    not fit."""
    by_topic = {
        topic: slices_of_topic
        for topic, slices_of_topic in group_by(slices, lambda s: s.partition.topic).items()
        if policy.of(LossKind.UNDECODABLE, topic) in (Action.FAIL, Action.SKIP)
    }
    unreadable = {topic: unreadable_schemas(row_format, topic) for topic in sorted(by_topic)}
    affected = [s for topic, schemas in unreadable.items() if schemas for s in by_topic[topic]]
    if not affected:
        return
    ids = ids_in(affected)
    for schema in (schema for schemas in unreadable.values() for schema in schemas):
        if schema.schema_id in ids.get(schema.topic_field, ()):
            raise _unreadable_schema_error(schema)


def unreadable_schemas(row_format: RowFormat | None, topic: str) -> list[UnreadableSchema]:
    """The unreadable schemas among those that the driver has looked up."""
    if row_format is None:
        return []
    formats: dict[RecordField, PayloadFormat | None] = {
        "key": row_format.key,
        "value": row_format.value,
    }
    catalogue = row_format.catalogue
    schemas = []
    for name, payloads in formats.items():
        if not isinstance(payloads, SubjectFormats):
            continue
        for schema_id, schema in sorted(catalogue.schemas.items(), key=itemgetter(0)):
            versions = catalogue.versions.get(schema_id, ())
            subject, form = payloads.format_of(topic, versions) or ("", None)
            if isinstance(form, AvroFormat) and (fields := form.unreadable(schema)):
                topic_field = TopicField(topic, name)
                schemas.append(
                    UnreadableSchema(topic_field, schema_id, subject, form.schema_id, fields[0])
                )
    return schemas


def _unreadable_schema_error(schema: UnreadableSchema) -> TableRefused:
    field = schema.field.path
    old = schema.field.writer_type
    new = schema.field.reader_type
    section = f"decode.{schema.topic_field.field}.schema"
    table = f"the schema in {section}"
    if schema.table_id is not None:
        table = f"schema {schema.table_id}, the latest of {schema.subject}"
    ids = [schema.schema_id, *([] if schema.table_id is None else [schema.table_id])]
    where = f"the {schema.topic_field.field}" if not field else f"the field {field}"
    return TableRefused(
        f"{where} of records in {schema.topic_field.topic} cannot be read as the table's",
        why=f"it is {old} in schema {schema.schema_id}, which they were written with, and {new} in "
        f"{table}",
        do=f"name a schema in {section} that can take both, begin after these records (--from), or "
        "keep them with policy.undecodable: quarantine",
        field=field,
        old_type=old,
        new_type=new,
        schema_ids=ids,
    )
