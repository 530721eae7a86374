"""The loop and replicas: it goes where the leader sends it, and believes no loss there."""

from __future__ import annotations

import pytest

from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import BadRecord, RangeLost, Unreachable
from rangeland.fetch.fetch_loop import FetchLoop
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.fetch_steps import AllRead, AskLogRange, FindLeaders, SendFetch, WaitUntil
from rangeland.fetch.leader_judgement import FoundLeaders
from rangeland.fetch.replica_choice import DETOUR_MS, ReadMode, Sender, ServingBroker
from rangeland.loss import Action
from rangeland.model import Address, Leader, Partition, Slice
from rangeland.planning.policy import Policy
from tests.fakes.fetching import take_step

LEADER, REPLICA, OTHER = Address("leader", 1), Address("replica", 2), Address("other", 3)
P0, P1 = Partition("t", 0), Partition("t", 1)
LED = Leader(LEADER, 7, "A", (LEADER, REPLICA), (1, 2))
SKIPPING = Policy(expired=Action.SKIP, truncated=Action.SKIP)
PATIENCE = FetchLimits(no_progress_ms=10_000)


def slice_of(index: int = 0, partition: Partition = P0) -> Slice:
    return Slice(index, partition, 0, 100, 0, "A", LEADER)


def ask(loop: FetchLoop, now_ms: int = 0) -> SendFetch:
    step = take_step(loop, now_ms)
    assert isinstance(step, SendFetch), step
    return step


def sent_away(*more: Slice) -> FetchLoop:
    """A loop whose slice 0 is read at the replica, which metadata has told the address of."""
    loop = FetchLoop([slice_of(), *more], PATIENCE, SKIPPING, 0)
    assert loop.on_preferred(ask(loop).requests[0], 2)
    assert take_step(loop, 0) == FindLeaders((P0,), ())
    loop.on_leaders(FoundLeaders({P0: LED}))
    return loop


def test_the_replica_that_a_leader_names_is_found_and_read() -> None:
    loop = sent_away()
    step = ask(loop)
    assert (step.address, step.stays, step.requests[0].epoch) == (REPLICA, False, 7)
    loop.on_records(step.requests[0], 100)
    assert take_step(loop, 0) == AllRead()


def test_a_replica_whose_address_is_known_is_read_at_once() -> None:
    loop = sent_away()
    loop.on_error(ask(loop).requests[0], ErrorMeaning.FIND_LEADER, "NOT_LEADER_OR_FOLLOWER")
    later = DETOUR_MS
    loop.on_records(ask(loop, later).requests[0], 50)
    assert ask(loop, later).address == LEADER
    assert loop.on_preferred(loop.states[0].request, 2)
    assert ask(loop, later).address == REPLICA


def test_an_answer_without_records_that_names_a_replica_is_no_failure() -> None:
    loop = FetchLoop([slice_of()], PATIENCE, SKIPPING, 0)
    loop.on_empty(ask(loop).requests[0], 50, throttled=False, preferred=2)
    assert loop.states[0].retry.failures == 0
    assert take_step(loop, 0) == FindLeaders((P0,), ())
    loop.on_leaders(FoundLeaders({P0: LED}))
    assert ask(loop).address == REPLICA


def test_an_answer_without_records_that_names_the_broker_itself_is_one_like_any_other() -> None:
    loop = sent_away()
    loop.on_empty(ask(loop).requests[0], 50, throttled=False, preferred=2)
    assert ask(loop).address == LEADER


def test_after_a_while_the_leader_is_asked_again() -> None:
    loop = sent_away()
    loop.on_records(ask(loop).requests[0], 50)
    assert ask(loop, DETOUR_MS - 1).address == REPLICA
    step = ask(loop, DETOUR_MS)
    assert (step.address, step.stays) == (LEADER, False)


def test_a_leader_that_names_itself_or_says_nothing_new_is_read_on() -> None:
    loop = sent_away()
    assert not loop.on_preferred(loop.states[0].request, 2)
    assert ask(loop).address == REPLICA
    assert loop.on_preferred(loop.states[0].request, 1), "the replica sends back to its leader"
    assert ask(loop).address == LEADER
    assert not loop.on_preferred(loop.states[0].request, 1)


def test_a_replica_that_nobody_knows_is_looked_for_once() -> None:
    loop = FetchLoop([slice_of()], PATIENCE, SKIPPING, 0)
    assert loop.on_preferred(loop.states[0].request, 9)
    take_step(loop, 0)
    loop.on_leaders(FoundLeaders({P0: LED}))
    step = ask(loop)
    assert (step.address, step.stays) == (LEADER, True)
    assert not loop.on_preferred(loop.states[0].request, 9)


def test_slices_that_stay_and_slices_that_may_go_have_requests_of_their_own() -> None:
    loop = sent_away(slice_of(1, P1))
    loop.on_lost(REPLICA, "reset")
    first = ask(loop, 1)
    for request in first.requests:
        loop.on_records(request, 10)
    second = ask(loop, 2)
    assert {first.stays, second.stays} == {True, False}
    assert {w.index for w in (*first.requests, *second.requests)} == {0, 1}


@pytest.mark.parametrize(
    "meaning",
    [
        ErrorMeaning.RETRY,
        ErrorMeaning.FIND_LEADER,
        ErrorMeaning.OUT_OF_RANGE,
        ErrorMeaning.CORRUPT,
        ErrorMeaning.REFUSED,
        ErrorMeaning.RECREATED,
    ],
)
def test_any_trouble_at_a_replica_leads_back_to_the_leader_at_once(meaning: ErrorMeaning) -> None:
    loop = sent_away()
    loop.on_error(ask(loop).requests[0], meaning, "ANY")
    step = ask(loop)
    assert (step.address, step.stays, step.requests[0].offset) == (LEADER, True, 0)
    assert loop.take_losses() == []


@pytest.mark.parametrize("action", list(Action))
def test_damage_that_only_a_replica_has_is_read_at_its_leader(action: Action) -> None:
    loop = sent_away()
    loop.policy = Policy(corrupt=action)
    loop.on_damaged(ask(loop).requests[0], BadRecord("t/0: a byte is flipped"))
    step = ask(loop)
    assert (step.address, step.stays, loop.take_losses()) == (LEADER, True, [])
    assert loop.sender_of(step.requests[0]) is Sender.LEADER
    assert loop.on_records(step.requests[0], 100)


def test_older_records_of_a_replica_do_not_end_the_run() -> None:
    loop = sent_away()
    request = ask(loop).requests[0]
    assert loop.sender_of(request) is Sender.REPLICA
    assert not loop.on_records(request, 0)
    assert ask(loop).address == LEADER


def test_who_led_when_the_plan_was_made_may_be_a_replica_by_now() -> None:
    loop = FetchLoop([slice_of()], PATIENCE, SKIPPING, 0)
    assert loop.sender_of(ask(loop).requests[0]) is Sender.UNCONFIRMED_LEADER
    loop.on_error(ask(loop).requests[0], ErrorMeaning.FIND_LEADER, "NOT_LEADER_OR_FOLLOWER")
    take_step(loop, 0)
    loop.on_leaders(FoundLeaders({P0: Leader(OTHER, 8, "A")}))
    assert loop.sender_of(ask(loop).requests[0]) is Sender.LEADER
    alone = FetchLoop([slice_of()], PATIENCE, SKIPPING, 0, Capabilities(numbered_per_broker=True))
    assert alone.sender_of(ask(alone).requests[0]) is Sender.ONLY_BROKER


def test_a_loop_that_reads_leaders_only_goes_nowhere_else() -> None:
    loop = FetchLoop([slice_of()], PATIENCE, SKIPPING, 0, leader_only=True)
    later = 2 * DETOUR_MS
    assert ask(loop, later).stays
    assert not loop.on_preferred(loop.states[0].request, 2)
    assert ask(loop, later).address == LEADER


@pytest.mark.parametrize("end", [-1, 40, 500])
def test_an_empty_response_of_a_replica_proves_nothing(end: int) -> None:
    loop = sent_away()
    loop.on_empty(ask(loop).requests[0], end, throttled=False)
    assert ask(loop).address == LEADER


def test_a_throttled_replica_is_asked_again() -> None:
    loop = sent_away()
    loop.on_empty(ask(loop).requests[0], 40, throttled=True)
    wait = take_step(loop, 0)
    assert isinstance(wait, WaitUntil)
    assert ask(loop, wait.at_ms).address == REPLICA


def test_a_lost_replica_leads_back_to_the_leader_and_a_lost_leader_does_not_touch_it() -> None:
    loop = sent_away()
    loop.on_lost(LEADER, "reset")
    assert ask(loop).address == REPLICA
    loop.on_lost(REPLICA, "reset")
    assert ask(loop).address == LEADER


def test_only_the_leader_s_own_response_makes_a_loss() -> None:
    loop = sent_away()
    for server in (REPLICA, LEADER):
        step = ask(loop)
        assert step.address == server
        loop.on_error(step.requests[0], ErrorMeaning.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE")
    measure = take_step(loop, 0)
    assert isinstance(measure, AskLogRange)
    assert measure.address == LEADER
    loop.on_log_range(measure.request, 40, 200)
    assert [lost.loss.interval for lost in loop.take_losses()] == [(0, 40)]


# --- what a response proves -------------------------------------------------------------------

KAFKA = Capabilities()
JAFKA = Capabilities(numbered_per_broker=True)
ROCKETMQ = Capabilities(numbered_per_broker=True, leader_id=0)
AGAIN, DETOUR = ReadMode.LEADER_ONLY, ReadMode.DETOUR
STAND_IN = Leader(REPLICA, is_replica=True)


@pytest.mark.parametrize(
    ("broker", "sender"),
    [
        (ServingBroker(LED, KAFKA, is_confirmed=True), Sender.LEADER),
        (ServingBroker(LED, JAFKA, is_confirmed=True), Sender.LEADER),
        (ServingBroker(LED, ROCKETMQ, is_confirmed=True), Sender.LEADER),
        (ServingBroker(LED, KAFKA, AGAIN, is_confirmed=True), Sender.LEADER_AGAIN),
        (ServingBroker(LED, KAFKA, AGAIN), Sender.UNCONFIRMED_LEADER),
        (ServingBroker(LED, KAFKA), Sender.UNCONFIRMED_LEADER),
        (ServingBroker(LED, JAFKA), Sender.ONLY_BROKER),
        (ServingBroker(LED, ROCKETMQ), Sender.LEADER_OR_REPLICA),
        (ServingBroker(LED, KAFKA, DETOUR, 2, is_confirmed=True), Sender.REPLICA),
        (ServingBroker(LED, ROCKETMQ, DETOUR, 2), Sender.REPLICA),
        (ServingBroker(STAND_IN, ROCKETMQ, is_confirmed=True), Sender.REPLICA),
    ],
)
def test_who_sends_responses_depends_on_what_metadata_has_said(
    broker: ServingBroker, sender: Sender
) -> None:
    assert broker.sender is sender


def test_each_sender_proves_what_those_below_it_prove() -> None:
    proofs = [(s.proves_gap, s.proves_end, s.proves_damage, s.proves_range) for s in Sender]
    yes, no = True, False
    assert dict(zip(Sender, proofs, strict=True)) == {
        Sender.LEADER_AGAIN: (yes, yes, yes, yes),
        Sender.LEADER: (no, yes, yes, yes),
        Sender.ONLY_BROKER: (no, no, yes, yes),
        Sender.UNCONFIRMED_LEADER: (no, no, no, yes),
        Sender.LEADER_OR_REPLICA: (no, no, no, no),
        Sender.REPLICA: (no, no, no, no),
    }


# --- a replica in place of a leader that is away --------------------------------------------

AWAY = Leader(REPLICA, replicas=(REPLICA,), replica_ids=(1,), is_replica=True)


def stood_in_for(policy: Policy = SKIPPING) -> FetchLoop:
    """A queue whose master is away: its leader's number is 0, and only 1 is there."""
    slice_ = Slice(0, P0, 0, 100)
    loop = FetchLoop([slice_], PATIENCE, policy, 0, Capabilities(leader_id=0))
    take_step(loop, 0)
    loop.on_leaders(FoundLeaders({P0: AWAY}))
    return loop


def test_what_stands_in_for_a_leader_is_read() -> None:
    loop = stood_in_for()
    step = ask(loop)
    assert step.address == REPLICA
    loop.on_records(step.requests[0], 100)
    assert take_step(loop, 0) == AllRead()


@pytest.mark.parametrize(("start", "end"), [(0, -5), (40, 200)])
def test_offsets_that_only_a_replica_denies_are_waited_for_and_never_lost(
    start: int, end: int
) -> None:
    loop = stood_in_for(Policy())
    with pytest.raises(Unreachable, match="a replica that may lag"):
        _deny(loop, start, end)
    assert loop.take_losses() == []


def _deny(loop: FetchLoop, start: int, end: int) -> None:
    """A replica whose log is ``[start, end)`` and whose master stays away."""
    now = 0
    while now < 60_000:
        match take_step(loop, now):
            case WaitUntil(at_ms):
                now = at_ms
            case SendFetch(_, requests):
                loop.on_error(requests[0], ErrorMeaning.OUT_OF_RANGE, "PULL_OFFSET_MOVED")
            case AskLogRange(_, request):
                loop.on_log_range(request, start, end)
            case FindLeaders():
                loop.on_leaders(FoundLeaders({P0: AWAY}))


def test_damage_in_what_stands_in_for_a_leader_waits_for_the_leader() -> None:
    loop = stood_in_for(Policy(corrupt=Action.SKIP))
    loop.on_damaged(ask(loop).requests[0], BadRecord("q/0: a byte is flipped"))
    assert loop.take_losses() == []
    assert isinstance(take_step(loop, 0), FindLeaders)


def test_who_stood_in_for_a_leader_when_the_plan_was_made_is_not_believed_in_a_loss() -> None:
    slice_ = Slice(0, P0, 0, 100, leader=REPLICA)
    loop = FetchLoop(
        [slice_], PATIENCE, SKIPPING, 0, Capabilities(leader_id=0, numbered_per_broker=True)
    )
    step = ask(loop)
    assert loop.sender_of(step.requests[0]) is Sender.LEADER_OR_REPLICA
    loop.on_error(step.requests[0], ErrorMeaning.OUT_OF_RANGE, "PULL_OFFSET_MOVED")
    measure = take_step(loop, 0)
    assert isinstance(measure, AskLogRange)
    loop.on_log_range(measure.request, 40, 200)
    assert loop.take_losses() == []
    assert isinstance(take_step(loop, 0), FindLeaders)


def test_a_loop_that_reads_leaders_only_waits_for_one_that_is_away() -> None:
    loop = FetchLoop([Slice(0, P0, 0, 100)], PATIENCE, SKIPPING, 0, leader_only=True)
    take_step(loop, 0)
    loop.on_leaders(FoundLeaders({P0: AWAY}))
    assert isinstance(take_step(loop, 0), WaitUntil)
    assert "is only a replica" in loop.states[0].retry.last_failure


@pytest.mark.parametrize("end", [50, 100])
def test_a_leader_that_comes_back_is_read_where_its_replica_was_empty(end: int) -> None:
    loop, now = stood_in_for(), 0
    loop.on_empty(ask(loop).requests[0], end, throttled=False)
    for _ in range(4):
        step = take_step(loop, now)
        if isinstance(step, WaitUntil):
            now = step.at_ms
        elif isinstance(step, FindLeaders):
            loop.on_leaders(
                FoundLeaders({P0: Leader(LEADER, None, None, (LEADER, REPLICA), (0, 1))})
            )
    step = ask(loop, now)
    assert step.address == LEADER
    assert not loop.on_preferred(loop.states[0].request, 0), "it is the leader itself that it names"
    loop.on_error(step.requests[0], ErrorMeaning.OUT_OF_RANGE, "PULL_OFFSET_MOVED")
    assert isinstance(take_step(loop, now), AskLogRange)


def test_a_master_that_suggests_itself_is_not_looked_up() -> None:
    slice_ = Slice(0, P0, 0, 100, leader=LEADER)
    loop = FetchLoop([slice_], PATIENCE, Policy(), 0, Capabilities(leader_id=0))
    assert not loop.on_preferred(loop.states[0].request, 0)
    assert ask(loop).address == LEADER


def test_a_replica_that_is_beyond_its_end_is_not_a_loss_under_a_policy_that_fails() -> None:
    loop = FetchLoop([slice_of()], PATIENCE, Policy(), 0)
    loop.on_preferred(loop.states[0].request, 2)
    take_step(loop, 0)
    loop.on_leaders(FoundLeaders({P0: LED}))
    try:
        loop.on_error(ask(loop).requests[0], ErrorMeaning.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE")
    except RangeLost:
        pytest.fail("a replica was believed")
    assert ask(loop).address == LEADER
