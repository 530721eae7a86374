"""Which records retention may delete before a run has read them.

One broker is asked for the retention of all topics, a second one for those that it does not report,
and each leader for the first offset that is young enough. All of it may fail, which the log says:
the responses only affect warnings, and the order of reading.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import RangelandError
from rangeland.model import Address, AtTime, Leader, LogState, Partition, Retention, Survey
from rangeland.planning.retention_risk import ReadSpeed, expiry_times, reading_ms
from rangeland.survey.broker_requests import request_offsets
from rangeland.survey.survey_request import SurveyRequest

MOST_ASKED = 2

logger = logging.getLogger(__name__)


def with_retention(
    brokers: ConnectionPool, survey: Survey, wanted: SurveyRequest, seed: Address | None
) -> Survey:
    """The survey with the retention of its topics, and the first offset of each partition that
    will outlive reading at the wanted speed. ``seed``: whom to ask where no leader is known."""
    retention = _retention(brokers, survey.logs, seed)
    begins = {p: mark.until_offset for p, mark in wanted.checkpoint.items()}
    read_ms = reading_ms(survey.logs, begins, wanted.speed or ReadSpeed())
    times_ms = expiry_times(retention, survey.taken_at_ms, read_ms)
    expiring = _expiring_offsets(brokers, survey.logs, times_ms)
    logs = {p: replace(log, expires_until=expiring.get(p)) for p, log in survey.logs.items()}
    return replace(survey, logs=logs, retention=retention)


def _retention(
    brokers: ConnectionPool, logs: Mapping[Partition, LogState], seed: Address | None
) -> dict[str, Retention]:
    """The retention of topics, as far as brokers report it."""
    left = {partition.topic for partition in logs}
    known = (*(log.leader.address for log in logs.values()), seed)
    addresses = list(dict.fromkeys(address for address in known if address is not None))
    found: dict[str, Retention] = {}
    for address in addresses[:MOST_ASKED]:
        if not (requests := brokers.dialect.retention_requests(sorted(left)) if left else []):
            break
        try:
            found |= brokers.dialect.read_retention(brokers.call_all(address, requests))
        except RangelandError as error:
            logger.info("Got no retention of topics from %s: %s", address, error.what)
        left -= found.keys()
    return found


def _expiring_offsets(
    brokers: ConnectionPool, logs: Mapping[Partition, LogState], times_ms: Mapping[str, int]
) -> dict[Partition, int]:
    """The first offset that is not older than its topic's time; the end if all are. One request
    per broker; those that do not answer are left out."""
    groups: dict[tuple[Address, int], dict[Partition, Leader]] = {}
    for partition, log in logs.items():
        if partition.topic in times_ms and log.leader.address is not None:
            key = (log.leader.address, times_ms[partition.topic])
            groups.setdefault(key, {})[partition] = log.leader
    found: dict[Partition, int] = {}
    for (address, time_ms), leaders in groups.items():
        try:
            when = AtTime(max(0, time_ms))
            results = request_offsets(brokers, address, leaders, when, brokers.settings.isolation)
        except RangelandError as error:
            logger.info("Got no offsets by time from %s: %s", address, error.what)
            continue
        for partition, result in results.items():
            if result.meaning is ErrorMeaning.OK and partition in leaders:
                end = logs[partition].end_offset
                found[partition] = end if result.offset is None else min(result.offset, end)
    return found
