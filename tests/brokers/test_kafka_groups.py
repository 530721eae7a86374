"""InMemoryGroups at real coordinators, old and new, alone and beside somebody else's consumer.

A member of these tests is a driver: an edge, a home and a place of its own. Drivers beat and
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

from rangeland.connection.group_io import BrokerGroupIO
from rangeland.errors import Conflict, Unreachable
from rangeland.groups.backend import Fenced, GroupBackend, HeartbeatStatus, JoinRequest, Membership
from rangeland.groups.kafka.group_backend import open_backend
from rangeland.model import Partition
from rangeland.testing.client_library import admin, consumer, library
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.testing.producing import create_topic, numbered, produce
from tests.brokers.reading import settings_of

pytestmark = pytest.mark.brokers

Cluster = KafkaCluster | KafkaZooKeeperCluster
PATIENCE_S = 20
SHORT_SESSION_MS = 1_500
SETTINGS = {"group.min.session.timeout.ms": 500}


@pytest.fixture(scope="module", params=["4.1.0", "0.11.0.3"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    kind = KafkaZooKeeperCluster if request.param.startswith("0.") else KafkaCluster
    with kind(request.param, properties=SETTINGS) as started:
        yield started


@dataclass
class Driver:
    home: GroupBackend
    place: Membership | None = None

    @property
    def owned(self) -> set[int]:
        assert self.place is not None
        return {partition.number for partition in self.place.owned}

    def step(self) -> None:
        """What a driver does all the time: beat, and rejoin where it must."""
        assert self.place is not None
        if self.place.beat() is not HeartbeatStatus.HOLDS:
            self.place.rejoin()


@dataclass
class Drivers:
    """All that one test starts, in one group over one topic."""

    bootstrap: list[str]
    topic: str
    pool: ThreadPoolExecutor
    homes: list[GroupBackend] = field(default_factory=list)

    @property
    def group(self) -> str:
        return f"group of {self.topic}"

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return tuple(Partition(self.topic, number) for number in range(4))

    def driver(self) -> Driver:
        self.homes.append(open_backend(BrokerGroupIO(settings_of(self.bootstrap))))
        return Driver(self.homes[-1])

    def joining(self, **changed: Any) -> JoinRequest:
        terms = {"session_ms": 6_000, "rebalance_ms": 10_000, **changed}
        return JoinRequest(self.group, "orders", self.partitions, **terms)

    def first(self, **changed: Any) -> Driver:
        driver = self.driver()
        driver.place = driver.home.join(self.joining(**changed))
        return driver

    def another(self, *others: Driver, **changed: Any) -> Driver:
        """Joins while the others beat."""
        driver = self.driver()
        joined = self.pool.submit(driver.home.join, self.joining(**changed))
        self.settle(others, joined.done)
        driver.place = joined.result()
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
    for home in made.homes:
        home.close()


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
    return {place.partition for place in client.assignment()}


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
    view = first.home.view(drivers.group)
    assert view.state == "stable"
    assert first.place is not None
    assert {holder.member_id for holder in view.owners.values()} == {
        place.member_id for place in (first.place, second.place) if place is not None
    }
    assert all(holder.is_ours and holder.client_id == "rangeland" for holder in view.members)
    assert second.place is not None
    second.place.leave()
    assert second.place.owned == frozenset()
    drivers.settle([first], lambda: first.owned == {0, 1, 2, 3})


def test_who_stops_beating_loses_its_membership_and_is_fenced(drivers: Drivers) -> None:
    first = drivers.first(session_ms=SHORT_SESSION_MS)
    silent = drivers.another(first, session_ms=SHORT_SESSION_MS)
    drivers.settle([first, silent], lambda: len(first.owned) == len(silent.owned) == 2)
    assert first.place is not None
    assert silent.place is not None
    lost = min(silent.place.owned)
    silent.place.commit({lost: 1})
    drivers.settle([first], lambda: first.owned == {0, 1, 2, 3})
    with pytest.raises(Fenced, match=f"group {drivers.group} is fenced in generation"):
        silent.place.commit({lost: 2})
    assert silent.place.beat() is HeartbeatStatus.LOST
    assert silent.place.owned == frozenset()
    first.place.commit({lost: 3})
    assert first.home.offsets(drivers.group, drivers.partitions) == {
        partition: 3 if partition == lost else None for partition in drivers.partitions
    }
    old = silent.place.member_id, first.place.generation
    drivers.settle([first, silent], lambda: len(first.owned) == len(silent.owned) == 2)
    assert silent.place.member_id != old[0]
    assert silent.place.generation == first.place.generation > old[1]


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
        other.home.join(drivers.joining(assignment="sticky"))


# --- beside somebody else's consumer -----------------------------------------------------


def test_a_consumer_that_is_there_is_a_conflict_that_names_it(drivers: Drivers) -> None:
    driver = drivers.driver()
    with stranger(drivers) as client:
        poll_until(client, lambda: held_by(client) == {0, 1, 2, 3})
        for refused in (
            lambda: driver.home.join(drivers.joining()),
            lambda: driver.home.commit(drivers.group, {drivers.partitions[0]: 1}),
        ):
            with pytest.raises(Conflict, match=r"client stranger, host 127.0.0.1\) holds") as at:
                refused()
            (member,) = at.value.facts["members"]
            assert member["partitions"] == [str(partition) for partition in drivers.partitions]
    assert driver.home.view(drivers.group).members == ()
    driver.place = driver.home.join(drivers.joining())
    assert driver.owned == {0, 1, 2, 3}


def test_each_understands_the_other_s_bytes_as_leader_and_as_follower(drivers: Drivers) -> None:
    ours = drivers.first()
    assert ours.place is not None
    quick = {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 300}
    with stranger(drivers, **quick) as client:

        def shared() -> bool:
            return len(ours.owned) == len(held_by(client)) == 2

        drivers.settle([ours], shared, lambda: client.poll(0.1))
        assert ours.owned | held_by(client) == {0, 1, 2, 3}
        seen = ours.home.view(drivers.group)
        assert {holder.client_id: holder.is_ours for holder in seen.members} == {
            "rangeland": True,
            "stranger": False,
        }
        # Who stays leads: now it is the consumer that shares out.
        ours.place.leave()
        poll_until(client, lambda: held_by(client) == {0, 1, 2, 3})
        drivers.settle([ours], shared, lambda: client.poll(0.1))
        assert ours.owned | held_by(client) == {0, 1, 2, 3}


def test_a_consumer_goes_on_where_a_driver_committed(drivers: Drivers) -> None:
    produce(drivers.bootstrap, drivers.topic, numbered(5), partition=0)
    produce(drivers.bootstrap, drivers.topic, numbered(5), partition=1)
    driver = drivers.first()
    assert driver.place is not None
    driver.place.commit({drivers.partitions[0]: 3})
    driver.place.leave()
    others = {drivers.partitions[1]: 4, drivers.partitions[2]: 0, drivers.partitions[3]: 0}
    driver.home.commit(drivers.group, others)
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
    assert driver.place is not None
    driver.place.commit({partition: 7 for partition in drivers.partitions})
    client, names = admin(drivers.bootstrap), library()
    described = client.describe_consumer_groups([drivers.group])[drivers.group].result(10)
    (member,) = described.members
    assert (member.member_id, member.client_id) == (driver.place.member_id, "rangeland")
    assert {p.partition for p in member.assignment.topic_partitions} == {0, 1, 2, 3}
    asked = names.ConsumerGroupTopicPartitions(drivers.group)
    listed = client.list_consumer_group_offsets([asked])[drivers.group].result(10)
    assert {place.partition: place.offset for place in listed.topic_partitions} == dict.fromkeys(
        range(4), 7
    )


def test_a_consumer_of_the_newer_protocol_is_not_overlooked(
    cluster: Cluster, drivers: Drivers
) -> None:
    driver = drivers.driver()
    if cluster.version.startswith("0."):
        assert driver.home.view(drivers.group).state == "absent"
        return
    with stranger(drivers, **{"group.protocol": "consumer"}) as client:
        poll_until(client, lambda: held_by(client) == {0, 1, 2, 3})
        with pytest.raises(Conflict, match=r"client stranger, host 127.0.0.1\) holds"):
            driver.home.join(drivers.joining())
    assert driver.home.view(drivers.group).members == ()


# --- when the coordinator goes ------------------------------------------------------------


def beat_until_answered(place: Membership) -> HeartbeatStatus:
    deadline = time.monotonic() + 2 * PATIENCE_S
    while True:
        try:
            return place.beat()
        except Unreachable:
            assert time.monotonic() < deadline


def test_a_member_outlives_its_coordinator(kafka3: KafkaCluster, topic: str) -> None:
    create_topic(kafka3.bootstrap, topic, partitions=4, replicas=3)
    with ThreadPoolExecutor(max_workers=1) as pool:
        drivers = Drivers(kafka3.bootstrap, topic, pool)
        home = drivers.driver().home
        place = home.join(drivers.joining(session_ms=30_000))
        place.commit({drivers.partitions[0]: 1})
        (old,) = [node for node in kafka3.ids if home.name.endswith(kafka3.address(node))]
        kafka3.kill(old)
        try:
            assert beat_until_answered(place) is HeartbeatStatus.HOLDS
            place.commit({drivers.partitions[0]: 2})
            assert not home.name.endswith(kafka3.address(old))
            assert home.offsets(drivers.group, drivers.partitions[:1]) == {drivers.partitions[0]: 2}
            place.leave()
        finally:
            home.close()
            kafka3.restart(old)
