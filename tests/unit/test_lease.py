"""A run's lease in a group: who reads which partitions, and which offsets are mirrored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rangeland.groups.backend import GroupMember, GroupState, GroupView, JoinRequest
from rangeland.groups.heartbeat_thread import HeartbeatThread
from rangeland.groups.lease import GroupLease
from rangeland.model import Partition
from tests.fakes.group_backend import InMemoryGroupBackend, InMemoryGroups

PARTITIONS = tuple(Partition("t", n) for n in range(2))
SESSION_MS = 5_000


class Seat:
    """One driver that has joined, and what it was told to say."""

    def __init__(self, groups: InMemoryGroups, name: str) -> None:
        self.backend = InMemoryGroupBackend(groups, name)
        joining = JoinRequest("g", "job", PARTITIONS, session_ms=SESSION_MS, rebalance_ms=30_000)
        self.keeper = HeartbeatThread(self.backend.join(joining))
        self.warnings: list[str] = []
        self.place = GroupLease(
            self.backend, "g", PARTITIONS, self.keeper, self.warnings.append, lambda _: None
        )


@pytest.fixture
def groups() -> InMemoryGroups:
    return InMemoryGroups()


@pytest.fixture
def seat(groups: InMemoryGroups) -> Iterator[Seat]:
    found = Seat(groups, "a")
    yield found
    found.keeper.close()


def test_what_a_consumer_that_came_later_holds_is_read_and_it_is_named_once(
    seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = PARTITIONS
    view = GroupView(
        GroupState.STABLE,
        (
            GroupMember(seat.keeper.member_id, partitions=frozenset({mine}), is_ours=True),
            GroupMember("m-9", "billing", partitions=frozenset({theirs})),
        ),
    )
    monkeypatch.setattr(seat.backend, "view", lambda group: view)
    monkeypatch.setattr(seat.keeper._membership, "owned", frozenset({mine}))
    for _ in range(2):
        seats = seat.place.slice_owners(PARTITIONS)
        assert all(seats.reads(p) for p in PARTITIONS)
    (warning,) = seat.warnings
    assert warning.startswith("billing has joined the group g and reads t/1 with it")


def test_a_driver_that_was_out_looks_at_the_checkpoint_again_before_it_commits(
    seat: Seat, groups: InMemoryGroups
) -> None:
    group = groups.group("g")
    looks = iter([dict.fromkeys(PARTITIONS, 5), dict.fromkeys(PARTITIONS, 8)])
    group.members[seat.keeper.member_id].generation += 1  # others have rebalanced without it
    seat.place.mirror(lambda: next(looks), set, to_the_end=True)
    assert group.offsets == dict.fromkeys(PARTITIONS, 8)
    assert seat.warnings == []


def test_nothing_landed_is_nothing_to_push(seat: Seat, groups: InMemoryGroups) -> None:
    seat.place.mirror(dict, set, to_the_end=True)
    assert groups.group("g").offsets == {}
