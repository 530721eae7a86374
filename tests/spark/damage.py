"""Damages real logs, and reads what the ledger records about it.

A byte of a batch is flipped in the broker's own file and flipped back, so the broker serves
damaged and then intact bytes without noticing.
"""

from __future__ import annotations

from typing import Any

from rangeland.job import Job
from rangeland.progress_events import NoProgress
from rangeland.queries import job_status, verify_and_find
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import WHOLE_BATCHES_MS, Record, create_topic, produce
from tests.spark.landings import table_of

BATCH, BATCHES = 10, 3
WIDTH = BATCH * BATCHES


def filled(kafka: KafkaCluster, topic: str) -> None:
    """Two partitions of three batches each."""
    create_topic(kafka.bootstrap, topic, 2)
    add(kafka, topic, (0, 1))


def add(kafka: KafkaCluster, topic: str, partitions: tuple[int, ...]) -> None:
    for partition in partitions:
        records = (Record(b"%d" % n, b"v" * 50, partition=partition) for n in range(WIDTH))
        produce(kafka.bootstrap, topic, records, batch_records=BATCH, linger_ms=WHOLE_BATCHES_MS)


def flip(kafka: KafkaCluster, topic: str, batch: int = 1) -> None:
    """A byte of a batch of partition 1, in place. Done twice, nothing has happened."""
    (segment,) = kafka.directory.glob(f"data/kafka-*/{topic}-1/*.log")
    data, position = segment.read_bytes(), 0
    for _ in range(batch):
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    with segment.open("r+b") as file:
        file.seek(end - 20)
        file.write(bytes([data[end - 20] ^ 0x01]))


def losses(spark: Any, table: str) -> list[tuple[Any, ...]]:
    """The ledger's rows of losses, as SQL has them."""
    frame = table_of(spark, f"{table}/_rangeland/ledger").where("event = 'loss'")
    names = ("topic", "partition", "from_offset", "until_offset", "count", "verdict", "action")
    return sorted(tuple(row[name] for name in names) for row in frame.collect())


def plans(spark: Any, table: str) -> int:
    ledger = table_of(spark, f"{table}/_rangeland/ledger")
    return int(ledger.where("event = 'plan'").count())


def checkpoints(spark: Any, job: Job) -> dict[int, int | None]:
    status = job_status.status(job, spark, NoProgress())
    return {p.partition.number: p.checkpoint for p in status.partitions}


def is_proved(spark: Any, job: Job) -> bool:
    found = verify_and_find.verify(job, spark, NoProgress())
    assert not found.audit.unknown_rows
    return found.is_well


def mend_quarantine(spark: Any, table: str, first: int = BATCH) -> None:
    """Flips the byte back in what was kept of one batch, as somebody with the right tool would."""
    path = f"{table}/_rangeland/quarantine"
    where = f"from_offset = {first}"
    (row,) = table_of(spark, path).where(where).select("records").collect()
    mended = bytearray(row["records"])
    mended[len(mended) - 20] ^= 0x01
    spark.sql(f"UPDATE delta.`{path}` SET records = unhex('{mended.hex()}') WHERE {where}")
