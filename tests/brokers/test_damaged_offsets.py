"""Batches whose base offset is damaged in a broker's own file: its checksum is right, and the
broker sends them as they are."""

from __future__ import annotations

import pytest

from rangeland.errors import BadRecord
from rangeland.loss import Action
from rangeland.model import Counts
from rangeland.planning.policy import Policy
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import WHOLE_BATCHES_MS, create_topic, numbered_records, produce
from tests.brokers.reading import look, read, settings_of, slices_of

pytestmark = pytest.mark.brokers

BATCH, BATCHES = 10, 4
WIDTH = BATCH * BATCHES


def misplace(kafka: KafkaCluster, topic: str, batch: int, base: int) -> None:
    (segment,) = kafka.directory.glob(f"data/kafka-*/{topic}-0/*.log")
    data, position = segment.read_bytes(), 0
    for _ in range(batch):
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    assert int.from_bytes(data[position : position + 8], "big") == batch * BATCH
    with segment.open("r+b") as file:
        file.seek(position)
        file.write(base.to_bytes(8, "big"))


@pytest.mark.parametrize(
    ("batch", "base"), [(1, 1 << 40), (1, 25), (2, 15)], ids=["far", "ahead", "back"]
)
def test_a_misplaced_batch_takes_no_other_with_it(
    kafka: KafkaCluster, topic: str, batch: int, base: int
) -> None:
    create_topic(kafka.bootstrap, topic, 1)
    produce(
        kafka.bootstrap,
        topic,
        numbered_records(WIDTH),
        batch_records=BATCH,
        linger_ms=WHOLE_BATCHES_MS,
    )
    settings = settings_of(kafka.bootstrap, no_progress_ms=5_000)
    slices = slices_of(look(settings, topics=(topic,)))
    assert read(slices, settings).counts == Counts(landed=WIDTH)
    misplace(kafka, topic, batch, base)
    with pytest.raises(BadRecord, match=f"offset {batch * BATCH} cannot be decoded"):
        read(slices, settings)
    found = read(slices, settings, policy=Policy(corrupt=Action.SKIP))
    assert found.counts == Counts(landed=WIDTH - BATCH, lost=BATCH)
    (receipt,) = found.receipts
    (loss,) = receipt.losses
    assert (loss.from_offset, loss.until_offset) == (batch * BATCH, (batch + 1) * BATCH)


def test_a_last_batch_that_is_behind_its_log_ends_no_slice(kafka: KafkaCluster, topic: str) -> None:
    create_topic(kafka.bootstrap, topic, 1)
    produce(
        kafka.bootstrap,
        topic,
        numbered_records(WIDTH),
        batch_records=BATCH,
        linger_ms=WHOLE_BATCHES_MS,
    )
    settings = settings_of(kafka.bootstrap, no_progress_ms=5_000)
    slices = slices_of(look(settings, topics=(topic,)))
    misplace(kafka, topic, BATCHES - 1, 1 << 40)
    with pytest.raises(BadRecord, match=f"the log ends at {WIDTH}"):
        read(slices, settings)
    (receipt,) = read(slices, settings, policy=Policy(corrupt=Action.HOLD)).receipts
    assert (receipt.until_offset, receipt.counts) == (WIDTH - BATCH, Counts(landed=WIDTH - BATCH))
