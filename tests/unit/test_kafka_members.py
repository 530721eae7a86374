"""One member's life: every response of a coordinator, and what follows from it."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from rangeland.dialects.kafka import messages as m
from rangeland.errors import AccessDenied, Conflict, JobFileError, RangelandError, Unreachable
from rangeland.groups.backend import (
    PAUSE_MS,
    Fenced,
    HeartbeatStatus,
    JoinRequest,
    Membership,
)
from rangeland.groups.kafka.group_backend import open_backend
from rangeland.groups.kafka.subscriptions import (
    assignment_bytes,
    owner_of,
    read_assignment,
    read_subscription,
    subscription_bytes,
)
from rangeland.model import Partition
from tests.scripted_io import (
    LOST,
    ScriptedIO,
    beaten,
    committed,
    described,
    found,
    joined,
    left,
    synced,
)

ALL = tuple(Partition("orders", number) for number in range(4))
ONE, TWO = assignment_bytes(ALL[:1]), assignment_bytes(ALL[:2])
JOINING = JoinRequest("g", "nightly", ALL, session_ms=9_000, rebalance_ms=20_000)
OURS = subscription_bytes(["orders"], (), -1, owner_of("nightly"))
THEIRS = subscription_bytes(["orders"], (), -1, "")
OVER = ("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID")


def a_join(*script: tuple[type[Any], Any], joining: JoinRequest = JOINING) -> Any:
    """The I/O, and what comes of a join into an empty group with these responses."""
    io = ScriptedIO([found(), described(state="Empty"), *script])
    return io, open_backend(io).join(joining)


def a_member() -> tuple[ScriptedIO, Membership]:
    """A follower that holds two partitions in generation 1."""
    io, member = a_join(joined(), synced(TWO))
    assert (member.member_id, member.generation, member.owned) == ("me", 1, frozenset(ALL[:2]))
    assert not io.script
    io.asked.clear()
    return io, member


# --- joining ------------------------------------------------------------------------------


def test_a_member_joins_with_the_id_that_it_is_given() -> None:
    io, member = a_join(
        joined("MEMBER_ID_REQUIRED", "given"), joined(member_id="given"), synced(TWO)
    )
    assert [request.member_id for request in io.requests(m.JoinGroupRequest)] == ["", "given"]
    assert member.member_id == "given"


@pytest.mark.parametrize(
    "script",
    [
        (joined(), synced(code="GROUP_AUTHORIZATION_FAILED")),
        (joined("MEMBER_ID_REQUIRED", "me"), joined("INCONSISTENT_GROUP_PROTOCOL"), described()),
    ],
)
def test_a_join_that_fails_leaves_no_member_behind(
    script: tuple[tuple[type[Any], Any], ...],
) -> None:
    """The coordinator would wait for it until its session ends, and so would all others."""
    io = ScriptedIO([found(), described(state="Empty"), *script, left()])
    with pytest.raises((AccessDenied, Conflict)):
        open_backend(io).join(JOINING)
    assert [request.member_id for request in io.requests(m.LeaveGroupRequest)] == ["me"]
    assert not io.script


def test_a_join_that_is_refused_has_nobody_to_leave() -> None:
    io = ScriptedIO([found(), described(state="Empty"), joined("GROUP_AUTHORIZATION_FAILED", "")])
    with pytest.raises(AccessDenied):
        open_backend(io).join(JOINING)
    assert not io.requests(m.LeaveGroupRequest)


def test_a_join_says_job_and_times_and_may_take_as_long_as_the_rebalance() -> None:
    io, _ = a_join(joined(), synced(TWO))
    questions = {type(question.message): question for _, question in io.asked}
    request = questions[m.JoinGroupRequest].message
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (9_000, 20_000)
    ((name, metadata),) = [(p.name, p.metadata) for p in request.protocols]
    assert (name, metadata) == ("range", OURS)
    for kind in (m.JoinGroupRequest, m.SyncGroupRequest):
        wait_ms = questions[kind].wait_ms
        assert wait_ms is not None
        assert wait_ms > 20_000


def test_a_follower_syncs_without_an_assignment() -> None:
    io, _ = a_join(joined(generation=5), synced(TWO))
    (request,) = io.requests(m.SyncGroupRequest)
    assert (request.generation_id, request.member_id, request.assignments) == (5, "me", ())


def test_a_leader_sends_the_assignment_of_all() -> None:
    members = {"me": OURS, "you": OURS, "late": OURS}
    io, _ = a_join(joined(leader="me", members=members), synced(TWO))
    (request,) = io.requests(m.SyncGroupRequest)
    shares = {x.member_id: read_assignment(x.assignment) for x in request.assignments}
    assert shares == {"late": {*ALL[:2]}, "me": {ALL[2]}, "you": {ALL[3]}}


def test_a_leader_that_may_not_change_the_assignment_sends_nothing() -> None:
    kind, response = joined(leader="me", members={"me": OURS})
    kept = m.JoinGroupResponse(
        error_code=0, leader="me", member_id="me", members=response.members, skip_assignment=True
    )
    io, _ = a_join((kind, kept), synced(TWO))
    assert io.requests(m.SyncGroupRequest)[0].assignments == ()


def test_partitions_that_the_job_leaves_out_go_to_other_consumers_only() -> None:
    parts = tuple(
        m.MetadataPartition(
            error_code=0, partition_index=number, leader_id=1, replica_nodes=(), isr_nodes=()
        )
        for number in range(6)
    )
    topics = (m.MetadataTopic(error_code=0, name="orders", partitions=parts),)
    metadata = (m.MetadataRequest, m.MetadataResponse(brokers=(), topics=topics))
    members = {"me": OURS, "stranger": THEIRS}
    io, _ = a_join(joined(leader="me", members=members), metadata, synced(TWO))
    (request,) = io.requests(m.SyncGroupRequest)
    shares = {x.member_id: read_assignment(x.assignment) for x in request.assignments}
    more = {Partition("orders", number) for number in (2, 3, 4, 5)}
    assert shares == {"me": {*ALL[:2]}, "stranger": more}


def test_partitions_that_another_leader_gives_beyond_the_job_are_not_owned() -> None:
    beyond = assignment_bytes([ALL[0], Partition("orders", 9), Partition("other", 0)])
    _, member = a_join(joined(), synced(beyond))
    assert member.owned == {ALL[0]}


def test_a_member_that_gets_no_bytes_owns_nothing() -> None:
    _, member = a_join(joined(), synced(b""))
    assert member.owned == frozenset()


@pytest.mark.parametrize("code", ["REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION"])
def test_a_sync_that_comes_too_late_joins_again_with_the_same_id(code: str) -> None:
    io, member = a_join(joined(), synced(code=code), joined(generation=2), synced(TWO))
    assert [request.member_id for request in io.requests(m.JoinGroupRequest)] == ["", "me"]
    assert member.generation == 2


def test_a_sync_of_a_member_that_is_not_known_joins_again() -> None:
    io, _ = a_join(joined(), synced(code="UNKNOWN_MEMBER_ID"), joined(), synced(TWO))
    assert [request.member_id for request in io.requests(m.JoinGroupRequest)] == ["", ""]


def test_a_group_that_does_not_settle_is_unreachable() -> None:
    turns = 2 * JOINING.rebalance_ms // PAUSE_MS
    endless = [joined(), synced(code="REBALANCE_IN_PROGRESS")] * turns
    io = ScriptedIO([found(), described(state="Empty"), *endless, left()])
    with pytest.raises(Unreachable, match="did not settle"):
        open_backend(io).join(JOINING)
    assert not io.script, "it has left"


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("INCONSISTENT_GROUP_PROTOCOL", "use the same assignment"),
        ("GROUP_MAX_SIZE_REACHED", "fewer"),
    ],
)
def test_a_group_that_takes_no_such_member_is_a_conflict(code: str, remedy: str) -> None:
    with pytest.raises(Conflict, match=f"assignment range: {code}.*{remedy}"):
        a_join(joined(code), described())


@pytest.mark.parametrize(
    ("code", "kind", "remedy"),
    [
        ("GROUP_AUTHORIZATION_FAILED", AccessDenied, "user of source.security READ on the group g"),
        ("INVALID_SESSION_TIMEOUT", JobFileError, "group.min.session.timeout.ms"),
        ("INVALID_GROUP_ID", JobFileError, "another group.id"),
    ],
)
def test_what_would_be_refused_again_is_denied_or_an_error_of_the_job_file(
    code: str, kind: type[RangelandError], remedy: str
) -> None:
    with pytest.raises(kind, match=f"{code}.*{remedy}"):
        a_join(joined(code))


def test_a_coordinator_that_fails_once_is_asked_again() -> None:
    _, member = a_join(joined("UNKNOWN_SERVER_ERROR"), joined(), synced(TWO))
    assert member.owned == frozenset(ALL[:2])


def test_a_coordinator_that_keeps_failing_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="UNKNOWN_SERVER_ERROR"):
        a_join(*[joined("UNKNOWN_SERVER_ERROR")] * 1000)


# --- heartbeats ---------------------------------------------------------------------------


def test_a_heartbeat_comes_three_times_in_a_session() -> None:
    io, member = a_member()
    io.then(beaten())
    assert member.beat_ms == 3_000
    assert member.beat() is HeartbeatStatus.HOLDS
    (request,) = io.requests(m.HeartbeatRequest)
    assert (request.generation_id, request.member_id) == (1, "me")


def test_a_rebalance_is_joined_with_the_same_id_and_what_was_held() -> None:
    io, member = a_member()
    io.then(beaten("REBALANCE_IN_PROGRESS"))
    assert member.beat() is HeartbeatStatus.REBALANCING
    assert member.owned == frozenset(ALL[:2])
    io.then(joined(generation=2), synced(ONE))
    member.rejoin()
    (request,) = io.requests(m.JoinGroupRequest)
    said = read_subscription(request.protocols[0].metadata, "sticky")
    assert (request.member_id, said.held, said.generation) == ("me", frozenset(ALL[:2]), 1)
    assert (member.generation, member.owned) == (2, frozenset(ALL[:1]))


@pytest.mark.parametrize("code", OVER)
def test_a_lost_membership_owns_nothing_and_asks_nothing(code: str) -> None:
    io, member = a_member()
    io.then(beaten(code))
    assert member.beat() is HeartbeatStatus.LOST
    assert member.beat() is HeartbeatStatus.LOST
    assert member.owned == frozenset()
    with pytest.raises(Fenced):
        member.commit({ALL[0]: 1})
    assert len(io.asked) == 1


@pytest.mark.parametrize(("code", "member_id"), list(zip(OVER, ("me", "", ""), strict=True)))
def test_a_lost_member_joins_as_a_new_one(code: str, member_id: str) -> None:
    io, member = a_member()
    io.then(beaten(code), joined(member_id="new", generation=7), synced(ONE))
    member.beat()
    member.rejoin()
    assert io.requests(m.JoinGroupRequest)[0].member_id == member_id
    assert (member.member_id, member.generation, member.owned) == ("new", 7, frozenset(ALL[:1]))


def test_an_id_that_the_coordinator_has_forgotten_is_given_up() -> None:
    io, member = a_member()
    io.then(joined("UNKNOWN_MEMBER_ID"), joined(member_id="new"), synced(ONE))
    member.rejoin()
    assert [request.member_id for request in io.requests(m.JoinGroupRequest)] == ["me", ""]


def test_a_heartbeat_that_cannot_be_sent_is_unreachable_within_its_time() -> None:
    io, member = a_member()
    io.then((m.HeartbeatRequest, LOST))
    io.then(*[(m.FindCoordinatorRequest, LOST)] * 40)
    with pytest.raises(Unreachable, match="seed-a:1: refused; seed-b:2: refused"):
        member.beat()
    assert io.clock_ms <= member.beat_ms + 250
    assert member.owned == frozenset(ALL[:2])


def test_a_heartbeat_without_the_right_is_denied() -> None:
    io, member = a_member()
    io.then(beaten("GROUP_AUTHORIZATION_FAILED"))
    with pytest.raises(AccessDenied, match="a member sent its heartbeat"):
        member.beat()


def test_a_heartbeat_of_another_thread_waits_for_the_join() -> None:
    io, member = a_member()
    joining, go_on = threading.Event(), threading.Event()

    def slow(_: Any) -> Any:
        joining.set()
        assert go_on.wait(10)
        return joined(generation=2)[1]

    io.then((m.JoinGroupRequest, slow), synced(ONE), beaten())
    beats: list[HeartbeatStatus] = []
    threads = [
        threading.Thread(target=member.rejoin),
        threading.Thread(target=lambda: beats.append(member.beat())),
    ]
    threads[0].start()
    assert joining.wait(10)
    threads[1].start()
    threads[1].join(0.1)
    assert beats == []
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert beats == [HeartbeatStatus.HOLDS]
    assert io.requests(m.HeartbeatRequest)[0].generation_id == 2


# --- commits ------------------------------------------------------------------------------


def test_a_commit_carries_member_and_generation() -> None:
    io, member = a_member()
    io.then(committed())
    member.commit({ALL[1]: 8, ALL[0]: 7})
    (request,) = io.requests(m.OffsetCommitRequest)
    assert (request.generation_id_or_member_epoch, request.member_id) == (1, "me")
    ((name, parts),) = [(topic.name, topic.partitions) for topic in request.topics]
    assert (name, [(p.partition_index, p.committed_offset) for p in parts]) == (
        "orders",
        [(0, 7), (1, 8)],
    )


def test_a_partition_of_another_member_is_not_committed() -> None:
    io, member = a_join(joined(), synced(ONE))
    with pytest.raises(Fenced, match="orders/1 is not among its partitions"):
        member.commit({ALL[0]: 7, ALL[1]: 8})
    assert io.requests(m.OffsetCommitRequest) == []
    io.then(committed())
    member.commit({ALL[0]: 7})


def test_no_offsets_send_no_request() -> None:
    io, member = a_member()
    member.commit({})
    assert io.asked == []


@pytest.mark.parametrize("code", [*OVER, "GROUP_ID_NOT_FOUND"])
def test_a_commit_of_a_generation_that_is_over_is_fenced(code: str) -> None:
    io, member = a_member()
    io.then(committed(code, code))
    with pytest.raises(Fenced, match=f"member me of group g.*generation 1: {code}") as caught:
        member.commit({ALL[0]: 7, ALL[1]: 8})
    assert (caught.value.exit_code, caught.value.facts["member"]) == (73, "me")
    assert member.owned == frozenset()
    assert member.beat() is HeartbeatStatus.LOST


@pytest.mark.parametrize("last", ["NONE", "UNKNOWN_MEMBER_ID"])
def test_a_commit_during_a_rebalance_is_asked_again_until_it_is_certain(last: str) -> None:
    io, member = a_member()
    io.then(committed("REBALANCE_IN_PROGRESS"), committed("REBALANCE_IN_PROGRESS"))
    io.then(committed(last))
    if last == "NONE":
        member.commit({ALL[0]: 7})
    else:
        with pytest.raises(Fenced):
            member.commit({ALL[0]: 7})
    first, second, third = io.requests(m.OffsetCommitRequest)
    assert first == second == third
    assert io.clock_ms > 0


def test_a_commit_during_an_endless_rebalance_is_unreachable() -> None:
    io, member = a_member()
    io.then(*[committed("REBALANCE_IN_PROGRESS")] * 100)
    with pytest.raises(Unreachable, match="REBALANCE_IN_PROGRESS"):
        member.commit({ALL[0]: 7})


def test_a_lasting_error_wins_over_a_passing_one() -> None:
    io, member = a_member()
    io.then(committed("COORDINATOR_LOAD_IN_PROGRESS", "TOPIC_AUTHORIZATION_FAILED"))
    with pytest.raises(AccessDenied, match="READ on the topics"):
        member.commit({ALL[0]: 7, ALL[1]: 8})


# --- leaving ------------------------------------------------------------------------------


def test_a_member_that_leaves_owns_nothing_and_leaves_once() -> None:
    io, member = a_member()
    io.then(left())
    member.leave()
    member.leave()
    assert (member.owned, member.member_id) == (frozenset(), "")
    (asked,) = io.asked
    assert asked[1].message.member_id == "me"
    with pytest.raises(Fenced, match="is no longer a member"):
        member.commit({ALL[0]: 7})


def test_leaving_a_coordinator_that_is_gone_ends_with_the_session() -> None:
    io, member = a_member()
    io.then((m.LeaveGroupRequest, LOST), *[(m.FindCoordinatorRequest, LOST)] * 40)
    member.leave()
    assert member.owned == frozenset()


# --- logging ------------------------------------------------------------------------------


def test_join_commit_and_loss_each_leave_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rangeland.groups")
    io, member = a_member()
    io.then(committed(), beaten("REBALANCE_IN_PROGRESS"), beaten("UNKNOWN_MEMBER_ID"))
    member.commit({ALL[0]: 7})
    member.beat()
    member.beat()
    with pytest.raises(Fenced):
        member.commit({ALL[0]: 8})
    assert [record.getMessage() for record in caplog.records] == [
        "Joined the group",
        "Committed offsets",
        "Lost the membership: UNKNOWN_MEMBER_ID",
        "Fenced: it is no longer a member",
    ]
    fields = vars(caplog.records[1])
    assert [fields[name] for name in ("group", "member", "generation")] == ["g", "me", 1]
