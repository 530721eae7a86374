"""Decides which broker serves a slice, and what its responses prove (``Sender``). A table of modes
(``ReadMode``) chooses between the partition's leader and, for a while, a replica it names.

A broker may name another replica to read: one in the client's rack, or one that spares the leader's
disk. Reading that replica is a detour: after ``DETOUR_MS`` the leader is asked again. After any
failure, the leader is read at once. Then, for the same time, it is asked without a rack and no
other replica is tried, so that reading does not go in circles. If only a replica is left, records
that it lacks are unreachable, never lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from rangeland.dialects.capabilities import Capabilities
from rangeland.model import Address, Leader, Slice

DETOUR_MS = 300_000
"""How long a replica is read before the leader is asked again, and how long only the leader is
read after a replica has failed: the default ``metadata.max.age.ms`` of Kafka's clients."""


class Sender(Enum):
    """What is known about the sender of a response, and so what the response proves. Each kind
    proves everything that the kinds below it prove; intact records are accepted from all."""

    LEADER_AGAIN = "the leader that metadata names, asked once more for the same offsets"
    LEADER = "the leader that metadata names"
    ONLY_BROKER = "metadata has not named it yet, but no other broker has the partition"
    UNCONFIRMED_LEADER = (
        "the plan or another broker named it. If it has become a follower, it still answers "
        "fetches, but not the question where the log begins and ends"
    )
    LEADER_OR_REPLICA = "the plan has named it. If it is a replica, it answers any question"
    REPLICA = "a replica, which may lag, so that not even an empty response means anything"

    @property
    def proves_gap(self) -> bool:
        """Whether the log lacks the offsets that are missing between two of its entries."""
        return self is Sender.LEADER_AGAIN

    @property
    def proves_end(self) -> bool:
        """Whether the log ends where it reports, though it may have to report it again."""
        return self in (Sender.LEADER_AGAIN, Sender.LEADER)

    @property
    def proves_damage(self) -> bool:
        """Whether records that it sends damaged are damaged in the log, and whether its refusals
        are final."""
        return self.proves_end or self is Sender.ONLY_BROKER

    @property
    def proves_range(self) -> bool:
        """Whether it knows where the log begins, so that earlier offsets have expired."""
        return self.proves_damage or self is Sender.UNCONFIRMED_LEADER


class ReadMode(Enum):
    """Which broker is read, and until when."""

    LEADER = "the leader, until it names a replica"
    SEARCHING = "nobody, until metadata has the address of a replica"
    DETOUR = "a replica, until its time is over or it fails"
    NO_DETOUR = "the leader, whatever replica it names, until its time is over"
    LEADER_ONLY = "the leader, whatever replica it names: a slice is read for the second time"


class ReplicaEvent(Enum):
    KNOWN = "a replica is named, and its address is known"
    UNKNOWN = "a replica is named, and its address is unknown"
    IS_LEADER = "the replica that is named is the leader"
    FAILED = "the replica that is read returned nothing usable"
    TIME_OVER = "the time of the mode is over"


_TABLE: Final[Mapping[ReadMode, Mapping[ReplicaEvent, ReadMode]]] = {
    ReadMode.LEADER: {
        ReplicaEvent.KNOWN: ReadMode.DETOUR,
        ReplicaEvent.UNKNOWN: ReadMode.SEARCHING,
    },
    ReadMode.SEARCHING: {
        ReplicaEvent.KNOWN: ReadMode.DETOUR,
        ReplicaEvent.UNKNOWN: ReadMode.NO_DETOUR,
        ReplicaEvent.IS_LEADER: ReadMode.LEADER,
    },
    ReadMode.DETOUR: {
        ReplicaEvent.KNOWN: ReadMode.DETOUR,
        ReplicaEvent.UNKNOWN: ReadMode.SEARCHING,
        ReplicaEvent.IS_LEADER: ReadMode.LEADER,
        ReplicaEvent.FAILED: ReadMode.NO_DETOUR,
        ReplicaEvent.TIME_OVER: ReadMode.LEADER,
    },
    ReadMode.NO_DETOUR: {ReplicaEvent.TIME_OVER: ReadMode.LEADER},
    ReadMode.LEADER_ONLY: {},
}
"""An event that a mode does not list changes nothing."""


@dataclass(slots=True)
class ServingBroker:
    """The broker that one slice is read from."""

    leader: Leader
    capabilities: Capabilities = field(default_factory=Capabilities)
    mode: ReadMode = ReadMode.LEADER
    replica_id: int = -1
    """The replica that a ``DETOUR`` reads, or that ``SEARCHING`` is about."""
    until_ms: int = 0
    """When the ``DETOUR`` or ``NO_DETOUR`` is over."""
    is_confirmed: bool = False
    """Metadata has named the leader; until then, only the plan or another broker has named it."""
    known_epoch: int | None = None
    """The highest leader epoch that the plan or metadata has named."""

    @property
    def address(self) -> Address | None:
        """The broker to ask next."""
        is_detour = self.mode is ReadMode.DETOUR
        return self._address_of(self.replica_id) if is_detour else self.leader.address

    @property
    def stays(self) -> bool:
        """Only the leader is read for now, whatever replica it names."""
        return self.mode in (ReadMode.NO_DETOUR, ReadMode.LEADER_ONLY)

    @property
    def sender(self) -> Sender:
        """The sender of its responses."""
        if self.mode is ReadMode.DETOUR or self.leader.is_replica:
            return Sender.REPLICA
        if self.is_confirmed:
            is_again = self.mode is ReadMode.LEADER_ONLY
            return Sender.LEADER_AGAIN if is_again else Sender.LEADER
        if self.capabilities.leader_id is not None:  # a replica may stand in for a missing leader
            return Sender.LEADER_OR_REPLICA
        is_only = self.capabilities.numbered_per_broker
        return Sender.ONLY_BROKER if is_only else Sender.UNCONFIRMED_LEADER

    def expire(self, now_ms: int) -> None:
        """Ends a detour, or a period without detours, once its time is over."""
        if now_ms >= self.until_ms:
            self._turn(ReplicaEvent.TIME_OVER, now_ms)

    def prefer(self, replica_id: int, now_ms: int) -> bool:
        """Turns to the replica that the current broker prefers, or first has its address looked up.
        False if it is already being read, or may not be read now."""
        if self._address_of(replica_id) == self.address:
            return False
        return self._turn_to(replica_id, now_ms)

    def on_leader(self, leader: Leader, now_ms: int) -> None:
        """Reads the leader that metadata names, or the replica that was looked for. If metadata
        lacks that replica, it is not looked for again for a while."""
        self.leader = leader
        self.is_confirmed = True
        if leader.epoch is not None:
            self.known_epoch = max(leader.epoch, self.known_epoch or 0)
        if self.mode is ReadMode.SEARCHING:
            self._turn_to(self.replica_id, now_ms)

    def is_deposed(self, leader: Leader) -> bool:
        """Whether metadata names the leader of an earlier epoch than the known one. Such a broker
        may still consider itself the leader, and have different records at the same offsets."""
        known = self.known_epoch
        return known is not None and leader.epoch is not None and leader.epoch < known

    def is_newer(self, hint: Leader) -> bool:
        """Whether the broker names another leader, with a later epoch than the known one."""
        leader = self.leader
        is_later = hint.epoch is not None and (leader.epoch is None or hint.epoch > leader.epoch)
        return is_later and hint.address not in (None, leader.address)

    def follow_hint(self, hint: Leader) -> None:
        """Reads the new leader that another broker has named, which saves a metadata request."""
        self.leader = replace(self.leader, address=hint.address, epoch=hint.epoch)
        self.is_confirmed = False

    def return_to_leader(self, now_ms: int) -> None:
        """Reads only the leader for a while, after a replica has failed."""
        self._turn(ReplicaEvent.FAILED, now_ms)

    def _turn_to(self, replica_id: int, now_ms: int) -> bool:
        has_turned = self._turn(self._event_of(self._address_of(replica_id)), now_ms)
        if has_turned:
            self.replica_id = replica_id
        return has_turned

    def _event_of(self, address: Address | None) -> ReplicaEvent:
        if address is None:
            return ReplicaEvent.UNKNOWN
        is_leader = address == self.leader.address
        return ReplicaEvent.IS_LEADER if is_leader else ReplicaEvent.KNOWN

    def _turn(self, event: ReplicaEvent, now_ms: int) -> bool:
        """Takes one transition of the table, if there is one. Returns whether there was."""
        mode = _TABLE[self.mode].get(event)
        if mode is not None:
            self.mode = mode
            self.until_ms = now_ms + DETOUR_MS
        return mode is not None

    def _address_of(self, replica_id: int) -> Address | None:
        if replica_id == self.capabilities.leader_id and not self.leader.is_replica:
            return self.leader.address
        ids = self.leader.replica_ids
        return self.leader.replicas[ids.index(replica_id)] if replica_id in ids else None


def initial_broker(
    slice_: Slice, capabilities: Capabilities, *, leader_only: bool
) -> ServingBroker:
    """The broker to begin with: the leader that the plan names, if any."""
    leader = Leader(slice_.leader, slice_.leader_epoch, slice_.topic_id)
    mode = ReadMode.LEADER_ONLY if leader_only else ReadMode.LEADER
    return ServingBroker(leader, capabilities, mode, known_epoch=slice_.leader_epoch)
