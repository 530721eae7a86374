"""What brokers are asked beside records: who leads a partition, where its log starts and ends, and
whether what a response seems to show is really there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.connection.failures import ConnectionLost
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import CleanupPolicy, ClusterView, NoReply
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import (
    FetchContext,
    FetchedPartition,
    PartitionFetch,
    UnconfirmedGap,
)
from rangeland.dialects.protocol_session import NoCommonVersion
from rangeland.errors import BadRecord, Damage
from rangeland.fetch.slice_state import SliceRequest
from rangeland.model import Address, Earliest, Isolation, Latest, Leader, Partition
from rangeland.survey.broker_requests import request_offsets, request_records
from rangeland.survey.leaders import ask_leaders
from rangeland.survey.wanted_partitions import absent_brokers

MAX_WAIT_MS = 500
MIN_FETCH_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class LeaderLookup:
    """The present leaders of partitions."""

    leaders: Mapping[Partition, Leader]
    unknown: frozenset[Partition]
    """Partitions that do not exist according to the cluster."""
    unreachable: Mapping[Partition, str]
    """Why the only broker that has a partition cannot be asked for it."""


def look_up_leaders(
    brokers: ConnectionPool, partitions: Sequence[Partition], replicas: tuple[Address, ...]
) -> LeaderLookup:
    """Asks for the leaders of these partitions. Raises Unreachable if no broker answers."""
    topics = tuple(sorted({p.topic for p in partitions}))
    # Replicas know their cluster, but not where brokers only know their own partitions.
    first = () if brokers.dialect.capabilities.numbered_per_broker else replicas
    view = ask_leaders(brokers, topics, (*first, *brokers.settings.seeds))
    known = [topic.leaders for topic in view.topics.values() if topic.meaning is ErrorMeaning.OK]
    leaders = {p: leader for found in known for p, leader in found.items()}
    absent = absent_brokers(view, [name for name, _ in brokers.settings.named_brokers])
    unreachable = {p: why for p in partitions if (why := absent.why_unreachable(p))}
    unnamed = [p for p in partitions if p not in leaders and p not in unreachable]
    return LeaderLookup(leaders, frozenset(p for p in unnamed if _is_unknown(view, p)), unreachable)


def _is_unknown(view: ClusterView, partition: Partition) -> bool:
    """Whether the cluster reports that the topic, or the partition in it, does not exist."""
    topic = view.topics.get(partition.topic)
    return topic is None or topic.meaning is ErrorMeaning.OK or topic.is_unknown


def ask_cleanup_policy(
    cluster: ClusterSettings, topic: str, first: Sequence[Address]
) -> CleanupPolicy | NoReply:
    """The cleanup policy of a topic, from any broker: each knows every topic's configuration. The
    connections are its own, since those of a fetch belong to the thread of the fetch."""
    silent: dict[Address, str] = {}
    with ConnectionPool(cluster) as brokers:
        questions = brokers.dialect.ask_cleanup(topic)
        if not questions:
            return brokers.dialect.read_cleanup([])
        for address in dict.fromkeys((*first, *cluster.seeds)):
            try:
                return brokers.dialect.read_cleanup(brokers.call_all(address, questions))
            except ConnectionLost as error:
                silent[address] = error.why or error.what
            except NoCommonVersion:
                return CleanupPolicy(None, f"{address} is too old to report its cleanup.policy")
    return NoReply(silent)


@dataclass(frozen=True, slots=True)
class AskedLeader:
    """The broker at ``address`` to which ``request`` was sent, and what else it can be asked about
    that partition. Each question raises ConnectionLost."""

    brokers: ConnectionPool
    address: Address
    request: SliceRequest

    def log_edge(
        self, when: Earliest | Latest, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> int:
        """The offset at which the log begins, or up to which it can be read. Raises ConnectionLost,
        also for a response without an offset."""
        partition = self.request.partition
        leaders = {partition: Leader(self.address, self.request.epoch)}
        result = request_offsets(self.brokers, self.address, leaders, when, isolation).get(
            partition
        )
        if result is None:
            what = f"{self.address} left {partition} out of its response about offsets"
            raise ConnectionLost(what)
        if result.offset is None:
            raise ConnectionLost(f"{self.address} answered {result.code} to an offset request")
        return result.offset

    def log_end(self, leader: Leader, readable_end: int) -> int | None:
        """The end of the log, including what is not readable yet: a leader's high watermark may lag
        for a while, the end of its epoch does not. None if the broker cannot report it; its high
        watermark is then believed only if there is no other replica. Raises ConnectionLost, also
        where the response leaves the partition out: it may have a new leader."""
        if not self.brokers.dialect.capabilities.has_epochs:
            return readable_end
        epoch_end = self._epoch_end(leader)
        # With a single replica the high watermark does not wait for others.
        return readable_end if epoch_end is None and leader.copies == 1 else epoch_end

    def _epoch_end(self, leader: Leader) -> int | None:
        """None where the broker cannot or may not say. Raises ConnectionLost if it has to be asked
        again."""
        dialect, partition, epoch = self.brokers.dialect, self.request.partition, self.request.epoch
        if epoch is None:
            return None
        questions = dialect.ask_epochs({partition: leader}, {partition: epoch})
        try:
            responses = self.brokers.call_all(self.address, questions)
        except NoCommonVersion:  # the broker is too old for the request
            return None
        ends = dialect.read_epochs(responses)
        if partition not in ends:
            raise ConnectionLost(
                f"{self.address} did not answer where epoch {epoch} of {partition} ends"
            )
        return ends[partition]

    def is_inside_entry(self, offset: int) -> bool:
        """Whether one intact entry of the log begins before this offset and ends after it. False,
        too, if that cannot be seen."""
        if self.brokers.dialect.capabilities.offsets_are_bytes:
            return False  # nothing can be read before the offset
        part = self._fetch_at(offset - 1, self.request.max_bytes)
        return part is not None and self._has_entry_across(part, offset)

    def is_still_damaged(self) -> bool:
        """Whether what follows the entry before the requested offset is damaged, as it was in an
        earlier response. True, too, if only that entry was returned."""
        preceding = self.request.offset - 1
        part = self._fetch_at(preceding, self.request.max_bytes, MAX_WAIT_MS)
        if part is None or not len(part.records):
            raise ConnectionLost(
                f"{self.address} returned no records of {self.request.partition} at {preceding}"
            )
        context = FetchContext(asked_at=preceding)
        try:
            end = self.brokers.dialect.next_offset(part.records, preceding, context)
        except BadRecord:
            return True
        return end is None or end <= self.request.offset

    def confirmed_until(self, gap: UnconfirmedGap) -> int | None:
        """The offset up to which to read if only the last entry shows a gap: the offset stored in
        it may be damaged, and the gap full of records that are in the next segment. A broker that
        is asked for the entry's last offset returns the entry, unless others are there. None if it
        has to be asked again. Raises BadRecord."""
        asked_at = self.request.offset
        is_there = self._is_first_at(gap.last_offset, gap.entry)
        if is_there is not False:
            return gap.last_offset + 1 if is_there else None
        if gap.from_offset > asked_at:
            return gap.from_offset  # the entry is asked for again, without those before it
        if not self._is_first_at(asked_at, gap.entry):
            return None  # the cleaner has taken it meanwhile
        raise BadRecord(
            f"the batch at offset {asked_at} cannot be decoded",
            why=f"it says that it is at {gap.until_offset} to {gap.last_offset}, where others are",
            damage=Damage(asked_at),
        )

    def _is_first_at(self, offset: int, entry: memoryview) -> bool | None:
        """Whether a fetch at this offset begins with the entry; None for a response without
        records, which proves nothing."""
        # Remote storage needs some time.
        part = self._fetch_at(offset, max(len(entry), MIN_FETCH_BYTES), MAX_WAIT_MS)
        if part is None or not len(part.records):
            return None
        return part.records[: len(entry)] == entry

    def _fetch_at(
        self, offset: int, max_bytes: int, max_wait_ms: int = 0
    ) -> FetchedPartition | None:
        """What the broker returns at an offset; None if it answers with an error."""
        request = self.request
        fetches = [
            PartitionFetch(request.partition, request.topic_id, request.epoch, offset, max_bytes)
        ]
        read = request_records(self.brokers, self.address, fetches, max_bytes, max_wait_ms)
        for part in read.partitions:
            if part.partition == request.partition and part.meaning is ErrorMeaning.OK:
                return part
        return None

    def _has_entry_across(self, part: FetchedPartition, offset: int) -> bool:
        dialect, preceding, context = self.brokers.dialect, offset - 1, part.context
        isolation = self.brokers.settings.isolation
        try:
            stored = dialect.cut_out(part.records, preceding, preceding, offset, context)
            end = dialect.next_offset(stored, 0, context) or offset
            found = dialect.decode_chunks(stored, preceding, end, isolation, part.aborted, context)
            is_first = stored == part.records[: len(stored)]
            return is_first and end > offset and sum(1 for _ in found) > 0
        except BadRecord:
            return False
