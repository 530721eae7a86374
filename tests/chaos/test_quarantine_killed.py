"""A driver is killed while it quarantines: bytes are in quarantine once, and no row is there
twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rangeland import run as commands
from rangeland.job import Job
from rangeland.progress_events import NoProgress
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import WHOLE_BATCHES_MS, Record, create_topic, produce
from tests.chaos.conftest import Start
from tests.chaos.driver import KEPT, PREPARED, WRITTEN
from tests.chaos.invariants import judge_ledger, landings, write_job

COUNT, BATCH = 30, 10


def damage_second_batch(kafka: KafkaCluster, topic: str) -> None:
    """In place: the broker goes on serving the file."""
    (segment,) = kafka.directory.glob(f"data/kafka-*/{topic}-0/*.log")
    data = segment.read_bytes()
    second = 12 + int.from_bytes(data[8:12], "big")
    end = second + 12 + int.from_bytes(data[second + 8 : second + 12], "big")
    with segment.open("r+b") as file:
        file.seek(end - 20)
        file.write(bytes([data[end - 20] ^ 0x01]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment",
    [WRITTEN, PREPARED, KEPT],
)
def test_what_a_killed_driver_quarantined_is_in_quarantine_once(
    moment: str, kafka: KafkaCluster, topic: str, folder: Path, start: Start, spark: Any
) -> None:
    create_topic(kafka.bootstrap, topic, 1)
    records = (Record(b"%d" % n, b"v" * 40, partition=0) for n in range(COUNT))
    produce(kafka.bootstrap, topic, records, batch_records=BATCH, linger_ms=WHOLE_BATCHES_MS)
    damage_second_batch(kafka, topic)
    table = folder / "table"
    policy = {"policy": {"corrupt": "quarantine"}}
    path = write_job(folder / "job.yaml", kafka.bootstrap, topic, table, **policy)
    driver = start()
    driver.give(path, **{moment: "kill"})
    driver.wait_until_killed()
    assert landings(table) == []

    job = Job.load(path)
    again = commands.run(job, spark, NoProgress())
    assert (again.state, again.recovered) == ("landed", (1,))
    assert (again.counts.landed, again.counts.quarantined) == (COUNT - BATCH, BATCH)
    assert commands.run(job, spark, NoProgress()).state == "nothing"

    def rows(name: str) -> Any:
        return spark.read.format("delta").load(f"{table}{name}")

    kept = rows("/_rangeland/quarantine").select("from_offset", "until_offset").collect()
    assert [tuple(row) for row in kept] == [(BATCH, 2 * BATCH)]
    noted = rows("/_rangeland/ledger").where("event = 'loss'").select("action", "count").collect()
    assert [tuple(row) for row in noted] == [("quarantine", BATCH)]
    offsets = sorted(row["offset"] for row in rows("").select("offset").collect())
    assert offsets == [*range(BATCH), *range(2 * BATCH, COUNT)]
    judge_ledger(spark, table)
