"""A slave that acts for its master: name servers list it under the master's number."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from rangeland.clock import wall_ms
from rangeland.cluster_access.backend_choice import BrokerGroupIO
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.routes import MASTER, TopicRoute, read_route
from rangeland.errors import Unreachable
from rangeland.groups.backend import GroupBackend
from rangeland.groups.rocketmq.group_backend import open_backend
from rangeland.job import Job
from rangeland.model import AtOffset, AtTime, Bounds, Earliest, Latest, Partition
from rangeland.planning.bound_resolution import RangeRequest, resolve
from rangeland.planning.job_position import JobPosition
from rangeland.planning.policy import Policy
from rangeland.progress_events import NoProgress
from rangeland.queries.reached_check import query_reach
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.rocketmq_clients import RocketmqClient, produce
from tests.brokers.rocketmq import log_of, read, settings_of, wait_for_slave
from tests.brokers.surveys import look, slice_of
from tests.fakes.planning import unless_failing
from tests.record_values import values_of

pytestmark = [pytest.mark.brokers, pytest.mark.chaos, pytest.mark.slow]

BROKER, SLAVE = "broker-a", "broker-a-slave"


@pytest.fixture
def acting() -> Iterator[RocketmqCluster]:
    with RocketmqCluster(
        slaves=True,
        properties={"enableSlaveActingMaster": "true"},
        name_server={"supportActingMaster": "true"},
    ) as cluster:
        yield cluster


def route_of(cluster: RocketmqCluster, topic: str) -> TopicRoute | None:
    with RocketmqClient(cluster.servers[0]) as client:
        response = client.ask(m.route(topic), check=False)
        return None if response.code else read_route(response.body)


def wait_until_it_acts(cluster: RocketmqCluster, topic: str) -> None:
    """Until the slave is listed under the master's number, and nothing else is."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        route = route_of(cluster, topic)
        at = {} if route is None else route.brokers.get(BROKER, ("", {}))[1]
        if {number: str(address) for number, address in at.items()} == {
            MASTER: cluster.address(SLAVE)
        }:
            return
        assert time.monotonic() < deadline, f"the slave does not act: {at}"
        time.sleep(0.2)


def wait_until_stored(cluster: RocketmqCluster, topic: str) -> None:
    """Until the offset of a group is in the master's file, which it outlives."""
    path = cluster.store() / "config" / "consumerOffset.json"
    cluster.process().wait_until(
        lambda: path.exists() and topic in path.read_text(), "the group's offset to be stored"
    )


def reach_states(cluster: RocketmqCluster, topic: str, until: Any) -> list[str]:
    source = {"dialect": "rocketmq", "servers": cluster.servers, "topics": [topic]}
    document = {
        "job": "waiting",
        "source": source,
        "range": {"from": "earliest", "until": until},
        "sink": {"table": "lake/waiting"},
    }
    reached = query_reach(Job.parse(json.dumps(document)), NoProgress(), 1)
    return [partition.state for partition in reached.partitions]


@contextmanager
def backend_of(cluster: RocketmqCluster) -> Iterator[GroupBackend]:
    backend = open_backend(BrokerGroupIO(settings_of(cluster)))
    try:
        yield backend
    finally:
        backend.close()


def change_offset(cluster: RocketmqCluster, queue: Partition, offset: int) -> int | None:
    """What a group's offset is after it was to be changed."""
    group = f"group-{queue.topic}"
    with backend_of(cluster) as backend:
        backend.commit(group, {queue: offset})
        return backend.offsets(group, (queue,))[queue]


def test_a_slave_that_acts_for_its_master_is_waited_for_not_believed(
    acting: RocketmqCluster, topic: str
) -> None:
    acting.create_topic(topic, 1)
    first, late = values_of("first", 300), values_of("late", 300)
    produce(acting.address(), topic, first)
    wait_for_slave(acting, topic, len(first))
    settings = settings_of(acting, no_progress_ms=3_000)
    queue = Partition(topic, 0, BROKER)
    assert not log_of(settings, topic).leader.is_replica
    acting.kill(SLAVE)
    assert change_offset(acting, queue, 200) == 200
    wait_until_stored(acting, topic)
    produce(acting.address(), topic, late)
    whole = log_of(settings, topic)
    time.sleep(0.05)  # so that a time is after all messages
    now_ms = wall_ms()
    acting.kill()
    acting.restart(SLAVE, wait=False)
    wait_until_it_acts(acting, topic)

    survey = look(settings, topics=(topic,), times_ms=(now_ms,))
    alone = survey.logs[queue]
    assert (str(alone.leader.address), alone.leader.replica_ids) == (
        acting.address(SLAVE),
        (MASTER,),
    )
    assert alone.leader.is_replica
    assert alone.end_offset == len(first)
    assert BROKER not in survey.absent.answered_brokers

    # A plan: what the slave lacks is neither lost nor left out.
    for upper in (AtOffset(600), AtTime(now_ms)):
        wanted = RangeRequest(Bounds(Earliest()), Bounds(upper), Earliest(), Policy())
        with pytest.raises(Unreachable, match="a replica that may lag; its leader is down"):
            unless_failing(resolve(wanted, survey, JobPosition({})))
    wanted = RangeRequest(Bounds(Earliest()), Bounds(Latest()), Earliest(), Policy())
    (found,) = unless_failing(resolve(wanted, survey, JobPosition({}))).ranges
    assert (found.from_offset, found.until_offset) == (0, len(first))

    # A query: it is silent, and not idle.
    until = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat()
    assert reach_states(acting, topic, until) == ["waiting"]

    # A group: the slave does not have its offset, and the master would not get one from it.
    with ThreadPoolExecutor() as pool:
        changed = pool.submit(change_offset, acting, queue, 300)
        # A task: before, at and after the slave's end.
        for start in (0, 300, 450):
            with pytest.raises(Unreachable, match="got no further"):
                read([slice_of(whole, start)], settings)
        assert read([slice_of(alone)], settings).values == first
        with pytest.raises(Unreachable, match="broker-a has no master"):
            changed.result()

    acting.restart()
    back = log_of(settings, topic)
    assert (str(back.leader.address), back.leader.is_replica) == (acting.address(), False)
    assert read([slice_of(whole)], settings).values == first + late
    assert reach_states(acting, topic, until) == ["idle"]
    with backend_of(acting) as backend:
        assert backend.offsets(f"group-{topic}", (queue,)) == {queue: 200}
