"""A broker that finds no record as late as a time: when it is believed, and what is asked first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import OffsetResult
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.model import Address, AtTime, Earliest, Isolation, Leader, Partition
from rangeland.survey import time_confirmation
from rangeland.survey.record_times import FirstRecord
from rangeland.survey.time_confirmation import (
    CONTRADICTION,
    DeniedLog,
    confirm_no_record,
    judge_denial,
)

B1 = Address("b1", 9092)
LEADER = Leader(B1)
TIME = 1_000


def log(start: int = 10, end: int = 20, latest: int | None = 15) -> DeniedLog:
    return DeniedLog(TIME, LEADER, start, end, latest)


def test_the_first_record_is_asked_for_and_then_the_latest() -> None:
    assert judge_denial(log(), {}) == FirstRecord(LEADER, 10, 20)
    assert judge_denial(log(), {10: TIME - 1}) == FirstRecord(LEADER, 15, 16)
    assert judge_denial(log(), {10: None}) == FirstRecord(LEADER, 15, 16)


def test_a_range_begins_at_a_first_record_that_is_late_enough() -> None:
    assert judge_denial(log(), {10: TIME}) == OffsetResult(ErrorMeaning.OK, "", 10)


@pytest.mark.parametrize(
    ("denied", "times"),
    [(log(), {10: 0, 15: TIME}), (log(latest=9), {10: 0})],
    ids=["late", "deleted"],
)
def test_a_latest_record_that_contradicts_is_asked_about_again(
    denied: DeniedLog, times: Mapping[int, int | None]
) -> None:
    again = OffsetResult(ErrorMeaning.RETRY, f"{CONTRADICTION} {denied.latest_offset}", None)
    assert judge_denial(denied, times) == again


@pytest.mark.parametrize(
    ("denied", "times"),
    [
        (log(start=20), {}),
        (log(), {10: 0, 15: TIME - 1}),
        (log(), {10: 0, 15: None}),
        (log(latest=10), {10: 0}),
        (log(latest=20), {10: 0}),
        (log(latest=None), {10: 0}),
    ],
    ids=["empty log", "early", "no time", "the first one", "beyond the end", "unknown"],
)
def test_other_denials_are_believed(denied: DeniedLog, times: Mapping[int, int | None]) -> None:
    assert judge_denial(denied, times) is None


def test_each_denied_log_is_asked_about_until_it_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of each log: what the broker finds, its latest record, and the times of its records."""
    early, late_first, late_latest, found, unanswered = (Partition("t", n) for n in range(5))
    ok = ErrorMeaning.OK
    results = {
        early: OffsetResult(ok, "", None),
        late_first: OffsetResult(ok, "", None),
        late_latest: OffsetResult(ok, "", None),
        found: OffsetResult(ok, "", 12),
        unanswered: OffsetResult(ErrorMeaning.RETRY, "", None),
    }
    latest = {
        early: OffsetResult(ok, "", 15, time_ms=TIME - 1),
        late_first: OffsetResult(ok, "", 15, time_ms=TIME),
        late_latest: OffsetResult(ok, "", 15),
    }
    times = {(late_first, 10): TIME, (late_latest, 10): 0, (late_latest, 15): TIME}
    asked = list[set[Partition]]()

    def ends(_: object, __: object, leaders: Mapping[Partition, Leader], *when: object) -> object:
        asked.append(set(leaders))
        offset = 10 if when[0] == Earliest() else 20
        return dict.fromkeys(leaders, OffsetResult(ok, "", offset))

    def record_times(_: object, records: Mapping[Partition, FirstRecord]) -> dict[Partition, int]:
        return {p: times[p, record.from_offset] for p, record in records.items()}

    monkeypatch.setattr(time_confirmation, "request_latest_timestamps", lambda *_: latest)
    monkeypatch.setattr(time_confirmation, "request_offsets", ends)
    monkeypatch.setattr(time_confirmation, "first_times", record_times)
    brokers, leaders = cast(ConnectionPool, None), dict.fromkeys(results, LEADER)
    when, isolation = AtTime(TIME), Isolation.READ_COMMITTED
    assert confirm_no_record(brokers, B1, leaders, when, isolation, results) == {
        late_first: OffsetResult(ok, "", 10),
        late_latest: OffsetResult(ErrorMeaning.RETRY, f"{CONTRADICTION} 15", None),
    }
    assert asked == [{late_first, late_latest}] * 2
