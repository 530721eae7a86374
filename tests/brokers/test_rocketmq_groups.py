"""Groups at real masters: drivers among themselves, and next to upstream's own consumer.

Each driver here has its own ``GroupIO``, group backend and membership. Locks expire early
(``LOCK_S``), so that tests can wait for those of a dead driver, but late enough that a driver that
is seen to die is replaced before that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from rangeland.cluster_access.backend_choice import BrokerGroupIO
from rangeland.errors import Conflict, JobFileError, Unreachable
from rangeland.groups.backend import Fenced, GroupBackend, HeartbeatStatus, JoinRequest, Membership
from rangeland.groups.rocketmq import group_requests as g
from rangeland.groups.rocketmq.group_backend import open_backend
from rangeland.job_group.heartbeat_thread import HeartbeatThread
from rangeland.model import Partition
from rangeland.testing.processes import PATIENCE_S, Process
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.rocketmq_clients import RocketmqClient, produce
from tests.brokers.rocketmq import clients_command, run_clients, settings_of

pytestmark = pytest.mark.brokers

LOCK_S = 6
SOON_S = 3
BROKERS = ("broker-a", "broker-b")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RocketmqCluster]:
    locks = f"-Drocketmq.broker.rebalance.lockMaxLiveTime={LOCK_S * 1000}"
    with RocketmqCluster(brokers=2, jvm=(locks,)) as started:
        yield started


@dataclass
class Driver:
    io: BrokerGroupIO
    backend: GroupBackend
    member: Membership

    @property
    def owned(self) -> frozenset[Partition]:
        return self.member.owned

    def step(self) -> HeartbeatStatus:
        """What a driver does all the time: beat, and rejoin where it must."""
        standing = self.member.beat()
        if standing is not HeartbeatStatus.HOLDS:
            self.member.rejoin()
        return standing


@dataclass
class Drivers:
    """Of one job, over a topic that has two queues at each broker."""

    cluster: RocketmqCluster
    topic: str
    started: list[BrokerGroupIO] = field(default_factory=list)

    @property
    def group(self) -> str:
        return f"group-{self.topic}"

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return tuple(Partition(self.topic, n, b) for b in BROKERS for n in range(2))

    def joining(self, host: str = "host-1", rebalance_ms: int = 20_000) -> JoinRequest:
        return JoinRequest(
            self.group, "nightly", self.partitions, host=host, rebalance_ms=rebalance_ms
        )

    def backend(self) -> tuple[BrokerGroupIO, GroupBackend]:
        io = BrokerGroupIO(settings_of(self.cluster))
        self.started.append(io)
        return io, open_backend(io)

    def first(self) -> Driver:
        io, backend = self.backend()
        return Driver(io, backend, backend.join(self.joining()))

    def another(self, host: str, *others: Driver) -> Driver:
        """Joins while the others go on."""
        io, backend = self.backend()
        with ThreadPoolExecutor(1) as pool:
            joins = pool.submit(backend.join, self.joining(host))
            while not joins.done():
                for other in others:
                    other.step()
                time.sleep(0.1)
            return Driver(io, backend, joins.result())


@pytest.fixture
def drivers(cluster: RocketmqCluster, topic: str) -> Iterator[Drivers]:
    cluster.create_topic(topic, 2)
    made = Drivers(cluster, topic)
    yield made
    for io in made.started:
        io.close()


# --- drivers among themselves -------------------------------------------------------------


def test_two_drivers_share_and_who_stays_gets_all(drivers: Drivers) -> None:
    first = drivers.first()
    assert first.owned == set(drivers.partitions)
    second = drivers.another("host-2", first)
    assert (first.owned, second.owned) == (
        set(drivers.partitions[:2]),
        set(drivers.partitions[2:]),
    )
    assert (first.step(), second.step()) == (HeartbeatStatus.HOLDS, HeartbeatStatus.HOLDS)
    view = second.backend.view(drivers.group)
    assert view.state == "stable"
    assert {p: holder.member_id for p, holder in view.owners.items()} == {
        p: driver.member.member_id for driver in (first, second) for p in driver.owned
    }
    assert all(holder.is_ours and holder.host == "127.0.0.1" for holder in view.members)

    second.member.leave()
    assert first.step() is HeartbeatStatus.REBALANCING
    assert first.owned == set(drivers.partitions)
    with pytest.raises(Fenced):
        second.member.commit({drivers.partitions[3]: 1})
    assert first.step() is HeartbeatStatus.HOLDS


def cut_off(io: BrokerGroupIO) -> None:
    """Its connections end. It may make new ones."""
    for address in list(io._brokers._open):
        io._brokers.drop(address)


def test_who_is_seen_to_die_is_taken_over_from_at_once_and_fenced(drivers: Drivers) -> None:
    first = drivers.first()
    second = drivers.another("host-2", first)
    second.member.beat()
    cut_off(second.io)  # what a broker notices of a process that is killed
    wait_until(lambda: bool(first.step()) and first.owned == set(drivers.partitions))
    # It lives after all, and connects again.
    with pytest.raises(Fenced, match="no longer lists it as a member"):
        second.member.commit({drivers.partitions[3]: 1})
    assert second.member.beat() is HeartbeatStatus.LOST
    assert set(first.backend.offsets(drivers.group, drivers.partitions).values()) == {None}


def test_a_lock_that_a_dead_driver_has_left_ends_by_itself(drivers: Drivers) -> None:
    began = time.monotonic()
    drivers.first().io.close()
    _, backend = drivers.backend()
    # Whoever still sees the dead driver among the members releases its locks at once.
    wait_until(lambda: not backend.view(drivers.group).members)
    assert drivers.first().owned == set(drivers.partitions)
    assert time.monotonic() - began > LOCK_S


def test_keepers_share_without_being_told_to(drivers: Drivers) -> None:
    keepers: list[HeartbeatThread] = []
    try:
        for host in ("host-1", "host-2"):
            _, backend = drivers.backend()
            joining = replace(drivers.joining(host), session_ms=3_000)
            keepers.append(HeartbeatThread(backend.join(joining)))
        first, second = keepers
        assert (first.owned, second.owned) == (
            set(drivers.partitions[:2]),
            set(drivers.partitions[2:]),
        )
        for keeper in keepers:
            keeper.commit(dict.fromkeys(keeper.owned, 5))
        asked = second.exclusively(lambda: backend.offsets(drivers.group, drivers.partitions))
        assert asked == dict.fromkeys(drivers.partitions, 5)
        first.close()
        wait_until(lambda: second.owned == set(drivers.partitions))
        assert (first.membership_error, second.membership_error) == (None, None)
    finally:
        for keeper in keepers:
            keeper.close()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_driver_that_does_not_give_way_is_named(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rangeland.groups.rocketmq.member.LOCK_MS", LOCK_S * 1000)
    first = drivers.first()
    _, backend = drivers.backend()
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        joins = pool.submit(backend.join, drivers.joining("host-2", rebalance_ms=500))
        while not joins.done():
            first.member.beat()
            time.sleep(0.1)
    with pytest.raises(Unreachable, match=f"could not be claimed .*{first.member.member_id}"):
        joins.result()
    assert time.monotonic() - began > LOCK_S
    assert first.step() is HeartbeatStatus.HOLDS


def test_offsets_of_a_group_that_nobody_is_in(drivers: Drivers) -> None:
    _, backend = drivers.backend()
    assert backend.view(drivers.group).state == "absent"
    assert backend.offsets(drivers.group, drivers.partitions) == dict.fromkeys(drivers.partitions)
    wanted = {p: n for n, p in enumerate(drivers.partitions)}
    backend.commit(drivers.group, wanted)
    assert backend.offsets(drivers.group, drivers.partitions) == wanted
    first = drivers.first()
    with pytest.raises(Conflict, match=first.member.member_id):
        backend.commit(drivers.group, wanted)


# --- beside upstream's own consumer -------------------------------------------------------


def produced(drivers: Drivers, count: int) -> None:
    for partition in drivers.partitions:
        values = [f"{partition.broker}-{partition.number}-{n}".encode() for n in range(count)]
        produce(drivers.cluster.address(partition.broker), drivers.topic, values, partition.number)


@pytest.mark.slow
def test_upstream_s_consumer_goes_on_where_a_driver_committed(drivers: Drivers) -> None:
    produced(drivers, 6)
    first = drivers.first()
    first.member.commit(dict.fromkeys(drivers.partitions, 4))
    first.member.leave()
    server = drivers.cluster.servers[0]
    came = run_clients("consume", server, drivers.topic, drivers.group, "8")
    assert sorted(fields[2] for fields in came) == sorted(
        f"{p.broker}-{p.number}-{n}" for p in drivers.partitions for n in (4, 5)
    )
    after = first.backend.offsets(drivers.group, drivers.partitions)
    assert after == dict.fromkeys(drivers.partitions, 6)


def test_upstream_s_live_consumer_is_respected_and_named(drivers: Drivers, tmp_path: Path) -> None:
    produced(drivers, 1)
    server = drivers.cluster.servers[0]
    arguments = ["consume", server, drivers.topic, drivers.group, "1000"]
    command = clients_command(tmp_path, *arguments)
    consumer = Process("consumer", command, log=tmp_path / "consumer.log")
    try:
        consumer.wait_for_line(r"^@\t", 120)
        _, backend = drivers.backend()
        with pytest.raises(Conflict, match=r"client .*@\d+.*\(host 127\.0\.0\.1, JAVA\)") as caught:
            backend.join(drivers.joining())
        with pytest.raises(Conflict, match="were not written"):
            backend.commit(drivers.group, {drivers.partitions[0]: 1})
        view = backend.view(drivers.group)
        (holder,) = view.members
        assert (holder.is_ours, holder.partitions) == (False, set(drivers.partitions))
        assert caught.value.facts["members"][0]["client"] == holder.client_id
        assert set(backend.offsets(drivers.group, drivers.partitions).values()) <= {None, 0}
    finally:
        consumer.kill()


# --- brokers ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_membership_is_lost_and_regained_when_a_master_begins_again(topic: str) -> None:
    with RocketmqCluster(slaves=True) as cluster:
        cluster.create_topic(topic, 2)
        partitions = (Partition(topic, 0, "broker-a"), Partition(topic, 1, "broker-a"))
        io = BrokerGroupIO(settings_of(cluster))
        backend = open_backend(io)
        member = backend.join(JoinRequest("g", "nightly", partitions))
        member.commit(dict.fromkeys(partitions, 3))
        with RocketmqClient(cluster.address("broker-a-slave")) as client:
            seen = g.read_connections(client.ask(g.connections("g")))
        assert [each.client_id for each in seen.clients] == [member.member_id]
        time.sleep(1)  # offsets reach the disk a little later
        cluster.stop("broker-a")
        cluster.restart("broker-a")
        assert member.beat() is HeartbeatStatus.LOST
        member.rejoin()
        assert member.owned == set(partitions)
        assert backend.offsets("g", partitions) == dict.fromkeys(partitions, 3)
        io.close()


@pytest.mark.slow
def test_brokers_that_make_no_groups_take_neither_members_nor_offsets(topic: str) -> None:
    with RocketmqCluster(properties={"autoCreateSubscriptionGroup": "false"}) as cluster:
        cluster.create_topic(topic, 1)
        partition = Partition(topic, 0, "broker-a")
        io = BrokerGroupIO(settings_of(cluster))
        backend = open_backend(io)
        with pytest.raises(JobFileError, match="do not accept members of group g"):
            backend.join(JoinRequest("g", "nightly", (partition,)))
        with pytest.raises(JobFileError, match="Create the group g"):
            backend.commit("g", {partition: 3})
        assert backend.offsets("g", (partition,)) == {partition: None}
        io.close()
