"""What a group does for a batch, whoever keeps it: claim, assign, keep offsets.

Three homes, one idea. A *home* is where a group lives: Kafka's coordinator, ZooKeeper,
RocketMQ's brokers. A *membership* is one driver's place in the group: while it holds, its
partitions are nobody else's. Landing never depends on any of it.

A home's code is of its dialect and has no socket and no clock: it asks through an ``GroupIO``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from rangeland.dialects.protocol_session import Question
from rangeland.errors import Conflict
from rangeland.model import Address, Partition


class HeartbeatStatus(Enum):
    """What a heartbeat says."""

    HOLDS = "holds"
    REBALANCING = "rebalancing"
    """Members come or go: give up what is held and ``rejoin``."""
    LOST = "lost"
    """Others may hold its partitions by now: nothing may be committed; ``rejoin`` as new."""


class Fenced(Conflict):
    """This driver has lost its place in the group: what it wanted to write is refused."""

    data = "what is landed stays landed; the group's offsets were not touched"
    retry = "yes, the next run mirrors the checkpoint"
    acts = "the scheduler"


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member as the group's home shows it. ``is_ours``: a driver of the same job."""

    member_id: str
    client_id: str = ""
    host: str = ""
    partitions: frozenset[Partition] = frozenset()
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class GroupView:
    """``state``: empty, stable, rebalancing or unknown to the home (``absent``)."""

    state: str
    members: tuple[GroupMember, ...] = ()

    @property
    def owners(self) -> dict[Partition, GroupMember]:
        return {p: member for member in self.members for p in member.partitions}


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """What a driver says when it joins. ``partitions`` are all that the job reads: each
    member names the same. ``assignment`` is range, roundrobin or sticky."""

    group: str
    job: str
    partitions: tuple[Partition, ...]
    assignment: str = "range"
    client_id: str = "rangeland"
    host: str = ""
    session_ms: int = 30_000
    rebalance_ms: int = 60_000


class Membership(Protocol):
    """One driver's place. Only ``beat`` may be called from another thread than the rest."""

    @property
    def member_id(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def owned(self) -> frozenset[Partition]:
        """Of this generation; empty for a member that there is no work for."""

    @property
    def beat_ms(self) -> int:
        """How often ``beat`` is to be called."""

    def beat(self) -> HeartbeatStatus:
        """One heartbeat. Raises Unreachable while the home cannot be asked."""

    def rejoin(self) -> None:
        """Takes part in the rebalance; whoever calls it has given up all it held. Returns
        with a new generation and its partitions. Raises Unreachable or Conflict."""

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """The group's next offsets. Raises Fenced where this generation is over, Unreachable
        where the home cannot be asked. Nothing is committed then, or it is not known."""

    def leave(self) -> None:
        """Gives its partitions back at once. What fails here ends with the session."""


class GroupBackend(Protocol):
    """Where groups live. Raises Unreachable where it cannot be asked."""

    @property
    def name(self) -> str:
        """For sentences: ``the coordinator of group g at 127.0.0.1:9092``."""

    def offsets(self, group: str, partitions: Sequence[Partition]) -> dict[Partition, int | None]:
        """What the group has committed; None where it has nothing."""

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """For a group that nobody is a member of. Raises Conflict naming the members where
        somebody is."""

    def view(self, group: str) -> GroupView: ...

    def join(self, joining: JoinRequest) -> Membership:
        """Raises Conflict naming who is there where a consumer that is no driver of this job
        holds partitions, Unreachable where the home cannot be asked."""

    def close(self) -> None: ...


class GroupIO(Protocol):
    """What a home may do at the edge."""

    @property
    def seeds(self) -> tuple[Address, ...]: ...
    def ask(self, address: Address, question: Question) -> Any:
        """Raises Unreachable once a reconnect did not help."""

    def ask_all(self, address: Address, questions: Sequence[Question]) -> list[Any]:
        """All of them on their way at once; the answers in the same order."""

    def pause(self, pause_ms: int) -> None: ...
    def now_ms(self) -> int:
        """Never runs backwards; says nothing about the time of day."""

    def close(self) -> None: ...
