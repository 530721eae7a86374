"""Groups in ZooKeeper: what is read of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from rangeland.dialects.cluster_values import GroupMember, GroupState, GroupView
from rangeland.errors import Conflict
from rangeland.groups.zookeeper import group_backend
from rangeland.groups.zookeeper.group_backend import ZooKeeperGroups
from rangeland.groups.zookeeper.znode_layout import offset_path
from rangeland.model import Partition
from rangeland.zookeeper.znodes import Operation, Reason, Refused, Znode
from rangeland.zookeeper.zookeeper_access import ZooKeeperAccess

P = Partition("orders", 0, "1")


class LaggingServer:
    """Has the group's offset once it has caught up."""

    has_caught_up = False

    def catch_up(self) -> None:
        self.has_caught_up = True

    def read_all(self, paths: Iterable[str]) -> dict[str, Znode | None]:
        node = Znode(b"7", 0, 1, 0) if self.has_caught_up else None
        return {path: node if path == offset_path("g", P) else None for path in paths}


def test_a_server_that_lags_is_not_believed_that_a_group_has_no_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server: Any = LaggingServer()
    monkeypatch.setattr(group_backend, "connect", lambda *about, **settings: server)
    backend = ZooKeeperGroups(ZooKeeperAccess("127.0.0.1:2181"))
    assert backend.offsets("g", [P]) == {P: 7}


class RefusingServer:
    """Refuses a transaction once, since a member was registered at that moment."""

    def __init__(self) -> None:
        self.applied: list[Sequence[Operation]] = []
        self.refusals = 1

    def access_list(self, path: str) -> tuple[()]:
        return ()

    def read_all(self, paths: Iterable[str]) -> dict[str, Znode | None]:
        return {path: Znode(b"7", 0, 1, 0) for path in paths}

    def make(self, paths: Iterable[str]) -> None: ...

    def apply(self, operations: Sequence[Operation]) -> Refused | None:
        self.applied.append(operations)
        self.refusals -= 1
        return Refused(operations[0], Reason.NOT_EMPTY) if self.refusals >= 0 else None


def test_a_member_that_has_left_since_prevents_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    server: Any = RefusingServer()
    monkeypatch.setattr(group_backend, "connect", lambda *about, **settings: server)
    backend = ZooKeeperGroups(ZooKeeperAccess("127.0.0.1:2181"))
    monkeypatch.setattr(backend, "view", lambda group: GroupView(GroupState.EMPTY))
    backend.commit("g", {P: 9})
    assert len(server.applied) == 2
    member = GroupMember("g_host-1")
    monkeypatch.setattr(backend, "view", lambda group: GroupView(GroupState.STABLE, (member,)))
    server.refusals = 1
    with pytest.raises(Conflict, match="it has g_host-1"):
        backend.commit("g", {P: 9})
