"""What retention may take before it is read: by age, by size, and what follows for the order."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from rangeland.delta.ledger.events import OutcomeEvent, PlanEvent
from rangeland.delta.ledger.ledger_view import LedgerView
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.topic_settings import read_retention
from rangeland.fetch.fetch_loop import FetchLoop
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.fetch_steps import SendFetch
from rangeland.landing.target.ledger_history import expected_speed
from rangeland.model import (
    Address,
    Counts,
    Leader,
    LogState,
    Partition,
    Range,
    Retention,
    Slice,
    Survey,
)
from rangeland.planning.plan import PlanId
from rangeland.planning.policy import Policy
from rangeland.planning.retention_risk import (
    ASSUMED_BYTES_PER_SECOND,
    LEAST_MEASURED_BYTES,
    STARTING_MS,
    ReadSpeed,
    RetentionRisk,
    at_risk,
    expiry_times,
    reading_ms,
    speed_of,
)
from rangeland.planning.slice_receipt import RangeResult
from rangeland.planning.slices import Slicing, cut_slices
from rangeland.planning.task_packing import pack_tasks

P0, P1 = Partition("t", 0), Partition("t", 1)
B1 = Address("b1", 1)
HOUR_MS = 3_600_000


def log(p: Partition, start: int, end: int, size: int | None = None) -> LogState:
    return LogState(p, Leader(B1), start, end, size)


def survey(
    *logs: LogState, retention: Retention, expiring: dict[Partition, int] | None = None
) -> Survey:
    until = expiring or {}
    known = {x.partition: replace(x, expires_until=until.get(x.partition)) for x in logs}
    return Survey(0, known, retention={"t": retention})


def intervals(risks: tuple[RetentionRisk, ...]) -> list[tuple[Partition, int, int]]:
    return [(x.partition, x.from_offset, x.until_offset) for x in risks]


def test_records_that_will_be_too_old_when_they_are_read_are_at_risk() -> None:
    seen = survey(
        log(P0, 0, 100), log(P1, 0, 100), retention=Retention(HOUR_MS), expiring={P0: 40, P1: 0}
    )
    assert intervals(at_risk([Range(P0, 10, 100), Range(P1, 0, 100)], seen)) == [(P0, 10, 40)]
    assert at_risk([Range(P0, 40, 100)], seen) == ()
    assert intervals(at_risk([Range(P0, 10, 20)], seen)) == [(P0, 10, 20)]


def test_without_a_limit_nothing_is_at_risk() -> None:
    seen = survey(log(P0, 0, 100, 10**9), retention=Retention(), expiring={P0: 40})
    assert at_risk([Range(P0, 10, 100)], seen) == ()
    assert at_risk([Range(P0, 10, 100)], Survey(0, {P0: log(P0, 0, 100)})) == ()


@pytest.mark.parametrize(
    ("size", "interval"),
    [(1_000, (0, 10)), (2_000, (0, 55)), (899, None), (900, (0, 1)), (None, None)],
)
def test_a_log_that_is_nearly_as_large_as_it_may_be_loses_its_head_next(
    size: int | None, interval: tuple[int, int] | None
) -> None:
    seen = survey(log(P0, 0, 100, size), retention=Retention(None, 1_000))
    found = intervals(at_risk([Range(P0, 0, 100)], seen))
    assert found == ([] if interval is None else [(P0, *interval)])
    assert at_risk([Range(P0, 60, 100)], seen) == ()


def test_the_time_that_reading_takes_is_what_is_left_of_the_logs_at_a_speed() -> None:
    logs = {P0: log(P0, 0, 100, 1_000_000), P1: log(P1, 50, 100, 500_000)}
    assert reading_ms(logs, {P0: 90}, ReadSpeed(1_000)) == STARTING_MS + 600_000
    assert reading_ms({}, {}, ReadSpeed()) == STARTING_MS
    assert expiry_times({"t": Retention(HOUR_MS), "u": Retention()}, 10**10, 5) == {
        "t": 10**10 - HOUR_MS + 5
    }


def test_a_speed_is_measured_by_a_run_that_has_read_enough_and_else_assumed() -> None:
    assert speed_of([]) == ReadSpeed(ASSUMED_BYTES_PER_SECOND)
    assert speed_of([(1_000, 10.0), (2 * LEAST_MEASURED_BYTES, 4.0)]) == ReadSpeed(
        LEAST_MEASURED_BYTES // 2, True
    )
    assert str(ReadSpeed(3 << 20, True)) == "3 MiB/s, as a recent run"
    assert str(ReadSpeed()) == "an assumed 8 MiB/s"


def test_a_plan_that_waited_for_another_run_to_finish_it_does_not_make_the_next_one_slow() -> None:
    """It was entered in the evening and read in the morning."""
    size = 100 * LEAST_MEASURED_BYTES
    written = {4: (64_800_000, 118_800_000), 3: (0, 100_000), 2: (0, 400_000), 1: (0, 1_000)}
    planned = (Range(P0, 0, 10, estimated_bytes=size),)
    ranges = (RangeResult(planned[0], Counts(landed=10)),)
    plans = {
        PlanId("rangeland/t", n): PlanEvent("rangeland/t", "t", n, "h", planned, "{}", entered_ms)
        for n, (entered_ms, _) in written.items()
    }
    outcomes = [
        OutcomeEvent("rangeland/t", "t", n, "h", ranges, (), written_ms)
        for n, (_, written_ms) in written.items()
    ]
    ledger = SimpleNamespace(outcomes=lambda application: iter(outcomes), plan=plans.get)
    speed = expected_speed(cast(LedgerView, ledger), "rangeland/t")
    assert speed == ReadSpeed(LEAST_MEASURED_BYTES, True), "of the newest three, the fastest"


# --- the order ------------------------------------------------------------------------------


def test_slices_at_risk_are_urgent_and_their_tasks_come_first() -> None:
    mib = 1 << 20
    ranges = [Range(P0, 0, 100, None, 900 * mib), Range(P1, 0, 100, None, 300 * mib)]
    logs = {P0: log(P0, 0, 100), P1: log(P1, 0, 100)}
    slices = cut_slices(ranges, Slicing(100 * mib), logs, [RetentionRisk(P1, 0, 40, "old")])
    urgent = [s for s in slices if s.is_urgent]
    assert [(s.partition, s.from_offset) for s in urgent] == [(P1, 0), (P1, 33)]
    assert [s.index for s in slices] == list(range(12))
    tasks = pack_tasks(slices, 400 * mib)
    assert [task[0] for task in tasks[:2]] == urgent, "spread over the tasks, first in each"
    assert sorted(s.index for task in tasks for s in task) == list(range(12))


def test_a_task_reads_what_is_urgent_before_all_else() -> None:
    slices = [
        Slice(0, P0, 0, 10, 0, None, B1),
        Slice(1, P1, 0, 10, 0, None, B1, is_urgent=True),
    ]
    loop = FetchLoop(slices, FetchLimits(), Policy(), 0)
    first = loop.next(0)
    assert isinstance(first, SendFetch)
    assert [w.index for w in first.requests] == [1]
    loop.on_records(first.requests[0], 10)
    second = loop.next(1)
    assert isinstance(second, SendFetch)
    assert [w.index for w in second.requests] == [0]


# --- what brokers say -----------------------------------------------------------------------


def test_retention_holds_only_where_records_are_deleted_at_all() -> None:
    def topic(name: str, policy: str, code: int = 0) -> m.DescribedResource:
        settings = {"cleanup.policy": policy, "retention.ms": "5", "retention.bytes": "-1"}
        configs = tuple(
            m.DescribedConfig(name=key, value=value, read_only=False, is_sensitive=False)
            for key, value in settings.items()
        )
        return m.DescribedResource(
            error_code=code,
            error_message=None,
            resource_type=m.TOPIC,
            resource_name=name,
            configs=configs,
        )

    response = m.DescribeConfigsResponse(
        throttle_time_ms=0,
        results=(
            topic("kept", "compact"),
            topic("both", "compact,delete"),
            topic("old", "delete"),
            topic("secret", "delete", 29),
        ),
    )
    assert read_retention([response]) == {
        "kept": Retention(),
        "both": Retention(5),
        "old": Retention(5),
    }
