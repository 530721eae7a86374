"""Whole runs of a RocketMQ job with a group: landed, mirrored, shown, proved, mended, gone on
from by upstream's own consumer. The brokers live as long as this module."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import rangeland
from rangeland import run
from rangeland.cluster_access.backend_choice import open_backend
from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.errors import Conflict, JobFileError, UsageError
from rangeland.groups.backend import GroupBackend
from rangeland.job import Job
from rangeland.job.job_text import parse_job_text
from rangeland.job_group.mirror_command import push
from rangeland.landing.drafts.plan_file import read_plan_file, write_plan_file
from rangeland.model import Partition
from rangeland.progress_events import NoProgress
from rangeland.queries import job_status, verify_and_find
from rangeland.testing.processes import Process
from rangeland.testing.rocketmq import RocketmqCluster
from tests.brokers.rocketmq import clients_command, run_clients
from tests.record_values import values_of
from tests.spark.rocketmq_landings import Written, landed_rows, rocketmq_job

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

COUNT, MORE = 60, 5


@pytest.fixture
def written(rocketmq: RocketmqCluster, topic: str) -> Written:
    made = Written(rocketmq, topic)
    made.fill("first", COUNT)
    return made


@pytest.fixture
def job(written: Written, table: str) -> Job:
    return grouped(written, table)


def grouped(written: Written, table: str, **sections: Any) -> Job:
    group = {"id": f"group-of-{written.topic}", "session_ms": 6_000, "rebalance_ms": 7_000}
    return rocketmq_job(written, table, group=group, **sections)


def group_id(job: Job) -> str:
    assert job.group is not None
    return job.group.id


@contextmanager
def home_of(job: Job) -> Iterator[GroupBackend]:
    home = open_backend(job, look_up_cluster(job))
    try:
        yield home
    finally:
        home.close()


def offsets_of(job: Job, written: Written) -> dict[Partition, int | None]:
    with home_of(job) as home:
        return dict(home.offsets(group_id(job), written.queues))


def shown(job: Job, spark: Any) -> dict[str, Any]:
    """What ``status --json`` prints."""
    found: dict[str, Any] = json.loads(
        json.dumps(job_status.status(job, spark, NoProgress()).to_json())
    )
    return found


# --- topics -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_topics_that_match_a_pattern_are_landed_also_one_that_comes_later(
    written: Written, table: str, spark: Any
) -> None:
    name = written.topic
    pattern = {"topics": [], "topic_pattern": f"{name}.*|%RETRY%.*|SCHEDULE.*"}
    job = rocketmq_job(written, table, source=pattern, range={"from": "checkpoint"})
    assert rangeland.land(job, spark).counts.landed == 4 * COUNT
    later = Written(written.cluster, f"{name}-later")
    later.add("broker-a", 1, values_of("later", MORE))
    assert rangeland.land(job, spark).counts.landed == MORE
    assert landed_rows(table) == sorted(written.rows + later.rows)
    found = shown(job, spark)["partitions"]
    assert {p["topic"] for p in found} == {name, later.topic}


# --- the group ----------------------------------------------------------------------------------


def test_a_run_in_a_group_is_landed_mirrored_and_shown(
    written: Written, job: Job, spark: Any
) -> None:
    first = rangeland.land(job, spark)
    assert (first.counts.landed, first.warnings) == (4 * COUNT, ())
    before_ms = int(time.time() * 1000)
    written.add("broker-b", 1, values_of("more", MORE))
    assert offsets_of(job, written) == dict.fromkeys(written.queues, COUNT)
    found = shown(job, spark)
    masters = {name: written.cluster.address(name) for name in written.cluster.masters}
    ends = {p: COUNT for p in written.queues} | {Partition(written.topic, 1, "broker-b"): 65}
    assert [
        (p["topic"], p["partition"], p["broker"], p["leader"], p["start"], p["end"], p["lag"])
        for p in found["partitions"]
    ] == [
        (p.topic, p.number, p.broker, masters[p.broker], 0, end, end - COUNT)
        for p, end in ends.items()
    ]
    assert {p["checkpoint"] for p in found["partitions"]} == {COUNT}
    assert {p["group_offset"] for p in found["partitions"]} == {COUNT}
    *landed, behind = found["partitions"]
    assert {p["lag_ms"] for p in landed} == {None}
    assert 0 <= behind["lag_ms"] <= int(time.time() * 1000) - before_ms + 1_000
    assert (found["group"]["id"], found["group"]["state"]) == (group_id(job), "empty")
    assert written.cluster.servers[0] in found["group"]["home"]


def test_upstream_s_consumer_goes_on_exactly_where_a_run_stopped_and_a_run_where_it_did(
    written: Written, job: Job, spark: Any, table: str
) -> None:
    rangeland.land(job, spark)
    written.add("broker-a", 0, values_of("more-a", MORE))
    written.add("broker-b", 1, values_of("more-b", MORE))
    server, count = written.cluster.servers[0], 2 * MORE
    came = run_clients("consume", server, written.topic, group_id(job), str(count))
    assert sorted(body for _, _, body, _ in came) == sorted(
        value.decode() for name in ("more-a", "more-b") for value in values_of(name, MORE)
    )
    assert offsets_of(job, written) == written.ends
    written.add("broker-a", 1, values_of("after", 2))
    taker = grouped(
        written, f"{table}-taken", name="taker", range={"from": f"group:{group_id(job)}"}
    )
    result = rangeland.land(taker, spark)
    begins = {str(r.range.partition): r.range.from_offset for r in result.ranges}
    assert (result.counts.landed, begins) == (2, {f"{written.topic}/broker-a-1": COUNT})
    # The job itself goes on from its checkpoint, and lands what the consumer has read, too.
    assert rangeland.land(job, spark).counts.landed == 2 * MORE + 2
    assert landed_rows(table) == sorted(written.rows)


def test_a_live_consumer_of_upstream_is_never_worked_against(
    written: Written, job: Job, spark: Any, tmp_path: Path
) -> None:
    arguments = ["consume", written.cluster.servers[0], written.topic, group_id(job), "100000"]
    command = clients_command(tmp_path, *arguments)
    consumer = Process("consumer", command, log=tmp_path / "consumer.log")
    try:
        consumer.wait_for_line(r"^@\t", 120)
        with pytest.raises(Conflict, match=r"client .*@\d+.*, JAVA\)"):
            rangeland.land(job, spark)
        found = shown(job, spark)
        assert found["sequence"] == 0
        (member,) = found["group"]["members"]
        assert not member["is_ours"]
        assert {p["owner"] for p in found["partitions"]} == {member["member"]}
        with pytest.raises(Conflict, match="has live members"):
            push(job, spark, NoProgress())
    finally:
        consumer.kill()
    assert rangeland.land(job, spark).state == "landed"
    assert offsets_of(job, written) == dict.fromkeys(written.queues, COUNT)


def test_the_checkpoint_is_pushed_read_back_and_repaired(
    written: Written, job: Job, spark: Any
) -> None:
    assert push(job, spark, NoProgress()).state == "nothing-landed"
    rangeland.land(job, spark)
    assert push(job, spark, NoProgress()).state == "unchanged"
    moved = written.queues[2]
    with home_of(job) as home:
        home.commit(group_id(job), {moved: 3})
    pushed = push(job, spark, NoProgress())
    assert pushed.state == "mirrored"
    stood = {p.partition: (p.checkpoint, p.before, p.after) for p in pushed.partitions}
    assert stood == {p: (COUNT, 3 if p == moved else COUNT, COUNT) for p in written.queues}
    # A run repairs it as well, and says what it found.
    with home_of(job) as home:
        home.commit(group_id(job), {moved: 4})
    repaired = rangeland.land(job, spark)
    assert repaired.state == "nothing"
    assert any(f"was at 4 of {moved}" in warning for warning in repaired.warnings)
    assert offsets_of(job, written) == dict.fromkeys(written.queues, COUNT)


# --- other ranges -------------------------------------------------------------------------------


def test_backfills_by_offsets_and_by_time_leave_the_checkpoint_and_land_nothing_twice(
    written: Written, job: Job, spark: Any, table: str
) -> None:
    time.sleep(0.05)
    between = datetime.now(UTC).isoformat()
    time.sleep(0.05)
    written.fill("second", MORE)
    some = {written.topic: {"broker-a-0": 10}}, {written.topic: {"broker-a-0": 20}}
    by_offsets = grouped(written, table, range={"from": some[0], "until": some[1]})
    assert rangeland.backfill(by_offsets, spark).counts.landed == 10
    by_time = grouped(written, table, range={"from": between, "until": "latest"})
    assert rangeland.backfill(by_time, spark).counts.landed == 4 * MORE
    assert rangeland.backfill(by_time, spark).state == "already-landed"
    late = [row for row in written.rows if row[3].startswith(b"second")]
    picked = [row for row in written.rows if row[:2] == ("broker-a", 0) and 10 <= row[2] < 20]
    assert landed_rows(table) == sorted(late + picked)
    assert {p["checkpoint"] for p in shown(job, spark)["partitions"]} == {None}
    assert rangeland.land(job, spark).counts.landed == 4 * COUNT - 10
    assert landed_rows(table) == sorted(written.rows)


def test_a_reviewed_plan_lands_what_it_said_and_no_more(
    written: Written, table: str, spark: Any, tmp_path: Path
) -> None:
    document = {
        "job": "reviewed",
        "source": {
            "dialect": "rocketmq",
            "servers": written.cluster.servers,
            "topics": [written.topic],
        },
        "limits": {"max_records": 100},
        "group": {"id": f"group-of-{written.topic}"},
        "sink": {"table": table},
    }
    text, path = parse_job_text(json.dumps(document), "payments.yaml"), tmp_path / "plan"
    write_plan_file(path, run.preview(Job.of(text), spark, NoProgress()), text)
    written.fill("later", MORE)
    reviewed = read_plan_file(path)
    result = run.apply(reviewed.job, reviewed.plan, reviewed.unplanned_losses, spark, NoProgress())
    assert result.counts.landed == 100
    assert {r.range.partition for r in result.ranges} <= set(written.queues)
    taken = {r.range.partition: r.range.until_offset for r in result.ranges}
    assert offsets_of(reviewed.job, written) == dict.fromkeys(written.queues) | taken


def test_a_queue_that_no_broker_has_is_refused_with_how_queues_are_named(
    written: Written, table: str, spark: Any
) -> None:
    job = grouped(written, table, range={"from": {written.topic: {"7": 10}}, "until": "latest"})
    with pytest.raises(JobFileError, match="has partitions broker-a-0, broker-b-0, broker-a-1"):
        rangeland.land(job, spark)


# --- the proof ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_rows_that_others_delete_are_found_to_the_offset_and_landed_again(
    written: Written, job: Job, spark: Any, table: str
) -> None:
    rangeland.land(job, spark)
    written.fill("second", MORE)
    rangeland.land(job, spark)
    assert verify_and_find.verify(job, spark, NoProgress()).to_json()["ok"]
    torn = "broker = 'broker-a' AND partition = 1 AND offset IN (0, 7, 8, 62)"
    spark.sql(f"DELETE FROM delta.`{table}` WHERE {torn}")
    found = verify_and_find.verify(job, spark, NoProgress()).to_json()
    assert not found["ok"]
    assert [
        (h["broker"], h["partition"], h["from_offset"], h["until_offset"]) for h in found["holes"]
    ] == [("broker-a", 1, start, end) for start, end in ((0, 1), (7, 9), (62, 63))]
    gone = verify_and_find.find(
        job, spark, Partition(written.topic, 1, "broker-a"), 62, NoProgress()
    )
    assert (gone.state, gone.sequence) == ("missing", 2)
    assert rangeland.backfill(job, spark, missing=True).counts.landed == 4
    assert verify_and_find.verify(job, spark, NoProgress()).to_json()["ok"]
    assert landed_rows(table) == sorted(written.rows)
    assert rangeland.backfill(job, spark, missing=True).state == "nothing"


def test_an_offset_is_found_with_its_landing_its_master_and_its_file(
    written: Written, job: Job, spark: Any
) -> None:
    rangeland.land(job, spark)
    there = Partition(written.topic, 1, "broker-b")
    found = verify_and_find.find(job, spark, there, 7, NoProgress()).to_json()
    assert (found["state"], found["sequence"]) == ("landed", 1)
    assert found["leader"] == written.cluster.address("broker-b")
    assert Path(found["file"].removeprefix("file:").replace("%20", " ")).exists()
    never = verify_and_find.find(job, spark, there, COUNT, NoProgress())
    assert (never.state, never.sequence) == ("not-landed", None)
    with pytest.raises(UsageError, match=r"of 2 brokers.*broker-a-1, .*broker-b-1"):
        verify_and_find.find(job, spark, Partition(written.topic, 1), 7, NoProgress())


def test_a_queue_without_a_broker_is_that_of_each(written: Written, table: str, spark: Any) -> None:
    sides = {"from": {written.topic: {"1": 10}}, "until": {written.topic: {"1": 30}}}
    rangeland.backfill(rocketmq_job(written, table, range=sides), spark)
    wanted = [row for row in written.rows if row[1] == 1 and 10 <= row[2] < 30]
    assert landed_rows(table) == sorted(wanted)
