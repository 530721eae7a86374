"""A broker that finds no record as late as a time: when it is believed, and what is asked first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import cast

import pytest

from rangeland import deadline
from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.deadline import Deadline
from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.cluster_values import OffsetResult
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import Unreachable
from rangeland.model import Address, AtTime, Earliest, Isolation, Latest, Leader, Partition
from rangeland.survey import time_confirmation
from rangeland.survey.record_times import FirstRecord, LatestRecord, RecordTime, WantedRecord
from rangeland.survey.survey_attempt import NOTHING_FOUND, SurveyAttempt
from rangeland.survey.survey_request import SurveyRequest
from rangeland.survey.time_confirmation import (
    CONTRADICTION,
    EVERYTHING,
    UNREAD,
    DeniedLog,
    ReplicationWait,
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
    [
        (log(), {10: 0, 15: TIME}),
        (log(latest=9), {10: 0}),
        (log(latest=20), {10: 0}),
    ],
    ids=["late", "deleted", "in an open transaction"],
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
        (log(latest=None), {10: 0}),
    ],
    ids=["empty log", "early", "no time", "the first one", "without timestamps"],
)
def test_other_denials_are_believed(denied: DeniedLog, times: Mapping[int, int | None]) -> None:
    assert judged(denied, times) is None


def test_a_hidden_latest_record_is_judged_by_the_first_record_found_near_the_end() -> None:
    """The last offsets may be transaction markers, which are not records."""
    busy = replace(log(end=1_000, latest=None), latest_is_hidden=True)
    times: dict[int, RecordTime | None] = {}
    assert judge_denial(busy, times) == FirstRecord(LEADER, 10, 1_000)
    times[10] = RecordTime(0)
    for first, until in ((999, 1_000), (996, 999), (984, 996)):
        assert judge_denial(busy, times) == FirstRecord(LEADER, first, until)
        times[first] = None
    assert judge_denial(busy, times | {936: RecordTime(TIME - 1)}) is None
    late = OffsetResult(ErrorMeaning.RETRY, f"{CONTRADICTION} 936 or later", None)
    assert judge_denial(busy, times | {936: RecordTime(TIME)}) == late


def test_a_hidden_latest_record_is_not_ruled_out_where_no_record_is_found_near_the_end() -> None:
    busy = replace(log(end=10_000_000, latest=None), latest_is_hidden=True)
    times: dict[int, RecordTime | None] = {10: RecordTime(0)}
    until = busy.end_offset
    while isinstance(asked := judge_denial(busy, times), WantedRecord):
        assert asked.until_offset == until  # nothing is read twice
        until = asked.from_offset
        times[asked.from_offset] = None
    assert asked == UNREAD
    assert until == 10_000_000 - 4**10
    assert len(times) < 15


@pytest.mark.parametrize("time_ms", [TIME, TIME - 1])
def test_a_record_before_a_huge_aborted_transaction_is_found_in_a_few_steps(time_ms: int) -> None:
    busy = replace(log(end=1_000_000, latest=None), latest_is_hidden=True)
    last_record = busy.end_offset - 50_000
    times: dict[int, RecordTime | None] = {10: RecordTime(0)}
    while isinstance(asked := judge_denial(busy, times), WantedRecord):
        is_found = asked.from_offset <= last_record < asked.until_offset
        times[asked.from_offset] = RecordTime(time_ms) if is_found else None
        # Beyond a thousand offsets, reading ends after so many bytes.
        is_near = asked.from_offset >= busy.end_offset - 1024
        assert isinstance(asked, FirstRecord if is_near else LatestRecord)
    is_late = asked is not None and asked.code_name.startswith(CONTRADICTION)
    assert is_late == (time_ms == TIME)
    assert len(times) == 10


@pytest.mark.parametrize("start", [10, 2_000_000 - 4**10])
def test_of_many_offsets_near_the_end_the_latest_record_is_judged(start: int) -> None:
    """The first one may be much earlier than hundreds of thousands that follow."""
    busy = replace(log(start, end=2_000_000, latest=None), latest_is_hidden=True)
    times: dict[int, RecordTime | None] = {start: RecordTime(0)}
    while isinstance(asked := judge_denial(busy, times), WantedRecord):
        has_records = asked.until_offset <= 2_000_000 - 4**9
        if has_records:
            assert asked == LatestRecord(LEADER, asked.from_offset, 2_000_000 - 4**9, 8)
        times[asked.from_offset] = RecordTime(TIME) if has_records else None
    assert asked is not None
    assert asked.code_name.startswith(CONTRADICTION)


def test_a_large_log_with_one_record_and_a_hidden_latest_one_is_judged_by_that_record() -> None:
    busy = replace(log(end=1_000_000, latest=None), latest_is_hidden=True)
    times: dict[int, RecordTime | None] = {10: RecordTime(0)}
    while isinstance(asked := judge_denial(busy, times), WantedRecord):
        times[asked.from_offset] = None
    assert asked is None
    assert min(x for x in times if x > 10) == 11  # everything was read


def test_a_log_with_one_record_and_a_hidden_latest_one_is_judged_by_that_record() -> None:
    busy = replace(log(latest=None), latest_is_hidden=True)
    markers: dict[int, RecordTime | None] = {19: None, 16: None}
    assert judge_denial(busy, {10: RecordTime(0), **markers}) is None


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
        if isinstance(when[0], AtTime):
            return {p: OffsetResult(ErrorMeaning.OK, "", None) for p in leaders}
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
    wait = ReplicationWait()
    results = contradicted_denials(
        cast(ConnectionPool, pool), B1, denied, AtTime(TIME), isolation, wait, Deadline(60)
    )
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


# --- what an isolation level hides ----------------------------------------------------------


@dataclass
class Broker:
    """The leader of a log of which it finds no record by time, as if the first segment that may
    have one had none left. ``times``: of its records, by offset. It is a dialect and the
    connections at once."""

    times: dict[int, int]
    stable: int
    watermark: int
    finds: bool = False
    """The search by time works after all."""
    epoch: int | None = 3
    replicates: bool = False
    """What is not replicated yet will be once the latest record has been asked for twice."""
    asked: list[tuple[object, Isolation]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dialect = self
        self.settings = SimpleNamespace(isolation=Isolation.READ_COMMITTED)
        self.end = max(self.times) + 1

    def call_all(self, address: Address, requests: list[object]) -> list[object]:
        return [self._answer(*request) for request in requests]  # type: ignore[misc]

    def offsets_requests(self, leaders: object, when: object, isolation: Isolation) -> list[object]:
        return [(when, isolation)]

    def latest_timestamps_requests(self, leaders: object, isolation: Isolation) -> list[object]:
        return [("latest", isolation)]

    def read_offsets(self, responses: list[OffsetResult]) -> dict[Partition, OffsetResult]:
        return {Partition("t", 0): responses[0]}

    def epochs_requests(self, leaders: object, epochs: dict[Partition, int]) -> list[object]:
        assert list(epochs.values()) == [self.epoch]
        return [("epoch", EVERYTHING)]

    def read_epochs(self, responses: list[OffsetResult]) -> dict[Partition, int | None]:
        return {Partition("t", 0): responses[0].offset}

    def _answer(self, what: object, isolation: Isolation) -> OffsetResult:
        self.asked.append((what, isolation))
        if what == "epoch":
            return OffsetResult(ErrorMeaning.OK, "", self.end)
        end = self.stable if isolation is Isolation.READ_COMMITTED else self.watermark
        if what == Earliest():
            return OffsetResult(ErrorMeaning.OK, "", min(self.times))
        if what == Latest():
            return OffsetResult(ErrorMeaning.OK, "", end)
        found = max(self.times, key=lambda offset: (self.times[offset], -offset))
        if isinstance(what, AtTime):
            late = [x for x in self.times if self.times[x] >= what.time_ms and self.finds]
            found = min(late, default=end)
        elif self.replicates and len(self.asked) > 2:
            end = self.watermark = self.end
        if found >= end or self.times[found] < 0:
            return OffsetResult(ErrorMeaning.OK, "", None)
        return OffsetResult(ErrorMeaning.OK, "", found, time_ms=self.times[found])


def checked(
    monkeypatch: pytest.MonkeyPatch,
    broker: Broker,
    seconds: float = 60,
    wait: ReplicationWait | None = None,
) -> OffsetResult | None:
    """The result instead of the denial, for committed records; None if that is believed.
    ``seconds``: how long records may be read. ``wait``: that of earlier attempts."""

    def read(_: object, records: Mapping[Partition, FirstRecord]) -> object:
        assert all(record.until_offset <= broker.stable for record in records.values())
        times = {p: broker.times.get(record.from_offset) for p, record in records.items()}
        return {p: None if t is None else RecordTime(t) for p, t in times.items()}

    monkeypatch.setattr(time_confirmation, "confirmed_times", read)
    p = Partition("t", 0)
    denied = {p: Leader(B1, epoch=broker.epoch)}
    pool = cast(ConnectionPool, broker)
    isolation, wait = Isolation.READ_COMMITTED, wait or ReplicationWait()
    when, complete_by = AtTime(TIME), Deadline(seconds)
    return contradicted_denials(pool, B1, denied, when, isolation, wait, complete_by).get(p)


def test_the_latest_record_is_asked_for_among_all_up_to_the_high_watermark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker({10: 0, 19: TIME - 2, 22: TIME - 1}, stable=20, watermark=23)
    assert checked(monkeypatch, broker) is None
    assert broker.asked == [("latest", Isolation.READ_UNCOMMITTED)]


def test_a_latest_record_in_an_open_transaction_does_not_hide_an_earlier_late_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker({10: 0, 15: TIME, 19: 0, 22: TIME + 1}, stable=20, watermark=23)
    again = OffsetResult(ErrorMeaning.RETRY, f"{CONTRADICTION} 22", None)
    assert checked(monkeypatch, broker) == again


@pytest.mark.parametrize("seconds", [60, -1])
def test_no_more_than_single_records_are_read_once_the_time_of_the_survey_is_up(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has 5,000 transaction markers at its end; the record before them is late."""
    times = {10: 0, 11: TIME, 5_020: TIME + 1}
    broker = Broker(times, stable=5_012, watermark=5_012)
    wait = ReplicationWait()
    wait.must_go_on(Partition("t", 0), AtTime(TIME), 5_000, 5_000)
    found = checked(monkeypatch, broker, seconds, wait)
    assert found is not None
    assert found.code_name.startswith(CONTRADICTION) == (seconds > 0)
    assert (found == UNREAD) == (seconds < 0)


def test_a_late_record_in_an_open_transaction_is_at_its_own_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker({10: 0, 21: TIME, 22: TIME + 1}, stable=20, watermark=23, finds=True)
    assert checked(monkeypatch, broker) == OffsetResult(ErrorMeaning.OK, "", 21, time_ms=TIME)


@pytest.mark.parametrize("replicates", [True, False])
def test_a_latest_record_that_is_not_replicated_yet_is_asked_about_again(
    replicates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {10: 0, 15: TIME, 22: TIME + 1}
    broker = Broker(times, stable=20, watermark=20, replicates=replicates)
    found = checked(monkeypatch, broker)
    assert found is not None
    assert (found.meaning, found == UNREAD) == (ErrorMeaning.RETRY, not replicates)


@pytest.mark.parametrize("epoch", [3, None])
def test_a_log_without_timestamps_has_no_latest_record_and_hides_none(
    epoch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker({10: -1, 22: -1}, stable=20, watermark=23, epoch=epoch)
    assert checked(monkeypatch, broker) is None


# --- a log that is always being written to --------------------------------------------------


class Busy(Broker):
    """Each request finds ten more records, each later than the one before. The last five, or all of
    them if its followers do not ``keep_up``, are not replicated yet."""

    capabilities = Capabilities()

    def __init__(self, first_new_ms: int, *, keep_up: bool = True, markers: int = 0) -> None:
        """``markers``: how many transaction markers there are before each end that is replicated:
        before the offsets 7, 17, 27, and so on."""
        super().__init__({0: 0, 1: first_new_ms}, stable=2, watermark=2)
        self.keep_up = keep_up
        self.markers = markers
        self.settings = ClusterSettings("kafka", (B1,))  # type: ignore[assignment]

    def first_record(self, wanted: FirstRecord) -> RecordTime | None:
        """None if the offsets have only transaction markers."""
        offsets = range(wanted.from_offset, wanted.until_offset)
        records = (x for x in offsets if x % 10 not in range(7 - self.markers, 7))
        return next((RecordTime(self.times[x]) for x in records), None)

    def _answer(self, what: object, isolation: Isolation) -> OffsetResult:
        latest = max(self.times.values())
        self.times |= {self.end + n: latest + n + 1 for n in range(10)}
        self.end += 10
        if self.keep_up:
            self.stable = self.watermark = self.end - 5
        return super()._answer(what, isolation)


def offset_in(
    monkeypatch: pytest.MonkeyPatch, broker: Busy, time_ms: int
) -> tuple[OffsetResult, float]:
    """The result of a survey's question for a time, and how many seconds it took."""
    clock = [0.0]
    monkeypatch.setattr(deadline.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(deadline.time, "sleep", lambda s: clock.__setitem__(0, clock[0] + s))

    def read(_: object, records: Mapping[Partition, FirstRecord]) -> object:
        return {p: broker.first_record(x) for p, x in records.items()}

    monkeypatch.setattr(time_confirmation, "confirmed_times", read)
    p = Partition("t", 0)
    wanted = replace(NOTHING_FOUND, leaders={p: Leader(B1, epoch=broker.epoch)})
    monkeypatch.setattr(SurveyAttempt, "_present_leaders", lambda self: wanted)
    attempt = SurveyAttempt(cast(ConnectionPool, broker), SurveyRequest(("t",)))
    attempt.answered_by = B1
    attempt.find_leaders()
    return attempt.offsets(AtTime(time_ms), Isolation.READ_COMMITTED)[p], clock[0]


NEVER = 10**15


def test_a_log_whose_latest_record_always_hides_is_believed_once_its_earlier_ones_are_replicated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, seconds = offset_in(monkeypatch, Busy(TIME), NEVER)
    assert (found.meaning, found.offset) == (ErrorMeaning.OK, None)
    assert 0 < seconds < 2


def test_a_late_record_at_the_end_of_a_busy_log_contradicts_its_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(Unreachable, match="the offset") as caught:
        offset_in(monkeypatch, Busy(TIME), TIME)
    assert CONTRADICTION in str(caught.value)


@pytest.mark.parametrize("markers", [1, 3])
def test_markers_at_the_end_of_a_busy_log_do_not_hide_a_late_record_before_them(
    markers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unreachable) as caught:
        offset_in(monkeypatch, Busy(TIME, markers=markers), TIME)
    assert CONTRADICTION in str(caught.value)
    found, _ = offset_in(monkeypatch, Busy(TIME, markers=markers), NEVER)
    assert (found.meaning, found.offset) == (ErrorMeaning.OK, None)


def test_a_log_that_is_not_replicated_is_never_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unreachable) as caught:
        offset_in(monkeypatch, Busy(TIME, keep_up=False), NEVER)
    assert UNREAD.code_name in str(caught.value)
