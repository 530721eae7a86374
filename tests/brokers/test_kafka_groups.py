"""Groups at real coordinators, old and new, alone and next to another application's consumer.

Each driver here has its own ``GroupIO``, group backend and membership. Drivers send heartbeats and
rejoin in threads, since a join is answered only when all members have joined.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from rangeland.cluster_access.backend_choice import BrokerGroupIO
from rangeland.errors import Conflict, Unreachable
from rangeland.groups.backend import Fenced, GroupBackend, HeartbeatStatus, JoinRequest, Membership
from rangeland.groups.kafka.group_backend import open_backend
from rangeland.model import Partition
from rangeland.testing.client_library import admin, consumer, library
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import create_topic, numbered_records, produce
from tests.brokers.reading import settings_of

pytestmark = pytest.mark.brokers

Cluster = KafkaCluster | KafkaZooKeeperCluster
SHORT_SESSION_MS = 6_000
SETTINGS = {"group.min.session.timeout.ms": 500}


@pytest.fixture(scope="module", params=["4.1.0", "0.11.0.3"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    kind = KafkaZooKeeperCluster if request.param.startswith("0.") else KafkaCluster
    with kind(request.param, properties=SETTINGS) as started:
        yield started


@dataclass
class Driver:
    backend: GroupBackend
    member: Membership | None = None

    @property
    def owned(self) -> set[int]:
        assert self.member is not None
        return {partition.number for partition in self.member.owned}

    def step(self) -> None:
        """What a driver does all the time: beat, and rejoin where it must."""
        assert self.member is not None
        if self.member.beat() is not HeartbeatStatus.HOLDS:
            self.member.rejoin()


@dataclass
class Drivers:
    """All that one test starts, in one group over one topic."""

    bootstrap: list[str]
    topic: str
    pool: ThreadPoolExecutor
    backends: list[GroupBackend] = field(default_factory=list)

    @property
    def group(self) -> str:
        return f"group of {self.topic}"

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return tuple(Partition(self.topic, number) for number in range(4))

    def driver(self) -> Driver:
        self.backends.append(open_backend(BrokerGroupIO(settings_of(self.bootstrap))))
        return Driver(self.backends[-1])

    def joining(self, **changed: Any) -> JoinRequest:
        terms = {"session_ms": 6_000, "rebalance_ms": 10_000, **changed}
        return JoinRequest(self.group, "orders", self.partitions, **terms)

    def first(self, **changed: Any) -> Driver:
        driver = self.driver()
        driver.member = driver.backend.join(self.joining(**changed))
        return driver

    def another(self, *others: Driver, **changed: Any) -> Driver:
        """Joins while the others beat."""
        driver = self.driver()
        joined = self.pool.submit(driver.backend.join, self.joining(**changed))
        self.settle(others, joined.done)
        driver.member = joined.result()
        return driver

    def settle(
        self,
        drivers: Sequence[Driver],
        is_done: Callable[[], bool],
        meanwhile: Callable[[], Any] = lambda: time.sleep(0.05),
    ) -> None:
        """Lets the drivers beat, each in a thread and in its own time, until it is done."""
        deadline = time.monotonic() + PATIENCE_S
        steps = [self.pool.submit(driver.step) for driver in drivers]
        while True:
            meanwhile()
            done = is_done()
            for index, driver in enumerate(drivers):
                if steps[index].done():
                    steps[index].result()
                    if not done:
                        steps[index] = self.pool.submit(driver.step)
            if done and all(step.done() for step in steps):
                return
            assert time.monotonic() < deadline, [driver.owned for driver in drivers]


@pytest.fixture
def drivers(cluster: Cluster, topic: str) -> Iterator[Drivers]:
    create_topic(cluster.bootstrap, topic, partitions=4)
    with ThreadPoolExecutor(max_workers=4) as pool:
        made = Drivers(cluster.bootstrap, topic, pool)
        yield made
    for backend in made.backends:
        backend.close()


@contextmanager
def stranger(drivers: Drivers, **settings: Any) -> Iterator[Any]:
    """Somebody else's consumer, subscribed to the topic."""
    base = {
        "group.id": drivers.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "client.id": "stranger",
    }
    made = consumer(drivers.bootstrap, base | settings)
    made.subscribe([drivers.topic])
    try:
        yield made
    finally:
        made.close()


def held_by(client: Any) -> set[int]:
    return {member.partition for member in client.assignment()}


def poll_until(client: Any, is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_done():
        assert time.monotonic() < deadline
        client.poll(0.1)


# --- drivers among themselves ------------------------------------------------------------


def test_two_drivers_share_and_who_stays_gets_all(drivers: Drivers) -> None:
    first = drivers.first()
    assert first.owned == {0, 1, 2, 3}
    second = drivers.another(first)
    drivers.settle([first, second], lambda: len(first.owned) == len(second.owned) == 2)
    assert {frozenset(first.owned), frozenset(second.owned)} == {
        frozenset({0, 1}),
        frozenset({2, 3}),
    }
    view = first.backend.view(drivers.group)
    assert view.state == "stable"
    assert first.member is not None
    assert {holder.member_id for holder in view.owners.values()} == {
        member.member_id for member in (first.member, second.member) if member is not None
    }
    assert all(holder.is_ours and holder.client_id == "rangeland" for holder in view.members)
    assert second.member is not None
    second.member.leave()
    assert second.member.owned == frozenset()
    drivers.settle([first], lambda: first.owned == {0, 1, 2, 3})


def test_who_stops_beating_loses_its_membership_and_is_fenced(drivers: Drivers) -> None:
    first = drivers.first(session_ms=SHORT_SESSION_MS)
    silent = drivers.another(first, session_ms=SHORT_SESSION_MS)
    drivers.settle([first, silent], lambda: len(first.owned) == len(silent.owned) == 2)
    assert first.member is not None
    assert silent.member is not None
    lost = min(silent.member.owned)
    silent.member.commit({lost: 1})
    drivers.settle([first], lambda: first.owned == {0, 1, 2, 3})
    with pytest.raises(Fenced, match=f"group {drivers.group} is fenced in generation"):
        silent.member.commit({lost: 2})
    assert silent.member.beat() is HeartbeatStatus.LOST
    assert silent.member.owned == frozenset()
    first.member.commit({lost: 3})
    assert first.backend.offsets(drivers.group, drivers.partitions) == {
        partition: 3 if partition == lost else None for partition in drivers.partitions
    }
    old = silent.member.member_id, first.member.generation
    drivers.settle([first, silent], lambda: len(first.owned) == len(silent.owned) == 2)
    assert silent.member.member_id != old[0]
    assert silent.member.generation == first.member.generation > old[1]


def test_a_sticky_assignment_moves_only_what_it_must(drivers: Drivers) -> None:
    first = drivers.first(assignment="sticky")
    second = drivers.another(first, assignment="sticky")
    drivers.settle([first, second], lambda: len(first.owned) == len(second.owned) == 2)
    held = first.owned, second.owned
    third = drivers.another(first, second, assignment="sticky")
    drivers.settle([first, second, third], lambda: len(third.owned) == 1)
    assert first.owned <= held[0]
    assert second.owned <= held[1]


def test_another_assignment_is_a_conflict_by_name(drivers: Drivers) -> None:
    drivers.first()
    other = drivers.driver()
    with pytest.raises(Conflict, match="with assignment sticky: INCONSISTENT_GROUP_PROTOCOL"):
        other.backend.join(drivers.joining(assignment="sticky"))


# --- beside somebody else's consumer -----------------------------------------------------


def test_a_consumer_that_is_there_is_a_conflict_that_names_it(drivers: Drivers) -> None:
    driver = drivers.driver()
    with stranger(drivers) as client:
        poll_until(client, lambda: held_by(client) == {0, 1, 2, 3})
        for refused in (
            lambda: driver.backend.join(drivers.joining()),
            lambda: driver.backend.commit(drivers.group, {drivers.partitions[0]: 1}),
        ):
            with pytest.raises(Conflict, match=r"client stranger, host 127.0.0.1\) holds") as at:
                refused()
            (member,) = at.value.facts["members"]
            assert member["partitions"] == [str(partition) for partition in drivers.partitions]
    assert driver.backend.view(drivers.group).members == ()
    driver.member = driver.backend.join(drivers.joining())
    assert driver.owned == {0, 1, 2, 3}


def test_each_understands_the_other_s_bytes_as_leader_and_as_follower(drivers: Drivers) -> None:
    ours = drivers.first()
    assert ours.member is not None
    quick = {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 300}
    with stranger(drivers, **quick) as client:

        def shared() -> bool:
            return len(ours.owned) == len(held_by(client)) == 2

        drivers.settle([ours], shared, lambda: client.poll(0.1))
        assert ours.owned | held_by(client) == {0, 1, 2, 3}
        seen = ours.backend.view(drivers.group)
        assert {holder.client_id: holder.is_ours for holder in seen.members} == {
            "rangeland": True,
            "stranger": False,
        }
        # Who stays leads: now it is the consumer that shares out.
        ours.member.leave()
        poll_until(client, lambda: held_by(client) == {0, 1, 2, 3})
        drivers.settle([ours], shared, lambda: client.poll(0.1))
        assert ours.owned | held_by(client) == {0, 1, 2, 3}


def test_a_consumer_goes_on_where_a_driver_committed(drivers: Drivers) -> None:
    produce(drivers.bootstrap, drivers.topic, numbered_records(5), partition=0)
    produce(drivers.bootstrap, drivers.topic, numbered_records(5), partition=1)
    driver = drivers.first()
    assert driver.member is not None
    driver.member.commit({drivers.partitions[0]: 3})
    driver.member.leave()
    others = {drivers.partitions[1]: 4, drivers.partitions[2]: 0, drivers.partitions[3]: 0}
    driver.backend.commit(drivers.group, others)
    found: list[tuple[int, int]] = []
    with stranger(drivers) as client:
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < 3 and time.monotonic() < deadline:
            message = client.poll(0.1)
            if message is not None:
                assert message.error() is None
                found.append((message.partition(), message.offset()))
    assert sorted(found) == [(0, 3), (0, 4), (1, 4)]


def test_the_log_s_own_tools_show_members_and_offsets(drivers: Drivers) -> None:
    driver = drivers.first()
    assert driver.member is not None
    driver.member.commit({partition: 7 for partition in drivers.partitions})
    client, names = admin(drivers.bootstrap), library()
    described = client.describe_consumer_groups([drivers.group])[drivers.group].result(10)
    (member,) = described.members
    assert (member.member_id, member.client_id) == (driver.member.member_id, "rangeland")
    assert {p.partition for p in member.assignment.topic_partitions} == {0, 1, 2, 3}
    asked = names.ConsumerGroupTopicPartitions(drivers.group)
    listed = client.list_consumer_group_offsets([asked])[drivers.group].result(10)
    assert {member.partition: member.offset for member in listed.topic_partitions} == dict.fromkeys(
        range(4), 7
    )


def test_a_consumer_of_the_newer_protocol_is_not_overlooked(
    cluster: Cluster, drivers: Drivers
) -> None:
    driver = drivers.driver()
    if cluster.version.startswith("0."):
        assert driver.backend.view(drivers.group).state == "absent"
        return
    with stranger(drivers, **{"group.protocol": "consumer"}) as client:
        poll_until(client, lambda: held_by(client) == {0, 1, 2, 3})
        with pytest.raises(Conflict, match=r"client stranger, host 127.0.0.1\) holds"):
            driver.backend.join(drivers.joining())
    assert driver.backend.view(drivers.group).members == ()


# --- when the coordinator goes ------------------------------------------------------------


def beat_until_answered(member: Membership) -> HeartbeatStatus:
    deadline = time.monotonic() + 2 * PATIENCE_S
    while True:
        try:
            return member.beat()
        except Unreachable:
            assert time.monotonic() < deadline


@pytest.mark.slow
def test_a_member_outlives_its_coordinator(kafka3: KafkaCluster, topic: str) -> None:
    create_topic(kafka3.bootstrap, topic, partitions=4, replicas=3)
    with ThreadPoolExecutor(max_workers=1) as pool:
        drivers = Drivers(kafka3.bootstrap, topic, pool)
        backend = drivers.driver().backend
        member = backend.join(drivers.joining(session_ms=30_000))
        member.commit({drivers.partitions[0]: 1})
        (old,) = [node for node in kafka3.ids if backend.name.endswith(kafka3.address(node))]
        kafka3.kill(old)
        try:
            assert beat_until_answered(member) is HeartbeatStatus.HOLDS
            member.commit({drivers.partitions[0]: 2})
            assert not backend.name.endswith(kafka3.address(old))
            assert backend.offsets(drivers.group, drivers.partitions[:1]) == {
                drivers.partitions[0]: 2
            }
            member.leave()
        finally:
            backend.close()
            kafka3.restart(old)
