"""RocketMQ's groups: offsets on the masters, members, and the owners of queues."""

from __future__ import annotations

from typing import Any

import pytest

from rangeland.dialects.rocketmq.messages import ALL_BROKERS, RemotingRequest
from rangeland.errors import (
    AccessDenied,
    Conflict,
    JobFileError,
    RangelandError,
    RemoteProtocolError,
    Unreachable,
)
from rangeland.groups.backend import GroupBackend, JoinRequest
from rangeland.groups.rocketmq import group_requests as g
from rangeland.groups.rocketmq.client_ids import client_id
from rangeland.groups.rocketmq.group_backend import open_backend
from rangeland.groups.rocketmq.masters import PATIENCE_MS
from rangeland.model import Partition
from tests.fakes.rocketmq import MASTERS, SEEDS, SLAVES, Cluster, FakeGroupIO

A0, A1, B0, B1 = ALL = tuple(
    Partition("orders", number, broker) for broker in MASTERS for number in range(2)
)
JOINING = JoinRequest("g", "nightly", ALL, host="10.0.0.1", session_ms=9_000, rebalance_ms=20_000)
JAVA = "10.0.0.9@12#77"


def a_backend(cluster: Cluster | None = None) -> tuple[Cluster, FakeGroupIO, GroupBackend]:
    cluster = cluster or Cluster()
    io = cluster.io("home")
    return cluster, io, open_backend(io)


def test_a_backend_is_named_by_its_name_servers_and_closes_its_connections() -> None:
    _, io, backend = a_backend()
    assert backend.name == "the brokers of the name servers at names-a:1, names-b:2"
    backend.close()
    assert io.is_closed


# --- offsets ------------------------------------------------------------------------------


def test_an_offset_that_is_not_there_is_none_and_never_zero() -> None:
    cluster, _, backend = a_backend()
    cluster.offsets["g", A0] = 0
    cluster.offsets["other", A1] = 9
    assert backend.offsets("g", ALL) == {A0: 0, A1: None, B0: None, B1: None}


def test_offsets_of_a_master_are_asked_for_in_one_go_and_written_in_two() -> None:
    cluster, io, backend = a_backend()
    backend.commit("g", dict.fromkeys(ALL, 5))
    io.rounds = 0
    backend.commit("g", dict.fromkeys(ALL, 6))
    assert io.rounds == 2 * len(MASTERS)
    assert backend.offsets("g", ALL) == dict.fromkeys(ALL, 6)
    assert io.rounds == 3 * len(MASTERS)
    assert set(cluster.offsets.values()) == {6}


def test_requests_that_a_busy_master_refuses_are_sent_again_alone() -> None:
    cluster, io, backend = a_backend()
    cluster.offsets["g", A1] = 7
    busy = iter([True])
    io.strange = lambda r: (2, {}, {}) if r.about == A1 and next(busy, False) else None
    assert backend.offsets("g", ALL) == {A0: None, A1: 7, B0: None, B1: None}
    assert [r.about for _, r in io.asked if r.about][-1] == A1
    io.strange = lambda r: Unreachable("gone") if r.about == A1 and not cluster.clock_ms else None
    assert backend.offsets("g", ALL)[A1] == 7


def test_a_route_is_requested_once_and_from_the_next_server_if_the_first_is_silent() -> None:
    _, io, backend = a_backend()
    io.strange = lambda _: Unreachable("gone") if io.asked[-1][0] == SEEDS[0] else None
    backend.offsets("g", ALL)
    backend.offsets("g", ALL)
    assert [address for address, _ in io.asked if address in SEEDS] == list(SEEDS)


def test_offsets_without_a_reachable_master_are_unreachable() -> None:
    _, io, backend = a_backend()
    io.strange = lambda _: Unreachable("no connection", why="refused")
    with pytest.raises(Unreachable, match="that has topic orders: names-a:1"):
        backend.offsets("g", ALL)


def test_a_slave_that_acts_for_its_master_is_not_asked_for_offsets_nor_given_any() -> None:
    """It lacks those that the master has got since, and the master may not take those of it."""
    cluster, io, backend = a_backend(Cluster(has_acting_masters=True))
    backend.commit("g", {A0: 5})
    del cluster.masters["broker-a"]
    for call in (lambda: backend.offsets("g", ALL), lambda: backend.commit("g", {A0: 6})):
        with pytest.raises(Unreachable, match="broker-a has no master"):
            call()
    assert SLAVES["broker-a"] not in {address for address, _ in io.asked}
    cluster.masters["broker-a"] = MASTERS["broker-a"]
    assert backend.offsets("g", (A0,)) == {A0: 5}


@pytest.mark.parametrize("lists_brokers", [True, False])
def test_the_master_of_a_topic_that_nobody_may_write_to_is_told_from_an_acting_one(
    lists_brokers: bool,
) -> None:
    cluster, io, backend = a_backend(Cluster(has_acting_masters=True, read_only={"broker-a"}))
    cluster.offsets["g", A0] = 5
    if lists_brokers:
        assert backend.offsets("g", (A0,)) == {A0: 5}
        return
    io.strange = lambda r: Unreachable("gone") if r.code == ALL_BROKERS else None
    with pytest.raises(Unreachable, match="broker-a has no master"):
        backend.offsets("g", (A0,))


def test_an_offset_that_is_not_a_number_is_a_protocol_error() -> None:
    _, io, backend = a_backend()
    io.strange = lambda r: (0, {"offset": "many"}, {}) if r.code == g.QUERY_OFFSET else None
    with pytest.raises(RemoteProtocolError):
        backend.offsets("g", ALL)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [(16, AccessDenied, "Grant the user of source.security"), (1, Unreachable, "broker-a at a:1")],
)
def test_a_refusal_names_its_remedy(code: int, kind: type[RangelandError], words: str) -> None:
    _, io, backend = a_backend()
    io.strange = lambda r: (code, {}, {}) if r.code == g.QUERY_OFFSET else None
    with pytest.raises(kind, match=words) as caught:
        backend.offsets("g", ALL)
    assert "the brokers' operator" in caught.value.acts


# --- commits of nobody --------------------------------------------------------------------


def test_an_unknown_group_is_created_without_joining_it() -> None:
    cluster, io, backend = a_backend()
    backend.commit("g", {A0: 5, B0: 7})
    assert cluster.offsets == {("g", A0): 5, ("g", B0): 7}
    assert g.HEARTBEAT not in io.codes()
    assert backend.offsets("g", (A0, A1)) == {A0: 5, A1: None}


def test_a_group_that_may_not_be_created_is_an_error_of_the_job_file() -> None:
    _, _, backend = a_backend(Cluster(may_make_groups=False))
    with pytest.raises(JobFileError, match="Create the group g"):
        backend.commit("g", {A0: 5})


@pytest.mark.parametrize("client", [JAVA, client_id("h", 1, "nightly", "1")])
def test_a_commit_into_a_group_with_members_names_them(client: str) -> None:
    cluster, _, backend = a_backend()
    cluster.stranger(client, "broker-b")
    with pytest.raises(Conflict, match=f"not written: group g is in use: it has client {client}"):
        backend.commit("g", {A0: 5, B0: 7})
    assert cluster.offsets == {}


def test_no_offsets_send_no_request() -> None:
    _, io, backend = a_backend()
    assert backend.offsets("g", ()) == {}
    backend.commit("g", {})
    assert io.asked == []


# --- who is there -------------------------------------------------------------------------


def test_a_group_that_no_broker_knows_is_absent() -> None:
    _, _, backend = a_backend()
    assert backend.view("g").state == "absent"
    backend.offsets("g", ALL)
    assert backend.view("g").state == "absent"


def test_a_group_that_one_name_server_does_not_know_is_looked_up_at_those_that_come_back() -> None:
    cluster, io, backend = a_backend()
    cluster.groups.add("g")

    def strange(request: RemotingRequest) -> Any:
        if io.asked[-1][0] == SEEDS[1]:
            return None if cluster.clock_ms else Unreachable("no connection", why="refused")
        return (17, {}, {}) if io.asked[-1][0] == SEEDS[0] else None

    io.strange = strange
    assert backend.view("g").state == "empty"


def test_a_group_is_absent_if_all_name_servers_that_answer_do_not_know_it() -> None:
    cluster, io, backend = a_backend()
    silent = Unreachable("no connection", why="refused")
    io.strange = lambda request: silent if io.asked[-1][0] == SEEDS[1] else None
    assert backend.view("g").state == "absent"
    waited_ms = cluster.clock_ms
    assert waited_ms >= PATIENCE_MS
    io.strange = lambda request: (3, {}, {}) if io.asked[-1][0] == SEEDS[1] else None  # a broker
    assert backend.view("g").state == "absent"
    assert cluster.clock_ms == waited_ms, "a broker among the name servers is not waited for"


def test_a_group_is_not_absent_if_a_name_server_has_an_error() -> None:
    _, io, backend = a_backend()
    io.strange = lambda request: (1, {}, {}) if io.asked[-1][0] == SEEDS[1] else None
    with pytest.raises(Unreachable, match="names-b:2: SYSTEM_ERROR"):
        backend.view("g")


def test_a_group_that_all_have_left_is_empty() -> None:
    cluster, _, backend = a_backend()
    cluster.groups.add("g")
    assert (backend.view("g").state, backend.view("g").members) == ("empty", ())


def test_upstream_s_rule_gives_the_assignment_of_other_consumers() -> None:
    cluster, _, backend = a_backend()
    cluster.stranger(JAVA)
    cluster.stranger("10.0.0.8@1#2")
    view = backend.view("g")
    assert view.state == "stable"
    assert {queue: holder.member_id for queue, holder in view.owners.items()} == {
        A0: "10.0.0.8@1#2",
        A1: "10.0.0.8@1#2",
        B0: JAVA,
        B1: JAVA,
    }
    assert [(m.client_id, m.host, m.is_ours) for m in view.members][1] == (JAVA, "10.0.0.7", False)


def test_brokers_that_show_different_members_are_a_rebalance() -> None:
    cluster, _, backend = a_backend()
    cluster.stranger(JAVA)
    cluster.stranger("10.0.0.8@1#2", "broker-b")
    assert backend.view("g").state == "rebalancing"


def test_drivers_share_what_the_job_reads_and_not_all_of_the_topic() -> None:
    cluster, _, backend = a_backend()
    one = JoinRequest("g", "nightly", (A0, A1), host="10.0.0.1")
    place = backend.join(one)
    cluster.queues["orders"]["broker-c"] = 4
    view = backend.view("g")
    assert view.state == "stable"
    assert {holder.member_id for holder in view.owners.values()} == {place.member_id}
    assert set(view.owners) == {A0, A1}
    assert [holder.is_ours for holder in view.members] == [True]


def test_a_group_is_not_stable_for_a_member_that_has_not_seen_a_change_yet() -> None:
    cluster, _, backend = a_backend()
    backend.join(JOINING)
    cluster.stranger(client_id("10.0.0.3", 1, "nightly", "new"))
    assert backend.view("g").state == "rebalancing"


def test_a_driver_of_another_job_is_not_ours_after_a_join() -> None:
    cluster, _, backend = a_backend()
    cluster.stranger(client_id("10.0.0.3", 1, "hourly", "x"))
    assert [holder.is_ours for holder in backend.view("g").members] == [True]
    with pytest.raises(Conflict):
        backend.join(JOINING)
    assert [holder.is_ours for holder in backend.view("g").members] == [False]


def test_a_driver_of_another_job_is_not_ours_where_nobody_joins() -> None:
    cluster = Cluster()
    for job in ("hourly", "nightly"):
        cluster.stranger(client_id("10.0.0.3", 1, job, "x"))
    members = open_backend(cluster.io("home"), "nightly").view("g").members
    assert [(holder.is_ours, "nightly" in holder.client_id) for holder in members] == [
        (False, False),
        (True, True),
    ]
