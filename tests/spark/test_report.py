"""The page about a job with real logs: after landings, after a loss, while no broker answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

import rangeland
from rangeland.errors import RangeLost
from rangeland.job import Job
from rangeland.job.job_text import parse_job_text
from rangeland.landing.target.target_writer import TargetWriter
from rangeland.model import Partition
from rangeland.progress_events import NoProgress
from rangeland.queries.job_report import report
from rangeland.render.report_page import render_report
from rangeland.report_results import JobReport
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import create_topic, delete_records, numbered_records, produce
from tests.spark.landings import QUICK, dying_before_commit

pytestmark = [pytest.mark.spark, pytest.mark.brokers]


class Reported:
    """A job of two partitions, of which reports are made as the command makes them."""

    def __init__(self, kafka: KafkaCluster, spark: Any, topic: str, table: str) -> None:
        self.kafka, self.spark, self.topic, self.table = kafka, spark, topic, table
        create_topic(kafka.bootstrap, topic, partitions=2)

    def text(self, servers: list[str] | None = None, **policy: str) -> str:
        source = {
            "servers": servers or list(self.kafka.bootstrap),
            "topics": [self.topic],
            "timeouts": QUICK,
        }
        document = {"job": "reported", "source": source, "sink": {"table": self.table}}
        return json.dumps({**document, "policy": policy})

    def land(self, **policy: str) -> int:
        return rangeland.land(Job.parse(self.text(**policy)), self.spark).counts.landed

    def produce(self, count: int) -> None:
        for partition in (0, 1):
            produce(self.kafka.bootstrap, self.topic, numbered_records(count), partition=partition)

    def report(self, servers: list[str] | None = None, *, verifies: bool = False) -> JobReport:
        text = parse_job_text(self.text(servers), "a folder/reported.yaml")
        return report(Job.of(text), text, self.spark, NoProgress(), verifies=verifies)


def test_a_report_follows_a_job_through_landings_a_hold_a_loss_and_an_outage(
    kafka: KafkaCluster,
    spark: Any,
    topic: str,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Reported(kafka, spark, topic, table)
    first, second = Partition(topic, 0), Partition(topic, 1)
    untouched = job.report()
    assert (untouched.landings, untouched.lag, untouched.table_version) == ((), 0, None)
    assert "Nothing has landed yet" in render_report(untouched)

    for count in (10, 20):
        job.produce(count)
        assert job.land() == 2 * count
    job.produce(10)
    behind = job.report(verifies=True)
    assert behind.job_file == "reported.yaml"
    assert behind.table_uri is not None
    assert behind.table_uri.startswith("file:")
    landings = [(x.sequence, x.counts.landed, x.offsets, x.table_version) for x in behind.landings]
    assert [landing[:3] for landing in landings] == [(1, 20, 20), (2, 40, 40)]
    assert landings[0][3] < landings[1][3] == behind.table_version
    assert all(x.committed_at_ms and x.size_bytes and x.files for x in behind.landings)
    assert {p.partition: (p.checkpoint, p.lag) for p in behind.partitions} == {
        first: (30, 10),
        second: (30, 10),
    }
    assert behind.lag == 20
    assert all(p.log and p.log.lag_ms for p in behind.partitions)
    assert behind.verification is not None
    assert behind.verification.is_well

    delete_records(kafka.bootstrap, topic, {0: 35})
    with pytest.raises(RangeLost):
        job.land()
    stuck = job.report()
    assert [(x.event.loss.action, x.ends_runs) for x in stuck.losses] == [("fail", True)]
    assert stuck.lost == 0
    assert job.land(expired="hold") == 10
    held = job.report()
    assert [p.partition for p in held.held] == [first]
    assert job.land(expired="skip") == 5
    lost = job.report()
    assert (lost.lost, lost.held, lost.lag) == (5, (), 0)
    states = [(x.event.loss.action, bool(x.remaining), x.ends_runs) for x in lost.losses]
    assert states == [("fail", False, False), ("hold", False, False), ("skip", True, False)]
    assert (lost.counts.landed, lost.counts.lost, lost.offsets) == (75, 5, 80)

    job.produce(5)
    with dying_before_commit(monkeypatch, TargetWriter):
        job.land()
    down = job.report(servers=["127.0.0.1:1"])
    assert "127.0.0.1:1" in down.log_error
    assert (down.lag, down.lost, down.landed) == (None, 5, 75)
    assert {p.partition: (p.checkpoint, p.lag, p.log) for p in down.partitions} == {
        first: (40, None, None),
        second: (40, None, None),
    }
    assert [plan.finished_by for plan in down.unfinished_plans] == ["next-run"]
    page = render_report(down)
    assert "The logs could not be asked" in page
    assert "<dd>unknown <small>the logs could not be asked" in page
