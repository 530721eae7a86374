"""Groups in a real ZooKeeper: claims, takeovers, fences, and a server that goes away.

Each test has a chroot of its own, which is also how chroots are seen to be respected.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import rangeland
from rangeland.errors import Conflict, JobFileError, RemoteProtocolError, Unreachable
from rangeland.groups.backend import Fenced, HeartbeatStatus, JoinRequest
from rangeland.groups.zookeeper.group_backend import ZooKeeperGroups
from rangeland.groups.zookeeper.member import ZooKeeperMember
from rangeland.groups.zookeeper.znode_layout import member_name, partition_name
from rangeland.model import Partition
from rangeland.testing.processes import PATIENCE_S, Process
from rangeland.zookeeper.znodes import Check, Operation, Refused
from rangeland.zookeeper.zookeeper_access import ZooKeeperAccess
from rangeland.zookeeper.zookeeper_client import ZooKeeper
from tests.brokers.group_member_process import FENCED
from tests.servers.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.brokers

JAFKA = tuple(Partition("orders", n, b) for b in "12" for n in range(2))
KAFKA = tuple(Partition("orders", n) for n in range(3))
ALL = frozenset(JAFKA)
JOB = "hourly"
ROOT = Path(__file__).parents[2]
UPSTREAM = "g_host-1795233329683-c81507e9"


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as started:
        yield started


@pytest.fixture
def chroot(server: ZooKeeperServer, topic: str) -> str:
    server.put(f"/{topic}")
    return f"/{topic}"


@pytest.fixture
def backend(server: ZooKeeperServer, chroot: str) -> Iterator[ZooKeeperGroups]:
    opened = ZooKeeperGroups(ZooKeeperAccess(server.address + chroot, connect_ms=5_000), JOB)
    yield opened
    opened.close()


@pytest.fixture
def join(backend: ZooKeeperGroups) -> Iterator[Callable[..., ZooKeeperMember]]:
    """Joins as a driver of the job; whoever joined leaves when the test ends."""
    joined: list[ZooKeeperMember] = []

    def one(job: str = JOB, partitions: Sequence[Partition] = JAFKA) -> ZooKeeperMember:
        joined.append(backend.join(_joining(job, partitions)))
        return joined[-1]

    yield one
    for membership in joined:
        membership.leave()


def _joining(job: str, partitions: Sequence[Partition], rebalance_ms: int = 10_000) -> JoinRequest:
    return JoinRequest("g", job, tuple(partitions), session_ms=1_000, rebalance_ms=rebalance_ms)


def _joined_beside(
    others: Sequence[ZooKeeperMember], join: Callable[..., ZooKeeperMember]
) -> ZooKeeperMember:
    """One more member, while the others do what drivers do when their beat says so."""
    done: list[ZooKeeperMember] = []
    thread = threading.Thread(target=lambda: done.append(join()))
    thread.start()
    while thread.is_alive():
        for other in others:
            if other.beat() is HeartbeatStatus.REBALANCING:
                other.rejoin()
        time.sleep(0.01)
    thread.join()
    return done[0]


def _response(ask: Callable[[], Any]) -> Any:
    """The first one: each connection comes back in its own time after a restart."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except Unreachable:
            assert time.monotonic() < deadline


def _wait_for(standing: HeartbeatStatus, membership: ZooKeeperMember) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (seen := membership.beat()) is not standing:
        assert time.monotonic() < deadline, seen
        time.sleep(0.02)


def _end_session(server: ZooKeeperServer, membership: ZooKeeperMember) -> None:
    zookeeper = membership._zookeeper
    assert zookeeper is not None
    assert zookeeper._session is not None
    server.end_session(zookeeper._session)


# --- shares -----------------------------------------------------------------------------


def test_one_member_has_all(backend: ZooKeeperGroups, join: Callable[..., ZooKeeperMember]) -> None:
    membership = join()
    assert membership.owned == ALL
    assert membership.beat() is HeartbeatStatus.HOLDS
    assert membership.generation == 1
    assert {p: h.member_id for p, h in backend.view("g").owners.items()} == dict.fromkeys(
        ALL, membership.member_id
    )
    assert backend.view("g").state == "stable"
    assert all(h.is_ours for h in backend.view("g").members)


def test_members_share_and_take_over(join: Callable[..., ZooKeeperMember]) -> None:
    first = join()
    second = _joined_beside([first], join)
    assert first.owned | second.owned == ALL
    assert (len(first.owned), len(second.owned)) == (2, 2)
    assert (first.beat(), second.beat()) == (HeartbeatStatus.HOLDS, HeartbeatStatus.HOLDS)
    assert first.generation == 2
    second.leave()
    _wait_for(HeartbeatStatus.REBALANCING, first)
    first.rejoin()
    assert first.owned == ALL
    assert second.beat() is HeartbeatStatus.LOST


def test_three_at_once_settle(join: Callable[..., ZooKeeperMember]) -> None:
    members = [join()]
    while len(members) < 3:
        members.append(_joined_beside(members, join))
    for member in members:
        if member.beat() is HeartbeatStatus.REBALANCING:
            member.rejoin()
    owned = [p for member in members for p in member.owned]
    assert sorted(owned) == sorted(ALL)


def test_a_share_is_computed_from_members_who_are_still_there(
    server: ZooKeeperServer,
    chroot: str,
    join: Callable[..., ZooKeeperMember],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody registers after the members were looked up and before the share is claimed."""
    other = member_name("g", JOB, "zz", 1795233329683, "ffffffff")
    apply = ZooKeeper.apply

    def beside(zookeeper: ZooKeeper, operations: Sequence[Operation]) -> Refused | None:
        if isinstance(operations[0], Check):
            server.put(f"{chroot}/consumers/g/ids/{other}", '{"orders":1}')
        return apply(zookeeper, operations)

    monkeypatch.setattr(ZooKeeper, "apply", beside)
    member = join()
    assert member.owned == frozenset(JAFKA[:2])
    assert member.beat() is HeartbeatStatus.HOLDS


def test_nodes_are_those_of_upstream(
    server: ZooKeeperServer, chroot: str, join: Callable[..., ZooKeeperMember]
) -> None:
    member = join(partitions=KAFKA)
    member.commit(dict.fromkeys(KAFKA, 7))
    group = f"{chroot}/consumers/g"
    nodes = server.dump(group)
    assert nodes[f"{group}/owners/orders/2"].content == f"{member.member_id}-0"
    assert nodes[f"{group}/owners/orders/2"].is_ephemeral
    assert nodes[f"{group}/offsets/orders/2"].content == "7"
    assert not nodes[f"{group}/offsets/orders/2"].is_ephemeral
    assert '"subscription":{"orders":1}' in nodes[f"{group}/ids/{member.member_id}"].content
    member.leave()
    left = server.dump(group)
    assert not any(node.is_ephemeral for node in left.values())
    assert left[f"{group}/offsets/orders/2"].content == "7"


def test_only_range_is_known_here(backend: ZooKeeperGroups) -> None:
    with pytest.raises(JobFileError, match="sticky"):
        backend.join(JoinRequest("g", JOB, JAFKA, assignment="sticky"))


def test_whoever_joined_through_a_group_backend_has_left_when_it_is_closed(
    server: ZooKeeperServer, chroot: str
) -> None:
    backend = ZooKeeperGroups(ZooKeeperAccess(server.address + chroot), JOB)
    membership = backend.join(_joining(JOB, JAFKA))
    backend.close()
    assert membership.beat() is HeartbeatStatus.LOST
    assert not any(node.is_ephemeral for node in server.dump(chroot).values())


# --- strangers --------------------------------------------------------------------------


def test_a_stranger_is_named_and_nothing_is_changed(
    server: ZooKeeperServer,
    chroot: str,
    backend: ZooKeeperGroups,
    join: Callable[..., ZooKeeperMember],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.put(f"{chroot}/consumers/g/ids/{UPSTREAM}", '{"orders":1}')
    server.put(f"{chroot}/consumers/g/owners/orders/1-0", f"{UPSTREAM}-0")
    before = server.dump(chroot)
    # Not even for a moment: the stranger would share out again at once.
    monkeypatch.delattr(ZooKeeper, "apply")
    with pytest.raises(Conflict, match=f"{UPSTREAM} on host .owns orders/1-0"):
        join()
    monkeypatch.undo()
    assert server.dump(chroot) == before
    with pytest.raises(Conflict, match=UPSTREAM):
        backend.commit("g", {JAFKA[0]: 1})
    assert server.dump(chroot).keys() - before.keys() <= {
        f"{chroot}/consumers/g/offsets",
        f"{chroot}/consumers/g/offsets/orders",
    }


def test_a_driver_of_another_job_is_a_stranger(join: Callable[..., ZooKeeperMember]) -> None:
    other = join("another")
    with pytest.raises(Conflict, match=r"rangeland\.another@"):
        join()
    assert other.beat() is HeartbeatStatus.HOLDS


def test_who_reads_other_topics_is_not_a_stranger(
    server: ZooKeeperServer, chroot: str, join: Callable[..., ZooKeeperMember]
) -> None:
    server.put(f"{chroot}/consumers/g/ids/{UPSTREAM}", '{"clicks":1}')
    assert join().owned == ALL


def test_a_stranger_who_comes_later_is_given_way(
    server: ZooKeeperServer, chroot: str, join: Callable[..., ZooKeeperMember]
) -> None:
    member = join()
    server.put(f"{chroot}/consumers/g/ids/{UPSTREAM}", '{"orders":1}')
    assert member.beat() is HeartbeatStatus.REBALANCING
    with pytest.raises(Conflict, match=UPSTREAM):
        member.rejoin()
    assert member.beat() is HeartbeatStatus.LOST
    assert member.owned == frozenset()
    assert not any(node.is_ephemeral for node in server.dump(chroot).values())


def test_an_owner_who_does_not_let_go_is_named(
    server: ZooKeeperServer, chroot: str, backend: ZooKeeperGroups
) -> None:
    server.put(f"{chroot}/consumers/g/owners/orders/2-1", f"{UPSTREAM}-0")
    assert backend.view("g").state == "rebalancing"
    with pytest.raises(Conflict, match=f"{UPSTREAM} still owns it") as caught:
        backend.join(_joining(JOB, JAFKA, rebalance_ms=400))
    assert caught.value.facts["partition"] == "orders/2-1"
    assert not any(node.is_ephemeral for node in server.dump(chroot).values())


# --- fences -----------------------------------------------------------------------------


def test_a_member_whose_session_has_ended_commits_nothing(
    server: ZooKeeperServer, backend: ZooKeeperGroups, join: Callable[..., ZooKeeperMember]
) -> None:
    member = join()
    member.commit({JAFKA[0]: 5})
    name = member.member_id
    _end_session(server, member)
    with pytest.raises(Fenced):
        member.commit({JAFKA[0]: 6})
    _wait_for(HeartbeatStatus.LOST, member)
    with pytest.raises(Fenced):
        member.commit({JAFKA[0]: 6})
    assert backend.offsets("g", JAFKA[:1]) == {JAFKA[0]: 5}
    member.rejoin()
    assert member.member_id != name
    assert member.owned == ALL
    member.commit({JAFKA[0]: 6})
    assert backend.offsets("g", JAFKA[:1]) == {JAFKA[0]: 6}


def _meanwhile(
    membership: ZooKeeperMember, event: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lets something happen after a commit has looked and before its transaction is sent."""
    zookeeper = membership._zookeeper
    assert zookeeper is not None
    apply = zookeeper.apply

    def late(operations: Sequence[Operation]) -> Refused | None:
        event()
        return apply(operations)

    monkeypatch.setattr(zookeeper, "apply", late)


def test_the_transaction_itself_is_fenced_by_the_session(
    server: ZooKeeperServer,
    backend: ZooKeeperGroups,
    join: Callable[..., ZooKeeperMember],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another driver of the job has the same nodes by then, with the same versions."""
    member = join()

    def taken_over() -> None:
        _end_session(server, member)
        assert join().owned == ALL

    _meanwhile(member, taken_over, monkeypatch)
    with pytest.raises(Fenced, match="ids"):
        member.commit({JAFKA[0]: 5})
    assert backend.offsets("g", JAFKA[:1]) == {JAFKA[0]: None}


def test_the_transaction_itself_is_fenced_by_a_new_owners_node(
    server: ZooKeeperServer,
    chroot: str,
    backend: ZooKeeperGroups,
    join: Callable[..., ZooKeeperMember],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Upstream's consumers delete owner nodes without looking whose they are."""
    member = join()
    assert [member.beat() for _ in range(3)] == [HeartbeatStatus.HOLDS] * 3
    path = f"{chroot}/consumers/g/owners/orders/1-0"

    def taken_over() -> None:
        server.remove(path)
        with server.visit() as upstream:
            upstream.create(path, f"{UPSTREAM}-0".encode())

    _meanwhile(member, taken_over, monkeypatch)
    with pytest.raises(Fenced, match="owners/orders/1-0"):
        member.commit(dict.fromkeys(JAFKA, 5))
    monkeypatch.undo()
    assert member.beat() is HeartbeatStatus.LOST
    with pytest.raises(Fenced, match=f"now owned by {UPSTREAM}"):
        member.commit(dict.fromkeys(JAFKA, 5))
    assert backend.offsets("g", JAFKA) == dict.fromkeys(JAFKA)


def test_what_is_given_back_after_the_session_has_ended_is_not_another_driver_s(
    server: ZooKeeperServer,
    backend: ZooKeeperGroups,
    join: Callable[..., ZooKeeperMember],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other one's nodes have the same paths and versions, and the transaction is sent in a
    new session."""
    member = backend.join(_joining(JOB, JAFKA, rebalance_ms=1_000))
    others: list[ZooKeeperMember] = []

    def taken_over() -> None:
        if not others:
            _end_session(server, member)
            others.append(join())

    _meanwhile(member, taken_over, monkeypatch)
    with pytest.raises(Unreachable, match=f"{JOB}.* still owns it"):
        member.rejoin()
    assert others[0].owned == ALL
    assert others[0].beat() is HeartbeatStatus.HOLDS


def test_a_member_whose_registration_was_removed_joins_again(
    server: ZooKeeperServer, chroot: str, join: Callable[..., ZooKeeperMember]
) -> None:
    member = join()
    server.remove(f"{chroot}/consumers/g/ids/{member.member_id}")
    assert member.beat() is HeartbeatStatus.LOST
    member.rejoin()
    assert member.owned == ALL
    assert member.beat() is HeartbeatStatus.HOLDS


def test_what_is_not_owned_is_not_committed(join: Callable[..., ZooKeeperMember]) -> None:
    member = join(partitions=JAFKA[:2])
    with pytest.raises(Fenced, match="orders/2-0"):
        member.commit({JAFKA[2]: 1})


def _holder(server: ZooKeeperServer, chroot: str, folder: Path) -> Process:
    names = [partition_name(p) for p in JAFKA]
    module = [sys.executable, "-m", "tests.brokers.group_member_process"]
    library = Path(rangeland.__file__).parents[1]
    return Process(
        "holder",
        [*module, server.address + chroot, "g", JOB, "1000", *names],
        log=folder / "holder.log",
        environment={"PYTHONPATH": f"{library}{os.pathsep}{ROOT}"},
        directory=folder,
    )


def test_a_driver_paused_beyond_its_session_is_fenced(
    server: ZooKeeperServer,
    chroot: str,
    backend: ZooKeeperGroups,
    join: Callable[..., ZooKeeperMember],
    tmp_path: Path,
) -> None:
    with _holder(server, chroot, tmp_path) as holder:
        holder.wait_for_line("holds 1-0 1-1 2-0 2-1")
        holder.pause()
        member = join()  # waits until the session of the paused one has ended
        assert member.owned == ALL
        member.commit(dict.fromkeys(JAFKA, 1_000_000))
        holder.resume()
        assert holder.wait_for_end() == FENCED, holder.log_tail()
        assert backend.offsets("g", JAFKA) == dict.fromkeys(JAFKA, 1_000_000)
        assert member.beat() is HeartbeatStatus.HOLDS


def test_what_a_killed_driver_held_is_taken_over(
    server: ZooKeeperServer,
    chroot: str,
    join: Callable[..., ZooKeeperMember],
    tmp_path: Path,
) -> None:
    with _holder(server, chroot, tmp_path) as holder:
        holder.wait_for_line("holds 1-0 1-1 2-0 2-1")
        member = join()
        assert len(member.owned) == 2
        holder.wait_for_line(r"holds \S+ \S+$")
        holder.kill()
        _wait_for(HeartbeatStatus.REBALANCING, member)
        member.rejoin()
        assert member.owned == ALL


# --- offsets ----------------------------------------------------------------------------


def test_offsets_of_a_group_without_members_are_written_and_read_back(
    server: ZooKeeperServer, chroot: str, backend: ZooKeeperGroups
) -> None:
    assert backend.view("g").state == "absent"
    assert backend.offsets("g", JAFKA) == dict.fromkeys(JAFKA)
    backend.commit("g", {JAFKA[0]: 5040, JAFKA[3]: 0})
    backend.commit("g", {JAFKA[0]: 5041})
    assert backend.offsets("g", JAFKA) == {
        JAFKA[0]: 5041,
        JAFKA[1]: None,
        JAFKA[2]: None,
        JAFKA[3]: 0,
    }
    assert server.dump(chroot)[f"{chroot}/consumers/g/offsets/orders/1-0"].content == "5041"
    assert backend.view("g").state == "empty"


def test_many_offsets_take_several_transactions(backend: ZooKeeperGroups) -> None:
    many = {Partition("orders", n): n for n in range(1100)}
    backend.commit("g", many)
    assert backend.offsets("g", sorted(many)) == many


def test_an_offset_that_is_none_is_named(
    server: ZooKeeperServer, chroot: str, backend: ZooKeeperGroups
) -> None:
    server.put(f"{chroot}/consumers/g/offsets/orders/1-0", "many")
    with pytest.raises(RemoteProtocolError, match="/consumers/g/offsets/orders/1-0"):
        backend.offsets("g", JAFKA)


def test_offsets_are_not_written_under_a_member(
    backend: ZooKeeperGroups, join: Callable[..., ZooKeeperMember]
) -> None:
    member = join()
    with pytest.raises(Conflict, match=member.member_id):
        backend.commit("g", {JAFKA[0]: 1})
    assert backend.offsets("g", JAFKA[:1]) == {JAFKA[0]: None}
    member.leave()
    backend.commit("g", {JAFKA[0]: 1})
    assert backend.offsets("g", JAFKA[:1]) == {JAFKA[0]: 1}


# --- a server that goes away ------------------------------------------------------------


def test_a_restart_of_the_server_is_survived(
    server: ZooKeeperServer,
    chroot: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    backend = ZooKeeperGroups(ZooKeeperAccess(server.address + chroot, connect_ms=2_000), JOB)
    member = backend.join(JoinRequest("g", JOB, JAFKA, session_ms=20_000))
    backend.commit("other", {JAFKA[0]: 1})
    server.kill()
    try:
        for ask in (member.beat, lambda: member.commit({JAFKA[0]: 2}), lambda: backend.view("g")):
            with pytest.raises(Unreachable):
                ask()
        with pytest.raises(Unreachable, match="refused"):
            ZooKeeperGroups(ZooKeeperAccess(server.address + chroot, connect_ms=300)).view("g")
    finally:
        server.start()
    assert _response(member.beat) is HeartbeatStatus.HOLDS
    _response(lambda: member.commit({JAFKA[0]: 2}))
    assert _response(lambda: backend.offsets("g", JAFKA[:1])) == {JAFKA[0]: 2}
    member.leave()
    backend.close()
    assert capfd.readouterr().err == ""


def test_a_connection_that_a_starting_server_never_answers_does_not_cost_the_session(
    server: ZooKeeperServer, chroot: str
) -> None:
    backend = ZooKeeperGroups(ZooKeeperAccess(server.address + chroot, connect_ms=2_000), JOB)
    member = backend.join(JoinRequest("g", JOB, JAFKA, session_ms=60_000))
    server.kill()
    with socket.create_server(("127.0.0.1", server.port)) as starting:
        unanswered, _ = starting.accept()
    with unanswered:
        server.start()
        began = time.monotonic()
        assert _response(member.beat) is HeartbeatStatus.HOLDS
        assert time.monotonic() - began < 30  # half a session
    member.leave()
    backend.close()


def test_a_silent_server_is_unreachable_in_time(server: ZooKeeperServer, chroot: str) -> None:
    backend = ZooKeeperGroups(ZooKeeperAccess(server.address + chroot, connect_ms=2_000), JOB)
    member = backend.join(JoinRequest("g", JOB, JAFKA, session_ms=20_000))
    server.pause()
    try:
        began = time.monotonic()
        with pytest.raises(Unreachable, match="no response within"):
            member.commit({JAFKA[0]: 2})
        with pytest.raises(Unreachable, match="no response within"):
            ZooKeeperGroups(ZooKeeperAccess(server.address + chroot, connect_ms=500)).view("g")
        member.leave()
        backend.close()
        assert time.monotonic() - began < 30
    finally:
        server.resume()


def test_another_server_is_asked_in_time_where_one_is_deaf(
    server: ZooKeeperServer, chroot: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        servers = f"127.0.0.1:{deaf.getsockname()[1]},{server.address}"
        for _ in range(4):  # kazoo takes them in any order
            backend = ZooKeeperGroups(ZooKeeperAccess(servers + chroot, connect_ms=2_000))
            assert backend.view("g").state == "absent"
            backend.close()


def test_a_path_that_is_not_there_is_the_job_files_fault(server: ZooKeeperServer) -> None:
    with pytest.raises(JobFileError, match="has no /nowhere"):
        ZooKeeperGroups(ZooKeeperAccess(f"{server.address}/nowhere")).view("g")
