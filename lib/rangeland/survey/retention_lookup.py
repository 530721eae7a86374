"""Finds out which records retention may delete before a run has read them.

One broker is asked for the retention of all topics, a second one for topics that the first does not
report, and each leader for the first offset that is young enough. Any of this may fail, which is
only logged: the responses affect only warnings and the order of reading.
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
from rangeland.survey.broker_requests import ask_offsets
from rangeland.survey.survey_request import SurveyRequest

MAX_BROKERS_ASKED = 2
"""Retention affects only warnings and the order of reading, so a survey waits for no third
broker."""

logger = logging.getLogger(__name__)


def with_retention(
    brokers: ConnectionPool, survey: Survey, request: SurveyRequest, seed: Address | None
) -> Survey:
    """The survey with the retention of its topics, and the first offset of each partition that will
    outlive reading at the requested speed. ``seed``: the broker to ask if no leader is known."""
    retention = _retention(brokers, survey.logs, seed)
    begins = {p: mark.until_offset for p, mark in request.checkpoint.items()}
    read_ms = reading_ms(survey.logs, begins, request.speed or ReadSpeed())
    times_ms = expiry_times(retention, survey.taken_at_ms, read_ms)
    expiring = _expiring_offsets(brokers, survey.logs, times_ms)
    logs = {p: replace(log, expires_until=expiring.get(p)) for p, log in survey.logs.items()}
    return replace(survey, logs=logs, retention=retention)


def _retention(
    brokers: ConnectionPool, logs: Mapping[Partition, LogState], seed: Address | None
) -> dict[str, Retention]:
    """The retention of the topics for which brokers report it."""
    topics = {partition.topic for partition in logs}
    candidates = dict.fromkeys((*(log.leader.address for log in logs.values()), seed))
    addresses = [address for address in candidates if address is not None]
    retention: dict[str, Retention] = {}
    for address in addresses[:MAX_BROKERS_ASKED]:
        if not (requests := brokers.dialect.retention_requests(sorted(topics)) if topics else []):
            break
        try:
            retention |= brokers.dialect.read_retention(brokers.call_all(address, requests))
        except RangelandError as error:
            logger.info("Got no retention of topics from %s: %s", address, error.what)
        topics -= retention.keys()
    return retention


def _expiring_offsets(
    brokers: ConnectionPool, logs: Mapping[Partition, LogState], times_ms: Mapping[str, int]
) -> dict[Partition, int]:
    """The first offset that is not older than its topic's time; the end if all are older. One
    request per broker; partitions whose broker does not answer are left out."""
    groups: dict[tuple[Address, int], dict[Partition, Leader]] = {}
    for partition, log in logs.items():
        if partition.topic in times_ms and log.leader.address is not None:
            key = (log.leader.address, times_ms[partition.topic])
            groups.setdefault(key, {})[partition] = log.leader
    offsets: dict[Partition, int] = {}
    for (address, time_ms), leaders in groups.items():
        try:
            when = AtTime(max(0, time_ms))
            results = ask_offsets(brokers, address, leaders, when, brokers.settings.isolation)
        except RangelandError as error:
            logger.info("Got no offsets by time from %s: %s", address, error.what)
            continue
        for partition, result in results.items():
            if result.meaning is ErrorMeaning.OK and partition in leaders:
                end = logs[partition].end_offset
                offsets[partition] = end if result.offset is None else min(result.offset, end)
    return offsets
