"""What OpenLineage events say about landings."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
from openlineage.client.serde import Serde

from rangeland.delta.stores.table_path import TablePath
from rangeland.delta.table_schema.arrow_schema import schema_json
from rangeland.errors import Unreachable
from rangeland.job import Job
from rangeland.job.job_text import parse_job_text
from rangeland.job.topic_tables import job_of_topic
from rangeland.model import Counts, Partition, Range
from rangeland.monitoring.lineage_events import (
    CURRENT_CATALOG,
    OFFSET_RANGES,
    DatasetName,
    LandedTable,
    LandingEvents,
    LineageJob,
    catalog_symlink,
    landing_events,
    lineage_job,
    parent_facet,
    table_name,
)
from rangeland.planning.slice_receipt import RangeResult
from rangeland.results import RunResult
from tests import sample_results as made
from tests.lineage_schemas import check_event, facets_of

AT = datetime(2026, 1, 31, 6, 0, 0, 123_000, tzinfo=UTC)
RUN_ID = "01a21dcd-fde0-70b6-89d3-b6f6de95834e"
PARENT_ID = "01a21dcd-0000-70b6-89d3-b6f6de95834e"
TABLE = LandedTable(
    DatasetName("s3://lake", "orders"), None, schema_json(pa.schema([("a", pa.int64())]))
)


def job_of(source: str, table: str = "s3a://lake/orders") -> Job:
    return Job.parse(f"{{job: orders, source: {{{source}}}, sink: {{table: '{table}'}}}}")


ORDERS = job_of("servers: ['b1:9092', 'b2:9092'], topics: [orders, returns]")


def events_of(job: Job = ORDERS, **environment: str) -> LandingEvents:
    made = landing_events(lineage_job(job), parent_facet(environment), environment)
    return replace(made, run_id=RUN_ID)


def document_of(event: Any) -> dict[str, Any]:
    """The event as it is sent; it is what the specification allows."""
    document: dict[str, Any] = Serde.to_dict(event)
    check_event(document)
    return document


def completed(result: RunResult, table: LandedTable | None = TABLE) -> dict[str, Any]:
    return document_of(events_of().complete(AT, result, table, "4.2.0"))


# --- events --------------------------------------------------------------------------------------


def test_a_start_says_what_was_asked_for() -> None:
    event = document_of(events_of().start(AT))
    assert event["eventType"] == "START"
    assert event["eventTime"] == "2026-01-31T06:00:00.123+00:00"
    assert event["run"] == {"runId": RUN_ID, "facets": {}}
    assert (event["job"]["namespace"], event["job"]["name"]) == ("default", "orders")
    assert event["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    assert [(i["namespace"], i["name"]) for i in event["inputs"]] == [
        ("kafka://b1:9092", "orders"),
        ("kafka://b1:9092", "returns"),
    ]
    assert [(o["namespace"], o["name"]) for o in event["outputs"]] == [("s3://lake", "orders")]
    assert all(facet["_producer"] == "urn:rangeland:0.1.0" for facet in facets_of(event))


def test_a_completion_says_which_offsets_went_into_which_version() -> None:
    event = completed(made.a_result())
    orders, returns = event["inputs"]
    facet = orders["inputFacets"][OFFSET_RANGES]
    assert facet["table_version"] == 34
    partitions = made.a_result().to_json()["partitions"]
    assert facet["ranges"] == [
        {name: value for name, value in one.items() if value is not None} for one in partitions
    ]
    assert (facet["ranges"][0]["from_offset"], facet["ranges"][0]["until_offset"]) == (1000, 26000)
    # 24,995 landed, 8,990 landed, 10 of an aborted transaction; a marker is no record.
    assert orders["inputFacets"]["inputStatistics"]["rowCount"] == 33_995
    assert OFFSET_RANGES not in returns["inputFacets"]
    (output,) = event["outputs"]
    assert output["facets"]["version"]["datasetVersion"] == "34"
    statistics = output["outputFacets"]["outputStatistics"]
    assert {name: statistics[name] for name in ("rowCount", "size", "fileCount")} == {
        "rowCount": 33_985,
        "size": 3 << 20,
        "fileCount": 4,
    }
    engine = event["run"]["facets"]["processing_engine"]
    assert (engine["name"], engine["version"]) == ("spark", "4.2.0")


def test_with_nothing_to_do_the_table_stays_an_output() -> None:
    result = replace(made.a_result([], state="nothing"), rows=0, files=0, bytes_written=0)
    event = completed(result)
    assert event["eventType"] == "COMPLETE"
    assert event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 0
    assert [i["inputFacets"]["inputStatistics"]["rowCount"] for i in event["inputs"]] == [0, 0]
    assert not any(OFFSET_RANGES in i["inputFacets"] for i in event["inputs"])


def test_without_a_table_there_is_neither_output_nor_version() -> None:
    result = replace(made.a_result([], state="nothing"), table_version=None)
    job = lineage_job(job_of("servers: ['b:1'], topics: [t]", "main.lake.orders"))
    event = document_of(LandingEvents(RUN_ID, job, "n").complete(AT, result))
    assert event["outputs"] == []
    assert "version" not in completed(result)["outputs"][0]["facets"]


def test_a_topic_of_a_pattern_is_an_input_once_it_has_landed() -> None:
    events = events_of(job_of("servers: ['b:1'], topic_pattern: 'ord.*'"))
    assert document_of(events.start(AT))["inputs"] == []
    (landed,) = document_of(events.complete(AT, made.a_result(), TABLE))["inputs"]
    assert (landed["namespace"], landed["name"]) == ("kafka://b:1", "orders")


def test_a_failure_states_nothing_about_offsets() -> None:
    error = Unreachable("no broker could be reached", why="refused", do="try later")
    event = document_of(events_of().fail(AT, error, TABLE, "4.2.0"))
    assert event["eventType"] == "FAIL"
    message = event["run"]["facets"]["errorMessage"]
    assert message["message"] == "No broker could be reached: refused. Try later."
    assert all(i["inputFacets"] == {} for i in event["inputs"])
    (output,) = event["outputs"]
    assert output["outputFacets"] == {}
    assert "version" not in output["facets"]


def test_an_interruption_is_an_abort() -> None:
    assert document_of(events_of().abort(AT))["eventType"] == "ABORT"


def test_a_job_of_which_only_the_name_is_known_has_no_datasets() -> None:
    event = document_of(LandingEvents(RUN_ID, LineageJob("orders"), "n").start(AT))
    assert (event["inputs"], event["outputs"]) == ([], [])


def test_positions_of_bytes_are_not_counted_as_records() -> None:
    log = Range(Partition("orders", 0, "1"), 0, 900)
    counts = Counts(landed=5, filtered=2, quarantined=300)
    result = replace(made.a_result(), ranges=(RangeResult(log, counts, offsets_are_bytes=True),))
    facets = completed(result)["inputs"][0]["inputFacets"]
    assert facets["inputStatistics"]["rowCount"] == 7
    assert facets[OFFSET_RANGES]["ranges"][0]["broker"] == "1"


def test_a_facet_that_lacks_a_count_is_refused_by_its_schema() -> None:
    event = completed(made.a_result())
    del event["inputs"][0]["inputFacets"][OFFSET_RANGES]["ranges"][0]["lost"]
    with pytest.raises(jsonschema.ValidationError, match="'lost' is a required property"):
        check_event(event)


def test_columns_have_the_names_of_spark_s_types() -> None:
    schema = pa.schema(
        [
            ("offset", pa.int64()),
            ("tags", pa.map_(pa.string(), pa.int32())),
            ("headers", pa.list_(pa.struct([("key", pa.string())]))),
        ]
    )
    event = completed(made.a_result(), replace(TABLE, schema_json=schema_json(schema)))
    offset, tags, headers = event["outputs"][0]["facets"]["schema"]["fields"]
    assert offset == {"name": "offset", "type": "long", "fields": []}
    assert [(f["name"], f["type"]) for f in tags["fields"]] == [
        ("key", "string"),
        ("value", "integer"),
    ]
    (element,) = headers["fields"]
    assert (headers["type"], element["name"], element["type"]) == ("array", "_element", "struct")
    assert element["fields"] == [{"name": "key", "type": "string", "fields": []}]


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "namespace", "name"),
    [
        ("file:/lake/a b", "file", "/lake/a b"),
        ("s3a://bucket/lake/orders", "s3://bucket", "lake/orders"),
        ("gs://bucket/orders", "gs://bucket", "orders"),
        (
            "abfss://box@acme.dfs.core.windows.net/orders",
            "abfss://box@acme.dfs.core.windows.net",
            "orders",
        ),
        ("hdfs://name:8020/lake/orders", "hdfs://name:8020", "/lake/orders"),
        ("hdfs:/lake/orders", "hdfs", "/lake/orders"),
    ],
)
def test_a_table_is_named_by_its_location(path: str, namespace: str, name: str) -> None:
    assert table_name(TablePath.parse(path)) == DatasetName(namespace, name)


@pytest.mark.parametrize(
    ("source", "namespace"),
    [
        ("servers: ['b1:9092'], topics: [t]", "kafka://b1:9092"),
        ("zookeeper: 'z1:2181,z2:2181/kafka', topics: [t]", "kafka://z1:2181/kafka"),
        ("dialect: jafka, servers: ['0:b1:9092'], topics: [t]", "jafka://b1:9092"),
        ("dialect: rocketmq, servers: ['n1:9876'], topics: [t]", "rocketmq://n1:9876"),
    ],
)
def test_topics_are_named_by_the_first_server(source: str, namespace: str) -> None:
    assert lineage_job(job_of(source)).source == namespace


@pytest.mark.parametrize(
    "table",
    ["lake/orders", "/lake/orders", "main.lake.orders", "hdfs:///lake/orders", "hdfs:/lake/orders"],
)
def test_a_location_that_only_spark_knows_is_not_guessed(table: str) -> None:
    job = lineage_job(job_of("servers: ['b:1'], topics: [t]", table))
    assert job.table is None
    assert document_of(LandingEvents(RUN_ID, job, "n").start(AT))["outputs"] == []


@pytest.mark.parametrize("table", ["file:///lake/orders", "hdfs://name:8020/lake/orders"])
def test_a_complete_location_is_known_before_the_table_is_opened(table: str) -> None:
    job = lineage_job(job_of("servers: ['b:1'], topics: [t]", table))
    assert job.table is not None
    assert job.table.name == table_name(TablePath.parse(table))


HIVE = {
    "spark.sql.catalogImplementation": "hive",
    "hive.metastore.uris": "thrift://meta:9083,thrift://other:9083",
    "spark.sql.warehouse.dir": "file:/warehouse",
}
MEMORY = {**HIVE, "spark.sql.catalogImplementation": "in-memory"}


@pytest.mark.parametrize(
    ("table", "path", "conf", "expected"),
    [
        ("db.t", "s3a://b/t", HIVE, DatasetName("hive://meta:9083", "db.t")),
        ("spark_catalog.db.t", "s3a://b/t", HIVE, DatasetName("hive://meta:9083", "db.t")),
        ("db.t", "file:/warehouse/db.db/t", MEMORY, DatasetName("file:/warehouse", "db.t")),
        ("db.t", "file:/warehouse2/t", MEMORY, None),
        ("db.t", "s3a://b/t", MEMORY, None),
        ("unity.db.t", "s3a://b/t", HIVE, None),
        ("db.t", "file:/t", {}, None),
        ("db.t", "s3a://b/t", {**HIVE, CURRENT_CATALOG: "unity"}, None),
        (
            "spark_catalog.db.t",
            "s3a://b/t",
            {**HIVE, CURRENT_CATALOG: "unity"},
            DatasetName("hive://meta:9083", "db.t"),
        ),
    ],
)
def test_a_table_in_spark_s_catalog_has_its_name_there_too(
    table: str, path: str, conf: dict[str, str], expected: DatasetName | None
) -> None:
    assert catalog_symlink(table, TablePath.parse(path), conf) == expected


def test_a_name_in_a_catalog_is_a_symlink() -> None:
    table = replace(TABLE, symlink=DatasetName("hive://meta:9083", "db.t"))
    symlinks = completed(made.a_result(), table)["outputs"][0]["facets"]["symlinks"]
    assert symlinks["identifiers"] == [
        {"namespace": "hive://meta:9083", "name": "db.t", "type": "TABLE"}
    ]


def test_the_job_of_one_topic_is_named_after_it() -> None:
    source = "{servers: ['b:1'], topics: [a, b]}"
    text = parse_job_text(
        f"{{job: all, source: {source}, sink: {{table: 's3a://lake/{{topic}}'}}}}", "all"
    )
    job, _ = job_of_topic(Job.of(text), text, "b")
    assert lineage_job(job).name == "all.b"
    assert lineage_job(ORDERS).name == "orders"


# --- the environment -----------------------------------------------------------------------------


def test_the_namespace_is_that_of_the_client_s_configuration() -> None:
    event = document_of(events_of(OPENLINEAGE_NAMESPACE="prod").start(AT))
    assert event["job"]["namespace"] == "prod"


def test_the_parent_is_the_task_that_started_the_command() -> None:
    event = document_of(events_of(OPENLINEAGE_PARENT_ID=f"air/flow/dag.task/{PARENT_ID}").start(AT))
    parent = event["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == parent["root"]["run"]["runId"] == PARENT_ID
    assert (parent["job"]["namespace"], parent["job"]["name"]) == ("air/flow", "dag.task")


def test_the_root_is_the_run_that_started_the_parent() -> None:
    event = document_of(
        events_of(
            OPENLINEAGE_PARENT_ID=f"air/dag.task/{PARENT_ID}",
            OPENLINEAGE_ROOT_PARENT_ID=f"air/dag/{RUN_ID}",
        ).start(AT)
    )
    root = event["run"]["facets"]["parent"]["root"]
    assert (root["run"]["runId"], root["job"]["name"]) == (RUN_ID, "dag")


@pytest.mark.parametrize("parent", ["dag", f"air/{PARENT_ID}", "air/dag.task/17"])
def test_a_parent_that_names_no_run_is_an_error(parent: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parent_facet({"OPENLINEAGE_PARENT_ID": parent})
