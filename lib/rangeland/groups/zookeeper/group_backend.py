"""The group backend for ZooKeeper, where Jafka and Kafka's old consumers store groups.

A backend has one session for reading, and for writing offsets of groups without members; each
membership has its own session. It connects at the first request. Closing it ends its memberships.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rangeland.dialects.cluster_values import GroupState, GroupView
from rangeland.errors import Conflict
from rangeland.groups.backend import JoinRequest, check_assignment_is_range
from rangeland.groups.zookeeper.member import ZooKeeperMember
from rangeland.groups.zookeeper.membership_view import group_in_use_error, read_group
from rangeland.groups.zookeeper.offset_commits import write_offsets
from rangeland.groups.zookeeper.znode_layout import ids_path, offset_path, parent, read_offset
from rangeland.model import Partition
from rangeland.zookeeper.connect_string import read_ensemble
from rangeland.zookeeper.znodes import Create, Delete, Operation, Reason, Refused
from rangeland.zookeeper.zookeeper_access import ZooKeeperAccess
from rangeland.zookeeper.zookeeper_client import ZooKeeper, connect


class ZooKeeperGroups:
    """A ``GroupBackend``. ``job`` decides in ``view`` which drivers are ours. Raises
    JobFileError if the address is not a valid connect string."""

    def __init__(self, access: ZooKeeperAccess, job: str = "") -> None:
        self.name = f"the ZooKeeper at {read_ensemble(access.servers)}"
        self._access = access
        self._job = job
        self._session: ZooKeeper | None = None
        self._memberships: list[ZooKeeperMember] = []

    def offsets(self, group: str, partitions: Sequence[Partition]) -> dict[Partition, int | None]:
        """The group's offsets. Raises RemoteProtocolError for a node without an offset."""
        paths = {p: offset_path(group, p) for p in partitions}
        zookeeper = self._connect()
        zookeeper.catch_up()
        nodes = zookeeper.read_all(paths.values())
        committed: dict[Partition, int | None] = {}
        for partition, path in paths.items():
            node = nodes[path]
            committed[partition] = None if node is None else read_offset(path, node.content)
        return committed

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Writes offsets of a group without members, all or nothing for up to 500 partitions. More
        partitions take several transactions. Each of them deletes and creates the node of the
        members, and so fails if anybody is registered: a node with children cannot be deleted, and
        nobody can register during the transaction. The node gets the access list that it had;
        ZooKeeper cannot check whether that has been changed meanwhile. Raises AccessDenied if the
        full access list is not shown."""
        if not offsets:
            return
        zookeeper = self._connect()
        ids = ids_path(group)

        def has_no_members(partitions: Sequence[Partition]) -> list[Operation]:
            access_list = zookeeper.access_list(ids)
            if access_list is None:
                zookeeper.make([parent(ids)])
                return [Create(ids)]
            return [Delete(ids), Create(ids, access_list=access_list)]

        def in_use_error(refused: Refused) -> Conflict | None:
            if refused.reason is not Reason.NOT_EMPTY:
                return None
            members = self.view(group).members
            if not members:  # they have left since
                return None
            return group_in_use_error(group, members, "the offsets were not written")

        write_offsets(zookeeper, group, offsets, has_no_members, in_use_error)

    def view(self, group: str) -> GroupView:
        view = read_group(self._connect(), group, self._job)
        return (
            GroupView(GroupState.ABSENT) if view is None else GroupView(view.state, view.holders())
        )

    def join(self, joining: JoinRequest) -> ZooKeeperMember:
        """Joins the group. Raises JobFileError for an assignment other than range."""
        check_assignment_is_range(joining, "in ZooKeeper all members share by range")
        membership = ZooKeeperMember(lambda: connect(self._access, joining.session_ms), joining)
        self._memberships.append(membership)
        try:
            membership.rejoin()
        except BaseException:
            membership.leave()
            raise
        return membership

    def close(self) -> None:
        # An open session would keep its partitions for as long as this process runs.
        for membership in self._memberships:
            membership.leave()
        self._memberships.clear()
        if self._session is not None:
            self._session.close()
            self._session = None

    # --- requests ----------------------------------------------------------------------

    def _connect(self) -> ZooKeeper:
        if self._session is None:
            self._session = connect(self._access)
        return self._session
