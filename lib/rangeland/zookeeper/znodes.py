"""ZooKeeper's nodes, and the operations of a transaction: values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Znode:
    """One node. ``created`` is the number of the transaction that created it: a later node with the
    same path has a different number. ``session`` is the owner of an ephemeral node, 0 for a
    persistent one."""

    content: bytes
    version: int
    created: int
    session: int


@dataclass(frozen=True, slots=True)
class AccessRule:
    """What a user may do with a node, in the form that ZooKeeper stores. The form of ``user``
    depends on the ``scheme``; ``permissions`` are bits."""

    permissions: int
    scheme: str
    user: str


AccessList = tuple[AccessRule, ...]


@dataclass(frozen=True, slots=True)
class Create:
    """Creates a node. ``access_list`` None: everyone may do everything with it."""

    path: str
    content: bytes = b""
    ephemeral: bool = False
    access_list: AccessList | None = None


@dataclass(frozen=True, slots=True)
class Write:
    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a node. ``version`` -1: any version."""

    path: str
    version: int = -1


Operation = Create | Write | Check | Delete


class Reason(Enum):
    """Why a transaction was not applied."""

    ABSENT = "there is no such node"
    EXISTS = "the node exists already"
    CHANGED = "the node has another version"
    NOT_EMPTY = "there are nodes below it"


@dataclass(frozen=True, slots=True)
class Refused:
    """The operation that made a transaction fail; none of its operations was applied."""

    operation: Operation
    reason: Reason
