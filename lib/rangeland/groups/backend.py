"""The interface of consumer groups, which claim and assign partitions and store offsets for a run.

A *backend* stores groups: Kafka's coordinator, ZooKeeper, or RocketMQ's brokers. A *membership* is
one driver's place in a group: while it is valid, no other member has its partitions. Landing each
record once never depends on any of this.

The backends of Kafka and RocketMQ have no socket and no clock: they send requests through a
``GroupIO``, repeat them while brokers are not ready, and share the errors for refused requests.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol, TypeVar

from rangeland.dialects.cluster_values import GroupView
from rangeland.dialects.error_meaning import ErrorCode
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import Conflict, JobFileError, RangelandError, Unreachable
from rangeland.model import Address, Partition

logger = logging.getLogger(__name__)

LONGEST_BEAT_MS: Final = 3_000
"""A joining member waits until the others hear about it with their next heartbeat."""
BEATS_PER_SESSION: Final = 3
"""As Kafka's documentation recommends, so that two heartbeats may be lost."""
PAUSE_MS: Final = 250
"""A coordinator that moves or loads is ready within seconds."""

T = TypeVar("T")


class HeartbeatStatus(Enum):
    """The result of a heartbeat."""

    HOLDS = "holds"
    REBALANCING = "rebalancing"
    """Members join or leave: give up all partitions and ``rejoin``."""
    LOST = "lost"
    """Others may have its partitions now: commit nothing, and ``rejoin`` as a new member."""


class Fenced(Conflict):
    """This driver is no longer a member of the group, so its commit is refused."""

    data = "what is landed stays landed; the group's offsets were not touched"
    retry = "yes, the next run mirrors the checkpoint"
    acts = "the scheduler"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A driver's request to join. ``partitions`` are all partitions of the job, the same for every
    member. ``assignment`` is range, roundrobin or sticky."""

    group: str
    job: str
    partitions: tuple[Partition, ...]
    assignment: str = "range"
    client_id: str = "rangeland"
    host: str = ""
    session_ms: int = 30_000
    rebalance_ms: int = 60_000


def check_assignment_is_range(joining: JoinRequest, why: str) -> None:
    """Raises JobFileError for an assignment that the backend does not support."""
    if joining.assignment != "range":
        raise JobFileError(
            f"group {joining.group} cannot share partitions by {joining.assignment}",
            why=why,
            do="leave group.assignment out",
            group=joining.group,
        )


class Membership(ABC):
    """One driver's membership. Only ``beat`` may be called from a second thread. This base class
    has what all backends share: the interval of heartbeats, the fields of log lines, and the error
    of a fenced member."""

    def __init__(self, joining: JoinRequest, generation: int = 0) -> None:
        self.joining = joining
        self._generation = generation

    @property
    @abstractmethod
    def member_id(self) -> str: ...

    @property
    @abstractmethod
    def owned(self) -> frozenset[Partition]:
        """The partitions of this generation; empty if there are fewer partitions than members."""

    @abstractmethod
    def beat(self) -> HeartbeatStatus:
        """Sends one heartbeat. Raises Unreachable while the backend does not answer."""

    @abstractmethod
    def rejoin(self) -> None:
        """Takes part in the rebalance; the caller has given up all partitions. Returns
        with a new generation and its partitions. Raises Unreachable or Conflict."""

    @abstractmethod
    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Writes the group's next offsets. Raises Fenced if this generation is over, and
        Unreachable if the backend does not answer; it is then unknown what was written."""

    @abstractmethod
    def leave(self) -> None:
        """Releases its partitions at once, or when the session ends if that fails."""

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def beat_ms(self) -> int:
        """The interval between calls of ``beat``."""
        return max(1, min(LONGEST_BEAT_MS, self.joining.session_ms // BEATS_PER_SESSION))

    def _log_fields(self, partitions: int) -> dict[str, object]:
        fields = {"group": self.joining.group, "member": self.member_id, "partitions": partitions}
        return {**fields, "generation": self._generation}

    def _check_owned(self, offsets: Mapping[Partition, int], owned: Collection[Partition]) -> None:
        """Raises Fenced for an offset of a partition that this member does not have."""
        if foreign := sorted(offsets.keys() - owned):
            raise self._fenced_error(f"{foreign[0]} is not among its partitions")

    def _fenced_error(self, why: str) -> Fenced:
        group = self.joining.group
        member = self.member_id
        generation = self._generation
        facts: dict[str, Any] = {"group": group, "member": member, "generation": generation}
        logger.warning("Fenced: %s", why, extra=facts)
        return Fenced(
            f"member {member or '(none)'} of group {group} is fenced in generation {generation}",
            why=why,
            do="run the job again",
            **facts,
        )


class GroupBackend(Protocol):
    """A store of groups. Every method raises Unreachable if it gets no response."""

    @property
    def name(self) -> str:
        """The backend's name in sentences: ``the coordinator of group g at 127.0.0.1:9092``."""

    def offsets(self, group: str, partitions: Sequence[Partition]) -> dict[Partition, int | None]:
        """The committed offset of each partition; None if there is none."""

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Writes offsets of a group without members. Raises Conflict, naming the members, if it
        has any."""

    def view(self, group: str) -> GroupView: ...

    def join(self, joining: JoinRequest) -> Membership:
        """Joins the group. Raises Conflict, naming the consumers, if any of them holds partitions
        and is not a driver of this job."""

    def close(self) -> None: ...


class GroupIO(Protocol):
    """The I/O that a backend may use."""

    @property
    def seeds(self) -> tuple[Address, ...]: ...
    def ask(self, address: Address, request: BrokerRequest) -> Any:
        """Sends a request to a broker. Raises Unreachable if a reconnect did not help."""

    def ask_all(self, address: Address, requests: Sequence[BrokerRequest]) -> list[Any]:
        """Sends all requests before it reads responses; returns them in the same order."""

    def pause(self, pause_ms: int) -> None: ...
    def now_ms(self) -> int:
        """A monotonic clock; unrelated to the time of day."""

    def close(self) -> None: ...


def ask_until_ready(io: GroupIO, patience_ms: int, attempt: Callable[[], T]) -> T:
    """Returns the result of ``attempt``. Repeats it for ``patience_ms`` as long as it raises
    Unreachable, and then raises that error."""
    deadline_ms = io.now_ms() + patience_ms
    while True:
        try:
            return attempt()
        except Unreachable as error:
            if io.now_ms() >= deadline_ms:
                raise
            logger.debug("Asking again in %d ms: %s", PAUSE_MS, error)
        io.pause(PAUSE_MS)


def not_ready_error(who: str, code: ErrorCode, remark: str = "", **facts: Any) -> Unreachable:
    """The error of a broker that is not ready. ``remark``: the broker's own comment on the code."""
    return Unreachable(
        f"{who} is not ready",
        why=code.describe(remark),
        do="try again in a moment",
        **facts,
        code=code.name,
    )


def group_error(
    code: ErrorCode,
    group: str,
    when: str,
    *,
    failed: str,
    remedies: Mapping[str, str],
    remark: str = "",
) -> RangelandError:
    """The error for a code that the caller does not handle: either the same request would be
    refused again, or the brokers have failed, as the sentence ``failed`` then says. ``when`` is a
    clause for the message. ``remedies``: what to do, by the name of the code."""
    why = f"{code.describe(remark)}, when {when}"
    facts: dict[str, Any] = {"group": group, "code": code.name}
    if code.meaning.is_final:
        remedy = remedies.get(code.name, "check the group and the brokers' settings")
        what = f"the brokers refuse group {group}"
        return code.meaning.refusal_error(what, why=why, do=remedy.format(group=group), **facts)
    return Unreachable(failed, why=why, do="try again in a moment", **facts)
