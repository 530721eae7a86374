"""OpenLineage events of real landings, sent by the real client over HTTP and to a file."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable

import rangeland
from rangeland.cli import command_line
from rangeland.errors import RangelandError
from rangeland.monitoring import lineage_reporter
from rangeland.monitoring.lineage_events import OFFSET_RANGES
from rangeland.submit import entry_point
from rangeland.submit.entry_point import ScriptEntry
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import create_topic, numbered_records, produce
from tests.lineage_schemas import check_event
from tests.lineage_settings import lineage_settings
from tests.servers.lineage_collector import Collector, collecting
from tests.spark.landings import QUICK, job_of

pytestmark = [pytest.mark.spark, pytest.mark.brokers]
SECRET = "hunter2"


@pytest.fixture
def collector() -> Iterator[Collector]:
    """What receives the events of the test. All of them are what the specification allows."""
    with collecting() as found, lineage_settings(OPENLINEAGE_URL=found.url):
        yield found
    for event in found.events:
        check_event(event)


def write_job(
    folder: Path, kafka: KafkaCluster, topics: list[str], table: str = "orders", **source: Any
) -> str:
    job = {
        "job": "hourly",
        "source": {
            "servers": list(kafka.bootstrap),
            "topics": topics,
            "timeouts": QUICK,
            **source,
        },
        "sink": {"table": f"{folder}/lake/{table}"},
    }
    path = folder / "hourly.yaml"
    path.write_text(yaml.safe_dump(job))
    return str(path)


def answer_to(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    capfd.readouterr()
    assert command_line.main([*arguments, "--json"]) == code
    answer: dict[str, Any] = json.loads(capfd.readouterr().out.splitlines()[-1])
    return answer


def test_events_say_which_offsets_went_into_which_version(
    spark: Any,
    kafka: KafkaCluster,
    topic: str,
    collector: Collector,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    create_topic(kafka.bootstrap, topic)
    path = write_job(tmp_path, kafka, [topic])
    table = tmp_path / "lake" / "orders"
    lines = tmp_path / "lineage.jsonl"
    expected = []
    for landed in (7, 3, 0):
        if landed:
            produce(kafka.bootstrap, topic, numbered_records(landed, len(expected) * 7))
        answer = answer_to(capfd, "run", path, "--lineage", str(lines))
        expected.append((answer["table_version"], answer["landed"]))

    assert [landed for _, landed in expected] == [7, 3, 0]
    assert collector.states == [("START", "hourly"), ("COMPLETE", "hourly")] * 3
    assert [json.loads(line) for line in lines.read_text().splitlines()] == collector.events
    first, second, empty = collector.events[1::2]
    offsets = []
    for event, (version, landed) in zip((first, second, empty), expected, strict=True):
        (dataset,), (output,) = event["inputs"], event["outputs"]
        assert (dataset["namespace"], dataset["name"]) == (f"kafka://{kafka.bootstrap[0]}", topic)
        assert dataset["inputFacets"]["inputStatistics"]["rowCount"] == landed
        assert (output["namespace"], output["name"]) == ("file", str(table))
        assert output["facets"]["version"]["datasetVersion"] == str(version)
        assert output["outputFacets"]["outputStatistics"]["rowCount"] == landed
        facet = dataset["inputFacets"].get(OFFSET_RANGES, {"ranges": []})
        offsets += [(facet["table_version"], r["from_offset"], r["until_offset"], r["landed"])
                    for r in facet["ranges"]]  # fmt: skip
    assert offsets == [(expected[0][0], 0, 7, 7), (expected[1][0], 7, 10, 3)]
    # The table's own log agrees: these versions have these rows.
    for version, _, until, _ in offsets:
        assert len(DeltaTable(str(table), version=version).to_pyarrow_table()) == until
    columns = [f["name"] for f in first["outputs"][0]["facets"]["schema"]["fields"]]
    assert columns == DeltaTable(str(table)).schema().to_arrow().names
    assert first["run"]["facets"]["processing_engine"]["version"] == spark.version


def test_columns_are_those_of_the_table_and_not_of_the_landed_rows(
    spark: Any, kafka: KafkaCluster, topic: str, collector: Collector, tmp_path: Path
) -> None:
    create_topic(kafka.bootstrap, topic)
    path = tmp_path / "parts"
    by_date = {"partition_by": ["date(timestamp)"]}
    job = job_of(kafka.bootstrap, path, topic, sink=by_date)
    for first in (0, 5):
        produce(kafka.bootstrap, topic, numbered_records(5, first))
        rangeland.land(job, spark)
        event = collector.events[-1]
        columns = [f["name"] for f in event["outputs"][0]["facets"]["schema"]["fields"]]
        assert columns == DeltaTable(str(path)).schema().to_arrow().names
        spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN (note{first} STRING)")
    assert columns[-2:] == ["date", "note0"]

    refused = tmp_path / "other"
    spark.sql("SELECT 'a' AS key, 1L AS value").write.format("delta").save(str(refused))
    with pytest.raises(RangelandError):
        rangeland.land(job_of(kafka.bootstrap, refused, topic), spark)
    failed = collector.events[-1]
    assert failed["eventType"] == "FAIL"
    assert "schema" not in failed["outputs"][0]["facets"]


def test_each_table_of_a_job_is_a_job_of_its_own(
    spark: Any, kafka: KafkaCluster, topic: str, collector: Collector, tmp_path: Path
) -> None:
    topics = [f"{topic}.a", f"{topic}.b"]
    for count, name in enumerate(topics, 4):
        create_topic(kafka.bootstrap, name)
        produce(kafka.bootstrap, name, numbered_records(count))
    path = write_job(tmp_path, kafka, [*topics, f"{topic}.none"], "{topic}")
    found = rangeland.run_jobs([path], spark)
    assert [job.exit_code for job in found.jobs] == [0, 0, 78]
    assert {f"hourly.{name}" for name in (*topics, f"{topic}.none")} == {
        name for _, name in collector.states
    }
    ends = {e["job"]["name"]: e for e in collector.events if e["eventType"] != "START"}
    for count, name in enumerate(topics, 4):
        event = ends[f"hourly.{name}"]
        assert event["eventType"] == "COMPLETE"
        assert [one["name"] for one in event["inputs"]] == [name]
        assert event["outputs"][0]["name"] == f"{tmp_path}/lake/{name}"
        assert event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == count
    failed = ends[f"hourly.{topic}.none"]
    assert failed["eventType"] == "FAIL"
    assert f"{topic}.none" in failed["run"]["facets"]["errorMessage"]["message"]


def test_every_other_way_to_land_sends_events(
    spark: Any,
    kafka: KafkaCluster,
    topic: str,
    collector: Collector,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(5))
    path = write_job(tmp_path, kafka, [topic])
    plan = str(tmp_path / "plan.json")
    answer_to(capfd, "plan", path, "--out", plan)
    answer_to(capfd, "redrive", path, "--dry-run")
    assert collector.events == []
    answer_to(capfd, "apply", plan)
    whole = ("--from", "earliest", "--until", "latest")
    answer_to(capfd, "backfill", path, *whole)
    answer_to(capfd, "redrive", path)
    lines = tmp_path / "lineage.jsonl"

    def land(entry: ScriptEntry) -> rangeland.RunResult:
        return rangeland.land(entry.job, spark)

    assert entry_point.main(land, "", arguments=[path, "--lineage", str(lines)]) == 0
    assert len(lines.read_text().splitlines()) == 2
    assert [state for state, _ in collector.states] == ["START", "COMPLETE"] * 4
    rows = [
        event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"]
        for event in collector.events[1::2]
    ]
    assert rows == [5, 0, 0, 0]


def test_a_table_in_the_catalog_is_known_by_its_location_and_by_its_name(
    spark: Any, kafka: KafkaCluster, topic: str, collector: Collector
) -> None:
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(2))
    warehouse = spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:")
    job = job_of(kafka.bootstrap, "default.lineage", topic)
    try:
        assert rangeland.land(job, spark).warnings == ()
    finally:
        for name in ("default.lineage__rangeland", "default.lineage"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")
    start, complete = collector.events
    assert start["outputs"] == []
    (output,) = complete["outputs"]
    assert (output["namespace"], output["name"]) == ("file", f"{warehouse}/lineage")
    assert output["facets"]["symlinks"]["identifiers"] == [
        {"namespace": f"file:{warehouse}", "name": "default.lineage", "type": "TABLE"}
    ]


@pytest.mark.parametrize("status", [None, 500])
def test_an_endpoint_that_fails_neither_fails_nor_stalls_a_run(
    status: int | None,
    spark: Any,
    kafka: KafkaCluster,
    topic: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lineage_reporter, "WAIT_S", 1.0)
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(5))
    path = write_job(tmp_path, kafka, [topic])
    with (
        collecting(status) as broken,
        lineage_settings(OPENLINEAGE_URL=f"http://me:{SECRET}@{broken.address}"),
    ):
        began_at = time.monotonic()
        assert command_line.main(["run", path, "--json"]) == 0
        assert time.monotonic() - began_at < 60
    captured = capfd.readouterr()
    answer = json.loads(captured.out.splitlines()[-1])
    assert answer["landed"] == 5
    (warning,) = [text for text in answer["warnings"] if "OpenLineage" in text]
    assert broken.url in warning
    assert captured.err.count("OpenLineage") == 1
    assert SECRET not in captured.err + captured.out
    assert broken.events, "the endpoint was not asked"


def test_a_run_that_cannot_reach_its_brokers_is_a_failure(
    spark: Any,
    kafka: KafkaCluster,
    collector: Collector,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LINEAGE_PASSWORD", SECRET)
    login = {"mechanism": "PLAIN", "username": "me", "password": "${env:LINEAGE_PASSWORD}"}
    security = {"sasl": login}
    path = write_job(
        tmp_path, kafka, ["orders"], servers=["127.0.0.1:1"], security=security
    )  # nobody listens there
    lines = tmp_path / "lineage.jsonl"
    error = answer_to(capfd, "run", path, "--lineage", str(lines), code=75)
    assert collector.states == [("START", "hourly"), ("FAIL", "hourly")]
    facet = collector.events[1]["run"]["facets"]["errorMessage"]
    assert facet["message"] == error["message"]
    assert collector.events[1]["outputs"] == []
    assert SECRET not in lines.read_text() + json.dumps(collector.events)
