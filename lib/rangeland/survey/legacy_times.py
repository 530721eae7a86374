"""A log that begins in a format without times: "no record is that late" is not believed there.

A broker looks for a time in the first segment that may have it, and in no other. A segment
without times may have any time up to when it was last written to, which is late where it was
copied; then it hides all later segments. So where a broker finds nothing, its segments are
looked at, in the oldest way of asking: only if all were written before, or the first that was
not has times, is it so. Else the answer is the segment that ends before the time, as it is for
logs that have no times at all. Brokers that know the oldest way no more cannot be doubted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import OffsetAnswer
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchOptions, PartitionFetch
from rangeland.dialects.protocol_session import NoCommonVersion, Question
from rangeland.model import Address, AtTime, Isolation, Latest, Leader, Partition

PEEK_BYTES = 1 << 10


def reconsidered(
    brokers: ConnectionPool,
    address: Address,
    leaders: Mapping[Partition, Leader],
    when: AtTime,
    found: Mapping[Partition, OffsetAnswer],
) -> dict[Partition, OffsetAnswer]:
    """Other answers for those of ``found`` that are not to be believed."""
    late = {
        p: leaders[p] for p, x in found.items() if x.verdict is ErrorMeaning.OK and x.offset is None
    }
    if brokers.dialect.capabilities.lacks_timestamp is None or not late:
        return {}
    try:
        logs = _segments(brokers, address, late, Latest())
        before = _segments(brokers, address, late, AtTime(max(0, when.time_ms - 1)))
    except NoCommonVersion:
        return {}
    failed = {p: x for p, x in (before | logs).items() if x.verdict is not ErrorMeaning.OK}
    suspects = {
        p: first
        for p in late
        if p in logs and p in before and p not in failed
        for first in (_first_after(logs[p], before[p]),)
        if first is not None
    }
    hiding = _timeless(brokers, address, late, suspects)
    return failed | {p: replace(before[p], borders=()) for p in hiding}


def _segments(
    brokers: ConnectionPool,
    address: Address,
    leaders: Mapping[Partition, Leader],
    when: AtTime | Latest,
) -> dict[Partition, OffsetAnswer]:
    """Where segments begin that were last written to by then; at last, where the log ends."""
    dialect = brokers.dialect
    asked = dialect.ask_offsets(leaders, when, Isolation.READ_UNCOMMITTED)
    questions = [replace(question, max_version=0) for question in asked]
    return dialect.read_offsets(brokers.call_all(address, questions))


def _first_after(log: OffsetAnswer, before: OffsetAnswer) -> int | None:
    """Where the first segment begins that was written to since."""
    last = before.borders[-1] if before.borders else -1
    later = [border for border in log.borders if border > last]
    end = log.offset or 0
    return later[0] if later and later[0] < end else None


def _timeless(
    brokers: ConnectionPool,
    address: Address,
    leaders: Mapping[Partition, Leader],
    offsets: Mapping[Partition, int],
) -> set[Partition]:
    """Those with an entry without a time at their offset. Each is asked for alone: where one
    request is for several, only the first is sure to get a whole entry."""
    dialect = brokers.dialect
    terms = FetchOptions(Isolation.READ_UNCOMMITTED, max_wait_ms=0, max_bytes=PEEK_BYTES)
    asked = [
        PartitionFetch(p, leaders[p].topic_id, leaders[p].epoch, offset, PEEK_BYTES)
        for p, offset in offsets.items()
    ]
    questions: list[Question] = []
    for one in asked:
        questions += dialect.ask_records([one], terms)
    answers = brokers.call_all(address, questions)
    found: set[Partition] = set()
    for one, answer in zip(asked, answers, strict=True):
        told = dialect.read_records([answer], [one], Isolation.READ_UNCOMMITTED)
        lacks_timestamp = dialect.capabilities.lacks_timestamp
        if lacks_timestamp is not None and any(
            lacks_timestamp(part.records) for part in told.parts
        ):
            found.add(one.partition)
    return found
