"""How old a log's next record is: one record per partition, one request per leader.

For people who look, so nothing here is worth an error: what cannot be had (a leader that is
away, a batch that is larger than what was asked for, a record without a time) is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rangeland.dialects.contract import Asked, Fetched, FetchTerms
from rangeland.dialects.verdicts import Verdict
from rangeland.errors import RangelandError
from rangeland.fetch.leaders import by_leader
from rangeland.fetch.pool import Brokers
from rangeland.model import Address, Leader, Partition

SIZES = (64 << 10, 4 << 20)
"""What is asked of each partition at first, and of those without a whole batch in it."""
MAX_WAIT_MS = 500


@dataclass(frozen=True, slots=True)
class Position:
    """Where to look: the first record in ``[from_offset, until_offset)``."""

    leader: Leader
    from_offset: int
    until_offset: int


def first_times(brokers: Brokers, wanted: Mapping[Partition, Position]) -> dict[Partition, int]:
    """The timestamps, in ms, of the first records at these positions."""
    found: dict[Partition, int | None] = {}
    for size in SIZES:
        missing = {p: at for p, at in wanted.items() if p not in found}
        for address, partitions in by_leader(missing, lambda at: at.leader).items():
            found |= _ask(brokers, address, partitions, size)
    return {partition: time_ms for partition, time_ms in found.items() if time_ms is not None}


def _ask(
    brokers: Brokers, address: Address, positions: Mapping[Partition, Position], size: int
) -> dict[Partition, int | None]:
    isolation = brokers.settings.isolation
    terms = FetchTerms(isolation, MAX_WAIT_MS, max(SIZES) * 4)
    asked = [
        Asked(p, at.leader.topic_id, at.leader.epoch, at.from_offset, size)
        for p, at in positions.items()
    ]
    try:
        answers = brokers.call_all(address, brokers.dialect.ask_records(asked, terms))
        parts = brokers.dialect.read_records(answers, asked, isolation).parts
    except RangelandError:
        return {}
    found: dict[Partition, int | None] = {}
    for part in parts:
        if part.verdict is Verdict.OK and part.partition in positions:
            found |= _first(brokers, part, positions[part.partition])
    return found


def _first(brokers: Brokers, part: Fetched, at: Position) -> dict[Partition, int | None]:
    """The time of the first row; None where it has none. Empty where no row is there."""
    isolation = brokers.settings.isolation
    span = (at.from_offset, at.until_offset)
    try:
        for chunk in brokers.dialect.decode_chunks(part.records, *span, isolation, part.aborted):
            if chunk.batch is not None and chunk.batch.num_rows:
                moment = chunk.batch.column("timestamp")[0].value
                return {part.partition: None if moment is None else moment // 1000}
    except RangelandError:
        return {part.partition: None}
    return {}
