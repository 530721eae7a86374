"""Offsets count as landed only for the same isolation level and cluster."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import rangeland
from rangeland import Job, run
from rangeland.errors import Conflict
from rangeland.job.job_text import parse_job_text
from rangeland.landing.drafts.plan_file import read_plan_file, write_plan_file
from rangeland.progress_events import NoProgress
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.testing.producer import create_topic, numbered_records, produce, produce_transaction
from tests.spark.landings import expected, job_of, offsets_in, table_of
from tests.spark.test_landing import wait_for_ends

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

WHOLE = {"from": "earliest", "until": "latest"}


def test_another_isolation_is_a_conflict_until_what_has_landed_is_accepted(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=1)
    produce(kafka.bootstrap, topic, numbered_records(3))
    produce_transaction(kafka.bootstrap, topic, numbered_records(2), commit=False)
    produce(kafka.bootstrap, topic, numbered_records(1))
    wait_for_ends(kafka, topic, 7)
    assert rangeland.land(job_of(kafka.bootstrap, table, topic), spark).counts.aborted == 2
    source = {"isolation": "read_uncommitted"}
    whole = job_of(kafka.bootstrap, table, topic, source=source, range=WHOLE)
    later = job_of(kafka.bootstrap, table, topic, source=source)
    produce(kafka.bootstrap, topic, numbered_records(2))
    for way, job in ((run.run, whole), (run.backfill, whole), (run.run, later)):
        with pytest.raises(Conflict, match="with different options from this job's") as caught:
            way(job, spark, NoProgress())
        assert "the isolation was read_committed and is read_uncommitted now" in str(caught.value)
    run.adopt(later, spark, NoProgress())
    assert run.run(later, spark, NoProgress()).rows == 2
    assert table_of(spark, table).count() == 6


@pytest.mark.slow
def test_two_clusters_without_topic_ids_never_share_a_checkpoint_or_a_range(
    spark: Any, table: str, tmp_path: Path
) -> None:
    with ExitStack() as both:
        first, second = (both.enter_context(KafkaZooKeeperCluster("0.10.2.2")) for _ in range(2))
        for cluster, count in ((first, 5), (second, 9)):
            create_topic(cluster.bootstrap, "orders", partitions=1)
            produce(cluster.bootstrap, "orders", numbered_records(count), version=cluster.version)
        job = job_of(first.bootstrap, table, "orders")
        assert rangeland.land(job, spark).rows == 5

        moved = job_of(second.bootstrap, table, "orders")
        with pytest.raises(
            Conflict, match=r"the checkpoint of orders/0 .* belongs to another cluster"
        ):
            rangeland.land(moved, spark)
        other = job_of(second.bootstrap, table, "orders", name="other")
        with pytest.raises(Conflict, match=r"the cluster was .* and is "):
            rangeland.land(other, spark)
        assert offsets_in(table) == expected(p0=range(5))

        # A plan file knows whose offsets it has.
        produce(first.bootstrap, "orders", numbered_records(2), version=first.version)
        file = tmp_path / "plan.json"
        servers = {"servers": list(first.bootstrap), "topics": ["orders"]}
        document = {"job": "landing", "source": servers, "sink": {"table": table}}
        text = parse_job_text(json.dumps(document), "orders.yaml")
        write_plan_file(file, run.preview(Job.of(text), spark, NoProgress()), text)
        reviewed = read_plan_file(file)
        assert reviewed.plan.cluster is not None
        elsewhere = reviewed.job_with([f"source.servers=[{second.bootstrap[0]}]"])
        with pytest.raises(Conflict, match="another cluster"):
            run.apply(elsewhere, reviewed.plan, reviewed.unplanned_losses, spark, NoProgress())
        assert (
            run.apply(job, reviewed.plan, reviewed.unplanned_losses, spark, NoProgress()).rows == 2
        )
