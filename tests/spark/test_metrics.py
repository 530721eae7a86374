"""What ``--metrics`` writes about real runs, as Prometheus would read it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from rangeland.cli import command_line
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.ports import free_ports
from rangeland.testing.producer import (
    create_topic,
    delete_records,
    delete_topic,
    numbered_records,
    produce,
)
from tests.spark.landings import QUICK

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

Labels = tuple[tuple[str, str], ...]


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCluster]:
    with KafkaCluster() as started:
        yield started


def write_job(folder: Path, kafka: KafkaCluster, name: str, table: str, **source: Any) -> str:
    job = {
        "job": name,
        "source": {"servers": list(kafka.bootstrap), "timeouts": QUICK, **source},
        "sink": {"table": f"{folder}/lake/{table}"},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(job))
    return str(path)


def samples(file: Path, table: Path | str) -> dict[str, dict[Labels, float]]:
    """The samples of one table by metric, each by its other labels."""
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(file.read_text()):
        assert family.type == "gauge"
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k not in ("command", "job")}
            if labels.pop("table") == str(table):
                found.setdefault(family.name, {})[tuple(sorted(labels.items()))] = sample.value
    return found


def by_partition(found: dict[Labels, float]) -> dict[str, float]:
    return {dict(labels)["partition"]: value for labels, value in found.items()}


def test_runs_of_one_table_from_the_first_to_one_that_fails(
    spark: Any, kafka: KafkaCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = "metrics"
    create_topic(kafka.bootstrap, topic, partitions=2)
    produce(kafka.bootstrap, topic, numbered_records(30), partition=0)
    produce(kafka.bootstrap, topic, numbered_records(10), partition=1)
    job = write_job(tmp_path, kafka, "orders", "orders", topics=[topic])
    file, table = tmp_path / "orders.prom", tmp_path / "lake/orders"

    def run(*options: str, code: int = 0) -> dict[str, dict[Labels, float]]:
        assert command_line.main(["run", job, "--metrics", str(file), *options]) == code
        return samples(file, table)

    first = run("--set", "limits.max_records=20")
    assert first["rangeland_run_success"] == {(): 1}
    assert first["rangeland_run_landed_records"] == {(): 20}
    assert first["rangeland_run_offsets"][("class", "landed"),] == 20
    assert first["rangeland_run_written_bytes"][()] > 0
    assert by_partition(first["rangeland_partition_end_offset"]) == {"0": 30, "1": 10}
    lag = by_partition(first["rangeland_partition_lag_offsets"])
    assert sum(lag.values()) == 20
    capfd.readouterr()
    assert command_line.main(["status", job, "--json"]) == 0
    status = json.loads(capfd.readouterr().out.splitlines()[-1])["partitions"]
    assert {str(one["partition"]): one["lag"] for one in status} == lag

    # Retention was faster than the next run.
    checkpoint = int(by_partition(first["rangeland_partition_checkpoint_offset"])["0"])
    delete_records(kafka.bootstrap, topic, {0: 28})
    failed = run(code=66)
    loss = (("action", "fail"), ("kind", "expired"), ("partition", "0"), ("topic", topic))
    assert failed["rangeland_run_loss_offsets"] == {loss: 28 - checkpoint}
    assert failed["rangeland_run_success"] == {(): 0}
    skipped = run("--set", "policy.expired=skip")
    loss = (("action", "skip"), *loss[1:])
    assert skipped["rangeland_run_loss_offsets"] == {loss: 28 - checkpoint}
    assert skipped["rangeland_run_offsets"][("class", "lost"),] == 28 - checkpoint
    assert set(skipped["rangeland_partition_lag_offsets"].values()) == {0}

    idle = run()
    assert idle["rangeland_run_landed_records"] == {(): 0}
    assert by_partition(idle["rangeland_partition_checkpoint_offset"]) == {"0": 30, "1": 10}
    assert set(idle["rangeland_partition_lag_offsets"].values()) == {0}
    assert idle["rangeland_table_version"] == skipped["rangeland_table_version"]

    down = run("--set", f"source.servers=[127.0.0.1:{free_ports(1)[0]}]", code=75)
    assert set(down) == {
        "rangeland_run_success",
        "rangeland_run_exit_code",
        "rangeland_run_end_timestamp_seconds",
    }
    assert down["rangeland_run_success"] == {(): 0}
    assert down["rangeland_run_exit_code"] == {(): 75}


def test_a_topic_that_was_created_again_is_counted_as_a_loss(
    spark: Any, kafka: KafkaCluster, tmp_path: Path
) -> None:
    """How many offsets it has lost is not known."""
    topic = "metrics-recreated"
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(30))
    job = write_job(tmp_path, kafka, "recreated", "recreated", topics=[topic])
    file = tmp_path / "recreated.prom"

    def run(*options: str, code: int = 0) -> dict[str, dict[Labels, float]]:
        assert command_line.main(["run", job, "--metrics", str(file), *options]) == code
        found = samples(file, tmp_path / "lake/recreated")
        assert "rangeland_run_loss_offsets" not in found
        return found

    run()
    delete_topic(kafka.bootstrap, topic)
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(3))
    loss = (("kind", "recreated"), ("partition", "0"), ("topic", topic))
    failed = run(code=66)
    assert failed["rangeland_run_losses"] == {(("action", "fail"), *loss): 1}
    skipped = run("--set", "policy.recreated=skip")
    assert skipped["rangeland_run_losses"] == {(("action", "skip"), *loss): 1}
    assert skipped["rangeland_run_landed_records"] == {(): 3}
    assert "rangeland_run_losses" not in run()


def test_a_backfill_has_its_own_samples_and_no_checkpoint(
    spark: Any, kafka: KafkaCluster, tmp_path: Path
) -> None:
    create_topic(kafka.bootstrap, "metrics-backfill")
    produce(kafka.bootstrap, "metrics-backfill", numbered_records(30))
    job = write_job(tmp_path, kafka, "refill", "refill", topics=["metrics-backfill"])
    file = tmp_path / "refill.prom"
    bounds = [
        "--from",
        '{"metrics-backfill": {"0": 5}}',
        "--until",
        '{"metrics-backfill": {"0": 9}}',
    ]
    assert command_line.main(["backfill", job, *bounds, "--metrics", str(file)]) == 0
    found = samples(file, tmp_path / "lake/refill")
    assert by_partition(found["rangeland_partition_until_offset"]) == {"0": 9}
    assert by_partition(found["rangeland_partition_end_offset"]) == {"0": 30}
    assert not {name for name in found if "lag" in name or "checkpoint" in name}


def test_each_of_many_tables_has_its_samples(
    spark: Any, kafka: KafkaCluster, tmp_path: Path
) -> None:
    for topic, count in {"metrics.a": 3, "metrics.b": 4}.items():
        create_topic(kafka.bootstrap, topic)
        produce(kafka.bootstrap, topic, numbered_records(count))
    each = write_job(tmp_path, kafka, "each", "{topic}", topic_pattern=r"metrics\..*")
    absent = write_job(tmp_path, kafka, "absent", "absent", topics=["metrics-none"])
    file = tmp_path / "all.prom"
    assert command_line.main(["run", each, absent, "--metrics", str(file)]) == 78
    lake = tmp_path / "lake"
    for topic, count in {"metrics.a": 3, "metrics.b": 4}.items():
        found = samples(file, lake / topic)
        assert found["rangeland_run_success"] == {(): 1}
        assert found["rangeland_run_landed_records"] == {(): count}
        of_topic = (("partition", "0"), ("topic", topic))
        assert found["rangeland_partition_lag_offsets"] == {of_topic: 0}
    failed = samples(file, lake / "absent")
    assert failed["rangeland_run_exit_code"] == {(): 78}
    assert "rangeland_partition_lag_offsets" not in failed
