"""Jafka's brokers that go and come back, and logs that lose a part: waited for, held back,
or lost by a policy and counted, and never passed over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rangeland
from rangeland import run
from rangeland.errors import BadRecord, RangeLost, Unreachable
from rangeland.job import Job
from rangeland.model import Counts
from rangeland.planning import lagging_ends
from rangeland.planning.plan import Plan
from rangeland.progress_events import NoProgress
from rangeland.queries import job_check, verify_and_find
from rangeland.testing.jafka import JafkaCluster
from rangeland.zookeeper.broker_registry import read_registry
from rangeland.zookeeper.zookeeper_access import ZooKeeperAccess
from tests.record_values import values_of
from tests.servers.zookeeper_server import ZooKeeperServer
from tests.spark.jafka_landings import PATIENCE_S, Written, jafka_job, landed_rows

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

SEGMENT_BYTES = 4096
SESSION_MS = 1000
SURVEY_MS = 1500
LENIENT = dict.fromkeys(("expired", "recreated", "truncated", "vanished"), "skip")


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperServer) -> Iterator[JafkaCluster]:
    session = {"zk.sessiontimeout.ms": SESSION_MS}
    with JafkaCluster(
        brokers=2,
        zookeeper=zookeeper.address,
        partitions=1,
        segment_bytes=SEGMENT_BYTES,
        properties=session,
    ) as started:
        yield started


@pytest.fixture
def jafka(cluster: JafkaCluster) -> Iterator[JafkaCluster]:
    """Two brokers with one partition of each topic, to be harmed; they are healed after."""
    yield cluster
    for broker in cluster.ids:
        if broker not in cluster.running:
            cluster.restart(broker)


@pytest.fixture
def written(jafka: JafkaCluster, topic: str) -> Written:
    made = Written(jafka, topic)
    for which in ("1-0", "2-0"):
        made.add(which, values_of(f"plain-{which}", 300))
        made.add(which, values_of(f"packed-{which}", 40), packed=True)
    return made


def named(jafka: JafkaCluster, table: str, topic: str, **sections: Any) -> Job:
    """A job that names its brokers, and gives up soon."""
    timeouts = {"connect_ms": 1000, "request_ms": 2000, "survey_ms": SURVEY_MS}
    source = {"servers": jafka.servers, "timeouts": {**timeouts, "no_progress_ms": 3000}}
    return jafka_job(jafka, table, topic, source=source, **sections)


def registered(jafka: JafkaCluster, table: str, topic: str, **sections: Any) -> Job:
    """A job that finds its brokers in ZooKeeper, and gives up soon."""
    timeouts = {"connect_ms": 1000, "request_ms": 2000, "survey_ms": SURVEY_MS}
    return jafka_job(jafka, table, topic, source={"timeouts": timeouts}, **sections)


def wait_until_forgotten(jafka: JafkaCluster, broker: str) -> None:
    """Until the session of a broker that was killed has ended."""
    assert jafka.zookeeper is not None
    deadline = time.monotonic() + PATIENCE_S
    while broker in read_registry(ZooKeeperAccess(jafka.zookeeper)).brokers:
        assert time.monotonic() < deadline, f"broker {broker} is still registered"
        time.sleep(0.1)


# --- brokers that are away ----------------------------------------------------------------------


class Doing(NoProgress):
    """Does something once the plan is made, before it is read."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action

    def planned(self, plan: Plan, recovered: bool) -> None:
        self._action()


def test_a_run_waits_for_a_broker_that_comes_back(
    jafka: JafkaCluster, written: Written, spark: Any, table: str
) -> None:
    source = {"timeouts": {"connect_ms": 1000, "no_progress_ms": 60_000}}
    job = jafka_job(jafka, table, written.topic, source=source)
    back = threading.Thread(target=jafka.restart, args=[2])

    def harm() -> None:
        jafka.kill(2)
        back.start()

    result = run.run(job, spark, Doing(harm))
    back.join()
    assert result.counts == Counts(landed=len(written.rows))
    assert landed_rows(table) == sorted(written.rows)


def test_a_broker_that_is_away_is_named_or_held_back_and_landed_later(
    jafka: JafkaCluster, written: Written, spark: Any, table: str
) -> None:
    jafka.kill(2)
    started = time.monotonic()
    with pytest.raises(Unreachable, match="broker 2") as refused:
        rangeland.land(named(jafka, table, written.topic), spark)
    assert refused.value.exit_code == 75
    assert time.monotonic() - started > SURVEY_MS / 2000
    holding = named(jafka, table, written.topic, policy={"unreachable": "hold"})
    held = rangeland.land(holding, spark)
    assert landed_rows(table) == written.of("1-0")
    assert held.state == "landed"
    jafka.restart(2)
    assert rangeland.land(holding, spark).held == ()
    assert landed_rows(table) == sorted(written.rows)


@pytest.mark.slow
def test_a_landed_broker_that_left_zookeeper_is_away_and_not_gone(
    jafka: JafkaCluster, written: Written, spark: Any, table: str
) -> None:
    job = registered(jafka, table, written.topic)
    rangeland.land(job, spark)
    for which in ("1-0", "2-0"):
        written.add(which, values_of(f"more-{which}", 10))
    jafka.kill(2)
    wait_until_forgotten(jafka, "2")
    with pytest.raises(Unreachable, match="broker 2: no broker of that name is registered"):
        rangeland.land(job, spark)
    checked = job_check.check(job, lambda: spark, NoProgress())
    assert (checked.exit_code, checked.error) == (75, "Unreachable")
    policy = {**LENIENT, "unreachable": "hold"}
    held = rangeland.land(registered(jafka, table, written.topic, policy=policy), spark)
    assert held.counts == Counts(landed=10)
    assert len(held.held) == 1
    assert f"{written.topic}/2-0" in held.held[0]
    jafka.restart(2)
    written.wait_for_registration()
    assert rangeland.land(job, spark).counts == Counts(landed=10)
    assert landed_rows(table) == sorted(written.rows)


IMPATIENT = {"connect_ms": 1000, "survey_ms": SURVEY_MS, "no_progress_ms": 1500}


@pytest.mark.slow
def test_a_broker_that_dies_while_it_is_read_is_held_there_and_the_others_land(
    jafka: JafkaCluster, written: Written, spark: Any, table: str
) -> None:
    policy = {"unreachable": "hold"}
    job = named(jafka, table, written.topic, policy=policy)
    result = run.run(job, spark, Doing(lambda: jafka.kill(2)))
    assert result.state == "landed"
    assert [(x.loss.kind, x.loss.action) for x in result.losses] == [("unreachable", "hold")]
    assert landed_rows(table) == written.of("1-0")
    again = rangeland.land(job, spark)
    assert (again.state, len(again.held)) == ("nothing", 1), "no plan waits for it"
    written.add("1-0", values_of("more", 10))
    assert rangeland.land(job, spark).counts == Counts(landed=10)
    jafka.restart(2)
    last = rangeland.land(job, spark)
    assert (last.recovered, last.held) == ((), ())
    assert landed_rows(table) == sorted(written.rows)
    assert verify_and_find.verify(job, spark, NoProgress()).is_well


@pytest.mark.slow
def test_a_plan_that_was_left_waits_for_a_broker_that_left_zookeeper(
    jafka: JafkaCluster, written: Written, spark: Any, table: str
) -> None:
    source = {"timeouts": IMPATIENT}
    job = jafka_job(jafka, table, written.topic, source=source, policy=LENIENT)
    with pytest.raises(Unreachable, match=f"{written.topic}/2-0"):
        run.run(job, spark, Doing(lambda: jafka.kill(2)))
    wait_until_forgotten(jafka, "2")
    with pytest.raises(Unreachable, match=f"{written.topic}/2-0") as refused:
        rangeland.land(job, spark)
    assert "2" in refused.value.why
    jafka.restart(2)
    assert rangeland.land(job, spark).recovered == (1,)
    assert landed_rows(table) == sorted(written.rows)


# --- logs that lose a part ----------------------------------------------------------------------


def test_what_retention_took_is_lost_by_policy_in_bytes(
    jafka: JafkaCluster, written: Written, spark: Any, table: str
) -> None:
    rangeland.land(named(jafka, table, written.topic), spark)
    landed_until = written.ends["2-0"]
    written.add("2-0", values_of("more", 600))
    jafka.stop(2)
    gone, *_, last = jafka.segments(written.topic, 0, 2)
    for file in jafka.segments(written.topic, 0, 2):
        if file != last:
            file.unlink()
    jafka.restart(2)
    begins = int(last.stem)
    assert begins > landed_until > int(gone.stem)
    with pytest.raises(RangeLost, match="expired") as lost:
        rangeland.land(named(jafka, table, written.topic), spark)
    (loss,) = lost.value.facts["losses"]
    assert (loss["broker"], loss["from_offset"], loss["until_offset"]) == (
        "2",
        landed_until,
        begins,
    )
    job = named(jafka, table, written.topic, policy={"expired": "skip"})
    result = rangeland.land(job, spark)
    left = [row for row in written.of("2-0") if row[2] < landed_until or row[2] >= begins]
    assert landed_rows(table) == sorted(written.of("1-0") + left)
    assert result.counts.lost == begins - landed_until
    assert verify_and_find.verify(job, spark, NoProgress()).is_well
    assert rangeland.land(job, spark).state == "nothing"


@pytest.mark.slow
def test_a_log_that_was_cut_short_is_noticed(
    jafka: JafkaCluster,
    written: Written,
    spark: Any,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lagging_ends, "LAGGING_S", 0)
    job = named(jafka, table, written.topic)
    rangeland.land(job, spark)
    end, kept = written.ends["1-0"], written.offsets("1-0")[-2]
    cut(jafka, written.topic, kept)
    written.add("2-0", values_of("more", 5))
    with pytest.raises(RangeLost, match=f"truncated: the log ends at {kept}"):
        rangeland.land(job, spark)
    skipping = named(jafka, table, written.topic, policy={"truncated": "skip"})
    assert rangeland.land(skipping, spark).counts == Counts(landed=5)
    # Grown again, it has other entries: where the checkpoint stands none begins.
    written.ends["1-0"] = kept
    written.add("1-0", values_of("other, and longer than what was there", 20))
    assert kept < end < written.ends["1-0"]
    assert end not in written.offsets("1-0")
    with pytest.raises(RangeLost, match=f"{end}, which is inside the entry") as lost:
        rangeland.land(job, spark)
    (loss,) = lost.value.facts["losses"]
    behind = next(offset for offset in written.offsets("1-0") if offset > end)
    assert (loss["from_offset"], loss["until_offset"]) == (end, behind)
    went_on = rangeland.land(skipping, spark)
    (entry,) = went_on.ranges
    assert (entry.range.from_offset, entry.range.until_offset) == (behind, written.ends["1-0"])
    assert any("cut short" in warning for warning in went_on.warnings)
    assert rangeland.land(job, spark).state == "nothing"


def cut(jafka: JafkaCluster, topic: str, end: int) -> None:
    """Cuts the log of broker 1 off at an offset, as a disk that filled up may."""
    jafka.stop(1)
    for file in jafka.segments(topic):
        if int(file.stem) >= end > 0:
            file.unlink()
        else:
            size = min(file.stat().st_size, end - int(file.stem))
            with Path(file).open("r+b") as data:
                data.truncate(size)
    jafka.restart(1)


@pytest.mark.slow
def test_a_damaged_entry_is_refused_or_lost_by_policy(
    jafka: JafkaCluster, topic: str, spark: Any, table: str
) -> None:
    written = Written(jafka, topic)
    written.add("1-0", values_of("v", 60), packed=True)
    written.add("2-0", values_of("v", 10))
    starts = [*written.offsets("1-0"), written.ends["1-0"]]
    bad, behind = starts[1], starts[2]
    (file,) = jafka.segments(topic)
    data = bytearray(file.read_bytes())
    data[behind - 1] ^= 0x10
    file.write_bytes(data)
    with pytest.raises(BadRecord, match="checksum") as refused:
        rangeland.land(named(jafka, table, topic), spark)
    assert refused.value.exit_code == 65
    assert f"{topic}/1-0" in str(refused.value)
    job = named(jafka, table, topic, policy={"corrupt": "skip"})
    result = rangeland.land(job, spark)
    whole = sorted(row for row in written.rows if (row[0], row[2]) != ("1", bad))
    assert landed_rows(table) == whole
    assert result.counts == Counts(landed=len(whole), lost=behind - bad)
    assert verify_and_find.verify(job, spark, NoProgress()).is_well
