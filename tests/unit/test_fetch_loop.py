"""The fetch loop by scripted responses and a clock of integers: what it does next, and never."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import (
    AccessDenied,
    BadRecord,
    Bug,
    JobFileError,
    MissingRequirement,
    RangelandError,
    RangeLost,
    RemoteProtocolError,
    Unreachable,
)
from rangeland.fetch.backoff import SHORT_END_PAUSE_MS
from rangeland.fetch.fetch_loop import FetchLoop
from rangeland.fetch.fetch_size import RESPONSES_TO_GROW, FetchLimits
from rangeland.fetch.fetch_steps import AllRead, AskLogRange, FindLeaders, SendFetch, WaitUntil
from rangeland.fetch.leader_judgement import OTHER_TOPIC_MS, FoundLeaders
from rangeland.fetch.log_lines import log_all
from rangeland.fetch.replica_choice import Sender
from rangeland.fetch.slice_state import Fail, Observation, Phase, SliceEvent, SliceState, move_on
from rangeland.loss import Action, LossKind
from rangeland.model import Address, Leader, Partition, Slice
from rangeland.planning.policy import Policy
from tests.fakes.fetching import take_step

B1, B2, B3 = Address("b1", 1), Address("b2", 2), Address("b3", 3)
P0, P1 = Partition("t", 0), Partition("t", 1)
PATIENCE = FetchLimits(no_progress_ms=10_000, backoff_ms=100, max_backoff_ms=1_000)


def slice_(
    index: int, p: Partition, start: int = 0, until: int = 100, leader: Address | None = B1
) -> Slice:
    return Slice(index, p, start, until, 0, "A", leader)


def loop_of(*slices: Slice, patience: FetchLimits = PATIENCE, **actions: Action) -> FetchLoop:
    return FetchLoop(slices, patience, Policy(**actions), 0)


def confirmed(loop: FetchLoop) -> FetchLoop:
    """Metadata has named the leaders of the plan again."""
    for state in loop.states.values():
        state.broker.on_leader(Leader(B1, topic_id="A"), 0)
    return loop


def ask(loop: FetchLoop, now_ms: int = 0) -> SendFetch:
    step = take_step(loop, now_ms)
    assert isinstance(step, SendFetch), step
    return step


def measure(loop: FetchLoop, now_ms: int, start: int, end: int) -> None:
    """One out-of-range response, and the log range that is asked for because of it."""
    loop.on_error(ask(loop, now_ms).requests[0], ErrorMeaning.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE")
    step = take_step(loop, now_ms)
    assert isinstance(step, AskLogRange), step
    loop.on_log_range(step.request, start, end)


def lead(address: Address | None, topic_id: str = "A", *replicas: Address) -> FoundLeaders:
    return FoundLeaders({P0: Leader(address, 3, topic_id, replicas)})


def test_a_slice_is_read_chunk_by_chunk_to_its_end() -> None:
    loop = loop_of(slice_(0, P0, 5, 100))
    for next_offset, following in ((5, 40), (40, 99), (99, 120)):
        step = ask(loop, next_offset)
        assert (step.address, [w.offset for w in step.requests]) == (B1, [next_offset])
        loop.on_records(step.requests[0], following)
    assert take_step(loop, 200) == AllRead()


def test_right_after_records_the_next_request_may_be_sent_ahead() -> None:
    loop = loop_of(slice_(0, P0), slice_(1, P1))
    for request in ask(loop).requests:
        loop.on_records(request, 50)
    assert [w.offset for w in ask(loop).requests] == [50, 50]


def test_an_empty_slice_and_no_slice_are_finished_at_once() -> None:
    assert loop_of(slice_(0, P0, 7, 7)).next(0) == AllRead()
    assert loop_of().next(0) == AllRead()


def test_all_slices_of_one_leader_share_a_request_and_other_leaders_have_their_own() -> None:
    loop = loop_of(slice_(0, P0), slice_(1, P1), slice_(2, Partition("t", 2), leader=B2))
    first = ask(loop)
    assert (first.address, [w.index for w in first.requests]) == (B1, [0, 1])
    for request in first.requests:
        loop.on_records(request, 10)
    for request in ask(loop, 1).requests:
        loop.on_records(request, 20)
    assert ask(loop, 2).address == B2


def test_one_partition_is_never_twice_in_one_request_and_both_slices_are_read() -> None:
    loop = loop_of(slice_(0, P0, 0, 50), slice_(1, P0, 50, 100))
    seen = []
    for now in range(1, 5):
        step = ask(loop, now)
        assert len(step.requests) == 1
        request = step.requests[0]
        seen.append((request.index, request.offset))
        loop.on_records(request, request.offset + 25)
    assert sorted(seen) == [(0, 0), (0, 25), (1, 50), (1, 75)]
    assert take_step(loop, 5) == AllRead()


def test_a_request_stays_within_its_bytes() -> None:
    patience = replace(PATIENCE, fetch_bytes=40, request_bytes=100)
    loop = loop_of(*(slice_(i, Partition("t", i)) for i in range(4)), patience=patience)
    assert len(ask(loop).requests) == 2


def test_two_slices_of_one_index_are_our_bug() -> None:
    with pytest.raises(Bug, match="same index"):
        loop_of(slice_(0, P0), slice_(0, P1))


# --- failover ---------------------------------------------------------------------------


def test_not_leader_asks_for_the_new_leader_at_once_and_continues_at_the_same_offset() -> None:
    loop = loop_of(slice_(0, P0))
    loop.on_records(ask(loop).requests[0], 30)
    loop.on_error(ask(loop, 1).requests[0], ErrorMeaning.FIND_LEADER, "NOT_LEADER_OR_FOLLOWER")
    assert take_step(loop, 1) == FindLeaders((P0,), ())
    loop.on_leaders(lead(B2))
    step = ask(loop, 1)
    assert (step.address, step.requests[0].offset, step.requests[0].epoch) == (B2, 30, 3)


def test_a_lost_connection_moves_every_slice_of_that_leader_and_no_other() -> None:
    loop = loop_of(slice_(0, P0), slice_(1, P1), slice_(2, Partition("u", 0), leader=B2))
    loop.on_lost(ask(loop).address, "reset")
    assert take_step(loop, 0) == FindLeaders((P0, P1), ())
    loop.on_leaders(FoundLeaders())
    assert ask(loop).address == B2


def test_the_leader_that_was_left_is_the_last_to_be_asked_who_leads() -> None:
    loop = loop_of(slice_(0, P0))
    loop.on_lost(B1, "reset")
    take_step(loop, 0)
    loop.on_leaders(lead(B2, "A", B1, B2, B3))
    loop.on_lost(ask(loop, 0 + 200).address, "reset")
    step = take_step(loop, 1_000)
    assert isinstance(step, FindLeaders)
    assert step.replicas == (B1, B3)


def test_no_leader_is_waited_for_with_growing_pauses_up_to_the_bound() -> None:
    loop = loop_of(slice_(0, P0, leader=None))
    now, pauses = 0, []
    for _ in range(7):
        assert isinstance(take_step(loop, now), FindLeaders)
        loop.on_leaders(lead(None))
        step = take_step(loop, now)
        assert isinstance(step, WaitUntil)
        pauses.append(step.at_ms - now)
        now = step.at_ms
    assert pauses == [100, 200, 400, 800, 1000, 1000, 1000]


def test_pauses_restart_after_progress() -> None:
    loop = loop_of(slice_(0, P0))
    for now in (0, 100, 300):
        loop.on_error(ask(loop, now).requests[0], ErrorMeaning.RETRY, "BUSY")
    loop.on_records(ask(loop, 1_000).requests[0], 10)
    loop.on_error(ask(loop, 1_000).requests[0], ErrorMeaning.RETRY, "BUSY")
    assert take_step(loop, 1_000) == WaitUntil(1_100)


def test_the_same_leader_named_again_is_given_a_moment_and_then_taken() -> None:
    loop = loop_of(slice_(0, P0))
    loop.on_lost(ask(loop).address, "reset")
    take_step(loop, 0)
    loop.on_leaders(lead(B1))
    wait = take_step(loop, 0)
    assert wait == WaitUntil(200)
    assert isinstance(take_step(loop, 200), FindLeaders)
    loop.on_leaders(lead(B1))
    assert ask(loop, 200).address == B1


def test_no_metadata_pauses_those_that_were_asked_for_only() -> None:
    loop = loop_of(slice_(0, P0, leader=None), slice_(1, P1))
    take_step(loop, 0)
    loop.on_leaders(FoundLeaders())  # P0 waits until 100
    loop.on_lost(ask(loop, 10).address, "reset")
    assert take_step(loop, 10) == FindLeaders((P1,), ())
    loop.on_leaders(FoundLeaders(unreachable={P1: "nobody answers"}))
    assert loop.states[0].retry.failures == 1
    assert take_step(loop, 99) == WaitUntil(100)


def test_trouble_of_one_partition_never_delays_another() -> None:
    loop = loop_of(slice_(0, P0), slice_(1, P1))
    first, second = ask(loop).requests
    loop.on_error(first, ErrorMeaning.RETRY, "BUSY")
    loop.on_records(second, 10)
    step = ask(loop)
    assert [w.index for w in step.requests] == [1]
    loop.on_records(step.requests[0], 20)
    assert [w.index for w in ask(loop, 100).requests] == [0, 1]


# --- losses -----------------------------------------------------------------------------


def test_offsets_below_the_log_are_expired_and_end_the_run() -> None:
    loop = loop_of(slice_(0, P0))
    measure(loop, 0, 40, 200)
    with pytest.raises(RangeLost, match=r"t/0 \[0, 40\) expired"):
        take_step(loop, 0)


@pytest.mark.parametrize(("start", "lost_until"), [(40, 40), (100, 100), (500, 100)])
def test_expired_offsets_are_counted_where_the_policy_skips_them(
    start: int, lost_until: int
) -> None:
    loop = loop_of(slice_(0, P0), expired=Action.SKIP)
    measure(loop, 0, start, 600)
    (lost,) = loop.take_losses()
    index, loss = lost.index, lost.loss
    assert (index, loss.from_offset, loss.until_offset) == (0, 0, lost_until)
    assert loss.kind is LossKind.EXPIRED
    if lost_until == 100:
        assert take_step(loop, 1) == AllRead()
    else:
        assert ask(loop, 1).requests[0].offset == 40


def test_an_offset_that_is_in_the_log_after_all_is_asked_for_again() -> None:
    loop = loop_of(slice_(0, P0))
    measure(loop, 0, 0, 200)
    assert take_step(loop, 0) == WaitUntil(100)
    assert ask(loop, 100).requests[0].offset == 0


def _stay_beyond_the_end(loop: FetchLoop, until_ms: int) -> int:
    """A leader whose log ends at 20 while 30 is asked for, up to ``until_ms``; the last now."""
    now = 0
    while now <= until_ms:
        step = take_step(loop, now)
        match step:
            case WaitUntil(at_ms):
                now = at_ms
            case SendFetch(_, requests):
                loop.on_error(requests[0], ErrorMeaning.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE")
            case AskLogRange(_, request):
                loop.on_log_range(request, 0, 20)
            case FindLeaders():
                loop.on_leaders(lead(B1))
            case AllRead():
                return now
    return now


def test_offsets_above_the_log_are_no_loss_before_the_deadline() -> None:
    loop = loop_of(slice_(0, P0, 30, 100))
    now = _stay_beyond_the_end(loop, 9_000)
    assert loop.take_losses() == []
    while not isinstance(step := take_step(loop, now), SendFetch):
        now = step.at_ms if isinstance(step, WaitUntil) else now
        loop.on_leaders(lead(B1))
    loop.on_records(step.requests[0], 100)
    assert take_step(loop, now) == AllRead()


def test_offsets_above_the_log_are_truncated_after_the_deadline() -> None:
    with pytest.raises(RangeLost, match=r"t/0 \[30, 100\) truncated.*its log ends at 20"):
        _stay_beyond_the_end(loop_of(slice_(0, P0, 30, 100)), 30_000)
    skipping = loop_of(slice_(0, P0, 30, 100), truncated=Action.SKIP)
    assert _stay_beyond_the_end(skipping, 30_000) > 10_000
    (loss,) = (lost.loss for lost in skipping.take_losses())
    assert (loss.from_offset, loss.until_offset) == (30, 100)
    assert loss.kind is LossKind.TRUNCATED


def _have_no_leader(loop: FetchLoop, now: int) -> None:
    for _ in range(200):
        step = take_step(loop, now)
        if isinstance(step, WaitUntil):
            now = step.at_ms
        elif isinstance(step, SendFetch):
            loop.on_lost(step.address, "reset")
        else:
            loop.on_leaders(FoundLeaders())


def test_a_log_that_was_short_and_then_had_no_leader_is_unreachable_and_not_truncated() -> None:
    loop = loop_of(slice_(0, P0, 30, 100), truncated=Action.SKIP)
    now = _stay_beyond_the_end(loop, 1_000)
    with pytest.raises(Unreachable, match="no leader"):
        _have_no_leader(loop, now)
    assert loop.take_losses() == []


def _named_b(loop: FetchLoop, meaning: ErrorMeaning, until_ms: int) -> None:
    """All metadata names another topic id, up to this time."""
    loop.on_error(ask(loop).requests[0], meaning, "UNKNOWN_TOPIC_ID")
    now = 0
    while now <= until_ms and loop.states[0].phase is not Phase.DONE:
        step = take_step(loop, now)
        if isinstance(step, WaitUntil):
            now = step.at_ms
        else:
            assert isinstance(step, FindLeaders)
            loop.on_leaders(lead(B1, "B"))


@pytest.mark.parametrize("meaning", [ErrorMeaning.FIND_LEADER, ErrorMeaning.RECREATED])
def test_another_topic_id_in_the_metadata_is_a_topic_created_again(meaning: ErrorMeaning) -> None:
    loop = loop_of(slice_(0, P0))
    with pytest.raises(RangeLost, match=r"t/0 \[0, 100\) recreated"):
        _named_b(loop, meaning, 8_000)
    assert loop.now_ms >= OTHER_TOPIC_MS
    skipping = loop_of(slice_(0, P0), recreated=Action.SKIP)
    _named_b(skipping, meaning, 8_000)
    assert skipping.next(8_000) == AllRead()
    assert [(x.index, x.loss.kind, x.loss.width) for x in skipping.take_losses()] == [
        (0, LossKind.RECREATED, 100)
    ]


def test_a_broker_that_lags_may_name_the_topic_that_was_there_before() -> None:
    loop = loop_of(slice_(0, P0))
    _named_b(loop, ErrorMeaning.FIND_LEADER, 3_000)
    assert isinstance(take_step(loop, 5_000), FindLeaders)
    loop.on_leaders(lead(B2, "A"))
    assert ask(loop, 5_000).address == B2
    assert loop.on_records(ask(loop, 5_000).requests[0], 50)
    assert loop.take_losses() == []


def test_a_topic_id_error_is_not_a_loss_while_the_metadata_has_the_planned_id() -> None:
    loop = loop_of(slice_(0, P0), recreated=Action.SKIP)
    loop.on_error(ask(loop).requests[0], ErrorMeaning.RECREATED, "UNKNOWN_TOPIC_ID")
    take_step(loop, 0)
    loop.on_leaders(lead(B2, "A"))
    assert ask(loop).address == B2
    assert loop.take_losses() == []


# --- what comes in odd sizes ------------------------------------------------------------


def test_a_broker_that_does_not_answer_in_time_is_asked_for_less() -> None:
    """A large response over a slow network may never come in time."""
    loop = loop_of(slice_(0, P0), slice_(1, P1))
    before = ask(loop).requests[0].max_bytes
    loop.on_lost(ask(loop).address, "no complete response in 30000 ms", is_slow=True)
    take_step(loop, 0)
    loop.on_leaders(FoundLeaders({p: Leader(B2) for p in (P0, P1)}))
    (request,) = ask(loop, 0).requests
    assert request.max_bytes == max(before // 2, loop.limits.smallest_fetch_bytes) < before
    loop.on_records(request, 100)
    (other,) = ask(loop, 0).requests
    assert other.max_bytes == request.max_bytes
    for _ in range(40):
        loop.states[other.index].size.shrink(loop.limits)
    assert loop.states[other.index].size.bytes == loop.limits.smallest_fetch_bytes


def test_the_size_grows_back_after_responses_in_time_and_later_after_each_slow_one() -> None:
    loop = loop_of(slice_(0, P0, 0, 10_000))
    state = loop.states[0]
    before = state.size.bytes

    def responses_until_it_grows() -> int:
        size, count = state.size.bytes, 0
        while state.size.bytes == size:
            (request,) = ask(loop, 0).requests
            loop.on_records(request, request.offset + 1)
            count += 1
        assert state.size.bytes == min(size * 2, before)
        return count

    state.size.shrink(loop.limits)
    assert responses_until_it_grows() == 2 * RESPONSES_TO_GROW
    state.size.shrink(loop.limits)
    state.size.shrink(loop.limits)
    assert [responses_until_it_grows(), responses_until_it_grows()] == [8 * RESPONSES_TO_GROW] * 2
    (request,) = ask(loop, 0).requests
    loop.on_records(request, request.offset + 1)
    assert state.size.bytes == before, "it never exceeds what it was"


def test_a_connection_that_breaks_says_nothing_about_sizes() -> None:
    loop = loop_of(slice_(0, P0))
    before = ask(loop).requests[0].max_bytes
    loop.on_lost(ask(loop).address, "the broker closed the connection")
    take_step(loop, 0)
    loop.on_leaders(FoundLeaders({P0: Leader(B2)}))
    assert ask(loop).requests[0].max_bytes == before


def test_a_fetch_that_is_too_small_is_doubled_and_asked_alone() -> None:
    loop = loop_of(slice_(0, P0), slice_(1, P1))
    before = ask(loop)
    loop.on_too_small(before.requests[0])
    step = ask(loop)
    assert [(w.index, w.max_bytes) for w in step.requests] == [
        (0, 2 * before.requests[0].max_bytes)
    ]
    loop.on_records(step.requests[0], 10)
    assert {w.index for w in ask(loop, 1).requests} == {0, 1}


def test_a_batch_that_no_fetch_can_hold_is_a_bad_record() -> None:
    patience = replace(PATIENCE, fetch_bytes=100, largest_fetch_bytes=300)
    loop = confirmed(loop_of(slice_(0, P0), patience=patience))
    for size in (100, 200):
        request = ask(loop).requests[0]
        assert request.max_bytes == size
        loop.on_too_small(request)
    request = ask(loop).requests[0]
    loop.on_too_small(request)
    with pytest.raises(BadRecord, match="no complete entry at offset 0 in 300 bytes"):
        take_step(loop, loop.now_ms)


def _empties(loop: FetchLoop, readable_end: int, throttled: bool, count: int) -> None:
    """So many responses without records, and however often the loop measures between them."""
    now = loop.now_ms
    while count:
        step = take_step(loop, now)
        match step:
            case WaitUntil(at_ms):
                now = at_ms
            case FindLeaders():
                loop.on_leaders(lead(B1))
            case AskLogRange(_, request):
                loop.on_log_range(request, 0, readable_end, 100)
            case SendFetch(_, requests):
                loop.on_empty(requests[0], readable_end, throttled=throttled)
                count -= 1
            case _:
                raise AssertionError(step)


@pytest.mark.parametrize("throttled", [False, True])
def test_empty_responses_prove_nothing_however_many_there_are(throttled: bool) -> None:
    loop = loop_of(slice_(0, P0), missing=Action.SKIP, truncated=Action.SKIP)
    with pytest.raises(Unreachable, match=r"answered without records, though .* up to 100"):
        _empties(loop, 100, throttled, 1_000)
    assert loop.now_ms > PATIENCE.no_progress_ms
    assert (loop.states[0].next_offset, loop.take_losses()) == (0, [])


def test_what_came_empty_is_asked_for_alone() -> None:
    loop = loop_of(slice_(0, P0), slice_(1, P1))
    assert loop.states[0].size.is_alone is False
    loop.on_empty(ask(loop).requests[0], 100, throttled=False)
    assert loop.states[0].size.is_alone is True


def test_a_new_leader_that_is_behind_is_waited_for_and_proves_nothing() -> None:
    """Its high watermark is, and its log is not."""
    loop = loop_of(slice_(0, P0), truncated=Action.SKIP)
    _empties(loop, 99, False, 6)
    loop.on_records(_next_ask(loop).requests[0], 100)
    assert (take_step(loop, loop.now_ms), loop.take_losses()) == (AllRead(), [])


def _next_ask(loop: FetchLoop) -> SendFetch:
    while not isinstance(step := take_step(loop, loop.now_ms), SendFetch):
        if isinstance(step, WaitUntil):
            take_step(loop, step.at_ms)
        elif isinstance(step, AskLogRange):
            loop.on_log_range(step.request, 0, 99, 100)
        else:
            loop.on_leaders(lead(B1))
    return step


def _cut_short(loop: FetchLoop, readable_end: int, ends: Iterator[int | None]) -> int:
    """A leader whose log is readable up to the next offset of a slice, and that says of its end
    what ``ends`` has. How many times it was asked for that."""
    now, asked = 0, 0
    while loop.states[0].phase is not Phase.DONE:
        match take_step(loop, now):
            case WaitUntil(at_ms):
                now = at_ms
            case FindLeaders():
                loop.on_leaders(lead(B1))
            case AskLogRange(_, request):
                asked += 1
                loop.on_log_range(request, 0, readable_end, next(ends))
            case SendFetch(_, requests):
                loop.on_empty(requests[0], readable_end, throttled=False)
    return asked


def test_a_log_that_ends_inside_the_slice_is_truncated_once_its_leader_has_said_so_twice() -> None:
    with pytest.raises(RangeLost, match=r"t/0 \[30, 100\) truncated.*ends at 30; asked 2 times"):
        _cut_short(_with_epochs(), 30, itertools.repeat(30))
    for action in (Action.SKIP, Action.HOLD):
        loop = _with_epochs(truncated=action)
        assert _cut_short(loop, 30, itertools.repeat(30)) == 2
        assert loop.now_ms < 3_000, "nobody waits for the deadline"
        (loss,) = (lost.loss for lost in loop.take_losses())
        assert (loss.from_offset, loss.until_offset) == (30, 100)
        assert (loss.kind, loss.action) == (LossKind.TRUNCATED, action)


def test_a_log_that_ends_inside_the_slice_is_asked_for_again_after_a_pause() -> None:
    loop = confirmed(_with_epochs())
    loop.on_error(ask(loop).requests[0], ErrorMeaning.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE")
    step = take_step(loop, 0)
    assert isinstance(step, AskLogRange)
    loop.on_log_range(step.request, 0, 30, 30)
    assert take_step(loop, 0) == WaitUntil(SHORT_END_PAUSE_MS)
    assert take_step(loop, SHORT_END_PAUSE_MS) == FindLeaders((P0,), ())
    assert loop.take_losses() == []


def test_losses_are_handed_over_once() -> None:
    loop = loop_of(slice_(0, P0), expired=Action.SKIP)
    measure(loop, 0, 40, 600)
    assert [(lost.index, lost.loss.width) for lost in loop.take_losses()] == [(0, 40)]
    assert loop.take_losses() == []


def _with_epochs(**actions: Action) -> FetchLoop:
    loop = loop_of(slice_(0, P0, 30, 100), **actions)
    loop.capabilities = Capabilities(has_epochs=True)
    return loop


def test_an_end_that_no_epoch_confirms_is_asked_for_longer() -> None:
    loop = loop_of(slice_(0, P0, 30, 100), truncated=Action.SKIP)
    assert _cut_short(loop, 30, itertools.repeat(30)) > 2
    assert 5_000 < loop.now_ms < 9_000
    (loss,) = (lost.loss for lost in loop.take_losses())
    assert (loss.from_offset, loss.kind) == (30, LossKind.TRUNCATED)


@pytest.mark.parametrize("end", [100, 31, None])
def test_a_log_whose_leader_has_more_than_it_lets_read_is_waited_for(end: int | None) -> None:
    """Or does not say what it has."""
    loop = _with_epochs(truncated=Action.SKIP)
    with pytest.raises(Unreachable, match="readable up to 30 only"):
        _cut_short(loop, 30, itertools.repeat(end))
    # What one leader has said and the next has not does not add up.
    loop = _with_epochs(truncated=Action.SKIP)
    with pytest.raises(Unreachable):
        _cut_short(loop, 30, itertools.cycle([30, end]))
    assert loop.take_losses() == []


def test_who_led_when_the_plan_was_made_and_is_behind_is_asked_for_in_the_metadata_first() -> None:
    """It may be a follower by now, which newer brokers let answer all the same."""
    loop = loop_of(slice_(0, P0))
    loop.on_empty(ask(loop).requests[0], 99, throttled=False)
    assert take_step(loop, 0) == FindLeaders((P0,), ())
    loop.on_leaders(lead(B2))
    loop.on_empty(ask(loop).requests[0], 99, throttled=False)
    waiting = take_step(loop, 0)
    assert isinstance(waiting, WaitUntil)
    asking = take_step(loop, waiting.at_ms)
    assert isinstance(asking, AskLogRange)
    loop.on_log_range(asking.request, 0, 99, 100)
    assert ask(loop, 1_000).address == B2


def test_a_leader_that_never_catches_up_is_unreachable_and_never_a_loss() -> None:
    loop = loop_of(slice_(0, P0), truncated=Action.SKIP)
    with pytest.raises(Unreachable, match="readable up to 99 only"):
        _empties(loop, 99, False, 99)
    assert loop.take_losses() == []


# --- ends -------------------------------------------------------------------------------


def _retry_for_ever(loop: FetchLoop) -> None:
    now = loop.now_ms
    for _ in range(99):
        step = take_step(loop, now)
        if isinstance(step, WaitUntil):
            now = step.at_ms
        elif isinstance(step, SendFetch):
            loop.on_error(step.requests[0], ErrorMeaning.RETRY, "LEADER_NOT_AVAILABLE")


def test_without_progress_it_gives_up_naming_partition_offsets_and_the_last_trouble() -> None:
    loop = loop_of(slice_(0, P0, 5, 100))
    loop.on_records(ask(loop).requests[0], 40)
    with pytest.raises(Unreachable) as caught:
        _retry_for_ever(loop)
    assert 10_000 < loop.now_ms < 12_000
    told = str(caught.value)
    assert "t/0 [5, 100) got no further than offset 40" in told
    assert "b1:1 answered LEADER_NOT_AVAILABLE at offset 40" in told
    assert caught.value.facts["position"] == 40


def test_a_partition_that_nobody_serves_any_more_is_held_where_reading_stopped() -> None:
    loop = loop_of(slice_(0, P0, 5, 100), slice_(1, P1, leader=B2), unreachable=Action.HOLD)
    for now in range(2):
        step = ask(loop, now + 1)
        loop.on_records(step.requests[0], 40 if step.address == B1 else 100)
    _retry_for_ever_or_end(loop)
    assert take_step(loop, loop.now_ms) == AllRead()
    (lost,) = loop.take_losses()
    index, loss = lost.index, lost.loss
    assert (index, loss.from_offset, loss.until_offset, loss.action) == (0, 40, 100, Action.HOLD)
    assert loss.kind is LossKind.UNREACHABLE
    assert "LEADER_NOT_AVAILABLE" in loss.evidence
    assert loop.now_ms > PATIENCE.no_progress_ms


def _retry_for_ever_or_end(loop: FetchLoop) -> None:
    while not isinstance(step := take_step(loop, loop.now_ms), AllRead):
        if isinstance(step, WaitUntil):
            take_step(loop, step.at_ms)
        elif isinstance(step, SendFetch):
            loop.on_error(step.requests[0], ErrorMeaning.RETRY, "LEADER_NOT_AVAILABLE")


def test_a_slow_writer_is_not_held_against_the_brokers() -> None:
    loop = loop_of(slice_(0, P0), slice_(1, P1))
    first, second = ask(loop).requests
    loop.on_records(first, 10)
    loop.on_error(second, ErrorMeaning.RETRY, "BUSY")
    later = 10 * PATIENCE.no_progress_ms
    assert {w.index for w in ask(loop, later).requests} == {0, 1}


def test_a_stale_response_is_our_bug() -> None:
    loop = loop_of(slice_(0, P0))
    request = ask(loop).requests[0]
    loop.on_records(request, 10)
    for report in (
        lambda: loop.on_records(request, 20),
        lambda: loop.on_empty(request, 100, throttled=False),
        lambda: loop.on_too_small(request),
        lambda: loop.on_error(request, ErrorMeaning.RETRY, "BUSY"),
        lambda: loop.on_log_range(request, 0, 5),
        lambda: loop.on_log_range(replace(request, offset=10), 50, 90),
    ):
        with pytest.raises(Bug, match="a response for offset"):
            report()
    assert loop.states[0].next_offset == 10


@pytest.mark.parametrize("next_offset", [0, 29, 30])
def test_records_that_do_not_lead_on_are_a_bad_record(next_offset: int) -> None:
    loop = confirmed(loop_of(slice_(0, P0, 30, 100)))
    loop.on_records(ask(loop).requests[0], next_offset)
    with pytest.raises(BadRecord, match="only older records"):
        take_step(loop, loop.now_ms)


def test_a_broker_that_cannot_read_its_own_log_is_a_bad_record() -> None:
    loop = confirmed(loop_of(slice_(0, P0)))
    loop.on_error(ask(loop).requests[0], ErrorMeaning.CORRUPT, "CORRUPT_MESSAGE")
    with pytest.raises(BadRecord, match="cannot be read at offset 0"):
        take_step(loop, loop.now_ms)


def test_a_run_ends_with_its_first_error_and_reads_no_other_slice() -> None:
    loop = confirmed(loop_of(slice_(0, P0), slice_(1, P1)))
    first, second = ask(loop).requests
    loop.on_error(first, ErrorMeaning.DENIED, "TOPIC_AUTHORIZATION_FAILED")
    assert not loop.is_reading(second)
    ended = loop.next(0)
    assert isinstance(ended, Fail)
    loop.on_error(second, ErrorMeaning.CORRUPT, "CORRUPT_MESSAGE")
    assert loop.next(1) is ended
    assert isinstance(ended.error, AccessDenied)


@pytest.mark.parametrize("action", [Action.SKIP, Action.QUARANTINE])
def test_what_a_broker_cannot_read_has_no_end_to_go_on_behind(action: Action) -> None:
    loop = confirmed(loop_of(slice_(0, P0), corrupt=action))
    loop.on_error(ask(loop).requests[0], ErrorMeaning.CORRUPT, "CORRUPT_MESSAGE")
    with pytest.raises(BadRecord, match=f"its end is unknown, so `{action}` cannot continue"):
        take_step(loop, loop.now_ms)


def test_damage_at_the_leader_of_the_plan_is_judged_once_metadata_has_named_it() -> None:
    """It may be a follower by now, which newer brokers let clients read."""
    loop = loop_of(slice_(0, P0))
    loop.on_error(ask(loop).requests[0], ErrorMeaning.CORRUPT, "CORRUPT_MESSAGE")
    assert isinstance(take_step(loop, 0), FindLeaders)
    loop.on_leaders(lead(B2))
    assert ask(loop).address == B2
    loop.on_error(ask(loop).requests[0], ErrorMeaning.CORRUPT, "CORRUPT_MESSAGE")
    with pytest.raises(BadRecord, match="cannot be read at offset 0"):
        take_step(loop, loop.now_ms)


def test_older_records_of_the_leader_of_the_plan_are_asked_for_again() -> None:
    loop = loop_of(slice_(0, P0, 30, 100))
    assert not loop.on_records(ask(loop).requests[0], 30)
    assert isinstance(take_step(loop, 0), FindLeaders)


def test_what_a_broker_cannot_read_is_held_and_the_others_are_read() -> None:
    loop = confirmed(loop_of(slice_(0, P0, 5), slice_(1, P1), corrupt=Action.HOLD))
    first, second = ask(loop).requests
    loop.on_error(first, ErrorMeaning.CORRUPT, "CORRUPT_MESSAGE")
    loop.on_records(second, 100)
    assert take_step(loop, 1) == AllRead()
    (lost,) = loop.take_losses()
    index, loss = lost.index, lost.loss
    assert (index, loss.from_offset, loss.until_offset) == (0, 5, 100)
    assert (loss.kind, loss.action) == (LossKind.CORRUPT, Action.HOLD)


def test_what_has_expired_is_held_with_the_rest_of_its_slice() -> None:
    loop = loop_of(slice_(0, P0, 5), expired=Action.HOLD)
    measure(loop, 0, 50, 200)
    (loss,) = (lost.loss for lost in loop.take_losses())
    assert (loss.from_offset, loss.until_offset, loss.action) == (5, 100, Action.HOLD)
    assert take_step(loop, 1) == AllRead()


def _fail_without_end(loop: FetchLoop, now: int) -> None:
    while True:
        step = take_step(loop, now)
        if isinstance(step, WaitUntil):
            now = step.at_ms
        else:
            loop.on_error(ask(loop, now).requests[0], ErrorMeaning.UNKNOWN, "UNKNOWN_SERVER_ERROR")


def test_an_error_that_says_nothing_is_retried_at_the_same_position_until_progress_is_due() -> None:
    loop = loop_of(slice_(0, P0, 5))
    now = 0
    for _ in range(3):
        loop.on_error(ask(loop, now).requests[0], ErrorMeaning.UNKNOWN, "UNKNOWN_SERVER_ERROR")
        step = take_step(loop, now)
        assert isinstance(step, WaitUntil)
        now = step.at_ms
    (request,) = ask(loop, now).requests
    assert request.offset == 5
    loop.on_records(request, 50)
    assert ask(loop, now).requests[0].offset == 50
    with pytest.raises(Unreachable, match="UNKNOWN_SERVER_ERROR"):
        _fail_without_end(loop, now)
    assert loop.now_ms >= PATIENCE.no_progress_ms


@pytest.mark.parametrize(
    ("meaning", "name", "kind", "what"),
    [
        (ErrorMeaning.DENIED, "TOPIC_AUTHORIZATION_FAILED", AccessDenied, "may not be read"),
        (ErrorMeaning.REFUSED, "INVALID_FETCH_SIZE", JobFileError, "cannot be read"),
    ],
)
def test_what_would_be_refused_again_is_not_tried_again(
    meaning: ErrorMeaning, name: str, kind: type[RangelandError], what: str
) -> None:
    loop = loop_of(slice_(0, P0))
    loop.on_error(ask(loop).requests[0], meaning, name)
    with pytest.raises(kind, match=f"{what}.*{name}") as caught:
        take_step(loop, loop.now_ms)
    assert caught.value.acts == meaning.refusal_error("", why="", do="").acts
    assert caught.value.data == "no rows from this run were landed"


def test_a_leader_that_does_not_support_a_fetch_ends_the_run_for_good() -> None:
    loop = confirmed(loop_of(slice_(0, P0)))
    loop.on_error(ask(loop).requests[0], ErrorMeaning.UNSUPPORTED, "UNSUPPORTED_VERSION")
    with pytest.raises(MissingRequirement, match="UNSUPPORTED_VERSION"):
        take_step(loop, loop.now_ms)


def test_a_fetch_that_the_leader_of_the_plan_does_not_support_is_sent_to_the_present_one() -> None:
    loop = loop_of(slice_(0, P0))
    loop.on_error(ask(loop).requests[0], ErrorMeaning.UNSUPPORTED, "UNSUPPORTED_VERSION")
    assert isinstance(take_step(loop, 0), FindLeaders)
    loop.on_leaders(lead(B2))
    loop.on_records(ask(loop).requests[0], 100)
    assert take_step(loop, 1) == AllRead()


@pytest.mark.parametrize("meaning", [ErrorMeaning.OK, ErrorMeaning.REJOIN])
def test_a_code_that_is_no_error_of_a_fetch_breaks_the_protocol(meaning: ErrorMeaning) -> None:
    loop = loop_of(slice_(0, P0))
    loop.on_error(ask(loop).requests[0], meaning, "ILLEGAL_GENERATION")
    with pytest.raises(RemoteProtocolError, match="ILLEGAL_GENERATION"):
        take_step(loop, loop.now_ms)


def denied(policy: Policy, no_progress_ms: int = 1_000, from_ms: int = 0) -> tuple[FetchLoop, int]:
    """A loop whose partition has no leader, and is denied by the cluster in every response from
    some time on, and when the loop ended."""
    slice_ = Slice(0, Partition("t", 0), 0, 10)
    loop = FetchLoop([slice_], FetchLimits(no_progress_ms=no_progress_ms), policy, 0)
    now, step = 0, take_step(loop, 0)
    while not isinstance(step, AllRead):
        if isinstance(step, WaitUntil):
            now = step.at_ms
        else:
            unknown = frozenset({slice_.partition} if now >= from_ms else ())
            loop.on_leaders(FoundLeaders(unknown=unknown))
        step = take_step(loop, now)
    return loop, now


def test_a_partition_that_the_cluster_denies_to_the_last_has_vanished() -> None:
    with pytest.raises(RangeLost, match="vanished"):
        denied(Policy())


def test_a_vanished_partition_is_counted_as_lost_where_the_policy_skips_it() -> None:
    loop, ended_at_ms = denied(Policy(vanished=Action.SKIP))
    assert [(lost.loss.kind, lost.loss.width) for lost in loop.take_losses()] == [
        (LossKind.VANISHED, 10)
    ]
    assert ended_at_ms >= 1_000


def test_what_the_cluster_denies_first_at_the_deadline_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="no longer names this partition"):
        denied(Policy(), no_progress_ms=20_000, from_ms=17_000)
    with pytest.raises(RangeLost, match="vanished"):
        denied(Policy(), no_progress_ms=20_000, from_ms=12_000)


def suspected_since(
    state: SliceState, kind: LossKind, evidence: str, now_ms: int, topic_id: str | None = None
) -> int:
    """Since when the loss is suspected, after an attempt that has shown this."""
    suspicion = state.suspicion_of(kind, evidence, now_ms, topic_id)
    seen = Observation(SliceEvent.NO_LEADER, evidence, supports=suspicion)
    state.back_off(seen, now_ms, PATIENCE)
    assert state.suspicion is not None
    assert state.suspicion.evidence == evidence
    return state.suspicion.since_ms


@pytest.mark.parametrize(
    ("kind", "topic_id"),
    [(LossKind.TRUNCATED, None), (LossKind.VANISHED, None), (LossKind.RECREATED, "B")],
)
def test_a_suspicion_keeps_its_clock_whatever_its_evidence_says(
    kind: LossKind, topic_id: str | None
) -> None:
    state = loop_of(slice_(0, P0)).states[0]
    assert suspected_since(state, kind, "seen at 1.000 s", 1_000, topic_id) == 1_000
    assert suspected_since(state, kind, "seen at 5.000 s", 5_000, topic_id) == 1_000


def test_a_suspicion_of_something_else_has_a_clock_of_its_own() -> None:
    state = loop_of(slice_(0, P0)).states[0]
    assert suspected_since(state, LossKind.TRUNCATED, "odd", 1_000) == 1_000
    assert suspected_since(state, LossKind.VANISHED, "odd", 2_000) == 2_000
    assert suspected_since(state, LossKind.RECREATED, "odd", 3_000, "B") == 3_000
    assert suspected_since(state, LossKind.RECREATED, "odd", 4_000, "C") == 4_000


def test_a_failed_attempt_that_shows_something_else_ends_a_suspicion() -> None:
    state = loop_of(slice_(0, P0)).states[0]
    suspected_since(state, LossKind.TRUNCATED, "odd", 1_000)
    state.back_off(Observation(SliceEvent.NO_RECORDS, "odd"), 2_000, PATIENCE)
    assert state.suspicion is None


def moved(loop: FetchLoop, now_ms: int, hint: Leader | None) -> None:
    request = ask(loop, now_ms).requests[0]
    loop.on_error(request, ErrorMeaning.FIND_LEADER, "NOT_LEADER_OR_FOLLOWER", hint)


def led_in_epoch_3() -> FetchLoop:
    loop = loop_of(slice_(0, P0, leader=None))
    take_step(loop, 0)
    loop.on_leaders(lead(B1))
    return loop


def test_a_leader_that_a_broker_names_is_asked_without_metadata() -> None:
    loop = led_in_epoch_3()
    moved(loop, 0, Leader(B2, 4))
    step = ask(loop, 0)
    assert (step.address, step.requests[0].epoch, step.requests[0].offset) == (B2, 4, 0)
    assert loop.sender_of(step.requests[0]) is Sender.UNCONFIRMED_LEADER
    loop.on_records(step.requests[0], 100)
    assert take_step(loop, 0) == AllRead()


@pytest.mark.parametrize(
    "hint", [None, Leader(B2, 3), Leader(B2, 2), Leader(B2), Leader(B1, 4), Leader(None, 4)]
)
def test_a_hint_that_is_not_newer_is_ignored(hint: Leader | None) -> None:
    loop = led_in_epoch_3()
    moved(loop, 0, hint)
    assert take_step(loop, 0) == FindLeaders((P0,), ())


@pytest.mark.parametrize("meaning", [ErrorMeaning.FIND_LEADER, None])
def test_a_wrong_hint_costs_one_more_round(meaning: ErrorMeaning | None) -> None:
    loop = led_in_epoch_3()
    moved(loop, 0, Leader(B2, 4))
    step = ask(loop, 0)
    if meaning is None:
        loop.on_lost(step.address, "refused")
    else:
        loop.on_error(step.requests[0], meaning, "NOT_LEADER_OR_FOLLOWER", Leader(B3, 5))
    found = take_step(loop, loop.states[0].retry.resume_at_ms)
    assert found == FindLeaders((P0,), ())
    loop.on_leaders(lead(B1))
    step = ask(loop, loop.now_ms)
    assert (step.address, step.requests[0].epoch) == (B1, 3)


def test_where_only_the_leader_is_to_be_read_metadata_must_name_it() -> None:
    loop = FetchLoop([slice_(0, P0)], PATIENCE, Policy(), 0, leader_only=True)
    moved(loop, 0, Leader(B2, 4))
    assert take_step(loop, 0) == FindLeaders((P0,), ())


def test_a_response_that_a_phase_does_not_expect_is_a_bug() -> None:
    state = loop_of(slice_(0, P0)).states[0]
    with pytest.raises(Bug, match="IN_RANGE happened while the slice is reading"):
        move_on(state, Observation(SliceEvent.IN_RANGE), 0, PATIENCE)


def test_failover_retry_and_policy_leave_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="rangeland.fetch")
    loop = loop_of(slice_(0, P0, 7), expired=Action.SKIP)
    loop.on_error(ask(loop).requests[0], ErrorMeaning.RETRY, "KAFKA_STORAGE_ERROR")
    loop.on_lost(ask(loop, 200).address, "reset by peer")
    loop.on_leaders(FoundLeaders())
    take_step(loop, 10_000)
    loop.on_leaders(lead(B2))
    measure(loop, 10_000, 50, 100)
    loop.on_response(B2, 0, 300, 10_001)
    log_all(loop.take_unlogged())
    assert loop.take_unlogged() == []
    assert caplog.messages == [
        "Retrying in 100 ms: b1:1 answered KAFKA_STORAGE_ERROR at offset 7",
        "Left the leader b1:1: reset by peer",
        "Found the leader b2:2, epoch 3",
        "Applied policy skip: t/0 [7, 50) is expired: "
        "b2:2 answered OFFSET_OUT_OF_RANGE at offset 7; the nearest valid offset is 50",
        "Throttled by b2:2 for 300 ms",
    ]
    first = caplog.records[0]
    assert vars(first)["topic"] == "t"
    assert (vars(first)["partition"], vars(first)["offset"]) == (0, 7)


def test_what_the_table_loses_is_never_left_out() -> None:
    loop = loop_of(slice_(0, P0))
    with pytest.raises(Bug, match="after LOST, offsets are lost"):
        loop._move(loop.states[0], Observation(SliceEvent.LOST))
