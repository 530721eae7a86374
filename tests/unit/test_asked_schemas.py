"""Schemas that records name: asked for once, before they are decoded, and answered at the edge."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.decode.payload.avro.avro_format import AvroFormat
from rangeland.decode.payload.row_format import RowFormat
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    AskSchemas,
    FoundSchema,
    RegisteredSchema,
    SchemaCatalogue,
    SchemaFormat,
    SubjectVersion,
    TopicField,
)
from rangeland.decode.payload.schema_ids.subject_writers import SubjectWriters
from rangeland.dialects.dialect import load_dialect
from rangeland.errors import Bug, JobFileError
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.slice_chunks import ReadChunk
from rangeland.fetch.slice_reading import SliceReader
from rangeland.fetch.typed_chunks import TypedChunks
from rangeland.loss import Action
from rangeland.model import Counts
from rangeland.planning.policy import Policy
from rangeland.schema_registry import executor_schemas
from rangeland.schema_registry.registry_settings import LONG_AGO, RegistrySettings
from tests.scripted_http import response, scripted
from tests.unit.test_avro_decoder import encode, framed, record
from tests.unit.test_typed_chunks import PIECE, rows

ORDER = record(("id", "int"))
SCHEMA = RegisteredSchema(SchemaFormat.AVRO, json.dumps(ORDER))
FOUND = FoundSchema(SCHEMA, (SubjectVersion("orders-value", 1),))
KEYS, VALUES = TopicField("orders", "key"), TopicField("orders", "value")
FORMAT = AvroFormat(json.dumps(ORDER), SubjectWriters())


def order(schema_id: int, number: int = 7) -> bytes:
    return framed(schema_id, encode(ORDER, {"id": number}))


def chunk(*ids: int, key: bytes | None = None, in_bytes: bool = False) -> ReadChunk:
    batch = rows({100 + at: order(schema_id) for at, schema_id in enumerate(ids)}, key)
    counts = Counts(landed=len(ids), compacted=0 if in_bytes else 20 - len(ids))
    return ReadChunk(0, 100, 120, counts, batch, offsets_are_bytes=in_bytes)


def typing(row_format: RowFormat) -> TypedChunks:
    return TypedChunks(row_format, Policy(undecodable=Action.SKIP), [PIECE])


def asked(chunks: TypedChunks, given: ReadChunk) -> list[AskSchemas]:
    """The questions about a chunk, each answered before the next one."""
    questions = []
    for one in chunks.type_rows(given):
        if isinstance(one, AskSchemas):
            questions.append(one)
            for schema_id in one.ids:
                chunks.add_schema(one.topic_field, schema_id, FOUND)
        else:
            assert isinstance(one, ReadChunk)
            assert one.counts.lost == 0
    return questions


@pytest.mark.parametrize("in_bytes", [False, True])
def test_each_id_is_asked_for_once(in_bytes: bool) -> None:
    chunks = typing(RowFormat(value=FORMAT))
    assert asked(chunks, chunk(9, 4, 9, in_bytes=in_bytes)) == [AskSchemas(VALUES, (4, 9))]
    assert asked(chunks, chunk(4, 9, in_bytes=in_bytes)) == []
    assert asked(chunks, chunk(4, 11, in_bytes=in_bytes)) == [AskSchemas(VALUES, (11,))]


def test_keys_and_values_ask_for_themselves() -> None:
    chunks = typing(RowFormat(FORMAT, FORMAT))
    given = chunk(4, 5, key=order(4))
    assert asked(chunks, given) == [AskSchemas(KEYS, (4,)), AskSchemas(VALUES, (4, 5))]


def test_payloads_without_schema_ids_ask_for_nothing() -> None:
    chunks = typing(RowFormat(value=AvroFormat(json.dumps(ORDER))))
    batch = rows({100: encode(ORDER, {"id": 1})})
    assert asked(chunks, ReadChunk(0, 100, 120, Counts(landed=1, compacted=19), batch)) == []
    with pytest.raises(Bug):
        chunks.add_schema(VALUES, 1, FOUND)


def test_a_question_that_is_not_answered_ends_the_reading() -> None:
    results = typing(RowFormat(value=FORMAT)).type_rows(chunk(4, 5))
    assert isinstance(next(results), AskSchemas)
    with pytest.raises(Bug, match=r"\(4, 5\) were asked for and not added"):
        next(results)


# --- answered where slices are read -----------------------------------------------------------


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_schemas, "_of_runs", {})


def values_read(settings: ReadSettings, *ids: int) -> Iterator[object]:
    sent = pickle.loads(pickle.dumps(settings))
    for one in SliceReader([PIECE], sent, load_dialect("kafka")).type_rows(chunk(*ids)):
        assert isinstance(one, ReadChunk)
        yield from one.rows.column("value").to_pylist()


def settings(
    catalogue: SchemaCatalogue, url: str = "", writers: SubjectWriters | None = None
) -> ReadSettings:
    form = AvroFormat(json.dumps(ORDER), writers or SubjectWriters("orders-value"))
    return ReadSettings(
        ClusterSettings("kafka", ()),
        policy=Policy(undecodable=Action.SKIP),
        row_format=RowFormat(value=form, catalogue=catalogue),
        registry=RegistrySettings((url,)) if url else None,
        written=LONG_AGO,
    )


def test_only_what_the_driver_has_not_seen_is_asked_of_the_registry() -> None:
    seen = SchemaCatalogue({4: SCHEMA}, {4: FOUND.versions}, made_as="run")
    replies = {
        "/schemas/ids/5": response({"schema": json.dumps(ORDER)}),
        "/schemas/ids/5/versions": response([{"subject": "orders-value", "version": 2}]),
    }
    with scripted(replies) as server:
        assert list(values_read(settings(seen, server.url), 5, 4, 5)) == [{"id": 7}] * 3
        assert sorted(server.paths) == sorted(replies)


def test_without_a_registry_an_id_that_the_driver_has_not_seen_is_undecodable() -> None:
    seen = SchemaCatalogue({4: SCHEMA}, {4: FOUND.versions})
    assert list(values_read(settings(seen), 5, 4)) == [{"id": 7}]


def test_a_schema_that_the_table_has_no_columns_for_ends_the_reading_whatever_the_policy() -> None:
    seen = SchemaCatalogue({4: SCHEMA}, {4: (SubjectVersion("orders-Bill", 1),)})
    writers = SubjectWriters("orders-Order", own="orders-")
    with pytest.raises(JobFileError, match="schema 4, which is registered as orders-Bill"):
        list(values_read(settings(seen, writers=writers), 4))


def test_what_tasks_are_sent_is_small() -> None:
    empty = len(pickle.dumps(settings(SchemaCatalogue(), "http://registry")))
    many = SchemaCatalogue(dict.fromkeys(range(1, 100), SCHEMA))
    assert len(pickle.dumps(settings(many, "http://registry"))) < empty + 1_000
