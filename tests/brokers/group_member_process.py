"""A driver that only stays in a group and commits, until it is fenced.

``python -m tests.brokers.group_member_process ZOOKEEPER GROUP JOB SESSION_MS PARTITION...`` prints
its partitions, then commits a rising number for each of them, many times a second, whatever its
heartbeats return. Only the fence stops it; its exit code is then 3.
"""

from __future__ import annotations

import sys
import time
from itertools import count

from rangeland.errors import Unreachable
from rangeland.groups.backend import Fenced, HeartbeatStatus, JoinRequest
from rangeland.groups.zookeeper.group_backend import ZooKeeperGroups
from rangeland.groups.zookeeper.member import ZooKeeperMember
from rangeland.groups.zookeeper.znode_layout import partition_name, read_partition
from rangeland.model import Partition
from rangeland.zookeeper.zookeeper_access import ZooKeeperAccess

FENCED = 3
TOPIC = "orders"


def main(zookeeper: str, group: str, job: str, session_ms: str, *names: str) -> int:
    partitions = tuple(p for name in names if (p := read_partition(TOPIC, name)) is not None)
    membership = ZooKeeperGroups(ZooKeeperAccess(zookeeper), job).join(
        JoinRequest(group, job, partitions, session_ms=int(session_ms))
    )
    _say("holds", membership.owned)
    for number in count(1):
        try:
            membership.commit(dict.fromkeys(membership.owned, number))
        except Fenced as fence:
            print("fenced:", fence, flush=True)
            return FENCED
        if _beat(membership) is HeartbeatStatus.REBALANCING:
            membership.rejoin()
            _say("holds", membership.owned)
        time.sleep(0.02)
    return 0


def _beat(membership: ZooKeeperMember) -> HeartbeatStatus | None:
    try:
        return membership.beat()
    except Unreachable:  # asked before a pause, and no response in time
        return None


def _say(word: str, partitions: frozenset[Partition]) -> None:
    print(word, *sorted(map(partition_name, partitions)), flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
