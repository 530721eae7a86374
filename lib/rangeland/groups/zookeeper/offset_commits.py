"""Writes a group's offsets to ZooKeeper, and makes the error if they cannot be written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from rangeland.errors import RangelandError, Unreachable
from rangeland.groups.zookeeper.znode_layout import offset_path, parent
from rangeland.model import Partition
from rangeland.zookeeper.znodes import Create, Operation, Refused, Write
from rangeland.zookeeper.zookeeper_client import ZooKeeper

TRIES = 10
"""How often operations are tried while others are changing the same nodes."""
# A transaction is one message, and servers accept up to a megabyte.
_PER_TRANSACTION = 500

_Item = TypeVar("_Item")


def write_offsets(
    zookeeper: ZooKeeper,
    group: str,
    offsets: Mapping[Partition, int],
    guard: Callable[[Sequence[Partition]], list[Operation]],
    guard_error: Callable[[Refused], RangelandError | None],
) -> None:
    """Writes the offsets, up to 500 of them in one transaction. ``guard`` returns operations that
    fail if these partitions may not be written now, and ``guard_error`` returns the error if one of
    them was refused. Raises that error, and Unreachable."""
    for part in transaction_sized(sorted(offsets)):
        refused: Refused | None = None
        for _ in range(TRIES):
            guarding = guard(part)
            writes = _offset_writes(zookeeper, group, {p: offsets[p] for p in part})
            refused = zookeeper.apply([*guarding, *writes])
            if refused is None:
                break
            if (error := guard_error(refused)) is not None:
                raise error
        else:
            raise _not_written_error(group, refused)


def _offset_writes(
    zookeeper: ZooKeeper, group: str, offsets: Mapping[Partition, int]
) -> list[Operation]:
    """The operations that write offsets, to the existing nodes where there are any."""
    contents = {offset_path(group, p): str(offset).encode() for p, offset in offsets.items()}
    nodes = zookeeper.read_all(contents)
    zookeeper.make(parent(path) for path, node in nodes.items() if node is None)
    return [
        Create(path, content) if nodes[path] is None else Write(path, content)
        for path, content in contents.items()
    ]


def _not_written_error(group: str, refused: Refused | None) -> Unreachable:
    """The error if offset nodes keep changing while they are written."""
    why = f"{refused.operation.path}: {refused.reason.value}, " if refused else ""
    return Unreachable(
        f"the offsets of group {group} could not be written",
        why=f"{why}{TRIES} times",
        do="check who else writes them, then run again",
        group=group,
    )


def transaction_sized(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """The items in groups that fit into one transaction each."""
    for first in range(0, len(items), _PER_TRANSACTION):
        yield items[first : first + _PER_TRANSACTION]
