"""A run with a ``--from`` of its own moves the checkpoint there. ``plan``, ``run``, ``status``
and ``verify`` report what it passes over, until a backfill lands it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rangeland
from rangeland import run
from rangeland.model import Partition
from rangeland.progress_events import NoProgress
from rangeland.queries import job_status, verify_and_find
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import create_topic, numbered_records, produce
from tests.spark.landings import between, expected, job_of, offsets_in

pytestmark = [pytest.mark.spark, pytest.mark.brokers]


def test_a_beginning_moves_the_checkpoint_and_tells_what_it_passes_over(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=2)
    for partition in (0, 1):
        produce(kafka.bootstrap, topic, numbered_records(4), partition=partition)
    job = job_of(kafka.bootstrap, table, topic)
    rangeland.land(job, spark)
    for partition in (0, 1):
        produce(kafka.bootstrap, topic, numbered_records(6), partition=partition)

    # Partition 0 has nothing after its new beginning, partition 1 has.
    later = {"from": {topic: {0: 10, 1: 7}}, "until": "latest"}
    moving = job_of(kafka.bootstrap, table, topic, range=later)
    gaps = [(0, 4, 10), (1, 4, 7)]
    preview = run.preview(moving, spark, NoProgress())
    assert _intervals(preview.to_json()["passed_over"]) == gaps
    assert any(f"{topic}/0 [4, 10) is passed over" in note for note in preview.draft.notes)
    result = rangeland.land(moving, spark)
    assert _intervals(result.to_json()["passed_over"]) == gaps
    assert any(f"{topic}/1 [4, 7) is passed over" in text for text in result.warnings)

    again = rangeland.land(job, spark)
    assert (again.state, again.warnings) == ("nothing", ())
    status = job_status.status(job, spark, NoProgress())
    assert [(p.checkpoint, p.lag, p.passed_over) for p in status.partitions] == [
        (10, 0, ((4, 10),)),
        (10, 0, ((4, 7),)),
    ]
    where = [(Partition(topic, 0), 4), (Partition(topic, 0), 10), (Partition(topic, 9), 0)]
    assert [verify_and_find.find(job, spark, *one, NoProgress()).why for one in where] == [
        f"it has offsets 0 to 3 of {topic}/0",
        f"it has offsets 0 to 3 of {topic}/0",
        f"nothing of {topic}/9 has landed in it",
    ]
    seen = rangeland.verify(job, spark)
    assert seen.is_well
    assert _intervals(seen.to_json()["passed_over"]) == gaps
    assert offsets_in(table) == expected(p0=range(4), p1=[0, 1, 2, 3, 7, 8, 9])

    gap = between(topic, p0=(4, 10), p1=(4, 7))
    rangeland.backfill(job_of(kafka.bootstrap, table, topic, range=gap), spark)
    assert rangeland.verify(job, spark).passed_over == ()
    assert offsets_in(table) == expected(p0=range(10), p1=range(10))


def _intervals(ranges: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return [(r["partition"], r["from_offset"], r["until_offset"]) for r in ranges]


def test_a_run_with_nothing_to_land_leaves_nothing_to_verify(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    create_topic(kafka.bootstrap, topic)
    job = job_of(kafka.bootstrap, table, topic)
    assert rangeland.land(job, spark).state == "nothing"
    seen = rangeland.verify(job, spark)
    assert (seen.is_well, seen.landings, seen.landed_ranges) == (True, 0, ())
    finding = verify_and_find.find(job, spark, Partition(topic, 0), 3, NoProgress())
    assert (finding.state, finding.why) == ("not-landed", "nothing has landed in it yet")
    assert not Path(table).exists()
