"""Which broker serves a slice: its partition's leader, or for a while a replica that the leader
names; and what the responses prove (``Sender``).

A broker may name another replica to read: one in the client's rack, or one that spares the leader's
disk. That replica is read for ``DETOUR_MS``; then the leader is asked again. After any failure the
leader is read at once. For the same time it is then asked without a rack, and no other replica is
tried, so that reading does not go in circles. If only a replica is left, records that it lacks are
unreachable, never lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from rangeland.dialects.capabilities import Capabilities
from rangeland.model import Address, Leader, Slice

DETOUR_MS = 300_000
"""How long a replica is read before the leader is asked again, and how long only the leader is
read after a replica has failed: the default ``metadata.max.age.ms`` of Kafka's clients."""


class Sender(Enum):
    """What is known about the sender of a response, and so what the response proves. Each proves
    everything that the ones below it prove; intact records are accepted from all of them."""

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
        """Whether records that it sends damaged are damaged in the log, and its refusals are
        final."""
        return self.proves_end or self is Sender.ONLY_BROKER

    @property
    def proves_range(self) -> bool:
        """Whether it knows where the log begins, so that earlier offsets have expired."""
        return self.proves_damage or self is Sender.UNCONFIRMED_LEADER


@dataclass(slots=True)
class ServingBroker:
    """The replica that one slice is read from."""

    leader: Leader
    capabilities: Capabilities = field(default_factory=Capabilities)
    replica: Address | None = None
    wanted_replica: int | None = None
    """The id of the replica to read once metadata has its address."""
    leader_only: bool = False
    """Only the leader is read, for a second time."""
    stays: bool = False
    """For now only the leader is read, whatever replica it names."""
    is_confirmed: bool = False
    """Metadata has named the leader. Until then the plan or another broker has."""
    until_ms: int = 0

    @property
    def address(self) -> Address | None:
        """The broker to ask next."""
        return self.replica or self.leader.address

    @property
    def sender(self) -> Sender:
        """The sender of its responses."""
        capabilities = self.capabilities
        if self.replica is not None or self.leader.is_replica:
            return Sender.REPLICA
        if self.is_confirmed:
            return Sender.LEADER_AGAIN if self.leader_only else Sender.LEADER
        if capabilities.leader_id is not None:  # a replica may stand in for a missing leader
            return Sender.LEADER_OR_REPLICA
        return Sender.ONLY_BROKER if capabilities.numbered_per_broker else Sender.UNCONFIRMED_LEADER

    def expire(self, now_ms: int) -> None:
        """Ends a detour, or a period without detours, once its time is over."""
        if now_ms >= self.until_ms and not self.leader_only:
            self.replica = None
            self.stays = False

    def prefer(self, replica_id: int, now_ms: int) -> bool:
        """Turns to the replica that the current broker prefers, or lets its address be found first.
        False if it is read already, or may not be read now."""
        address = self._address_of(replica_id)
        if self.stays or (address is not None and address == self.address):
            return False
        if replica_id == self.capabilities.leader_id and self.sender is not Sender.REPLICA:
            return False
        if address is None:
            self.wanted_replica = replica_id
        else:
            self._read_at(address, now_ms)
        return True

    def on_leader(self, leader: Leader, now_ms: int) -> None:
        """Reads the leader that metadata names, or the replica that was looked for. If metadata
        does not have that one, it is not looked for again for a while."""
        self.leader, self.replica, self.is_confirmed = leader, None, True
        if self.wanted_replica is None:
            return
        address = self._address_of(self.wanted_replica)
        self.wanted_replica = None
        if address is None:
            self.return_to_leader(now_ms)
        else:
            self._read_at(address, now_ms)

    def is_newer(self, hint: Leader) -> bool:
        """Whether the broker names another leader, of a later epoch than the known one."""
        leader = self.leader
        is_later = hint.epoch is not None and (leader.epoch is None or hint.epoch > leader.epoch)
        return is_later and hint.address not in (None, leader.address)

    def follow_hint(self, hint: Leader) -> None:
        """Reads the new leader that another broker has named, which saves a metadata request. The
        name is unconfirmed, so only the first failure follows a hint: a wrong one costs one
        round."""
        self.leader = replace(self.leader, address=hint.address, epoch=hint.epoch)
        self.replica, self.is_confirmed = None, False

    def return_to_leader(self, now_ms: int) -> None:
        """Reads only the leader for a while, after a replica has failed."""
        self.replica = None
        self.stays = True
        self.until_ms = now_ms + DETOUR_MS

    def _read_at(self, address: Address, now_ms: int) -> None:
        self.replica = None if address == self.leader.address else address
        self.until_ms = now_ms + DETOUR_MS

    def _address_of(self, replica_id: int) -> Address | None:
        if replica_id == self.capabilities.leader_id and not self.leader.is_replica:
            return self.leader.address
        ids = self.leader.replica_ids
        return self.leader.replicas[ids.index(replica_id)] if replica_id in ids else None


def initial_broker(
    slice_: Slice, capabilities: Capabilities, *, leader_only: bool
) -> ServingBroker:
    """The replica to begin with: the leader that the plan names, if any."""
    leader = Leader(slice_.leader, topic_id=slice_.topic_id)
    return ServingBroker(leader, capabilities, leader_only=leader_only, stays=leader_only)
