"""A run's lease in a group: who reads which partitions, and which offsets are mirrored."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from rangeland.dialects.cluster_values import GroupMember, GroupState, GroupView
from rangeland.errors import AccessDenied
from rangeland.groups.backend import JoinRequest
from rangeland.job_group import lease
from rangeland.job_group.heartbeat_thread import HeartbeatThread
from rangeland.job_group.lease import GroupLease
from rangeland.model import Partition
from tests.fakes.group_backend import InMemoryGroupBackend, InMemoryGroups
from tests.unit.test_heartbeat_thread import until

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
    assert warning.startswith("billing has joined the group g and reads t/1 as its member")


def test_a_driver_that_was_out_looks_at_the_checkpoint_again_before_it_commits(
    seat: Seat, groups: InMemoryGroups
) -> None:
    group = groups.group("g")
    looks = iter([dict.fromkeys(PARTITIONS, 5), dict.fromkeys(PARTITIONS, 8)])
    group.members[seat.keeper.member_id].generation += 1  # others have rebalanced without it
    seat.place.mirror(lambda: next(looks), set, to_the_end=True)
    assert group.offsets == dict.fromkeys(PARTITIONS, 8)
    assert seat.warnings == []


def test_a_driver_whose_heartbeat_is_refused_is_not_in_its_own_way(
    seat: Seat, groups: InMemoryGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as no member from then on, so it leaves: the group takes offsets from outside only
    while it has no members."""

    def refuse() -> None:
        raise AccessDenied("the brokers refuse group g")

    monkeypatch.setattr(seat.keeper._membership, "beat", refuse)
    until(lambda: seat.keeper.membership_error is not None)
    seat.place.mirror(lambda: dict.fromkeys(PARTITIONS, 5), set, to_the_end=True)
    assert seat.warnings == []
    assert groups.group("g").offsets == dict.fromkeys(PARTITIONS, 5)


class Alone:
    """A driver that could not join the group, and the others, which land, mirror and leave after
    each of its looks at the checkpoint, as long as there are checkpoints left."""

    def __init__(self, groups: InMemoryGroups, *checkpoints: int) -> None:
        self.offsets = groups.group("g").offsets
        self.checkpoints = list(checkpoints)
        self.marks: set[tuple[Partition, int]] = set()
        self.warnings: list[str] = []
        backend = InMemoryGroupBackend(groups, "a")
        lease = GroupLease(backend, "g", PARTITIONS, None, self.warnings.append, lambda _: None)
        lease.mirror(self.read_checkpoint, lambda: self.marks, to_the_end=True)

    def read_checkpoint(self) -> dict[Partition, int]:
        found = dict.fromkeys(PARTITIONS, self.checkpoints[0])
        self.marks |= set(found.items())
        if self.checkpoints[1:]:
            del self.checkpoints[0]
            self.offsets |= dict.fromkeys(PARTITIONS, self.checkpoints[0])
        return found


def test_a_driver_that_is_no_member_does_not_set_the_group_back(groups: InMemoryGroups) -> None:
    alone = Alone(groups, 5, 9)
    assert alone.offsets == dict.fromkeys(PARTITIONS, 9)
    assert alone.warnings == [], "nobody but drivers of this job has moved it"


def test_a_driver_that_is_no_member_warns_if_the_checkpoint_keeps_moving(
    groups: InMemoryGroups,
) -> None:
    (warning,) = Alone(groups, *range(5, 20)).warnings
    assert "the checkpoint moved during each of 3 attempts" in warning


# --- another driver lands, mirrors and leaves meanwhile ----------------------------------------

P0, P1 = PARTITIONS


class TwoDrivers:
    """Two drivers with one partition each, and the checkpoint of their table. The group has the
    offsets of a landing before the latest one."""

    def __init__(self, groups: InMemoryGroups, mine: Seat) -> None:
        self.mine = mine
        self.other = Seat(groups, "b")
        until(lambda: mine.keeper.owned == {P0})
        self.offsets = groups.group("g").offsets
        self.offsets |= {P0: 3, P1: 3}
        self.checkpoint = {P0: 5, P1: 5}
        self.marks = {(P0, 3), (P1, 3), (P0, 5), (P1, 5)}
        self.reads = 0

    def read_checkpoint(self) -> dict[Partition, int]:
        self.reads += 1
        return dict(self.checkpoint)

    def land_elsewhere_and_leave(self) -> None:
        """The other driver lands more of its partition, mirrors that and leaves, and the heartbeat
        thread of this one takes part in the rebalance."""
        self.checkpoint[P1] = 9
        self.marks.add((P1, 9))
        self.other.place.mirror(lambda: self.checkpoint, lambda: self.marks, to_the_end=False)
        assert self.offsets[P1] == 9
        self.other.keeper.close()
        until(lambda: self.mine.keeper.owned == {P0, P1})


@pytest.fixture
def two(groups: InMemoryGroups, seat: Seat) -> Iterator[TwoDrivers]:
    found = TwoDrivers(groups, seat)
    yield found
    found.other.keeper.close()


def test_a_checkpoint_of_an_earlier_generation_is_not_committed(two: TwoDrivers) -> None:
    def read_checkpoint() -> dict[Partition, int]:
        found = two.read_checkpoint()
        if two.reads == 1:
            two.land_elsewhere_and_leave()
        return found

    # What the landing before this one knew of: a warning would blame another client.
    two.mine.place.mirror(read_checkpoint, lambda: {(P0, 3), (P1, 3), (P1, 5)}, to_the_end=True)
    assert two.offsets == {P0: 5, P1: 9}
    assert two.reads == 2
    assert two.mine.warnings == []


def test_what_another_driver_has_left_is_mirrored_as_it_is_then(
    two: TwoDrivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        two.land_elsewhere_and_leave()

    monkeypatch.setattr(lease, "time", SimpleNamespace(sleep=sleep))
    two.mine.place.mirror(two.read_checkpoint, lambda: {(P0, 3), (P1, 3), (P1, 5)}, to_the_end=True)
    assert two.offsets == {P0: 5, P1: 9}
    assert (len(pauses), two.reads) == (1, 2)
    assert two.mine.warnings == []


def test_the_checkpoint_is_read_once_where_nobody_is_waited_for(two: TwoDrivers) -> None:
    two.offsets[P1] = 5
    two.mine.place.mirror(two.read_checkpoint, lambda: two.marks, to_the_end=True)
    assert two.offsets == {P0: 5, P1: 5}
    assert two.reads == 1


def test_nothing_landed_is_nothing_to_push(seat: Seat, groups: InMemoryGroups) -> None:
    seat.place.mirror(dict, set, to_the_end=True)
    assert groups.group("g").offsets == {}
