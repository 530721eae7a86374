"""Nodes as ZooKeeper keeps them, and what a transaction can do to them: values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Znode:
    """``created`` is the number of the transaction that made it: another node of the same
    path has another. ``session`` is that which holds it, 0 for a persistent node."""

    content: bytes
    version: int
    created: int
    session: int


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    content: bytes = b""
    ephemeral: bool = False


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
    """``version`` -1: whatever it is."""

    path: str
    version: int = -1


Operation = Create | Write | Check | Delete


class Reason(Enum):
    """Why a transaction was not applied."""

    ABSENT = "there is no such node"
    EXISTS = "the node is there already"
    CHANGED = "the node has another version"
    NOT_EMPTY = "there are nodes below it"


@dataclass(frozen=True, slots=True)
class Refused:
    """The first operation of a transaction that could not be done; none of them was."""

    operation: Operation
    reason: Reason
