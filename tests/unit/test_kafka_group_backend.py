"""Kafka's groups: the coordinator is found and found again; offsets and members are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rangeland.dialects.kafka import messages as m
from rangeland.dialects.protocol_session import UnsupportedRequest
from rangeland.errors import AccessDenied, Conflict, Unreachable
from rangeland.groups.backend import GroupBackend, JoinRequest
from rangeland.groups.kafka.group_backend import open_backend
from rangeland.groups.kafka.subscriptions import (
    assignment_bytes,
    owner_of,
    subscription_bytes,
)
from rangeland.model import Address, Partition
from tests.scripted_io import (
    LOST,
    SEEDS,
    ScriptedIO,
    a_member,
    committed,
    described,
    fetched,
    found,
    joined,
    newer,
    synced,
)

ALL = tuple(Partition("orders", number) for number in range(2))
JOINING = JoinRequest("g", "nightly", ALL, session_ms=9_000, rebalance_ms=20_000)
HOLDS = assignment_bytes(ALL)


def said(owner: str = "") -> bytes:
    return subscription_bytes(["orders"], (), -1, owner)


def a_backend(*script: tuple[type[Any], Any]) -> tuple[ScriptedIO, GroupBackend]:
    io = ScriptedIO(list(script))
    return io, open_backend(io)


# --- the coordinator ----------------------------------------------------------------------


def test_seeds_are_asked_in_turn_until_one_knows() -> None:
    io, backend = a_backend((m.FindCoordinatorRequest, LOST), found(), fetched(3, -1))
    assert backend.offsets("g", ALL) == {ALL[0]: 3, ALL[1]: None}
    assert [address for address, _ in io.asked] == [*SEEDS, Address("home", 9)]
    assert backend.name == "the coordinator of group g at home:9"


def test_a_coordinator_is_looked_up_once() -> None:
    io, backend = a_backend(found(), fetched(3), fetched(4))
    backend.offsets("g", ALL[:1])
    assert backend.offsets("g", ALL[:1]) == {ALL[0]: 4}
    assert len(io.requests(m.FindCoordinatorRequest)) == 1


@pytest.mark.parametrize(
    "moved", [fetched(whole="NOT_COORDINATOR"), (m.OffsetFetchRequest, LOST)], ids=["says", "dead"]
)
def test_a_coordinator_that_moved_is_found_again(moved: tuple[type[Any], Any]) -> None:
    io, backend = a_backend(found("old"), moved, found("new"), fetched(3))
    assert backend.offsets("g", ALL[:1]) == {ALL[0]: 3}
    assert io.asked[-1][0] == Address("new", 9)


def test_a_coordinator_that_loads_is_asked_again_after_a_pause() -> None:
    io, backend = a_backend(found(), fetched(whole="COORDINATOR_LOAD_IN_PROGRESS"), fetched(3))
    assert backend.offsets("g", ALL[:1]) == {ALL[0]: 3}
    assert io.clock_ms > 0


def test_a_coordinator_that_is_being_created_is_looked_up_again() -> None:
    not_yet = found(code="COORDINATOR_NOT_AVAILABLE")
    io, backend = a_backend(not_yet, not_yet, found(), fetched(3))
    assert backend.offsets("g", ALL[:1]) == {ALL[0]: 3}
    assert io.clock_ms > 0


def test_a_coordinator_that_is_never_ready_is_unreachable_in_time() -> None:
    io, backend = a_backend(found(), *[fetched(whole="COORDINATOR_LOAD_IN_PROGRESS")] * 1000)
    with pytest.raises(Unreachable, match="at home:9 is not ready: COORDINATOR_LOAD_IN_PROGRESS"):
        backend.offsets("g", ALL)
    assert 30_000 <= io.clock_ms < 31_000


def test_a_missing_right_to_find_a_group_names_what_to_grant() -> None:
    _, backend = a_backend(found(code="GROUP_AUTHORIZATION_FAILED"))
    with pytest.raises(AccessDenied, match="READ on the group g"):
        backend.offsets("g", ALL)


def test_closing_a_backend_closes_its_connections() -> None:
    io, backend = a_backend()
    backend.close()
    assert io.is_closed


# --- offsets ------------------------------------------------------------------------------


def test_offsets_that_a_transaction_holds_are_waited_for() -> None:
    io, backend = a_backend(found(), fetched(-1, code="UNSTABLE_OFFSET_COMMIT"), fetched(3))
    assert backend.offsets("g", ALL[:1]) == {ALL[0]: 3}
    assert all(request.require_stable for request in io.requests(m.OffsetFetchRequest))


def test_a_partition_that_the_response_leaves_out_is_asked_for_again() -> None:
    _, backend = a_backend(found(), fetched(3), fetched(3, -1))
    assert backend.offsets("g", ALL) == {ALL[0]: 3, ALL[1]: None}


def test_a_partition_that_no_response_has_is_not_taken_for_one_without_an_offset() -> None:
    io, backend = a_backend(found(), *[fetched(3)] * 1000)
    with pytest.raises(
        Unreachable, match="did not say whether the group has an offset of orders/1"
    ):
        backend.offsets("g", ALL)
    assert 30_000 <= io.clock_ms < 31_000


def test_no_partitions_send_no_request() -> None:
    io, backend = a_backend()
    assert backend.offsets("g", ()) == {}
    backend.commit("g", {})
    assert io.asked == []


def test_a_missing_right_to_read_offsets_is_an_error() -> None:
    _, backend = a_backend(found(), fetched(-1, code="TOPIC_AUTHORIZATION_FAILED"))
    with pytest.raises(AccessDenied, match="READ on the topics"):
        backend.offsets("g", ALL[:1])


def test_a_commit_without_a_member_has_no_generation() -> None:
    io, backend = a_backend(found(), committed())
    backend.commit("g", {ALL[0]: 7})
    (request,) = io.requests(m.OffsetCommitRequest)
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")


@pytest.mark.parametrize(
    "code", ["UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"]
)
def test_a_commit_into_a_group_with_members_names_them(code: str) -> None:
    there = a_member("m-1", said(), HOLDS, "other")
    _, backend = a_backend(found(), committed(code), described(there))
    with pytest.raises(
        Conflict,
        match=r"member m-1 \(client other, host 10.0.0.7\) holds orders/0, orders/1",
    ) as caught:
        backend.commit("g", {ALL[0]: 7})
    assert caught.value.facts["members"][0]["partitions"] == ["orders/0", "orders/1"]


def test_a_commit_without_the_right_is_denied() -> None:
    _, backend = a_backend(found(), committed("TOPIC_AUTHORIZATION_FAILED"))
    with pytest.raises(AccessDenied, match="READ on the topics"):
        backend.commit("g", {ALL[0]: 7})


# --- who is there -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "state"),
    [
        ("Empty", "empty"),
        ("Stable", "stable"),
        ("PreparingRebalance", "rebalancing"),
        ("CompletingRebalance", "rebalancing"),
        ("AwaitingSync", "rebalancing"),
    ],
)
def test_states_of_all_brokers_map_to_one_vocabulary(theirs: str, state: str) -> None:
    _, backend = a_backend(found(), described(state=theirs))
    assert backend.view("g").state == state


def test_a_view_names_members_and_owners() -> None:
    members = (
        a_member("m-1", said(owner_of("nightly")), assignment_bytes(ALL[:1])),
        a_member("m-2", said(), assignment_bytes(ALL[1:]), "other"),
        a_member("m-3", b"no subscription", b"no assignment", "other"),
    )
    _, backend = a_backend(found(), described(*members))
    view = backend.view("g")
    assert {partition: holder.member_id for partition, holder in view.owners.items()} == {
        ALL[0]: "m-1",
        ALL[1]: "m-2",
    }
    assert [holder.is_ours for holder in view.members] == [True, False, False]
    assert view.members[0].host == "10.0.0.7"


def test_drivers_of_another_job_are_not_ours() -> None:
    members = (
        a_member("m-1", said(owner_of("nightly"))),
        a_member("m-2", said(owner_of("hourly"))),
        a_member("m-3", said(), client_id="billing"),
    )
    io = ScriptedIO([found(), described(*members)])
    view = open_backend(io, "hourly").view("g")
    assert [holder.is_ours for holder in view.members] == [False, True, False]


def test_members_of_a_group_of_another_protocol_hold_nothing_and_are_not_ours() -> None:
    there = a_member("worker-1", b"", HOLDS, "rangeland")
    _, backend = a_backend(found(), described(there, protocol_type="connect"))
    (holder,) = backend.view("g").members
    assert (holder.partitions, holder.is_ours) == (frozenset(), False)


DEAD_CODES = ["GROUP_ID_NOT_FOUND", "NONE"]
"""What coordinators of 4.0 and later answer with the state Dead, and earlier ones."""


@pytest.mark.parametrize("dead", DEAD_CODES)
def test_a_group_of_the_newer_protocol_is_shown(dead: str) -> None:
    held = m.HeldTopic(topic_id=None, topic_name="orders", partitions=(0, 1))
    nothing = m.HeldTopics(topic_partitions=())

    def member(member_id: str, client_id: str, member_type: int) -> m.ConsumerMember:
        return m.ConsumerMember(
            member_id=member_id,
            member_epoch=1,
            client_id=client_id,
            client_host="/10.0.0.8",
            subscribed_topic_names=("orders",),
            assignment=m.HeldTopics(topic_partitions=(held,)) if member_type else nothing,
            target_assignment=nothing,
            member_type=member_type,
        )

    absent = described(state="Dead", code=dead)
    there = newer(member("m-1", "rangeland", 1), member("m-2", "rangeland", 0))
    _, backend = a_backend(found(), absent, there)
    view = backend.view("g")
    assert view.state == "stable"
    assert set(view.owners) == set(ALL)
    assert [holder.is_ours for holder in view.members] == [False, True]


@pytest.mark.parametrize("dead", DEAD_CODES)
@pytest.mark.parametrize("code", ["GROUP_ID_NOT_FOUND", "UNSUPPORTED_VERSION"])
def test_a_group_that_does_not_exist_is_absent(code: str, dead: str) -> None:
    missing = described(state="Dead", code=dead)
    _, backend = a_backend(found(), missing, newer(code=code))
    assert backend.view("g").state == "absent"


def test_a_group_is_absent_where_brokers_do_not_know_the_newer_protocol() -> None:
    unknown = UnsupportedRequest("no version of ConsumerGroupDescribe is supported by both sides")
    script = found(), described(state="Dead"), (m.ConsumerGroupDescribeRequest, unknown)
    _, backend = a_backend(*script)
    assert backend.view("g").state == "absent"


def test_a_consumer_of_the_newer_protocol_is_not_joined() -> None:
    consumer = m.ConsumerMember(
        member_id="m-1",
        member_epoch=1,
        client_id="other",
        client_host="/10.0.0.8",
        subscribed_topic_names=("orders",),
        assignment=m.HeldTopics(topic_partitions=()),
        target_assignment=m.HeldTopics(topic_partitions=()),
    )
    _, backend = a_backend(found(), described(state="Dead"), newer(consumer))
    with pytest.raises(Conflict, match="group g is in use: member m-1"):
        backend.join(JOINING)


# --- before a join ------------------------------------------------------------------------


def test_drivers_of_the_same_job_are_joined() -> None:
    there = a_member("m-1", said(owner_of("nightly")), HOLDS, "any client")
    _, backend = a_backend(found(), described(there), joined(), synced(HOLDS))
    assert backend.join(JOINING).owned == set(ALL)


@pytest.mark.parametrize("owner", ["", owner_of("hourly"), "someone/nightly"])
def test_any_other_member_is_a_conflict_that_names_it(owner: str) -> None:
    ours = a_member("m-1", said(owner_of("nightly")))
    stranger = a_member("m-2", said(owner), HOLDS, "other")
    _, backend = a_backend(found(), described(ours, stranger))
    with pytest.raises(Conflict, match="group g is in use: member m-2") as caught:
        backend.join(JOINING)
    assert (caught.value.exit_code, "m-1" in str(caught.value)) == (73, False)


def test_strangers_are_waited_for_while_a_rebalance_hides_who_they_are() -> None:
    hidden = a_member("m-1", client_id="driver two")
    shown = a_member("m-1", said(owner_of("nightly")), HOLDS, "driver two")
    io, backend = a_backend(
        found(),
        described(hidden, state="PreparingRebalance"),
        described(shown),
        joined(),
        synced(HOLDS),
    )
    backend.join(JOINING)
    assert io.clock_ms > 0


def test_drivers_are_known_by_their_client_while_a_rebalance_hides_more() -> None:
    hidden = a_member("m-1", client_id="rangeland")
    io, backend = a_backend(
        found(), described(hidden, state="PreparingRebalance"), joined(), synced(HOLDS)
    )
    backend.join(JOINING)
    assert io.clock_ms == 0


def test_strangers_in_an_endless_rebalance_are_a_conflict() -> None:
    hidden = described(a_member("m-1", client_id="other"), state="PreparingRebalance")
    _, backend = a_backend(found(), *[hidden] * 200)
    with pytest.raises(Conflict, match=r"client other.* holds nothing"):
        backend.join(JOINING)


@pytest.mark.parametrize(
    "ask",
    [lambda backend: backend.view("g"), lambda backend: backend.join(JOINING)],
    ids=["view", "join"],
)
def test_a_group_that_may_not_be_looked_at_is_denied(
    ask: Callable[[GroupBackend], Any],
) -> None:
    _, backend = a_backend(found(), described(code="GROUP_AUTHORIZATION_FAILED"))
    with pytest.raises(AccessDenied, match="READ on the group g"):
        ask(backend)
