"""Drivers of one group share a plan: each record lands once, whichever driver dies, and
wherever.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from rangeland.delta.ledger.ledger_table import Ledger
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.errors import Conflict
from rangeland.groups.backend import JoinRequest
from rangeland.job import Job
from rangeland.job_group import lease, shared_plan
from rangeland.job_group.heartbeat_thread import HeartbeatThread
from rangeland.model import Partition
from rangeland.planning.plan import PlanId
from rangeland.progress_events import NoProgress
from rangeland.queries import verify_and_find
from rangeland.run import backfill, run
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import create_topic, numbered_records, produce
from tests.fakes.group_backend import InMemoryGroupBackend
from tests.spark.group_drivers import (
    HANDING_IN,
    PLANNED,
    PREPARED,
    READING,
    WAITING,
    WRITTEN,
    Driver,
    GroupBackends,
)
from tests.spark.landings import between, expected, job_of, offsets_in

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

COUNT = 50
GROUP: dict[str, Any] = {"id": "g", "session_ms": 1_500, "rebalance_ms": 20_000}
EACH = {f"p{n}": range(COUNT) for n in range(4)}


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> GroupBackends:
    found = GroupBackends()
    monkeypatch.setattr(lease, "open_backend", found.open)
    return found


@pytest.fixture
def job(kafka: KafkaCluster, topic: str, table: str) -> Job:
    return shared_job(kafka, topic, table)


def shared_job(
    kafka: KafkaCluster, topic: str, table: str, partitions: int = 4, **sections: Any
) -> Job:
    create_topic(kafka.bootstrap, topic, partitions=partitions)
    for number in range(partitions):
        produce(kafka.bootstrap, topic, numbered_records(COUNT), partition=number)
    slices = {"target_bytes": "2KiB"}
    return job_of(kafka.bootstrap, table, topic, group=GROUP, slices=slices, **sections)


def pair_of(backends: GroupBackends, job: Job, spark: Any) -> tuple[Driver, Driver, Any, Any]:
    """Two drivers that have the same plan before them, and what lets each go on."""
    one, other = backends.driver("a", job, spark), backends.driver("b", job, spark)
    go_one, go_other = one.holds_at(PLANNED), other.holds_at(PLANNED)
    one.start().wait_at(PLANNED)
    other.start().wait_at(PLANNED)
    return one, other, go_one, go_other


def parts(spark: Any, job: Job) -> list[dict[str, Any]]:
    """Of the first plan: who handed in which slices."""
    ledger = Ledger(DeltaKernel(spark), job.sink.table)
    assert ledger.exists()
    found = ledger.view.parts(PlanId(job.application, 1))
    return [{"member": p.member, "slices": {r.partition for r in p.receipts}} for p in found]


def judge(spark: Any, job: Job, backends: GroupBackends) -> None:
    """Each record is there once, the ledger proves it, and the group is at the checkpoint."""
    assert offsets_in(job.sink.table) == expected(**EACH)
    assert verify_and_find.verify(job, spark, NoProgress()).is_well
    checkpoint = {Partition(job.source.topics[0], n): COUNT for n in range(4)}
    assert backends.groups.group("g").offsets == checkpoint


# --- sharing -------------------------------------------------------------------------------


def test_two_drivers_share_a_plan_and_both_have_landed_it(
    backends: GroupBackends, job: Job, spark: Any
) -> None:
    one, other, go_one, go_other = pair_of(backends, job, spark)
    go_one()
    one.wait_at(WAITING)
    go_other()
    first, second = one.landed(), other.landed()
    assert (first.state, second.state) == ("landed", "landed")
    assert (first.sequence, second.sequence) == (1, 1)
    assert first.counts.landed == second.counts.landed == 4 * COUNT
    assert first.ranges == second.ranges
    topic = job.source.topics[0]
    (part,) = parts(spark, job)
    assert part["member"].startswith("a-")
    assert part["slices"] == {Partition(topic, 0), Partition(topic, 1)}
    waits = [text for text in one.told if text.startswith(WAITING)]
    assert f"of {topic}/2, owned by b-" in waits[0]
    judge(spark, job, backends)
    assert not backends.groups.group("g").members


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(PLANNED, marks=pytest.mark.slow),
        READING,
        pytest.param(HANDING_IN, marks=pytest.mark.slow),
        pytest.param(WAITING, marks=pytest.mark.slow),
        WRITTEN,
        pytest.param(PREPARED, marks=pytest.mark.slow),
    ],
)
def test_what_a_driver_that_died_has_left_is_landed_once_by_the_other(
    moment: str, backends: GroupBackends, job: Job, spark: Any
) -> None:
    one, other, go_one, go_other = pair_of(backends, job, spark)
    if moment == PLANNED:
        one.dies_at(READING)
    else:
        one.dies_at(moment)
    if moment in (WRITTEN, PREPARED):  # it is the last to read
        go_other()
        other.wait_at(WAITING)
    go_one()
    one.ended()
    assert one.result is None
    go_other()
    result = other.landed()
    assert result.state == "landed"
    assert result.counts.landed == 4 * COUNT
    judge(spark, job, backends)


@pytest.mark.slow
def test_what_was_handed_in_is_used_by_the_next_run_when_all_have_died(
    backends: GroupBackends, job: Job, spark: Any
) -> None:
    one, other, go_one, go_other = pair_of(backends, job, spark)
    one.dies_at(WAITING)
    other.dies_at(READING)
    go_one()
    one.ended()
    go_other()
    other.ended()
    result = run(job, spark, NoProgress())
    assert (result.state, result.recovered) == ("landed", (1,))
    ledger = Ledger(DeltaKernel(spark), job.sink.table)
    assert ledger.exists()
    (part,) = ledger.view.parts(PlanId(job.application, 1))
    outcome = ledger.view.outcome(PlanId(job.application, 1))
    assert outcome is not None
    landed = {entry.file.path for entry in outcome.files}
    assert {entry.file.path for entry in part.files} < landed
    judge(spark, job, backends)


@pytest.mark.slow
def test_a_driver_stops_for_another_and_hands_in_what_it_has_finished(
    backends: GroupBackends, kafka: KafkaCluster, topic: str, table: str, spark: Any
) -> None:
    job = shared_job(kafka, topic, table, 40)
    one = backends.driver("a", job, spark).start()
    one.wait_at(READING)
    other = backends.driver("b", job, spark).start()
    assert one.landed().counts == other.landed().counts
    found = parts(spark, job)
    assert any(line.count("-") == 2 for line in backends.groups.log if "generation" in line)
    assert found[0]["member"].startswith("a-")
    assert 0 < len(found[0]["slices"]) < 40
    everything = {f"p{n}": range(COUNT) for n in range(40)}
    assert offsets_in(table) == expected(**everything)


@pytest.mark.slow
def test_a_plan_with_a_transform_is_read_by_one_and_landed_by_all(
    backends: GroupBackends, kafka: KafkaCluster, topic: str, table: str, spark: Any
) -> None:
    sink = {"transform": "tests.spark.test_shared_plans:unchanged"}
    job = shared_job(kafka, topic, table, sink=sink)
    one, other, go_one, go_other = pair_of(backends, job, spark)
    go_other()
    other.wait_at(WAITING)
    go_one()
    assert one.landed().counts.landed == other.landed().counts.landed == 4 * COUNT
    assert parts(spark, job) == []
    judge(spark, job, backends)


def unchanged(frame: Any) -> Any:
    return frame


@pytest.mark.slow
def test_a_plan_with_a_transform_is_read_on_while_another_driver_joins(
    backends: GroupBackends, kafka: KafkaCluster, topic: str, table: str, spark: Any
) -> None:
    sink = {"transform": "tests.spark.test_shared_plans:slowly"}
    job = shared_job(kafka, topic, table, sink=sink)
    one = backends.driver("a", job, spark).start()
    one.wait_at(PLANNED)
    other = backends.driver("b", job, spark).start()
    other.wait_at(WAITING)
    assert one.backend is not None
    assert one.backend.memberships[0].generation == 2
    assert not any(text.startswith(WRITTEN) for text in one.told)
    assert one.landed().counts == other.landed().counts
    assert [text for text in other.told if text.startswith(WRITTEN)] == []
    judge(spark, job, backends)


def slowly(frame: Any) -> Any:
    def wait(batches: Any) -> Any:
        for batch in batches:
            time.sleep(4)
            yield batch

    return frame.mapInArrow(wait, frame.schema)


# --- without the group backend ----------------------------------------------------------


def test_where_the_group_backend_is_gone_a_driver_reads_what_others_held(
    backends: GroupBackends, job: Job, spark: Any
) -> None:
    one, other, go_one, go_other = pair_of(backends, job, spark)
    other.dies_at(READING)
    go_other()
    other.ended()
    backends.groups.is_down = True
    go_one()
    result = one.landed()
    assert result.state == "landed"
    assert any("the lease in group g is lost" in text for text in result.warnings)
    assert any("is not mirrored to group g" in text for text in result.warnings)
    backends.groups.is_down = False
    again = run(job, spark, NoProgress())
    assert (again.state, again.warnings) == ("nothing", ())
    judge(spark, job, backends)


@pytest.mark.slow
def test_a_member_that_never_reads_is_not_waited_for_without_end(
    backends: GroupBackends, job: Job, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_plan, "STALLED_S", 2.0)
    topic = job.source.topics[0]
    partitions = tuple(Partition(topic, n) for n in range(4))
    idle = InMemoryGroupBackend(backends.groups, "z")
    session_ms = GROUP["session_ms"]
    joining = JoinRequest("g", job.name, partitions, session_ms=session_ms, rebalance_ms=20_000)
    keeper = HeartbeatThread(idle.join(joining))
    try:
        result = run(job, spark, NoProgress())
        assert (result.state, result.counts.landed) == ("landed", 4 * COUNT)
    finally:
        keeper.close()
    assert offsets_in(job.sink.table) == expected(**EACH)


@pytest.mark.slow
def test_what_two_drivers_have_both_read_is_handed_in_once(
    backends: GroupBackends, job: Job, spark: Any
) -> None:
    one, other, go_one, go_other = pair_of(backends, job, spark)
    go_on_reading = other.holds_at(READING)
    assert other.backend is not None
    other.backend.is_cut = True  # it takes its place for gone, and the group does not
    for name, member in backends.groups.group("g").members.items():
        if name.startswith("b-"):
            member.joining = replace(member.joining, session_ms=10**9)
    time.sleep(2 * GROUP["session_ms"] / 1000)
    go_other()
    other.wait_at(READING)  # of all partitions
    go_one()
    one.wait_at(WAITING)  # its own are handed in
    go_on_reading()
    assert one.landed().ranges == other.landed().ranges
    (part,) = parts(spark, job)
    assert part["member"].startswith("a-")
    assert offsets_in(job.sink.table) == expected(**EACH)
    assert verify_and_find.verify(job, spark, NoProgress()).is_well
    assert any("is not mirrored" in text for text in one.landed().warnings)


def test_a_run_without_its_group_backend_lands_alone_and_says_so(
    backends: GroupBackends, job: Job, spark: Any
) -> None:
    backends.groups.is_down = True
    result = run(job, spark, NoProgress())
    assert result.state == "landed"
    assert "the group g was not joined" in result.warnings[0]
    backends.groups.is_down = False
    assert run(job, spark, NoProgress()).state == "nothing"
    judge(spark, job, backends)


# --- claim and mirror ----------------------------------------------------------------------


def test_a_live_consumer_ends_the_run_before_anything_is_entered(
    backends: GroupBackends, job: Job, spark: Any
) -> None:
    backends.groups.add_consumer("g", [Partition(job.source.topics[0], 0)], "billing-7")
    with pytest.raises(Conflict, match="billing-7"):
        run(job, spark, NoProgress())
    assert not Ledger(DeltaKernel(spark), job.sink.table).exists()


def test_a_group_that_was_moved_is_put_back_to_the_checkpoint(
    backends: GroupBackends, job: Job, spark: Any
) -> None:
    assert run(job, spark, NoProgress()).warnings == ()
    offsets = backends.groups.group("g").offsets
    moved = Partition(job.source.topics[0], 2)
    offsets[moved] = COUNT + 7
    result = run(job, spark, NoProgress())
    assert result.state == "nothing"
    assert f"was at {COUNT + 7} of {moved}" in result.warnings[0]
    assert offsets[moved] == COUNT
    assert run(job, spark, NoProgress()).warnings == ()


def test_a_backfill_neither_joins_nor_moves_the_group(
    backends: GroupBackends, kafka: KafkaCluster, topic: str, table: str, spark: Any
) -> None:
    job = shared_job(kafka, topic, table, range=between(topic, p0=(10, 20)))
    backends.groups.add_consumer("g", [Partition(topic, 0)], "billing-7")
    assert backfill(job, spark, NoProgress()).state == "landed"
    assert backends.groups.group("g").offsets == {}


def test_a_driver_alone_in_its_group_hands_in_no_parts(
    backends: GroupBackends, job: Job, spark: Any
) -> None:
    result = run(job, spark, NoProgress())
    assert (result.state, result.warnings) == ("landed", ())
    assert parts(spark, job) == []
    judge(spark, job, backends)
