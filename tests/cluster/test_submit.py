"""The scripts of ``jobs/`` on a cluster whose workers have nothing of ours."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import Record, create_topic, produce
from tests.chaos.invariants import write_job
from tests.cluster.conftest import COUNT, PACKAGES, PARTITIONS, Submit
from tests.cluster.spark_submit import LIB, each_once, live_files, offsets_in


def test_a_job_lands_with_the_package_as_a_zip(submit: Submit, job: Path, table: Path) -> None:
    result = submit(job).landed()
    assert (result["state"], result["landed"]) == ("landed", PARTITIONS * COUNT)
    assert result["warnings"] == []  # the kernel came along
    assert offsets_in(table) == each_once(PARTITIONS, COUNT)


@pytest.mark.slow
def test_a_job_lands_in_a_packed_environment(submit: Submit, job: Path, table: Path) -> None:
    at_home = {"PYTHONPATH": str(LIB)}  # the driver's Python has us installed
    only = [word for name in PACKAGES for word in ("--only", name)]
    result = submit(job, "--env", "packed", *only, environment=at_home).landed()
    assert (result["landed"], result["warnings"]) == (PARTITIONS * COUNT, [])
    assert offsets_in(table) == each_once(PARTITIONS, COUNT)


@pytest.mark.slow
def test_a_transform_is_shipped_beside_its_script(
    submit: Submit, broker: KafkaCluster, topic: str, folder: Path, table: Path
) -> None:
    create_topic(broker.bootstrap, topic)
    values = [b"ten \xe2\x82\xac", None, b"\xff"]
    produce(broker.bootstrap, topic, [Record(value, b"key") for value in values])
    job = write_job(folder / "job.yaml", broker.bootstrap, topic, table)
    result = submit(job, entry="land_transformed.py").landed()
    assert result["rows"] == 2
    rows = pq.ParquetDataset(live_files(table)).read().sort_by("offset")
    assert rows["offset"].to_pylist() == [0, 2]
    assert rows["value"].to_pylist() == ["ten €", r"\xff"]


@pytest.mark.slow
def test_a_backfill_takes_its_range_from_its_arguments(
    submit: Submit, job: Path, topic: str, table: Path
) -> None:
    span = (f'--from={{"{topic}": {{"0": 10}}}}', f'--until={{"{topic}": {{"0": 30}}}}')
    done = submit(job, *span, entry="backfill_range.py", arguments=())
    assert done.wait() == 0, done.process.log_tail(40)
    assert "chaos: landed, 20 records" in done.stdout.read_text()
    assert offsets_in(table) == [(0, offset) for offset in range(10, 30)]
