"""What brokers are asked beside records: who leads a partition, where its log starts and ends, and
whether what a response seems to show is really there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rangeland.connection.failures import ConnectionLost
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import ClusterView
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import (
    FetchContext,
    FetchedPartition,
    FetchOptions,
    PartitionFetch,
    UnconfirmedGap,
)
from rangeland.dialects.protocol_session import NoCommonVersion
from rangeland.errors import BadRecord
from rangeland.fetch.slice_state import FetchTarget
from rangeland.model import Address, Earliest, Isolation, Latest, Leader, Partition
from rangeland.survey.leaders import ask_leaders


@dataclass(frozen=True, slots=True)
class LeaderLookup:
    """``unknown``: partitions that do not exist according to the cluster. ``away``: why the only
    broker that has a partition cannot be asked for it."""

    leaders: Mapping[Partition, Leader]
    unknown: frozenset[Partition]
    away: Mapping[Partition, str]


def look_up_leaders(
    brokers: ConnectionPool,
    partitions: Sequence[Partition],
    replicas: tuple[Address, ...],
    members: Mapping[str, Address],
) -> LeaderLookup:
    """Raises Unreachable if no broker answers."""
    topics = tuple(sorted({p.topic for p in partitions}))
    # Replicas know their cluster, but not where brokers only know their own partitions.
    first = () if brokers.dialect.capabilities.numbered_per_broker else replicas
    view = ask_leaders(brokers, topics, (*first, *brokers.settings.seeds))
    known = [topic.leaders for topic in view.topics.values() if topic.meaning is ErrorMeaning.OK]
    leaders = {p: leader for found in known for p, leader in found.items()}
    away = {p: why for p in partitions if (why := _away(view, p, members))}
    unnamed = [p for p in partitions if p not in leaders and p not in away]
    return LeaderLookup(leaders, frozenset(p for p in unnamed if _is_unknown(view, p)), away)


def _away(view: ClusterView, partition: Partition, members: Mapping[str, Address]) -> str | None:
    """Why the one broker that has a partition cannot be asked for it; None if it can."""
    name = partition.broker
    if name in view.unreachable:
        return f"broker {name}: {view.unreachable[name]}"
    if members and name not in members:
        return f"broker {name}: no broker of that name is registered"
    return None


def _is_unknown(view: ClusterView, partition: Partition) -> bool:
    """Whether the cluster reports that the topic, or the partition in it, does not exist."""
    topic = view.topics.get(partition.topic)
    return topic is None or topic.meaning is ErrorMeaning.OK or topic.is_unknown


MAX_WAIT_MS = 500

MIN_FETCH_BYTES = 1 << 16


def log_edge(
    brokers: ConnectionPool,
    address: Address,
    want: FetchTarget,
    when: Earliest | Latest,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> int:
    """Raises ConnectionLost, also if the response has no offset."""
    dialect = brokers.dialect
    leader = {want.partition: Leader(address, want.epoch)}
    questions = dialect.ask_offsets(leader, when, isolation)
    part = dialect.read_offsets(brokers.call_all(address, questions)).get(want.partition)
    if part is None:
        raise ConnectionLost(f"{address} left {want.partition} out of its response about offsets")
    if part.offset is None:
        raise ConnectionLost(f"{address} answered {part.code} to an offset request")
    return part.offset


def log_end(
    brokers: ConnectionPool, address: Address, want: FetchTarget, leader: Leader, readable_end: int
) -> int | None:
    """Where the log ends with what is not readable yet: a leader's high watermark may lag for a
    while, the end of its epoch does not. None if the broker cannot report it."""
    if not brokers.dialect.capabilities.has_epochs:
        return readable_end
    epoch_end = _epoch_end(brokers, address, want, leader)
    # With a single replica the high watermark does not wait for others.
    return readable_end if epoch_end is None and leader.copies == 1 else epoch_end


def _epoch_end(
    brokers: ConnectionPool, address: Address, want: FetchTarget, leader: Leader
) -> int | None:
    if want.epoch is None:
        return None
    dialect = brokers.dialect
    questions = dialect.ask_epochs({want.partition: leader}, {want.partition: want.epoch})
    try:
        return dialect.read_epochs(brokers.call_all(address, questions)).get(want.partition)
    except NoCommonVersion:  # the broker is too old for the request
        return None


def is_inside_entry(
    brokers: ConnectionPool, address: Address, want: FetchTarget, offset: int
) -> bool:
    """Whether one intact entry of the log begins before this offset and ends after it. False also
    if that cannot be seen. Raises ConnectionLost."""
    if brokers.dialect.capabilities.offsets_are_bytes:  # nothing can be read before the offset
        return False
    part = _fetched(brokers, address, want, offset - 1, want.max_bytes, max_wait_ms=0)
    return part is not None and _has_entry_across(brokers, part, offset)


def is_still_damaged(brokers: ConnectionPool, address: Address, want: FetchTarget) -> bool:
    """Whether what follows the entry before the requested offset is damaged, as it was in an
    earlier response. True also if only that entry was returned. Raises ConnectionLost."""
    before = want.offset - 1
    part = _fetched(brokers, address, want, before, want.max_bytes, max_wait_ms=MAX_WAIT_MS)
    if part is None or not len(part.records):
        raise ConnectionLost(f"{address} returned no records of {want.partition} at {before}")
    try:
        end = brokers.dialect.next_offset(part.records, before, FetchContext(asked_at=before))
    except BadRecord:
        return True
    return end is None or end <= want.offset


def confirmed_until(
    brokers: ConnectionPool, address: Address, want: FetchTarget, gap: UnconfirmedGap
) -> int | None:
    """How far to read if a gap is shown by the last entry alone: the offset stored in it may be
    damaged, and the gap full of records that are in the next segment. A broker that is asked for
    the entry's last offset returns the entry, unless others are there. None if it has to be asked
    again. Raises BadRecord, ConnectionLost."""
    is_there = _is_first_at(brokers, address, want, gap.last_offset, gap.entry)
    if is_there is not False:
        return gap.last_offset + 1 if is_there else None
    if gap.from_offset > want.offset:
        return gap.from_offset  # the entry is asked for again, without those before it
    if not _is_first_at(brokers, address, want, want.offset, gap.entry):
        return None  # the cleaner has taken it meanwhile
    raise BadRecord(
        f"the batch at offset {want.offset} cannot be decoded",
        why=f"it says that it is at {gap.until_offset} to {gap.last_offset}, where others are",
        base_offset=want.offset,
    )


def _is_first_at(
    brokers: ConnectionPool, address: Address, want: FetchTarget, offset: int, entry: memoryview
) -> bool | None:
    """Whether a fetch at this offset begins with the entry; None for a response without records,
    which proves nothing. Raises ConnectionLost."""
    max_bytes = max(len(entry), MIN_FETCH_BYTES)
    # Remote storage needs some time.
    part = _fetched(brokers, address, want, offset, max_bytes, max_wait_ms=MAX_WAIT_MS)
    if part is None or not len(part.records):
        return None
    return part.records[: len(entry)] == entry


def _fetched(
    brokers: ConnectionPool,
    address: Address,
    want: FetchTarget,
    offset: int,
    max_bytes: int,
    *,
    max_wait_ms: int,
) -> FetchedPartition | None:
    """What a leader returns at an offset; None if it answers with an error."""
    dialect, isolation = brokers.dialect, brokers.settings.isolation
    asked = [PartitionFetch(want.partition, want.topic_id, want.epoch, offset, max_bytes)]
    options = FetchOptions(isolation, max_wait_ms, max_bytes)
    responses = brokers.call_all(address, dialect.ask_records(asked, options))
    for part in dialect.read_records(responses, asked, isolation).parts:
        if part.partition == want.partition and part.meaning is ErrorMeaning.OK:
            return part
    return None


def _has_entry_across(brokers: ConnectionPool, part: FetchedPartition, offset: int) -> bool:
    dialect, before, context = brokers.dialect, offset - 1, part.context
    try:
        stored = dialect.cut_out(part.records, before, before, offset, context)
        end = dialect.next_offset(stored, 0, context) or offset
        isolation = brokers.settings.isolation
        found = dialect.decode_chunks(stored, before, end, isolation, part.aborted, context)
        is_first = stored == part.records[: len(stored)]
        return is_first and end > offset and sum(1 for _ in found) > 0
    except BadRecord:
        return False
