"""A broker that was the leader of an earlier epoch is neither read nor believed, though it may
still take itself for the leader and have other records at the same offsets."""

from __future__ import annotations

import pytest

from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.kafka.requests import CAPABILITIES
from rangeland.errors import RangeLost, Unreachable
from rangeland.fetch.fetch_loop import FetchLoop
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.fetch_steps import FindLeaders, SendFetch, WaitUntil
from rangeland.fetch.leader_judgement import FoundLeaders
from rangeland.fetch.slice_state import Fail
from rangeland.model import Address, Isolation, Leader, Partition, Slice
from rangeland.planning.incarnation import LogMark
from rangeland.planning.plan import Plan, in_planned_epochs
from rangeland.planning.policy import Policy

P0, P1 = Partition("t", 0), Partition("t", 1)
OLD, NEW = Address("old", 1), Address("new", 1)
LIMITS = FetchLimits(no_progress_ms=60_000)


def leader(address: Address, epoch: int | None, topic_id: str | None = "id") -> FoundLeaders:
    return FoundLeaders({P0: Leader(address, epoch, topic_id)}, answered_by=address)


def loop_in(epoch: int | None, topic_id: str | None = "id") -> FetchLoop:
    """A slice that was planned in this epoch, half of which its leader has sent."""
    slice_ = Slice(0, P0, 0, 100, topic_id=topic_id, leader=NEW, leader_epoch=epoch)
    loop = FetchLoop([slice_], LIMITS, Policy(), 0, CAPABILITIES)
    step = loop.next(0)
    assert isinstance(step, SendFetch)
    assert step.requests[0].epoch == epoch
    assert loop.on_records(step.requests[0], 50)
    return loop


def end_with(loop: FetchLoop, found: FoundLeaders) -> Fail:
    """What the loop ends in while all metadata names this leader, which is not asked."""
    loop.on_lost(NEW, "timed out")
    now_ms = loop.now_ms
    while not isinstance(step := loop.next(now_ms), Fail):
        if isinstance(step, WaitUntil):
            now_ms = step.at_ms
        else:
            assert isinstance(step, FindLeaders), "the deposed leader is asked for records"
            loop.on_leaders(found)
    return step


def test_a_leader_of_an_earlier_epoch_than_planned_is_unreachable_and_not_read() -> None:
    error = end_with(loop_in(6), leader(OLD, 5)).error
    assert isinstance(error, Unreachable)
    assert error.why == "metadata names its leader of epoch 5, but epoch 6 is already known"


def test_a_leader_of_an_earlier_epoch_than_metadata_had_before_is_not_read() -> None:
    loop = loop_in(None)
    loop.on_lost(NEW, "timed out")
    for now_ms in (0, 1_000):  # the same leader gets a moment
        assert isinstance(loop.next(now_ms), FindLeaders)
        loop.on_leaders(leader(NEW, 6))
    assert isinstance(loop.next(1_000), SendFetch)
    assert isinstance(end_with(loop, leader(OLD, 5)).error, Unreachable)


@pytest.mark.parametrize("epoch", [6, 7, None])
def test_a_leader_of_the_same_or_a_later_or_an_unknown_epoch_is_read(epoch: int | None) -> None:
    loop = loop_in(6)
    loop.on_lost(NEW, "timed out")
    loop.next(0)
    loop.on_leaders(leader(OLD, epoch))
    step = loop.next(1_000)
    assert isinstance(step, SendFetch)
    assert step.address == OLD
    assert step.requests[0].epoch == epoch


def test_without_topic_ids_a_lower_epoch_may_be_another_topic_at_the_deadline() -> None:
    error = end_with(loop_in(6, topic_id=None), leader(OLD, 0, topic_id=None)).error
    assert isinstance(error, RangeLost)
    assert "recreated" in str(error)


def test_the_broker_whose_metadata_is_stale_is_asked_last() -> None:
    loop = loop_in(6)
    loop.on_lost(NEW, "timed out")
    assert loop.next(0) == FindLeaders((P0,), ())
    loop.on_leaders(leader(OLD, 5))
    assert loop.next(1_000) == FindLeaders((P0,), (), frozenset({OLD}))
    loop.on_leaders(leader(NEW, 6))
    assert isinstance(loop.next(2_000), SendFetch)


def test_slices_get_the_epochs_in_which_their_logs_were_planned() -> None:
    slices = (Slice(0, P0, 0, 9, topic_id="id"), Slice(1, P0, 0, 9, topic_id="former"))
    slices = (*slices, Slice(2, P1, 0, 9))
    checkpoint = {P0: LogMark(9, "id", 6)}
    plan = Plan(
        "j", "rangeland/j", 1, "kafka", Isolation.READ_COMMITTED, (), slices, checkpoint=checkpoint
    )
    epochs = [one.leader_epoch for one in in_planned_epochs(plan, plan.slices)]
    assert epochs == [6, None, None]


def test_brokers_that_only_name_each_other_are_not_asked_for_ever() -> None:
    replicas = Leader(NEW, 6, "id", replicas=(NEW, OLD), replica_ids=(1, 2))
    loop = loop_in(6)
    loop.on_lost(NEW, "timed out")
    loop.next(0)
    loop.on_leaders(FoundLeaders({P0: replicas}))
    requests = now_ms = 0
    while not isinstance(step := loop.next(now_ms), Fail):
        if isinstance(step, SendFetch):
            requests += 1
            now_ms += 5
            named = 2 if step.address == NEW else 1
            loop.on_empty(step.requests[0], None, throttled=False, preferred=named)
        elif isinstance(step, WaitUntil):
            now_ms = step.at_ms
        elif isinstance(step, FindLeaders):
            loop.on_leaders(FoundLeaders({P0: replicas}))
        else:
            loop.on_log_range(step.request, 0, 200, 200)
    assert isinstance(step.error, Unreachable)
    assert requests < 500
    assert now_ms >= LIMITS.no_progress_ms


def test_an_error_that_a_deposed_leader_answers_to_a_newer_epoch_leads_to_metadata() -> None:
    loop = loop_in(6)
    step = loop.next(0)
    assert isinstance(step, SendFetch)
    loop.on_error(step.requests[0], ErrorMeaning.FIND_LEADER, "UNKNOWN_LEADER_EPOCH")
    assert isinstance(loop.next(0), FindLeaders)
