"""Policies on a real log with damage: skip, hold, quarantine, and landing it later.

A byte of a batch is flipped in the broker's own file and flipped back, so the broker serves
damaged and then intact bytes without noticing. Spark's own reader checks table, ledger and
quarantine.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rangeland
from rangeland import run
from rangeland.delta.ledger.event_codec import SCHEMA
from rangeland.delta.table_schema.arrow_schema import schema_json
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.errors import BadRecord, RangeLost
from rangeland.job import Job
from rangeland.job.job_text import parse_job_text
from rangeland.landing.drafts.plan_file import read_plan_file, write_plan_file
from rangeland.model import Counts
from rangeland.planning.plan import Plan
from rangeland.progress_events import NoProgress
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import delete_records
from tests.spark.damage import (
    BATCH,
    WIDTH,
    add,
    checkpoints,
    filled,
    flip,
    is_proved,
    losses,
    mend_quarantine,
    plans,
)
from tests.spark.landings import between, expected, job_of, offsets_in

pytestmark = [pytest.mark.spark, pytest.mark.brokers]


class Doing(NoProgress):
    """Does something once the plan is made, before it is read."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action

    def planned(self, plan: Plan, recovered: bool) -> None:
        self._action()


DAMAGED = dict(p0=range(WIDTH), p1=[*range(BATCH), *range(2 * BATCH, WIDTH)])


def test_what_cannot_be_decoded_is_quarantined_and_landed_once_it_can(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    filled(kafka, topic)
    flip(kafka, topic)
    job = job_of(kafka.bootstrap, table, topic, policy={"corrupt": "quarantine"})
    result = rangeland.land(job, spark)
    assert result.counts == Counts(landed=2 * WIDTH - BATCH, quarantined=BATCH)
    assert offsets_in(table) == expected(**DAMAGED)
    row = (topic, 1, BATCH, 2 * BATCH, BATCH, "corrupt", "quarantine")
    assert losses(spark, table) == [row]
    assert [x.loss.action for x in result.losses] == ["quarantine"]
    assert rangeland.land(job, spark).state == "nothing"
    assert is_proved(spark, job)

    before = run.redrive(job, spark, NoProgress(), dry_run=True)
    assert [(one.decodes, one.batch.range.from_offset) for one in before.still_quarantined] == [
        (False, BATCH)
    ]
    assert "checksum" in before.still_quarantined[0].why
    assert run.redrive(job, spark, NoProgress()).to_json()["state"] == "nothing"

    mend_quarantine(spark, table)
    (ready,) = run.redrive(job, spark, NoProgress(), dry_run=True).still_quarantined
    assert ready.decodes
    done = run.redrive(job, spark, NoProgress())
    assert done.done is not None
    assert (done.done.state, done.done.counts, done.still_quarantined) == (
        "landed",
        Counts(landed=BATCH),
        (),
    )
    whole = expected(p0=range(WIDTH), p1=range(WIDTH))
    assert offsets_in(table) == whole
    assert is_proved(spark, job)
    assert run.redrive(job, spark, NoProgress()).to_json()["state"] == "nothing"
    assert rangeland.land(job, spark).state == "nothing"
    assert offsets_in(table) == whole


@pytest.mark.slow
def test_a_replacement_that_meets_damage_leaves_the_rows_and_is_in_nobodys_way(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    filled(kafka, topic)
    job = job_of(kafka.bootstrap, table, topic, policy={"corrupt": "skip"})
    rangeland.land(job, spark)
    asked = between(topic, p1=(0, WIDTH))
    part = job_of(kafka.bootstrap, table, topic, policy={"corrupt": "skip"}, range=asked)
    flip(kafka, topic)
    with pytest.raises(RangeLost, match="Replace only what the log still has"):
        rangeland.backfill(part, spark, replace=True)
    whole = expected(p0=range(WIDTH), p1=range(WIDTH))
    assert offsets_in(table) == whole
    assert losses(spark, table) == [(topic, 1, BATCH, 2 * BATCH, BATCH, "corrupt", "fail")]
    add(kafka, topic, (0,))
    again = rangeland.land(job, spark)
    assert (again.counts, again.recovered) == (Counts(landed=WIDTH), ())
    flip(kafka, topic)
    assert rangeland.backfill(part, spark, replace=True).counts == Counts(landed=WIDTH)
    assert offsets_in(table) == expected(p0=range(2 * WIDTH), p1=range(WIDTH))
    assert is_proved(spark, job)


def test_a_damaged_partition_is_held_where_it_is_and_the_others_go_on(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    filled(kafka, topic)
    flip(kafka, topic)
    job = job_of(kafka.bootstrap, table, topic, policy={"corrupt": "hold"})
    result = rangeland.land(job, spark)
    assert (result.state, result.counts) == ("landed", Counts(landed=WIDTH + BATCH))
    assert [x.loss.action for x in result.losses] == ["hold"]
    assert checkpoints(spark, job) == {0: WIDTH, 1: BATCH}
    held = (topic, 1, BATCH, WIDTH, WIDTH - BATCH, "corrupt", "hold")
    assert losses(spark, table) == [held]

    # Nothing has changed: nothing is entered, and nothing is told twice.
    again = rangeland.land(job, spark)
    assert (again.state, plans(spark, table)) == ("nothing", 1)
    assert again.held
    add(kafka, topic, (0,))
    assert rangeland.land(job, spark).counts == Counts(landed=WIDTH)
    assert checkpoints(spark, job) == {0: 2 * WIDTH, 1: BATCH}
    assert losses(spark, table) == [held]

    flip(kafka, topic)
    assert rangeland.land(job, spark).counts == Counts(landed=WIDTH - BATCH)
    assert offsets_in(table) == expected(p0=range(2 * WIDTH), p1=range(WIDTH))
    assert checkpoints(spark, job) == {0: 2 * WIDTH, 1: WIDTH}
    assert is_proved(spark, job)


def test_a_topic_has_a_policy_of_its_own(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        filled(kafka, name)
        flip(kafka, name)
    policy = {"corrupt": "fail", "topics": {topic: {"corrupt": "skip"}, ".*": {"corrupt": "hold"}}}
    result = rangeland.land(job_of(kafka.bootstrap, table, [topic, other], policy=policy), spark)
    assert result.counts == Counts(landed=3 * WIDTH, lost=BATCH)
    assert losses(spark, table) == [
        (topic, 1, BATCH, 2 * BATCH, BATCH, "corrupt", "skip"),
        (other, 1, BATCH, WIDTH, WIDTH - BATCH, "corrupt", "hold"),
    ]


@pytest.mark.slow
def test_what_expires_while_it_is_read_is_held_and_the_others_land(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    filled(kafka, topic)
    job = job_of(kafka.bootstrap, table, topic, policy={"expired": "hold"})
    expire = Doing(lambda: delete_records(kafka.bootstrap, topic, {1: BATCH}))
    result = run.run(job, spark, expire)
    assert result.counts == Counts(landed=WIDTH)
    # Nothing of partition 1 is landed: it has no checkpoint behind its beginning.
    assert checkpoints(spark, job) == {0: WIDTH, 1: 0}
    again = rangeland.land(job, spark)
    assert (again.state, len(again.held)) == ("nothing", 1)
    skipping = job_of(kafka.bootstrap, table, topic, policy={"expired": "skip"})
    assert rangeland.land(skipping, spark).counts == Counts(landed=WIDTH - BATCH, lost=BATCH)
    assert [row[2:] for row in losses(spark, table)] == [
        (0, BATCH, BATCH, "expired", "skip"),
        (0, WIDTH, WIDTH, "expired", "hold"),
    ]
    assert is_proved(spark, job)


@pytest.mark.slow
def test_a_run_that_fails_for_a_loss_says_so_in_the_ledger_once(
    kafka: KafkaCluster, spark: Any, kernel: DeltaKernel, table: str, topic: str
) -> None:
    filled(kafka, topic)
    # A ledger that was made before losses had rows gets their columns with the first of them.
    earlier = pa.schema(list(SCHEMA)[: SCHEMA.names.index("document") + 1])
    kernel.create(f"{table}/_rangeland/ledger", schema_json(earlier))
    job = job_of(kafka.bootstrap, table, topic)
    rangeland.land(job, spark)
    add(kafka, topic, (0, 1))
    flip(kafka, topic, batch=4)
    for _ in range(2):
        with pytest.raises(BadRecord):
            rangeland.land(job, spark)
    first = WIDTH + BATCH
    assert losses(spark, table) == [(topic, 1, first, first + BATCH, BATCH, "corrupt", "fail")]
    delete_records(kafka.bootstrap, topic, {0: 2 * WIDTH})
    flip(kafka, topic, batch=4)
    with pytest.raises(RangeLost):
        rangeland.land(job, spark)
    assert [row[-2:] for row in losses(spark, table)] == [("expired", "fail"), ("corrupt", "fail")]


def test_a_reviewed_plan_tells_what_it_holds_as_a_run_does(
    kafka: KafkaCluster, spark: Any, table: str, topic: str, tmp_path: Path
) -> None:
    filled(kafka, topic)
    delete_records(kafka.bootstrap, topic, {1: BATCH})
    where = {topic: {0: 0, 1: 0}}
    document = {
        "job": "landing",
        "source": {"servers": list(kafka.bootstrap), "topics": [topic]},
        "sink": {"table": table},
        "range": {"from": where},
        "policy": {"expired": "hold"},
    }
    text = parse_job_text(json.dumps(document), "held.yaml")
    write_plan_file(tmp_path / "plan", run.preview(Job.of(text), spark, NoProgress()), text)
    reviewed = read_plan_file(tmp_path / "plan")
    result = run.apply(reviewed.job, reviewed.plan, reviewed.unplanned_losses, spark, NoProgress())
    assert (result.counts, len(result.held)) == (Counts(landed=WIDTH), 1)
    row = (topic, 1, 0, BATCH, BATCH, "expired", "hold")
    assert losses(spark, table) == [row]
    # Once, whoever comes by; and the same as of a run.
    assert (
        run.apply(reviewed.job, reviewed.plan, reviewed.unplanned_losses, spark, NoProgress()).held
        == ()
    )
    assert rangeland.land(reviewed.job, spark).state == "already-landed"
    assert losses(spark, table) == [row]
    of_run = f"{table} of a run"
    rangeland.land(
        job_of(kafka.bootstrap, of_run, topic, range={"from": where}, policy=document["policy"]),
        spark,
    )
    assert losses(spark, of_run) == [row]


def test_a_loss_before_anything_was_landed_writes_nothing(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    filled(kafka, topic)
    delete_records(kafka.bootstrap, topic, {0: BATCH})
    job = job_of(kafka.bootstrap, table, topic, range={"from": {topic: {0: 0, 1: 0}}})
    with pytest.raises(RangeLost):
        rangeland.land(job, spark)
    assert not Path(table).exists()
