"""Who serves a slice: its partition's leader, or for a while a replica that it names.

A broker may say that another replica should be read: one in the client's rack, or one that
spares the leader's disk. It is read there until the detour's time is up, and then the leader
is asked again. At any trouble the way leads back to the leader at once, and for as long no
other replica is tried, so that nothing goes round in circles. A replica may be behind: what
is missing from a log is only ever told by the leader's own answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rangeland.model import Address, Leader

DETOUR_MS = 300_000
"""How long a replica is read before the leader is asked again, and how long the leader is
read after a replica was no good. As long as Kafka's own clients believe their metadata."""


class ReplicaMove(Enum):
    STAY = "the same broker is asked next"
    ELSEWHERE = "another broker is asked next"
    FIND = "the replica's address must be found first"


@dataclass(slots=True)
class ServingReplica:
    """``leader_id``: the id of every partition's leader, where it is always the same.
    ``stays``: only the leader is read, whatever it says. ``is_told``: metadata has named the
    leader; before, it is who led when the plan was made."""

    leader: Leader
    leader_id: int | None = None
    replica: Address | None = None
    looked_for: int | None = None
    stays: bool = False
    is_told: bool = False
    until_ms: int = 0

    @property
    def address(self) -> Address | None:
        """Whom to ask next."""
        return self.replica or self.leader.address

    @property
    def is_leader(self) -> bool:
        """Whether the answers are the leader's own."""
        return self.replica is None and not self.leader.is_replica

    def pass_time(self, now_ms: int) -> None:
        """Ends what only holds for a while."""
        if now_ms >= self.until_ms:
            self.replica = None
            self.stays = False

    def prefer(self, replica_id: int, now_ms: int) -> ReplicaMove:
        """Takes what the present broker says of who should be read."""
        address = self._address_of(replica_id)
        if self.stays or (address is not None and address == self.address):
            return ReplicaMove.STAY
        if replica_id == self.leader_id and self.is_leader:
            return ReplicaMove.STAY
        if address is None:
            self.looked_for = replica_id
            return ReplicaMove.FIND
        self._read_at(address, now_ms)
        return ReplicaMove.ELSEWHERE

    def on_leader(self, found: Leader, now_ms: int) -> None:
        """Metadata came. A replica that it does not have is not looked for again for a while."""
        self.leader, self.replica, self.is_told = found, None, True
        if self.looked_for is None:
            return
        address = self._address_of(self.looked_for)
        self.looked_for = None
        if address is None:
            self.go_back(now_ms)
        else:
            self._read_at(address, now_ms)

    def go_back(self, now_ms: int) -> None:
        """The replica is no good: the leader alone is read for a while."""
        self.replica = None
        self.stays = True
        self.until_ms = now_ms + DETOUR_MS

    def _read_at(self, address: Address, now_ms: int) -> None:
        self.replica = None if address == self.leader.address else address
        self.until_ms = now_ms + DETOUR_MS

    def _address_of(self, replica_id: int) -> Address | None:
        if replica_id == self.leader_id and not self.leader.is_replica:
            return self.leader.address
        ids = self.leader.replica_ids
        return self.leader.replicas[ids.index(replica_id)] if replica_id in ids else None
