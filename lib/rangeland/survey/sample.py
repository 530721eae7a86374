"""A batch of each of many logs, for those who only look: one request per leader, few bytes.

What does not come is left out: a leader that is away, a batch that is larger than what is asked
for at most. Nobody waits for it, and it is never an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.fetch_values import FetchedPartition, FetchOptions, PartitionFetch
from rangeland.errors import RangelandError
from rangeland.model import Address, Leader, Partition
from rangeland.survey.leaders import by_leader

Where = TypeVar("Where")
Seen = TypeVar("Seen")

SIZES = (64 << 10, 4 << 20)
"""What is asked of each partition at first, and of those without a whole batch in it."""
MAX_WAIT_MS = 500


def peek(
    brokers: ConnectionPool,
    wanted: Mapping[Partition, Where],
    leader_of: Callable[[Where], Leader],
    asked_of: Callable[[Partition, Where, int], PartitionFetch],
    seen_in: Callable[[FetchedPartition], Mapping[Partition, Seen]],
) -> dict[Partition, Seen]:
    """What ``seen_in`` makes of the answers; partitions that it leaves out are asked for more.
    ``asked_of`` says what to ask of one, given how many bytes at most."""
    found: dict[Partition, Seen] = {}
    for size in SIZES:
        missing = {p: where for p, where in wanted.items() if p not in found}
        for address, group in by_leader(missing, leader_of).items():
            asked = [asked_of(p, where, size) for p, where in group.items()]
            for part in _answers(brokers, address, asked):
                if part.partition in group:
                    found |= seen_in(part)
    return found


def _answers(
    brokers: ConnectionPool, address: Address, asked: list[PartitionFetch]
) -> tuple[FetchedPartition, ...]:
    isolation = brokers.settings.isolation
    terms = FetchOptions(isolation, MAX_WAIT_MS, 4 * max(SIZES))
    try:
        answers = brokers.call_all(address, brokers.dialect.ask_records(asked, terms))
        return tuple(brokers.dialect.read_records(answers, asked, isolation).parts)
    except RangelandError:
        return ()
