"""Groups in ZooKeeper: what is read of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from rangeland.groups.zookeeper import group_backend
from rangeland.groups.zookeeper.group_backend import ZooKeeperGroups
from rangeland.groups.zookeeper.znode_layout import offset_path
from rangeland.model import Partition
from rangeland.zookeeper.znodes import Znode
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
