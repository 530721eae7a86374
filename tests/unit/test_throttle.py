"""Quotas and byte rates, with a clock of integers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangeland.dialects.capabilities import Capabilities
from rangeland.errors import Unreachable
from rangeland.fetch.backoff import Throttle, limits_at_rate, shared_rates
from rangeland.fetch.fetch_loop import FetchLoop
from rangeland.fetch.fetch_size import FetchLimits, limits_within
from rangeland.fetch.fetch_steps import SendFetch, WaitUntil
from rangeland.model import Address, Partition, Slice
from rangeland.planning.policy import Policy
from tests.fakes.fetching import take_step

B1, B2 = Address("b1", 1), Address("b2", 2)


def slice_of(index: int, leader: Address | None = B1) -> Slice:
    return Slice(index, Partition("t", index), 0, 100, 0, None, leader)


def loop_of(*slices: Slice, **rates: int) -> FetchLoop:
    throttle = Throttle({Address(host, int(host[1:])): rate for host, rate in rates.items()})
    patience = FetchLimits(no_progress_ms=10_000)
    return FetchLoop(slices, patience, Policy(), 0, Capabilities(), throttle)


def ask(loop: FetchLoop, now_ms: int) -> SendFetch:
    step = take_step(loop, now_ms)
    assert isinstance(step, SendFetch), step
    return step


def test_nothing_is_sent_to_a_broker_for_as_long_as_it_wishes() -> None:
    loop = loop_of(slice_of(0), slice_of(1, B2))
    step = ask(loop, 0)
    loop.on_response(B1, 10, 700, 40)
    loop.on_records(step.requests[0], 50)
    other = ask(loop, 41)
    assert other.address == B2
    loop.on_records(other.requests[0], 100)
    assert take_step(loop, 42) == WaitUntil(740)
    assert take_step(loop, 739) == WaitUntil(740)
    assert ask(loop, 740).address == B1


def test_a_quota_that_holds_back_for_long_is_not_held_against_the_broker() -> None:
    """Empty responses that were throttled, for longer than a slice may stand still."""
    loop, now = loop_of(slice_of(0)), 0
    for _ in range(20):
        step = take_step(loop, now)
        while isinstance(step, WaitUntil):
            now = step.at_ms
            step = take_step(loop, now)
        assert isinstance(step, SendFetch)
        loop.on_response(B1, 0, 3_000, now)
        loop.on_empty(step.requests[0], 100, throttled=True)
    assert now > 50_000


def test_without_a_throttle_the_same_responses_end_in_an_error() -> None:
    loop = loop_of(slice_of(0))
    with pytest.raises(Unreachable):
        _starve(loop)


def _starve(loop: FetchLoop) -> None:
    now = 0
    for _ in range(99):
        step = take_step(loop, now)
        if isinstance(step, WaitUntil):
            now = step.at_ms
        elif isinstance(step, SendFetch):
            loop.on_response(B1, 0, 0, now)
            loop.on_empty(step.requests[0], 100, throttled=True)


def test_a_rate_is_kept_by_waiting_until_what_came_is_paid_for() -> None:
    loop = loop_of(slice_of(0), b1=1_000)
    loop.on_records(ask(loop, 0).requests[0], 10)
    loop.on_response(B1, 2_500, 0, 100)
    assert take_step(loop, 100) == WaitUntil(2_600)


@given(
    st.integers(1, 10**9),
    st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 5_000)), min_size=1, max_size=30),
)
def test_never_more_than_the_rate_and_one_response_ahead(
    rate: int, responses: list[tuple[int, int]]
) -> None:
    """Responses of any size, each asked for as soon as it may be, and coming late by any time."""
    throttle, now, taken = Throttle({B1: rate}), 0, 0
    for size, late_ms in responses:
        now = max(now, throttle.free_at(B1))
        assert taken * 1000 <= rate * now
        now += late_ms
        taken += size
        throttle.on_response(B1, size, 0, now)


def test_a_broker_that_is_not_named_is_read_at_the_least_rate_and_without_any_freely() -> None:
    assert Throttle({B1: 500, Address("b3", 3): 900}).rate_of(B2) == 500
    free = Throttle()
    free.on_response(B1, 10**9, 0, 5)
    assert free.free_at(B1) == 5
    assert free.free_at(None) == 0


def test_tasks_that_run_at_the_same_time_share_a_broker_s_rate() -> None:
    tasks = [[slice_of(0)], [slice_of(1)], [slice_of(2)], [slice_of(3, B2), slice_of(4, B2)]]
    assert dict(shared_rates(tasks, 2, 1_000)) == {B1: 500, B2: 1_000}
    assert dict(shared_rates(tasks, 8, 1_000)) == {B1: 333, B2: 1_000}
    assert shared_rates([[slice_of(0, None)]], 2, 1_000) == ()


def test_a_slow_reader_asks_for_about_a_second_s_worth() -> None:
    patience = FetchLimits()
    assert limits_at_rate(patience, ()) is patience
    slow = limits_at_rate(patience, ((B1, 300_000), (B2, 10**9)))
    assert (slow.fetch_bytes, slow.request_bytes) == (300_000, 300_000)
    least = patience.smallest_fetch_bytes
    assert limits_at_rate(patience, ((B1, 1),)).request_bytes == least


def test_no_more_is_requested_for_one_entry_than_a_response_may_have() -> None:
    limits = limits_within(FetchLimits(), 256 << 20)
    assert (255 << 20) < limits.largest_fetch_bytes < (256 << 20)
    assert limits_within(FetchLimits(), 1).largest_fetch_bytes == limits.smallest_fetch_bytes
    assert limits_within(FetchLimits(), 4 << 30) == FetchLimits()
