"""A broker that finds no record as late as a time: when it is believed, and what is asked first."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import OffsetResult
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.model import Address, AtTime, Earliest, Isolation, Leader, Partition
from rangeland.survey import time_confirmation
from rangeland.survey.record_times import FirstRecord, RecordTime
from rangeland.survey.time_confirmation import (
    CONTRADICTION,
    UNREAD,
    DeniedLog,
    contradicted_denials,
    denied_logs,
    judge_denial,
)

B1 = Address("b1", 9092)
LEADER = Leader(B1)
TIME = 1_000


def log(start: int = 10, end: int = 20, latest: int | None = 15) -> DeniedLog:
    return DeniedLog(TIME, LEADER, start, end, latest)


def judged(denied: DeniedLog, times: Mapping[int, int | None]) -> OffsetResult | FirstRecord | None:
    """The judgement if there are records with these times, None: without one."""
    return judge_denial(denied, {offset: RecordTime(time_ms) for offset, time_ms in times.items()})


def test_the_first_record_is_asked_for_and_then_the_latest() -> None:
    assert judged(log(), {}) == FirstRecord(LEADER, 10, 20)
    assert judged(log(), {10: TIME - 1}) == FirstRecord(LEADER, 15, 16)
    assert judged(log(), {10: None}) == FirstRecord(LEADER, 15, 16)


def test_a_range_begins_at_a_first_record_that_is_late_enough() -> None:
    assert judged(log(), {10: TIME}) == OffsetResult(ErrorMeaning.OK, "", 10)


@pytest.mark.parametrize(
    ("denied", "times"),
    [(log(), {10: 0, 15: TIME}), (log(latest=9), {10: 0})],
    ids=["late", "deleted"],
)
def test_a_latest_record_that_contradicts_is_asked_about_again(
    denied: DeniedLog, times: Mapping[int, int | None]
) -> None:
    again = OffsetResult(ErrorMeaning.RETRY, f"{CONTRADICTION} {denied.latest_offset}", None)
    assert judged(denied, times) == again


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
    assert judged(denied, times) is None


def test_a_log_without_any_record_has_none_that_is_late() -> None:
    assert judge_denial(log(latest=9), {10: None}) is None


def test_only_what_is_denied_is_confirmed() -> None:
    denied, found, unavailable, unanswered = (Partition("t", n) for n in range(4))
    results = {
        denied: OffsetResult(ErrorMeaning.OK, "", None),
        found: OffsetResult(ErrorMeaning.OK, "", 12),
        unavailable: OffsetResult(ErrorMeaning.RETRY, "", None),
    }
    leaders = dict.fromkeys([*results, unanswered], LEADER)
    assert denied_logs(leaders, results) == {denied: LEADER}


def confirm(
    monkeypatch: pytest.MonkeyPatch,
    latest: Mapping[Partition, OffsetResult],
    times: Mapping[tuple[Partition, int], int],
    *,
    partitions: int,
    silent: Partition | None = None,
) -> tuple[dict[Partition, OffsetResult], list[set[Partition]]]:
    """The results for logs ``[10, 20)`` whose broker says this of their latest records and times,
    and the partitions whose ends were asked for. ``silent``: one whose ends it leaves out."""
    asked = list[set[Partition]]()

    def ends(_: object, __: object, leaders: Mapping[Partition, Leader], *when: object) -> object:
        asked.append(set(leaders))
        offset = 10 if when[0] == Earliest() else 20
        ok = OffsetResult(ErrorMeaning.OK, "", offset)
        return {p: ok for p in leaders if p != silent}

    def record_times(
        _: object, records: Mapping[Partition, FirstRecord]
    ) -> dict[Partition, RecordTime]:
        places = {p: (p, record.from_offset) for p, record in records.items()}
        return {p: RecordTime(times[place]) for p, place in places.items() if place in times}

    monkeypatch.setattr(time_confirmation, "ask_offsets", ends)
    monkeypatch.setattr(time_confirmation, "confirmed_times", record_times)
    dialect = SimpleNamespace(
        latest_timestamps_requests=lambda *_: ["request"], read_offsets=lambda _: latest
    )
    pool = SimpleNamespace(dialect=dialect, call_all=lambda *_: ["response"])
    denied = {Partition("t", n): LEADER for n in range(partitions)}
    isolation = Isolation.READ_COMMITTED
    results = contradicted_denials(cast(ConnectionPool, pool), B1, denied, AtTime(TIME), isolation)
    return results, asked


def test_each_denied_log_is_asked_about_until_it_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    early, late_first, late_latest = (Partition("t", n) for n in range(3))
    latest = {
        early: OffsetResult(ErrorMeaning.OK, "", 15, time_ms=TIME - 1),
        late_first: OffsetResult(ErrorMeaning.OK, "", 15, time_ms=TIME),
        late_latest: OffsetResult(ErrorMeaning.OK, "", 15),
    }
    times = {
        (late_first, 10): TIME,
        (late_latest, 10): 0,
        (late_latest, 15): TIME,
    }
    results, asked = confirm(monkeypatch, latest, times, partitions=3)
    assert results == {
        late_first: OffsetResult(ErrorMeaning.OK, "", 10),
        late_latest: OffsetResult(ErrorMeaning.RETRY, f"{CONTRADICTION} 15", None),
    }
    assert asked == [{late_first, late_latest}] * 2


def test_a_denial_that_could_not_be_checked_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is said of the latest record, of the ends, or of one of the two records."""
    no_latest, moved, no_ends, no_first, no_second = (Partition("t", n) for n in range(5))
    late = OffsetResult(ErrorMeaning.OK, "", 15, time_ms=TIME)
    not_leader = OffsetResult(ErrorMeaning.FIND_LEADER, "NOT_LEADER", None)
    latest = {moved: not_leader, no_ends: late, no_first: late, no_second: late}
    times = {(no_second, 10): 0}
    results, _ = confirm(monkeypatch, latest, times, partitions=5, silent=no_ends)
    unread = dict.fromkeys((no_latest, no_ends, no_first, no_second), UNREAD)
    assert results == {**unread, moved: not_leader}
    assert UNREAD.meaning is ErrorMeaning.RETRY


def test_a_log_without_timestamps_cannot_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    unsupported = OffsetResult(ErrorMeaning.UNSUPPORTED, "UNSUPPORTED_FOR_MESSAGE_FORMAT", None)
    assert confirm(monkeypatch, {Partition("t", 0): unsupported}, {}, partitions=1) == ({}, [])
