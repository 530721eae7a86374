"""Where a partition's log and its entries start and end, according to its leader."""

from __future__ import annotations

from rangeland.connection.failures import ConnectionLost
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition, FetchOptions, PartitionFetch
from rangeland.dialects.protocol_session import NoCommonVersion
from rangeland.errors import BadRecord
from rangeland.fetch.loop_actions import FetchTarget
from rangeland.model import Address, Earliest, Isolation, Latest, Leader


def log_edge(
    brokers: ConnectionPool,
    address: Address,
    want: FetchTarget,
    when: Earliest | Latest,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> int:
    """Raises ConnectionLost, also if the answer has no offset."""
    dialect = brokers.dialect
    leader = {want.partition: Leader(address, want.epoch)}
    questions = dialect.ask_offsets(leader, when, isolation)
    part = dialect.read_offsets(brokers.call_all(address, questions)).get(want.partition)
    if part is None:
        raise ConnectionLost(f"{address} left {want.partition} out of its answer about offsets")
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
    dialect, isolation = brokers.dialect, brokers.settings.isolation
    if dialect.capabilities.offsets_are_bytes:  # nothing can be read before the offset
        return False
    before = offset - 1
    asked = [PartitionFetch(want.partition, want.topic_id, want.epoch, before, want.max_bytes)]
    options = FetchOptions(isolation, 0, want.max_bytes)
    answers = brokers.call_all(address, dialect.ask_records(asked, options))
    for part in dialect.read_records(answers, asked, isolation).parts:
        if part.partition == want.partition and part.verdict is ErrorMeaning.OK:
            return _has_entry_across(brokers, part, offset)
    return False


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
