"""A group's offsets in ZooKeeper: how they are written, and the error if they cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from rangeland.errors import Unreachable
from rangeland.groups.zookeeper.znode_layout import offset_path
from rangeland.model import Partition
from rangeland.zookeeper.znodes import Create, Operation, Refused, Write, Znode

_Item = TypeVar("_Item")

# A transaction is one message, and servers accept up to a megabyte.
_PER_TRANSACTION = 500


def offset_write(
    group: str, partition: Partition, offset: int, nodes: Mapping[str, Znode | None]
) -> Operation:
    """The operation that writes an offset, to the existing node if there is one."""
    path, content = offset_path(group, partition), str(offset).encode()
    return Create(path, content) if nodes[path] is None else Write(path, content)


def offsets_not_written_error(group: str, refused: Refused | None, tries: int) -> Unreachable:
    """The error if offset nodes keep changing while they are written."""
    why = f"{refused.operation.path}: {refused.reason.value}, " if refused else ""
    return Unreachable(
        f"the offsets of group {group} could not be written",
        why=f"{why}{tries} times",
        do="check who else writes them, then run again",
        group=group,
    )


def transaction_sized(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """The items in groups that fit into one transaction each."""
    for first in range(0, len(items), _PER_TRANSACTION):
        yield items[first : first + _PER_TRANSACTION]
