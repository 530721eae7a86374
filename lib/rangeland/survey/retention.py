"""The retention of topics, and which offsets may expire soon. One request for all topics, and
one per broker for the offsets. What is unavailable is left out: it only affects warnings and order.
"""

from __future__ import annotations

from collections.abc import Mapping

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import RangelandError
from rangeland.model import Address, AtTime, Leader, LogState, Partition, Retention


def retention_of(
    brokers: ConnectionPool, logs: Mapping[Partition, LogState], seed: Address | None
) -> dict[str, Retention]:
    """By topic, as one broker reports it."""
    topics = sorted({partition.topic for partition in logs})
    address = next((log.leader.address for log in logs.values() if log.leader.address), seed)
    questions = brokers.dialect.ask_retention(topics) if topics else []
    if not questions or address is None:
        return {}
    try:
        return brokers.dialect.read_retention(brokers.call_all(address, questions))
    except RangelandError:
        return {}


def expiring(
    brokers: ConnectionPool, logs: Mapping[Partition, LogState], times_ms: Mapping[str, int]
) -> dict[Partition, int]:
    """The first offset that is not older than its topic's time; the end if all are."""
    groups: dict[tuple[Address, int], dict[Partition, Leader]] = {}
    for partition, log in logs.items():
        if partition.topic in times_ms and log.leader.address is not None:
            key = (log.leader.address, times_ms[partition.topic])
            groups.setdefault(key, {})[partition] = log.leader
    found: dict[Partition, int] = {}
    dialect, isolation = brokers.dialect, brokers.settings.isolation
    for (address, time_ms), leaders in groups.items():
        try:
            questions = dialect.ask_offsets(leaders, AtTime(max(0, time_ms)), isolation)
            answers = dialect.read_offsets(brokers.call_all(address, questions))
        except RangelandError:
            continue
        for partition, answer in answers.items():
            if answer.verdict is ErrorMeaning.OK and partition in leaders:
                end = logs[partition].end_offset
                found[partition] = end if answer.offset is None else min(answer.offset, end)
    return found
