"""Schemas with what they refer to, the catalogue of a run, and what tasks fetch themselves."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from rangeland.decode.payload.avro.avro_schema import parse_avro_schema
from rangeland.decode.payload.schema_ids.record_names import record_name
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    ReferencedSchema,
    RegisteredSchema,
    SchemaCatalogue,
    SchemaFormat,
    SubjectVersion,
    TopicField,
    UnusableSchema,
)
from rangeland.decode.payload.schema_ids.subject_writers import SubjectWriters
from rangeland.errors import JobFileError, Unreachable
from rangeland.schema_registry import executor_schemas, missing_ids
from rangeland.schema_registry.executor_schemas import ExecutorSchemas
from rangeland.schema_registry.missing_ids import CONFIRMATIONS
from rangeland.schema_registry.registry_client import RegistryClient
from rangeland.schema_registry.registry_responses import SchemaReference, SchemaResponse
from rangeland.schema_registry.registry_settings import RegistrySettings
from rangeland.schema_registry.schema_lookup import make_catalogue
from rangeland.schema_registry.schema_references import MAX_REFERENCES, resolve_references
from rangeland.schema_registry.subject_names import (
    SubjectNameStrategy,
    subject_name,
)
from rangeland.schema_registry.unknown_ids import NEXT_IDS
from tests.scripted_http import Reply, ScriptedServer, error, response, scripted

AVRO, JSON, PROTOBUF = SchemaFormat


def schema(kind: SchemaFormat, content: object, *subjects: str) -> SchemaResponse:
    text = content if isinstance(content, str) else json.dumps(content)
    references = (SchemaReference(f"{s}.name", SubjectVersion(s, 1)) for s in subjects)
    return SchemaResponse(kind, text, tuple(references))


def made_of(root: SchemaResponse, **others: SchemaResponse) -> RegisteredSchema | UnusableSchema:
    return resolve_references(root, lambda at: others[at.subject])


def record(name: str, **more: Any) -> dict[str, Any]:
    fields = more.pop("fields", {"x": "int"})
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed, **more}


# --- references -----------------------------------------------------------------------------


def test_references_come_after_what_they_need_and_once() -> None:
    found = made_of(
        schema(PROTOBUF, "root", "b", "c"),
        b=schema(PROTOBUF, "b", "d"),
        c=schema(PROTOBUF, "c", "d"),
        d=schema(PROTOBUF, "d"),
    )
    assert found == RegisteredSchema(
        PROTOBUF,
        "root",
        (
            ReferencedSchema("d.name", "d"),
            ReferencedSchema("b.name", "b"),
            ReferencedSchema("c.name", "c"),
        ),
    )


def test_a_cycle_is_refused_and_shown() -> None:
    found = made_of(schema(JSON, "root", "a"), a=schema(JSON, "a", "b"), b=schema(JSON, "b", "a"))
    assert found == UnusableSchema(
        "its references form a cycle: version 1 of a -> version 1 of b -> version 1 of a"
    )


def test_a_schema_that_refers_to_itself() -> None:
    own = schema(JSON, "a", "a")
    assert isinstance(made_of(own, a=own), UnusableSchema)


def test_references_are_bounded() -> None:
    def fetch(at: SubjectVersion) -> SchemaResponse:
        return schema(JSON, at.subject, f"s{int(at.subject[1:]) + 1}")

    found = resolve_references(schema(JSON, "root", "s0"), fetch)
    assert found == UnusableSchema(f"it refers to more than {MAX_REFERENCES} schemas")


def test_one_name_for_two_schemas_is_refused() -> None:
    root = SchemaResponse(
        JSON,
        "{}",
        (
            SchemaReference("n", SubjectVersion("a", 1)),
            SchemaReference("n", SubjectVersion("b", 1)),
        ),
    )
    found = made_of(root, a=schema(JSON, "1"), b=schema(JSON, "2"))
    assert found == UnusableSchema("it refers to two different schemas as n")


# --- Avro: one text -------------------------------------------------------------------------


def inlined(root: object, **others: object) -> Any:
    responses = {name: schema(AVRO, content) for name, content in others.items()}
    found = made_of(schema(AVRO, root, *others), **responses)
    assert isinstance(found, RegisteredSchema)
    assert found.references == ()
    return json.loads(found.text)


def test_an_avro_type_is_defined_where_it_is_used_first() -> None:
    order = record("shop.Order", fields={"a": "shop.Addr", "b": ["null", "shop.Addr"]})
    found = inlined(order, addr=record("Addr", namespace="shop"))
    assert found["fields"] == [
        {"name": "a", "type": {**record("Addr"), "namespace": "shop"}},
        {"name": "b", "type": ["null", "shop.Addr"]},
    ]


def test_a_name_without_a_namespace_is_that_of_the_record_around_it() -> None:
    found = inlined(
        record("Order", namespace="shop", fields={"a": {"type": "array", "items": "Addr"}}),
        addr=record("Addr", namespace="shop"),
    )
    assert found["fields"][0]["type"]["items"]["namespace"] == "shop"


def test_types_within_a_referenced_schema_and_other_namespaces() -> None:
    inner = {"type": "enum", "name": "Kind", "symbols": ["A"]}
    found = inlined(
        record("b.Top", fields={"first": "a.Kind", "then": "a.Holder"}),
        holder=record("a.Holder", fields={"kind": inner}),
    )
    first, then = (one["type"] for one in found["fields"])
    assert first == {**inner, "namespace": "a"}
    assert then["fields"] == [{"name": "kind", "type": "a.Kind"}]


def test_what_was_inlined_is_a_schema_that_the_decoder_takes() -> None:
    order = record("shop.Order", fields={"a": "shop.Addr", "b": ["null", "shop.Addr"], "c": "X"})
    found = inlined(order, addr=record("Addr", namespace="shop"), x=record("X"))
    (_, _, bare) = parse_avro_schema(json.dumps(found)).fields  # type: ignore[union-attr]
    assert bare.type.name == "X"  # type: ignore[union-attr]


def test_a_recursive_avro_type_stays_one_definition() -> None:
    node = record("t.Node", fields={"next": ["null", "t.Node"]})
    found = inlined(record("Top", fields={"node": "t.Node"}), node=node)
    assert found["fields"][0]["type"]["fields"] == [{"name": "next", "type": ["null", "t.Node"]}]


def test_logical_types_defaults_and_documentation_stay() -> None:
    day = {"type": "int", "logicalType": "date"}
    root = record("Top", fields={"day": day, "a": "Addr"}, doc="words")
    root["fields"][1]["default"] = {"x": 1}
    found = inlined(root, addr=record("Addr"))
    assert found["doc"] == "words"
    assert found["fields"][0]["type"] == day
    assert found["fields"][1]["default"] == {"x": 1}


@pytest.mark.parametrize("text", ["not json", '{"type": ', '"\\ud800"', "[" * 500])
def test_an_avro_schema_that_is_not_json_is_unusable(text: str) -> None:
    found = made_of(schema(AVRO, text, "a"), a=schema(AVRO, record("A")))
    assert isinstance(found, UnusableSchema)


@pytest.mark.parametrize("odd", [7, None, {"type": "record"}, {"type": 7, "fields": 7}, [[[]]]])
def test_an_odd_avro_schema_does_no_harm(odd: object) -> None:
    found = made_of(schema(AVRO, odd, "a"), a=schema(AVRO, odd))
    assert isinstance(found, RegisteredSchema)


# --- subjects -------------------------------------------------------------------------------


VALUES, KEYS = TopicField("orders", "value"), TopicField("orders", "key")


def test_the_three_strategies() -> None:
    topic, by_record, both = SubjectNameStrategy
    order = RegisteredSchema(AVRO, json.dumps(record("Order", namespace="shop")))
    assert subject_name(topic, VALUES) == "orders-value"
    assert subject_name(topic, KEYS, order) == "orders-key"
    assert subject_name(by_record, VALUES, order) == "shop.Order"
    assert subject_name(both, VALUES, order) == "orders-shop.Order"
    assert subject_name(by_record, VALUES) is None
    assert subject_name(both, VALUES, RegisteredSchema(JSON, "{}")) is None


@pytest.mark.parametrize(
    ("kind", "text", "name"),
    [
        (AVRO, '{"type": "record", "name": "a.B", "namespace": "c"}', "a.B"),
        (AVRO, '{"type": "enum", "name": "B", "namespace": ""}', "B"),
        (AVRO, '"string"', "string"),
        (AVRO, '{"type": "string"}', "string"),
        (AVRO, '["null", "string"]', None),
        (AVRO, "{", None),
        (JSON, '{"title": "Order"}', "Order"),
        (JSON, '{"title": 7}', None),
        (JSON, "true", None),
        (PROTOBUF, "package a.b;\nmessage C { message D {} }", "a.b.C"),
        (PROTOBUF, "// message A {\n/* message B {} */ message C{}", "C"),
        (PROTOBUF, 'option x = "package p; message A {"; enum E { F = 0; } message C {}', "C"),
        (PROTOBUF, "enum E { F = 0; }", None),
    ],
)
def test_the_name_of_a_record(kind: SchemaFormat, text: str, name: str | None) -> None:
    assert record_name(RegisteredSchema(kind, text)) == name


def test_ids_of_other_subjects_are_refused() -> None:
    mine, theirs = SubjectVersion("orders-value", 3), SubjectVersion("bills-value", 1)
    schema = RegisteredSchema(SchemaFormat.AVRO, '"int"')
    found = SchemaCatalogue(
        schemas=dict.fromkeys((1, 2, 3), schema), versions={1: (theirs, mine), 2: (theirs,), 3: ()}
    )
    schemas, writers = ExecutorSchemas(found), SubjectWriters("orders-value")
    refused = UnusableSchema("schema 2 is registered as bills-value, not orders-value")
    accepted = [writers.judge(one, schemas.of_id(one)) for one in (1, 2, 3)]
    assert accepted == [schema, refused, schema]
    assert SubjectWriters().judge(2, schemas.of_id(2)) == schema
    assert isinstance(writers.judge(9, schemas.of_id(9)), UnusableSchema)


# --- the catalogue of a run -----------------------------------------------------------------

TWO = record("shop.Two", fields={"a": "shop.Addr"})
ADDRESS = record("shop.Addr")
AT = {"subject": "addr", "version": 1}


def of_registry() -> Mapping[str, Reply]:
    one = {"schema": json.dumps(record("One"))}
    two = {"schema": json.dumps(TWO), "references": [{"name": "shop.Addr", **AT}]}
    lost = {"schema": "{", "references": [{"name": "x", **AT}]}
    return {
        "/schemas/ids/1": response(one),
        "/schemas/ids/1/versions": response([{"subject": "orders-value", "version": 1}]),
        "/schemas/ids/2": response(two),
        "/schemas/ids/2/versions": response([{"subject": "orders-value", "version": 2}]),
        "/schemas/ids/3": response(lost),
        "/schemas/ids/4": error(404, 40403),
        "/schemas/ids/4/versions": error(404, 40403),
        "/schemas/ids/5": response(one),
        **{f"/schemas/ids/{4 + step}": error(404, 40403) for step in NEXT_IDS if step > 1},
        "/subjects/addr/versions/1": response({**AT, "id": 9, "schema": json.dumps(ADDRESS)}),
        "/subjects/orders-value/versions/latest": response(
            {"subject": "orders-value", "version": 2, "id": 2, **two}
        ),
        "/subjects/lost-value/versions/latest": response(
            {"subject": "lost-value", "version": 5, "id": 3, **lost}
        ),
        "/subjects/none-value/versions/latest": error(404, 40401),
        "/subjects/One/versions/latest": error(404, 40401),
        "/subjects/shop.Two/versions/latest": error(404, 40401),
        "/subjects/orders-shop.Two/versions/latest": error(404, 40401),
    }


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted(of_registry()) as running:
        yield running


def catalogue(
    server: ScriptedServer,
    orders: list[int],
    strategy: SubjectNameStrategy = SubjectNameStrategy.TOPIC,
    **others: list[int],
) -> SchemaCatalogue:
    """``orders``, ``others``: the ids that values of topics have."""
    client = RegistryClient(RegistrySettings((server.url,)), pause=lambda _: None)
    seen = {TopicField(topic, "value"): ids for topic, ids in others.items()}
    return make_catalogue(client, strategy, {VALUES: orders, **seen})


def test_a_catalogue_has_ids_versions_and_latest_schemas(server: ScriptedServer) -> None:
    found = catalogue(server, [2, 1, 3, 4, 2], none=[1])
    assert set(found.schemas) == {1, 2, 3}
    assert isinstance(found.schemas[3], UnusableSchema)
    assert found.versions[2] == (SubjectVersion("orders-value", 2),)
    assert set(found.latest) == {"orders-value"}
    assert found.latest["orders-value"].schema == found.schemas[2]
    assert pickle.loads(pickle.dumps(found)) == found
    assert server.paths.count("/schemas/ids/2") == 1
    assert server.paths.count("/subjects/addr/versions/1") == 1


def test_subjects_are_named_after_the_records_that_were_seen(server: ScriptedServer) -> None:
    found = catalogue(server, [1, 2, 4], SubjectNameStrategy.RECORD)
    assert found.latest == {}
    asked = [path for path in server.paths if path.endswith("latest")]
    assert sorted(set(asked)) == [
        "/subjects/One/versions/latest",
        "/subjects/shop.Two/versions/latest",
    ]


def test_a_copy_that_lacks_a_reference_is_no_verdict_on_the_schema() -> None:
    late, there = error(404, 40402), response({**AT, "id": 9, "schema": json.dumps(ADDRESS)})
    two, listed = (of_registry()[f"/schemas/ids/2{path}"] for path in ("", "/versions"))
    with scripted([two, late, two, late, there, listed]) as server:
        impatient = RegistrySettings((server.url,), no_progress_ms=1)
        with pytest.raises(Unreachable, match="did not answer for version 1 of addr"):
            ExecutorSchemas(SchemaCatalogue(made_as="run-1"), impatient).of_id(2)
        patient = RegistrySettings((server.url,))
        found = ExecutorSchemas(SchemaCatalogue(made_as="run-2"), patient).of_id(2)
    assert isinstance(found.schema, RegisteredSchema)


def test_a_copy_that_lacks_a_subject_of_a_known_id_is_late() -> None:
    replies = {**of_registry(), "/subjects/orders-value/versions/latest": error(404, 40401)}
    with scripted(replies) as server:
        asked = RegistryClient(RegistrySettings((server.url,), no_progress_ms=1))
        with pytest.raises(Unreachable, match="although an id is registered there"):
            make_catalogue(asked, SubjectNameStrategy.TOPIC, {VALUES: [2]})


@pytest.mark.parametrize("strategy", SubjectNameStrategy)
def test_an_id_whose_versions_a_copy_lacks_is_only_placed_by_the_name_of_its_record(
    strategy: SubjectNameStrategy,
) -> None:
    replies = {**of_registry(), "/schemas/ids/2/versions": error(404, 40403)}
    with scripted(replies) as server:
        settings = RegistrySettings((server.url,), no_progress_ms=1)
        tasks = ExecutorSchemas(
            SchemaCatalogue(made_as="run", records_name_subjects=strategy.names_the_record),
            settings,
        )
        if strategy.names_the_record:
            found = catalogue(server, [2], strategy)
            assert found.versions == {2: ()}
            assert found.records_name_subjects
            assert tasks.of_id(2).versions == ()
        else:
            asked = RegistryClient(settings)
            for ask in (
                lambda: make_catalogue(asked, strategy, {VALUES: [2]}),
                lambda: tasks.of_id(2),
            ):
                with pytest.raises(Unreachable, match="although it has the schema"):
                    ask()


def test_two_catalogues_are_of_different_runs(server: ScriptedServer) -> None:
    one, two = (catalogue(server, []) for _ in range(2))
    assert one.made_as != two.made_as


def test_a_latest_schema_that_cannot_be_used_ends_the_run(server: ScriptedServer) -> None:
    with pytest.raises(JobFileError, match="the latest schema of lost-value cannot be used"):
        catalogue(server, [], lost=[])


# --- in a task ------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_schemas, "_of_runs", {})
    monkeypatch.setattr(missing_ids, "CONFIRM_S", 0.0)


def test_what_the_driver_has_seen_needs_no_registry(server: ScriptedServer) -> None:
    found = catalogue(server, [1, 4])
    asked = len(server.paths)
    tasks = pickle.loads(pickle.dumps(ExecutorSchemas(found)))
    assert tasks.of_id(1).schema == found.schemas[1]
    assert isinstance(tasks.of_id(4).schema, UnusableSchema)
    assert isinstance(tasks.of_id(2).schema, UnusableSchema)
    assert len(server.paths) == asked


def test_an_id_is_fetched_once_per_process_and_run(server: ScriptedServer) -> None:
    settings = RegistrySettings((server.url,))
    for run in ("run-1", "run-2"):
        for _ in range(3):
            tasks = ExecutorSchemas(SchemaCatalogue(made_as=run), settings)
            assert isinstance(tasks.of_id(2).schema, RegisteredSchema)
        versions = (SubjectVersion("orders-value", 2),)
        assert tasks.of_id(2).versions == tasks.versions_of(2) == versions
    assert server.paths.count("/schemas/ids/2") == 2


def test_an_unknown_id_is_confirmed_once_per_process_and_run(server: ScriptedServer) -> None:
    tasks = ExecutorSchemas(SchemaCatalogue(made_as="run"), RegistrySettings((server.url,)))
    for _ in range(3):
        assert isinstance(tasks.of_id(4).schema, UnusableSchema)
    assert server.paths.count("/schemas/ids/4") == 2 + CONFIRMATIONS
    assert tasks.of_id(4).versions == tasks.versions_of(4) == ()


def test_so_many_unknown_ids_are_not_those_of_the_registry(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_schemas, "MAX_UNUSABLE_IDS", 1)
    tasks = ExecutorSchemas(SchemaCatalogue(made_as="run"), RegistrySettings((server.url,)))
    for known in (1, 2, 3):
        tasks.of_id(known)
    for _ in range(2):
        with pytest.raises(JobFileError, match="more than 1 schema ids"):
            tasks.of_id(4)


def test_a_process_keeps_few_runs(server: ScriptedServer) -> None:
    for run in range(executor_schemas.KEPT_RUNS + 3):
        found = SchemaCatalogue(made_as=f"run-{run}")
        ExecutorSchemas(found, RegistrySettings((server.url,))).of_id(1)
    assert len(executor_schemas._of_runs) == executor_schemas.KEPT_RUNS


def test_a_registry_that_is_down_is_no_verdict_on_the_record() -> None:
    settings = RegistrySettings(("http://127.0.0.1:1",), no_progress_ms=1)
    tasks = ExecutorSchemas(SchemaCatalogue(made_as="run"), settings)
    for _ in range(2):
        with pytest.raises(Unreachable):
            tasks.of_id(1)
