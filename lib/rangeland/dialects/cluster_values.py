"""Facts that the driver learns about a cluster: leaders, topics, offsets, cleanup policies,
groups."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import JobFileError, RangelandError, Unreachable
from rangeland.model import Address, Leader, Partition


@dataclass(frozen=True, slots=True)
class LeaderRequest:
    """Requests for a single broker: all of them go to the first of ``seeds`` that answers."""

    seeds: tuple[Address, ...]
    requests: tuple[BrokerRequest, ...]


@dataclass(frozen=True, slots=True)
class NoSeedAnswered:
    """None of the seeds answered. ``tried`` maps each address to the reason. ``not_brokers`` is how
    many of them speak another protocol."""

    tried: Mapping[Address, str]
    not_brokers: int = 0

    @staticmethod
    def join_all(silences: Collection[NoSeedAnswered]) -> NoSeedAnswered:
        reasons = {
            address: reason for silence in silences for address, reason in silence.tried.items()
        }
        return NoSeedAnswered(reasons, sum(silence.not_brokers for silence in silences))

    def as_error(self) -> RangelandError:
        """The error for a search that no broker answered: lists every address with its reason."""
        reasons = {str(address): reason for address, reason in self.tried.items()}
        why = "; ".join(f"{address}: {reason}" for address, reason in reasons.items())
        if reasons and self.not_brokers == len(reasons):
            return JobFileError(
                "no server answers as a broker does",
                why=why,
                do="check host, port and security in source",
                tried=reasons,
            )
        return Unreachable(
            f"no broker could be reached, {len(reasons)} tried",
            why=why,
            do="check source.servers, the network and that the brokers are up, then run again",
            tried=reasons,
        )


class RestartRequired(Unreachable):
    """A broker says that what this client knows about its cluster is out of date: the client must
    find the brokers again, starting from the servers that the job names."""


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic as the metadata shows it."""

    name: str
    meaning: ErrorMeaning
    code_name: str
    """The name of the topic's own error code; empty if it has none."""
    is_internal: bool = False
    leaders: Mapping[Partition, Leader] = field(default_factory=dict)
    is_unknown: bool = False
    """The broker does not know the topic."""
    may_be_hidden: bool = False
    """The topic may exist even though this client is not allowed to see it; the broker does not say
    which is the case."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The brokers of a cluster, and the leaders of its partitions."""

    brokers: tuple[Address, ...]
    topics: Mapping[str, TopicView]
    unreachable: Mapping[str, str] = field(default_factory=dict)
    """The brokers that did not list their partitions, by the name that they have in partitions,
    each with the reason."""
    answered_by: Address | None = None
    """The broker that was asked last."""
    registered: frozenset[str] = frozenset()
    """The brokers that are known to exist, even if they have no requested partition."""
    has_no_brokers: bool = False
    """All brokers may be down, so a topic that seems unknown may exist."""
    cluster_id: str = ""
    """The cluster's permanent id; empty if its brokers do not report one."""


Search = Generator[LeaderRequest, "list[Any] | NoSeedAnswered", ClusterView]
"""A search for leaders: yields what to ask, is sent the responses, and returns what it found."""


@dataclass(frozen=True, slots=True)
class OffsetResult:
    """A broker's response to a request for an offset: by time, or of one end of a log."""

    meaning: ErrorMeaning
    code_name: str
    """The name of the error code, with whatever the broker says about it."""
    offset: int | None
    """The offset; None if no record is that late, or for the reason that ``meaning`` gives."""
    is_exact: bool = True
    """False: all that the broker knows is that the offset is at or before the time."""
    borders: tuple[int, ...] = ()
    """Offsets at which entries are known to begin, sorted."""
    time_ms: int | None = None
    """The time of the record at the offset, if the broker reports it."""


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """Whether a topic's log may have gaps; None if the broker does not say. ``evidence`` is its
    answer in words."""

    compacts: bool | None
    evidence: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member of a group, according to the group's backend. ``is_ours``: a driver of the same
    job."""

    member_id: str
    client_id: str = ""
    host: str = ""
    partitions: frozenset[Partition] = frozenset()
    is_ours: bool = False


class GroupState(StrEnum):
    """The state of a group, according to its backend."""

    EMPTY = "empty"
    STABLE = "stable"
    REBALANCING = "rebalancing"
    ABSENT = "absent"
    """The backend does not know the group."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group, according to its backend."""

    state: GroupState
    members: tuple[GroupMember, ...] = ()

    @property
    def owners(self) -> dict[Partition, GroupMember]:
        return {p: member for member in self.members for p in member.partitions}
