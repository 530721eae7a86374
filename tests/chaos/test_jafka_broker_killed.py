"""A Jafka broker is harmed while its partitions are being read. Nobody else has them, so a run
waits for it, and ends with each record once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rangeland import run as commands
from rangeland.job import Job
from rangeland.model import Partition
from rangeland.planning.plan import Plan
from rangeland.progress_events import NoProgress
from rangeland.testing.jafka import JafkaCluster
from rangeland.testing.jafka_clients import produce
from tests.chaos.invariants import rows_of

pytestmark = pytest.mark.slow

TOPIC, COUNT = "harmed", 200_000
SEGMENT_BYTES = 256 << 10
TIMEOUTS = {"connect_ms": 1_000, "request_ms": 1_500, "no_progress_ms": 60_000}
PAUSE_S = 5
"""Longer than a request may take."""


class Harming(NoProgress):
    """Kills or pauses the broker of a partition that is read in part, once, and heals it."""

    def __init__(self, cluster: JafkaCluster, how: str) -> None:
        self._cluster = cluster
        self._how = how
        self._widths: dict[Partition, int] = {}
        self.harmed: Partition | None = None
        self.healing: threading.Thread | None = None

    def planned(self, plan: Plan, recovered: bool) -> None:
        self._widths = {r.partition: r.width for r in plan.ranges}

    def read(self, read_widths: dict[Partition, int]) -> None:
        partly = [p for p, offsets in read_widths.items() if 0 < offsets < self._widths[p]]
        if self.harmed is not None or not partly:
            return
        self.harmed = max(partly, key=lambda p: self._widths[p] - read_widths[p])
        broker = int(self.harmed.broker)
        if self._how == "kill":
            self._cluster.kill(broker)
            self.healing = threading.Thread(target=self._cluster.restart, args=[broker])
        else:
            self._cluster.pause(broker)
            self.healing = threading.Timer(PAUSE_S, self._cluster.resume, [broker])
        self.healing.start()


@pytest.fixture(scope="module")
def filled() -> Iterator[tuple[JafkaCluster, dict[str, int]]]:
    """Two brokers with a partition each, packed and plain by turns; where their logs end."""
    with JafkaCluster(brokers=2, partitions=1, segment_bytes=SEGMENT_BYTES) as cluster:
        ends = {}
        for broker in cluster.ids:
            for packed in (False, True):
                values = [b"%d-%d-%09d" % (broker, packed, n) for n in range(COUNT // 2)]
                address = cluster.address(broker)
                ends[str(broker)] = produce(address, TOPIC, values, packed=packed, batch=500)
        yield cluster, ends


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_a_run_outlives_a_broker_that_is_away_for_a_while(
    filled: tuple[JafkaCluster, dict[str, int]], how: str, folder: Path, spark: Any
) -> None:
    cluster, ends = filled
    table = folder / "table"
    path = folder / "job.yaml"
    source = {"dialect": "jafka", "servers": cluster.servers, "topics": [TOPIC]}
    job = {
        "job": "chaos",
        "source": {**source, "timeouts": TIMEOUTS},
        "sink": {"table": str(table)},
        "slices": {"target_bytes": "256KiB"},
    }
    path.write_text(yaml.safe_dump(job))
    progress = Harming(cluster, how)
    result = commands.run(Job.load(path), spark, progress)
    assert progress.harmed is not None, "reading was over before a broker could be harmed"
    assert progress.healing is not None
    progress.healing.join()
    assert (result.state, result.counts.landed) == ("landed", 2 * COUNT)
    assert {o.range.partition.broker: o.range.until_offset for o in result.ranges} == ends
    found = rows_of(spark.read.format("delta").load(str(table)).inputFiles())
    wanted = {
        b"%d-%d-%09d" % (broker, packed, n)
        for broker in cluster.ids
        for packed in (False, True)
        for n in range(COUNT // 2)
    }
    assert found.num_rows == len(wanted)
    assert set(found["value"].to_pylist()) == wanted
