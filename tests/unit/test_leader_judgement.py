"""What metadata, the range of a log and a response without records mean for a slice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.cluster_values import ClusterView, TopicView
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import MissingRequirement, RangeLost
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.leader_judgement import (
    OTHER_TOPIC_MS,
    SHORT_END_MS,
    FoundLeaders,
    judge_empty,
    judge_leader,
    judge_log_range,
    judge_metadata,
    proved_end,
    unproved_observation,
)
from rangeland.fetch.replica_choice import ReadMode, ServingBroker, initial_broker
from rangeland.fetch.slice_state import (
    Fail,
    Observation,
    SliceEvent,
    SliceState,
    Suspicion,
    new_state,
)
from rangeland.loss import Action, DecidedLoss, LossKind
from rangeland.model import Address, Leader, Partition, Slice
from rangeland.planning.policy import Policy

B1, B2 = Address("b1", 1), Address("b2", 2)
NOW = 60_000
SKIPPING = Policy(expired=Action.SKIP, truncated=Action.SKIP, recreated=Action.SKIP)


def state_of(*, is_confirmed: bool = True, leader_only: bool = False) -> SliceState:
    """A slice that goes on at offset 30, and of which something odd was seen last."""
    slice_ = Slice(0, Partition("t", 0), 30, 100, 0, "A", B1)
    server = initial_broker(slice_, Capabilities(), leader_only=leader_only)
    state = new_state(slice_, server, FetchLimits(), 0)
    state.broker.is_confirmed = is_confirmed
    state.retry.last_failure = "odd"
    return state


# --- the range of a log -----------------------------------------------------------------------


def range_seen(
    state: SliceState, *log_range: int | None, has_epochs: bool = False, policy: Policy = SKIPPING
) -> Observation:
    start, end, written_end = log_range
    assert start is not None
    assert end is not None
    seen = judge_log_range(state, policy, NOW, start, end, written_end, has_epochs=has_epochs)
    assert isinstance(seen, Observation)
    return seen


@pytest.mark.parametrize(
    ("log_range", "event", "suspected"),
    [
        ((0, 200, 200), SliceEvent.IN_RANGE, None),
        ((30, 31, None), SliceEvent.IN_RANGE, None),
        ((0, 30, None), SliceEvent.IN_RANGE, None),  # its end with what is not readable is unknown
        ((0, 30, 31), SliceEvent.IN_RANGE, None),
        ((0, 20, None), SliceEvent.LEADER_FAILED, LossKind.TRUNCATED),
        ((0, 20, 31), SliceEvent.LEADER_FAILED, LossKind.TRUNCATED),
        ((0, 30, 30), SliceEvent.ENDS_HERE, LossKind.TRUNCATED),
        ((0, 20, 20), SliceEvent.ENDS_HERE, LossKind.TRUNCATED),
    ],
)
def test_a_log_range_is_one_event(
    log_range: tuple[int | None, ...], event: SliceEvent, suspected: LossKind | None
) -> None:
    seen = range_seen(state_of(), *log_range)
    expected = Suspicion(suspected, seen.reason, NOW) if suspected else None
    assert (seen.event, seen.supports, seen.loss) == (event, expected, None)


def test_a_log_that_starts_later_has_expired_up_to_its_start() -> None:
    seen = range_seen(state_of(), 40, 200, 200)
    assert seen.event is SliceEvent.LOST
    assert isinstance(seen.loss, DecidedLoss)
    assert (seen.loss.interval, seen.loss.kind) == ((30, 40), LossKind.EXPIRED)
    assert seen.loss.evidence == "odd; the nearest valid offset is 40"
    failing = judge_log_range(state_of(), Policy(), NOW, 40, 200, 200, has_epochs=False)
    assert isinstance(failing, Fail)
    assert isinstance(failing.error, RangeLost)
    assert failing.error.what == "t/0 [30, 40) expired"


@pytest.mark.parametrize(
    ("reports", "since_ms", "has_epochs", "is_confirmed", "is_lost"),
    [
        (0, 0, True, True, False),  # it counts the second time
        (1, NOW, True, True, True),
        (1, NOW, True, False, False),  # metadata has not named its sender
        (1, NOW - SHORT_END_MS + 1, False, True, False),
        (1, NOW - SHORT_END_MS, False, True, True),
    ],
)
def test_a_short_end_is_believed_once_it_was_reported_often_and_long_enough(
    reports: int, since_ms: int, has_epochs: bool, is_confirmed: bool, is_lost: bool
) -> None:
    state = state_of(is_confirmed=is_confirmed)
    state.short_ends, state.short_end_at_ms = reports, since_ms
    seen = range_seen(state, 0, 30, 30, has_epochs=has_epochs)
    assert (seen.event is SliceEvent.LOST) is is_lost
    assert (seen.loss is not None) is is_lost
    assert (state.short_ends, state.short_end_at_ms) == (reports, since_ms), "nothing is changed"


def test_a_replica_proves_no_range() -> None:
    state = state_of()
    led = Leader(B1, replicas=(B1, B2), replica_ids=(1, 2))
    state.broker = ServingBroker(led, mode=ReadMode.DETOUR, replica_id=2)
    for log_range in ((40, 200, 200), (0, 20, 20), (0, 200, 200)):
        seen = range_seen(state, *log_range, policy=Policy())
        assert seen == unproved_observation(state, f"its log is [{log_range[0]}, {log_range[1]})")
        assert seen.event is SliceEvent.REPLICA_FAILED


@pytest.mark.parametrize("copies", [0, 1, 3])
def test_a_log_ends_where_the_epoch_of_its_leader_does(copies: int) -> None:
    assert proved_end(Leader(B1, copies=copies), 7, 9, has_epochs=True) == 9


@pytest.mark.parametrize(("copies", "end"), [(0, None), (1, 7), (3, None)])
def test_without_an_epoch_only_the_high_watermark_of_a_single_replica_is_the_end(
    copies: int, end: int | None
) -> None:
    assert proved_end(Leader(B1, copies=copies), 7, None, has_epochs=True) == end


@pytest.mark.parametrize("copies", [0, 3])
def test_a_log_without_epochs_ends_where_it_can_be_read_up_to(copies: int) -> None:
    assert proved_end(Leader(B1, copies=copies), 7, None, has_epochs=False) == 7


# --- a response without records ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("readable_end", "is_confirmed", "seen"),
    [
        (
            None,
            True,
            Observation(SliceEvent.NO_RECORDS_AT_END, "its leader answered without records"),
        ),
        (
            100,
            True,
            Observation(
                SliceEvent.NO_RECORDS,
                "its leader answered without records, though its log is readable up to 100",
                asks_alone=True,
            ),
        ),
        (
            99,
            True,
            Observation(SliceEvent.NO_RECORDS_AT_END, "its leader's log is readable up to 99 only"),
        ),
        (
            99,
            False,  # it may be a follower now
            Observation(SliceEvent.LEADER_FAILED, "its leader's log is readable up to 99 only"),
        ),
    ],
)
@pytest.mark.parametrize("throttled", [False, True])
def test_a_response_without_records_is_one_event(
    readable_end: int | None, is_confirmed: bool, seen: Observation, throttled: bool
) -> None:
    state = state_of(is_confirmed=is_confirmed)
    assert judge_empty(state, readable_end, throttled=throttled) == seen
    assert not state.size.is_alone, "nothing is changed"


@pytest.mark.parametrize("readable_end", [None, 99, 100])
def test_a_replica_without_records_is_left_unless_it_throttles(readable_end: int | None) -> None:
    state = state_of()
    led = Leader(B1, replicas=(B1, B2), replica_ids=(1, 2))
    state.broker = ServingBroker(led, mode=ReadMode.DETOUR, replica_id=2)
    reason = f"{B2}, a replica that may lag, is read; it answered without records"
    left, asked_again = (
        judge_empty(state, readable_end, throttled=throttled) for throttled in (False, True)
    )
    assert left == Observation(SliceEvent.REPLICA_FAILED, reason)
    assert asked_again == Observation(SliceEvent.NO_RECORDS, reason)


# --- metadata ---------------------------------------------------------------------------------

P = Partition("t", 0)


def topic_of(meaning: ErrorMeaning, *partitions: Partition) -> TopicView:
    leaders = {p: Leader(B1) for p in partitions}
    return TopicView("t", meaning, meaning.name, leaders=leaders)


@pytest.mark.parametrize(
    ("topics", "leads", "is_unknown"),
    [
        ([topic_of(ErrorMeaning.OK, P)], True, False),
        ([topic_of(ErrorMeaning.OK)], False, True),
        ([], False, True),
        ([topic_of(ErrorMeaning.RETRY)], False, False),
        ([topic_of(ErrorMeaning.DENIED)], False, False),
        ([topic_of(ErrorMeaning.RETRY, P)], False, False),  # an error's partitions mean nothing
    ],
)
def test_a_partition_is_unknown_only_if_metadata_without_an_error_lacks_it(
    topics: list[TopicView], leads: bool, is_unknown: bool
) -> None:
    view = ClusterView((B1,), {topic.name: topic for topic in topics})
    found = judge_metadata(view, [P], [])
    assert (P in found.leaders, P in found.unknown) == (leads, is_unknown)
    assert found.unreachable == {}


def test_a_partition_of_a_broker_that_is_silent_is_unreachable_and_not_unknown() -> None:
    of_a, of_b = Partition("t", 0, "a"), Partition("t", 0, "b")
    view = ClusterView((B1,), {"t": topic_of(ErrorMeaning.OK)}, unreachable={"a": "refused"})
    found = judge_metadata(view, [of_a, of_b], ["a", "b"])
    assert found.unknown == {of_b}
    assert found.unreachable.keys() == {of_a}


def test_a_partition_that_a_replica_serves_is_not_unreachable() -> None:
    served, unlisted, leaderless = (Partition("t", number, "a") for number in range(3))
    leaders = {served: Leader(B2, is_replica=True), leaderless: Leader(None, is_replica=True)}
    topic = replace(topic_of(ErrorMeaning.OK), leaders=leaders)
    found = judge_metadata(ClusterView((), {"t": topic}), [served, unlisted, leaderless], [])
    assert found.leaders == leaders
    assert found.unreachable.keys() == {unlisted, leaderless}
    assert found.unknown == frozenset()


def test_a_topic_that_cannot_be_read_at_all_ends_the_run_and_is_not_without_a_leader() -> None:
    code = "STATIC_TOPIC: its queues are on several brokers"
    topic = TopicView("t", ErrorMeaning.UNSUPPORTED, code)
    found = judge_metadata(ClusterView((B1,), {"t": topic}), [P], [])
    failed = judge_leader(state_of(), SKIPPING, NOW, found)
    assert isinstance(failed, Fail)
    assert isinstance(failed.error, MissingRequirement)
    assert failed.error.why == code


def leader_seen(
    state: SliceState, leader: Leader | None, *, is_unknown: bool = False
) -> Observation:
    found = FoundLeaders(
        {} if leader is None else {P: leader},
        frozenset({P} if is_unknown else ()),
        {P: "it has none"},
    )
    seen = judge_leader(state, SKIPPING, NOW, found)
    assert isinstance(seen, Observation)
    return seen


@pytest.mark.parametrize(
    "found", [Leader(B2, topic_id="A"), Leader(B2), Leader(B2, is_replica=True)]
)
def test_the_leader_that_metadata_names_is_read_next(found: Leader) -> None:
    assert leader_seen(state_of(), found) == Observation(SliceEvent.LEADER_FOUND, leader=found)


@pytest.mark.parametrize(
    ("found", "is_unknown", "seen"),
    [
        (Leader(None), False, Observation(SliceEvent.NO_LEADER, "it has none")),
        (None, False, Observation(SliceEvent.NO_LEADER, "it has none")),
        (
            None,
            True,
            Observation(
                SliceEvent.NO_LEADER,
                "the cluster no longer names this partition",
                supports=Suspicion(LossKind.VANISHED, "", NOW),
            ),
        ),
    ],
)
def test_metadata_without_a_leader_is_one_event(
    found: Leader | None, is_unknown: bool, seen: Observation
) -> None:
    assert leader_seen(state_of(), found, is_unknown=is_unknown) == seen


def test_the_leader_that_was_just_left_gets_a_moment() -> None:
    state = state_of()
    state.left_leader, state.retry.failures = B1, 1
    assert leader_seen(state, Leader(B1)) == Observation(SliceEvent.NO_LEADER, "odd")
    assert leader_seen(state, Leader(B2)).event is SliceEvent.LEADER_FOUND
    state.suspicion = Suspicion(LossKind.TRUNCATED, "its log ends early", NOW)
    assert leader_seen(state, Leader(B1)).supports == state.suspicion, "nothing else was seen"
    state.retry.failures = 2
    assert leader_seen(state, Leader(B1)).event is SliceEvent.LEADER_FOUND


def test_a_replica_does_not_stand_in_where_only_the_leader_is_read() -> None:
    seen = leader_seen(state_of(leader_only=True), Leader(B2, is_replica=True))
    assert seen.event is SliceEvent.NO_LEADER
    assert "is only a replica" in seen.reason


def test_another_topic_id_is_believed_once_it_was_named_long_enough() -> None:
    state = state_of()
    seen = leader_seen(state, Leader(B2, topic_id="B"))
    named_b = Suspicion(LossKind.RECREATED, "another id", NOW - OTHER_TOPIC_MS + 1, "B")
    assert (seen.event, seen.supports) == (SliceEvent.NO_LEADER, named_b)
    state.suspicion = named_b
    assert leader_seen(state, Leader(B2, topic_id="B")) == seen
    state.suspicion = replace(named_b, since_ms=NOW - OTHER_TOPIC_MS)
    assert leader_seen(state, Leader(B2, topic_id="C")).event is SliceEvent.NO_LEADER
    seen = leader_seen(state, Leader(B2, topic_id="B"))
    assert seen.event is SliceEvent.LOST
    assert isinstance(seen.loss, DecidedLoss)
    assert (seen.loss.interval, seen.loss.kind) == ((30, 100), LossKind.RECREATED)
