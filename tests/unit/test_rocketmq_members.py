"""A driver's membership among RocketMQ's brokers: its share, its locks, and how it loses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rangeland.dialects.rocketmq import messages as m
from rangeland.errors import Conflict, JobFileError, RemoteProtocolError, Unreachable
from rangeland.groups.backend import Fenced, HeartbeatStatus, JoinRequest, Membership
from rangeland.groups.rocketmq import group_requests as g
from rangeland.groups.rocketmq.client_ids import client_id, job_of
from rangeland.groups.rocketmq.group_backend import open_backend
from rangeland.model import Address, Partition
from tests.fakes.rocketmq import LOCK_MS, MASTERS, SLAVES, Cluster, FakeGroupIO

A0, A1, B0, B1 = ALL = tuple(
    Partition("orders", number, broker) for broker in MASTERS for number in range(2)
)
JOINING = JoinRequest("g", "nightly", ALL, host="10.0.0.1", session_ms=9_000, rebalance_ms=20_000)
JAVA = "10.0.0.9@12#77"


class Driver:
    """Its own I/O and a membership. ``host`` decides its turn among the others."""

    def __init__(self, cluster: Cluster, host: str = "10.0.0.1", **changed: Any) -> None:
        self.cluster = cluster
        self.io: FakeGroupIO = cluster.io(host)
        self.joining = replace(JOINING, host=host, **changed)
        self.backend = open_backend(self.io)
        self.member: Membership

    def join(self, meanwhile: Callable[[], None] = lambda: None) -> Driver:
        self.io.meanwhile = meanwhile
        self.member = self.backend.join(self.joining)
        self.io.meanwhile = lambda: None
        return self

    def step(self) -> None:
        if self.member.beat() is not HeartbeatStatus.HOLDS:
            self.member.rejoin()

    @property
    def owned(self) -> frozenset[Partition]:
        return self.member.owned


def pair() -> tuple[Cluster, Driver, Driver]:
    cluster = Cluster()
    first = Driver(cluster).join()
    second = Driver(cluster, "10.0.0.2").join(first.step)
    return cluster, first, second


# --- joining ------------------------------------------------------------------------------


def test_a_single_member_gets_and_locks_all_queues() -> None:
    cluster = Cluster()
    driver = Driver(cluster).join()
    assert driver.owned == set(ALL)
    assert cluster.holders() == dict.fromkeys(ALL, driver.member.member_id)
    assert (driver.member.generation, driver.member.beat_ms) == (1, 3_000)


def test_a_member_names_its_job() -> None:
    driver = Driver(Cluster()).join()
    assert driver.member.member_id.startswith("10.0.0.1@")
    assert job_of(driver.member.member_id) == "nightly"


@pytest.mark.parametrize(
    "client", [JAVA, "10.0.0.1@7", "x@1#rangeland.#1", "x#rangeland.nightly#1"]
)
def test_ids_of_other_clients_are_not_those_of_drivers(client: str) -> None:
    assert job_of(client) == ""
    assert job_of(client_id("a#b", 7, "nightly.x", "1")) == "nightly.x"


def test_a_driver_is_announced_only_after_it_has_listed_the_members() -> None:
    driver = Driver(Cluster()).join()
    assert driver.io.codes().index(g.CONNECTIONS) < driver.io.codes().index(g.HEARTBEAT)


def test_masters_and_slaves_get_heartbeats_of_a_member() -> None:
    driver = Driver(Cluster()).join()
    heard = {address for address, request in driver.io.asked if request.code == g.HEARTBEAT}
    assert heard == {*MASTERS.values(), *SLAVES.values()}


def test_a_slave_that_is_silent_is_asked_once() -> None:
    cluster, silent = Cluster(), SLAVES["broker-a"]
    driver = Driver(cluster)
    driver.io.strange = lambda _: (
        Unreachable("it is silent") if driver.io.asked[-1][0] == silent else None
    )
    driver.join()
    assert driver.member.beat() is HeartbeatStatus.HOLDS
    assert [address for address, _ in driver.io.asked].count(silent) == 1


def test_a_live_consumer_is_a_conflict_that_names_it_and_nothing_is_changed() -> None:
    cluster = Cluster()
    cluster.stranger(JAVA, "broker-b")
    driver = Driver(cluster)
    with pytest.raises(Conflict, match=r"10.0.0.9@12#77 \(host 10.0.0.7, JAVA\)") as caught:
        driver.join()
    assert caught.value.facts["members"] == [
        {"client": JAVA, "host": "10.0.0.7", "language": "JAVA"}
    ]
    assert set(driver.io.codes()) == {m.ROUTE, g.CONNECTIONS}


def test_a_driver_of_another_job_is_a_stranger() -> None:
    cluster = Cluster()
    Driver(cluster, "10.0.0.2", job="hourly").join()
    with pytest.raises(Conflict, match=r"#rangeland\.hourly#"):
        Driver(cluster).join()


def test_a_stranger_that_comes_while_a_driver_joins_makes_it_leave() -> None:
    cluster = Cluster()
    cluster.locks["g", A0] = "somebody", 0
    driver = Driver(cluster)
    with pytest.raises(Conflict, match="group g is in use"):
        driver.join(lambda: cluster.stranger(JAVA))
    assert cluster.ids() == {JAVA}
    assert set(cluster.holders()) == {A0}


def test_another_assignment_is_an_error_of_the_job_file() -> None:
    with pytest.raises(JobFileError, match=r"Leave group\.assignment out"):
        Driver(Cluster(), assignment="sticky").join()


def test_brokers_that_accept_no_members_are_named() -> None:
    cluster = Cluster(may_make_groups=False)
    with pytest.raises(JobFileError, match="Create the group g") as caught:
        Driver(cluster).join()
    assert caught.value.facts["brokers"] == list(MASTERS)
    assert cluster.clock_ms < 5_000


def test_without_a_master_nobody_joins() -> None:
    cluster = Cluster()
    del cluster.masters["broker-b"]
    with pytest.raises(Unreachable, match="broker broker-b has no master"):
        Driver(cluster).join()
    assert cluster.ids() == set()


def test_a_master_that_moved_is_found_again() -> None:
    cluster = Cluster()
    driver = Driver(cluster).join()
    cluster.masters["broker-a"] = Address("a-new", 1)
    assert driver.member.beat() is HeartbeatStatus.LOST  # the new one knows nobody
    driver.member.rejoin()
    assert driver.owned == set(ALL)


def test_a_broker_that_is_busy_is_asked_again() -> None:
    driver = Driver(Cluster())
    busy = [(2, {}, {}), (2, {}, {})]
    driver.io.strange = lambda r: busy.pop() if busy and r.code == g.LOCK else None
    assert driver.join().owned == set(ALL)


def test_a_member_without_work_is_a_member() -> None:
    cluster = Cluster({"orders": {"broker-a": 1}})
    one = (Partition("orders", 0, "broker-a"),)
    first = Driver(cluster, partitions=one).join()
    second = Driver(cluster, "10.0.0.2", partitions=one).join(first.step)
    first.step()
    assert (first.owned, second.owned) == (set(one), set())
    assert second.member.beat() is HeartbeatStatus.HOLDS


def test_a_job_without_partitions_holds_nothing() -> None:
    driver = Driver(Cluster(), partitions=()).join()
    assert (driver.owned, driver.member.beat()) == (frozenset(), HeartbeatStatus.HOLDS)


# --- sharing ------------------------------------------------------------------------------


def test_a_new_member_waits_until_its_queues_are_released() -> None:
    cluster, first, second = pair()
    assert (first.owned, second.owned) == ({A0, A1}, {B0, B1})
    assert first.member.generation == 2
    assert [d.member.beat() for d in (first, second)] == [HeartbeatStatus.HOLDS] * 2
    held = {queue: driver.member.member_id for driver in (first, second) for queue in driver.owned}
    assert cluster.holders() == held


def test_a_member_that_leaves_releases_all_at_once() -> None:
    cluster, first, second = pair()
    second.member.leave()
    assert (second.owned, cluster.ids()) == (frozenset(), {first.member.member_id})
    assert first.member.beat() is HeartbeatStatus.REBALANCING
    first.member.rejoin()
    assert first.owned == set(ALL)


def test_locks_of_a_driver_that_died_are_taken_over_at_once() -> None:
    cluster, first, second = pair()
    cluster.drop(second.io)
    assert first.member.beat() is HeartbeatStatus.REBALANCING
    first.member.rejoin()
    assert first.owned == set(ALL)
    assert cluster.clock_ms < LOCK_MS / 2


def test_a_driver_that_was_presumed_dead_finds_its_membership_lost() -> None:
    cluster, first, second = pair()
    cluster.drop(second.io)
    first.step()
    with pytest.raises(Fenced, match="no longer lists it as a member"):
        second.member.commit({B0: 5})
    assert (second.member.beat(), cluster.offsets) == (HeartbeatStatus.LOST, {})


def test_a_lock_that_a_dead_driver_has_left_is_waited_for() -> None:
    cluster = Cluster()
    cluster.locks["g", A0] = client_id("10.0.0.3", 9, "nightly", "dead"), 0
    driver = Driver(cluster).join()
    assert driver.owned == set(ALL)
    assert LOCK_MS < cluster.clock_ms < LOCK_MS + 2_000


def test_locks_of_a_dead_driver_are_waited_for_beside_other_drivers() -> None:
    cluster = Cluster()
    cluster.locks["g", B0] = client_id("10.0.0.3", 9, "nightly", "dead"), 0
    cluster.stranger(client_id("10.0.0.1", 9, "nightly", "restarted"))
    driver = Driver(cluster, "10.0.0.2").join()
    assert driver.owned == {B0, B1}
    assert LOCK_MS < cluster.clock_ms < LOCK_MS + 2_000


def test_a_driver_that_does_not_release_its_queues_is_named_and_is_no_conflict() -> None:
    cluster = Cluster()
    first = Driver(cluster).join()
    second = Driver(cluster, "10.0.0.2")
    named = f"broker-b-0 could not .* {first.member.member_id}"
    with pytest.raises(Unreachable, match=named) as caught:
        second.join(lambda: (first.member.beat(), None)[1])
    assert caught.value.facts["partition"] == "orders/broker-b-0"
    # Until then it could have been the lock of a dead client.
    assert LOCK_MS < cluster.clock_ms < LOCK_MS + 2_000
    assert cluster.holders() == dict.fromkeys(ALL, first.member.member_id)
    assert cluster.ids() == {first.member.member_id}


def test_a_lock_that_nobody_in_the_group_can_have_is_no_conflict() -> None:
    cluster = Cluster()
    cluster.locks["g", A0] = "somebody", 0
    renew = {("g", A0): ("somebody", 2 * LOCK_MS)}
    with pytest.raises(Unreachable, match="others in the group: none"):
        Driver(cluster).join(lambda: cluster.locks.update(renew))
    assert cluster.ids() == set()


def test_members_that_only_some_brokers_see_are_waited_for_and_named() -> None:
    cluster = Cluster()
    other = client_id("10.0.0.3", 9, "nightly", "half")
    cluster.stranger(other, "broker-b")
    with pytest.raises(Unreachable, match=f"did not settle.*{other}"):
        Driver(cluster).join()
    assert 20_000 <= cluster.clock_ms < 22_000


def test_members_that_come_while_a_lock_is_waited_for_do_not_end_the_wait() -> None:
    cluster = Cluster()
    cluster.locks["g", A0] = client_id("10.0.0.3", 9, "nightly", "dead"), 0
    other = client_id("10.0.0.4", 9, "nightly", "half")

    def join_slowly() -> None:
        """It is listed by one broker from 30 s on, and by both from 40 s on."""
        if cluster.clock_ms >= 30_000:
            cluster.stranger(other, "broker-b")
        if cluster.clock_ms >= 40_000:
            cluster.stranger(other, "broker-a")

    driver = Driver(cluster).join(join_slowly)
    assert driver.owned == {A0, A1}
    assert LOCK_MS < cluster.clock_ms < LOCK_MS + 2_000


# --- beats --------------------------------------------------------------------------------


def test_a_beat_renews_membership_and_locks() -> None:
    cluster = Cluster()
    driver = Driver(cluster).join()
    for _ in range(4):
        cluster.clock_ms += LOCK_MS - 1
        assert driver.member.beat() is HeartbeatStatus.HOLDS
    assert set(cluster.holders()) == set(ALL)


def test_a_lock_of_another_client_ends_the_membership() -> None:
    cluster = Cluster()
    driver = Driver(cluster).join()
    cluster.locks["g", B1] = "somebody", 0
    assert driver.member.beat() is HeartbeatStatus.LOST
    assert driver.owned == frozenset()
    assert driver.member.beat() is HeartbeatStatus.LOST


def test_locks_that_expired_between_heartbeats_do_not_count() -> None:
    cluster = Cluster()
    driver = Driver(cluster).join()
    cluster.clock_ms += LOCK_MS
    assert driver.member.beat() is HeartbeatStatus.LOST


def test_a_restarted_broker_ends_the_membership() -> None:
    cluster = Cluster()
    driver = Driver(cluster).join()
    cluster.members[MASTERS["broker-b"]].clear()
    assert driver.member.beat() is HeartbeatStatus.LOST
    driver.member.rejoin()
    assert driver.owned == set(ALL)


def test_a_beat_that_no_master_answers_is_unreachable_in_time() -> None:
    cluster = Cluster()
    driver = Driver(cluster).join()
    del cluster.masters["broker-a"]
    before_ms = cluster.clock_ms
    with pytest.raises(Unreachable):
        driver.member.beat()
    assert cluster.clock_ms - before_ms <= driver.member.beat_ms + 250


def test_a_stranger_is_noticed_and_ends_the_membership() -> None:
    cluster = Cluster()
    driver = Driver(cluster).join()
    cluster.stranger(JAVA)
    assert driver.member.beat() is HeartbeatStatus.REBALANCING
    with pytest.raises(Conflict, match=JAVA):
        driver.member.rejoin()
    assert (cluster.ids(), cluster.holders()) == ({JAVA}, {})


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"lockOKMQSet":[{}]}'])
def test_an_invalid_response_is_a_protocol_error(body: bytes) -> None:
    driver = Driver(Cluster())
    driver.io.strange = lambda r: (0, {}, body) if r.code == g.LOCK else None
    with pytest.raises(RemoteProtocolError, match="request 41 cannot be read"):
        driver.join()


# --- commits ------------------------------------------------------------------------------


def test_a_commit_locks_first_and_writes_to_the_masters() -> None:
    cluster = Cluster()
    driver = Driver(cluster).join()
    driver.io.asked.clear()
    driver.member.commit({A0: 5, B1: 7})
    assert cluster.offsets == {("g", A0): 5, ("g", B1): 7}
    assert driver.io.codes() == [
        *[g.CONNECTIONS] * 2,
        *[g.LOCK] * 2,
        *[g.UPDATE_OFFSET] * 2,
    ]


def test_the_first_offsets_of_a_group_are_not_sent_to_a_broker_at_once() -> None:
    cluster = Cluster()
    driver = Driver(cluster).join()
    wanted = {p: n for n, p in enumerate(ALL)}
    driver.member.commit(wanted)
    assert cluster.offsets == {("g", p): n for p, n in wanted.items()}


def test_nothing_is_written_if_another_client_has_one_lock() -> None:
    cluster = Cluster()
    driver = Driver(cluster).join()
    cluster.locks["g", B1] = "somebody", 0
    with pytest.raises(Fenced, match="another client has locked orders/broker-b-1"):
        driver.member.commit({A0: 5, B1: 7})
    assert cluster.offsets == {}
    assert driver.member.beat() is HeartbeatStatus.LOST


def test_offsets_of_other_queues_are_not_written() -> None:
    cluster, first, _ = pair()
    with pytest.raises(Fenced, match="orders/broker-b-0 is not among its partitions"):
        first.member.commit({A0: 5, B0: 7})
    assert cluster.offsets == {}
    assert first.member.beat() is HeartbeatStatus.HOLDS


def test_nothing_is_written_after_locks_have_expired() -> None:
    cluster = Cluster()
    driver = Driver(cluster).join()
    cluster.clock_ms += LOCK_MS
    with pytest.raises(Fenced, match="not renewed for 60000 ms"):
        driver.member.commit({A0: 5})
    assert cluster.offsets == {}


def test_nothing_is_written_after_leaving() -> None:
    driver = Driver(Cluster()).join()
    driver.member.leave()
    with pytest.raises(Fenced, match="is no longer a member") as caught:
        driver.member.commit({A0: 5})
    assert caught.value.facts["member"] == driver.member.member_id


def test_no_offsets_send_no_request() -> None:
    driver = Driver(Cluster()).join()
    driver.io.asked.clear()
    driver.member.commit({})
    assert driver.io.asked == []


# --- leaving ------------------------------------------------------------------------------


def test_leaving_unregisters_everywhere_even_if_some_do_not_answer() -> None:
    cluster = Cluster()
    driver = Driver(cluster).join()
    driver.io.asked.clear()
    driver.io.strange = lambda _: (
        Unreachable("gone") if driver.io.asked[-1][0] == MASTERS["broker-a"] else None
    )
    driver.member.leave()
    told = {address for address, request in driver.io.asked if request.code == g.UNREGISTER}
    assert told == {*MASTERS.values(), *SLAVES.values()}
    assert {queue.broker for queue in cluster.holders()} == {"broker-a"}


def test_leaving_twice_is_leaving_once() -> None:
    driver = Driver(Cluster()).join()
    driver.member.leave()
    driver.io.asked.clear()
    driver.member.leave()
    assert driver.io.asked == []
