"""Where a partition's log starts and ends, according to its leader."""

from __future__ import annotations

from rangeland.connection.failures import ConnectionLost
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.protocol_session import NoCommonVersion
from rangeland.fetch.loop_actions import FetchTarget
from rangeland.model import Address, Earliest, Isolation, Latest, Leader


def log_edge(
    brokers: ConnectionPool, address: Address, want: FetchTarget, when: Earliest | Latest
) -> int:
    """Raises ConnectionLost, also if the answer has no offset."""
    dialect = brokers.dialect
    leader = {want.partition: Leader(address, want.epoch)}
    questions = dialect.ask_offsets(leader, when, Isolation.READ_UNCOMMITTED)
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
