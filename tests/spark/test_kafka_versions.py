"""Whole runs against the oldest and the newest brokers: land, look, land nothing again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rangeland.model import Counts
from rangeland.progress_events import NoProgress
from rangeland.queries.job_status import status
from rangeland.run import preview, run
from rangeland.testing.consumer import consume
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.testing.producer import create_topic, numbered_records, produce
from tests.spark.landings import CONTRACT, job_of, rows_of, table_of

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

VERSIONS = ("0.8.2.2", "4.4.0")
COUNT = 400
TOPIC = (
    "t" * 150
)  # long, for what the oldest brokers say of a short one is too short for the client


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster | KafkaZooKeeperCluster]:
    if request.param.startswith("0."):
        with KafkaZooKeeperCluster(request.param) as old:
            old.create_topic(TOPIC, partitions=2)
            yield old
    else:
        with KafkaCluster(request.param) as new:
            create_topic(new.bootstrap, TOPIC, partitions=2)
            yield new


@pytest.mark.slow
def test_a_job_lives_with_brokers_of_any_age(
    cluster: KafkaCluster | KafkaZooKeeperCluster, table: str, spark: Any
) -> None:
    version = cluster.version
    is_old = version.startswith("0.8.")
    for number, codec in enumerate(("gzip", "none")):
        produce(
            cluster.bootstrap,
            TOPIC,
            numbered_records(COUNT),
            codec=codec,
            partition=number,
            batch_records=50,
            version=version,
        )
    job = job_of(cluster.bootstrap, table, TOPIC, group={"id": "landed-here"})
    result = run(job, spark, NoProgress())
    assert result.state == "landed"
    assert Counts.sum(r.counts for r in result.ranges) == Counts(landed=2 * COUNT)
    # The oldest coordinators keep offsets, and know of no members.
    assert ["supports no version of it" in w for w in result.warnings] == [True] * is_old

    frame = table_of(spark, table)
    assert frame.schema.simpleString() == CONTRACT
    assert rows_of(frame) == consume(cluster.bootstrap, TOPIC, version=version)
    kinds = {row["timestampType"] for row in frame.select("timestampType").distinct().collect()}
    assert kinds == {-1 if is_old else 0}
    assert frame.where("timestamp is null").count() == (2 * COUNT if is_old else 0)

    seen = status(job, spark, NoProgress())
    assert [(p.checkpoint, p.end, p.lag, p.group_offset) for p in seen.partitions] == [
        (COUNT, COUNT, 0, COUNT)
    ] * 2
    assert run(job, spark, NoProgress()).state == "nothing"


def test_a_plan_says_that_times_are_about_right(
    cluster: KafkaCluster | KafkaZooKeeperCluster, table: str, spark: Any
) -> None:
    moment = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    job = job_of(cluster.bootstrap, table, TOPIC, range={"from": moment, "until": "latest"})
    notes = preview(job, spark, NoProgress()).draft.notes
    inexact = [note for note in notes if "at or before the time" in note]
    assert len(inexact) == (2 if cluster.version.startswith("0.8.") else 0)
    assert all("only knows when segments of its log were written" in note for note in inexact)
