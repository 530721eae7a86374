"""A driver stays in its group, leaves it when it must, and notices when it has lost its
membership.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from rangeland.errors import Unreachable
from rangeland.groups.backend import Fenced, HeartbeatStatus, JoinRequest
from rangeland.job_group.heartbeat_thread import HeartbeatThread
from rangeland.model import Partition
from rangeland.testing.processes import PATIENCE_S
from tests.fakes.group_backend import InMemoryGroupBackend, InMemoryGroups

PARTITIONS = tuple(Partition("t", n) for n in range(4))
ALL = frozenset(PARTITIONS)
SESSION_MS = 2_000


def until(happened: Callable[[], Any], within_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + within_s
    while not happened():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.01)


class Drivers:
    """Keepers on one server; closed at the end of a test."""

    def __init__(self) -> None:
        self.groups = InMemoryGroups()
        self.backends: dict[str, InMemoryGroupBackend] = {}
        self.keepers: list[HeartbeatThread] = []

    def join(self, name: str) -> HeartbeatThread:
        backend = self.backends[name] = InMemoryGroupBackend(self.groups, name)
        joining = JoinRequest("g", "job", PARTITIONS, session_ms=SESSION_MS, rebalance_ms=6_000)
        keeper = HeartbeatThread(backend.join(joining))
        self.keepers.append(keeper)
        return keeper

    def has_beaten(self, name: str, beats: int) -> bool:
        return self.backends[name].memberships[0].beats >= beats


@pytest.fixture
def drivers() -> Iterator[Drivers]:
    found = Drivers()
    yield found
    for keeper in found.keepers:
        keeper.close()


def test_a_driver_that_reads_nothing_takes_part_in_a_rebalance_by_itself(drivers: Drivers) -> None:
    one = drivers.join("a")
    assert one.owned == ALL
    other = drivers.join("b")
    assert one.owned | other.owned == ALL
    assert not one.owned & other.owned
    assert not one.must_stop


def test_a_driver_that_reads_is_told_to_stop_and_waited_for(drivers: Drivers) -> None:
    one = drivers.join("a")
    joined: list[HeartbeatThread] = []
    with one.hold_assignment():
        thread = threading.Thread(target=lambda: joined.append(drivers.join("b")))
        thread.start()
        until(lambda: one.must_stop)
        time.sleep(0.1)
        assert one.owned == ALL
        assert not joined
    one.join_rebalance()
    thread.join(60)
    assert len(one.owned) == len(joined[0].owned) == 2


def test_a_driver_that_reads_on_during_a_rebalance_is_told_to_stop_for_longer_than_a_session(
    drivers: Drivers,
) -> None:
    one = drivers.join("a")
    with one.hold_assignment():
        thread = threading.Thread(target=drivers.join, args=("b",))
        thread.start()
        until(lambda: one.must_stop)
        time.sleep(SESSION_MS / 1000 * 1.5)
        assert one.membership_error is None
        assert one.must_stop
    one.join_rebalance()
    thread.join(60)


def test_a_driver_that_reads_on_without_its_membership_is_told_to_stop_as_long(
    drivers: Drivers,
) -> None:
    one = drivers.join("a")
    with one.hold_assignment():
        drivers.backends["a"].is_cut = True
        drivers.join("b")  # waits until the session of the first is over
        until(lambda: one.membership_error)
        drivers.backends["a"].is_cut = False
        until(lambda: one.must_stop)
        time.sleep(SESSION_MS / 1000 * 1.5)
        assert one.membership_error is None
        assert one.must_stop
        with pytest.raises(Fenced):
            drivers.backends["a"].memberships[0].commit({PARTITIONS[0]: 1})


def test_a_driver_that_cannot_rejoin_is_no_member_a_session_later(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = drivers.join("a")
    membership = drivers.backends["a"].memberships[0]

    def refuse() -> None:
        raise Unreachable("a partition could not be claimed")

    monkeypatch.setattr(membership, "rejoin", refuse)
    monkeypatch.setattr(membership, "beat", lambda: HeartbeatStatus.LOST)
    until(lambda: one.membership_error, within_s=10)
    assert "could not be claimed" in str(one.membership_error)
    assert not one.must_stop


def test_a_rebalance_is_logged_once_however_long_the_driver_reads(
    drivers: Drivers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rangeland")
    one = drivers.join("a")
    for name in ("b", "c"):
        with one.hold_assignment():
            thread = threading.Thread(target=drivers.join, args=(name,))
            thread.start()
            until(lambda: one.must_stop)
            beats = drivers.backends["a"].memberships[0].beats + 4
            until(partial(drivers.has_beaten, "a", beats))
        one.join_rebalance()
        thread.join(60)
    mine = [r for r in caplog.records if vars(r).get("member") == one.member_id]
    assert [r.getMessage() for r in mine] == ["Found the group rebalancing"] * 2


def test_what_a_silent_driver_held_is_the_others(drivers: Drivers) -> None:
    one, other = drivers.join("a"), drivers.join("b")
    drivers.backends["b"].is_cut = True
    until(lambda: one.owned == ALL)
    until(lambda: other.membership_error)
    assert not other.must_stop  # it goes on by itself


def test_silence_of_the_group_backend_is_borne_for_a_session_and_no_longer(
    drivers: Drivers,
) -> None:
    one = drivers.join("a")
    drivers.groups.is_down = True
    time.sleep(SESSION_MS / 1000 / 2)
    assert one.membership_error is None
    until(lambda: one.membership_error)
    assert "cannot be reached" in str(one.membership_error)
    drivers.groups.is_down = False
    until(lambda: one.membership_error is None)
    assert one.owned == ALL


def test_a_member_whose_partitions_others_have_taken_cannot_commit_what_is_theirs(
    drivers: Drivers,
) -> None:
    one = drivers.join("a")
    late = drivers.backends["a"].memberships[0]
    with one.hold_assignment():
        drivers.backends["a"].is_cut = True
        other = drivers.join("b")  # waits until the session of the first is over
        assert other.owned == ALL
        drivers.backends["a"].is_cut = False
        with pytest.raises(Fenced):
            late.commit({PARTITIONS[0]: 1})
    offsets = drivers.groups.group("g").offsets
    with pytest.raises(Fenced):  # others may have landed more: it joins again, and looks first
        one.commit(dict.fromkeys(PARTITIONS, 7))
    assert offsets == {}
    assert len(one.owned) == 2
    one.commit(dict.fromkeys(one.owned, 9))
    assert offsets == dict.fromkeys(one.owned, 9)


def test_an_unreachable_group_backend_says_so_when_something_is_to_be_committed(
    drivers: Drivers,
) -> None:
    one = drivers.join("a")
    drivers.groups.is_down = True
    with pytest.raises(Unreachable):
        one.commit({PARTITIONS[0]: 1})


def test_a_driver_that_ends_gives_its_partitions_back_at_once(drivers: Drivers) -> None:
    one, other = drivers.join("a"), drivers.join("b")
    other.close()
    assert any(line.endswith("left") for line in drivers.groups.log)
    until(lambda: one.owned == ALL)
