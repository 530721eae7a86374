"""The fetch loop against a simulated cluster that moves leaders, breaks connections, answers
late, empty or in part, and sends to replicas that lag: it always ends, and delivers each
slice's offsets once and in order."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.fetch.fetch_loop import FetchLoop
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.fetch_steps import AllRead, AskLogRange, FindLeaders, SendFetch, WaitUntil
from rangeland.fetch.leader_judgement import FoundLeaders
from rangeland.fetch.replica_choice import ReadMode
from rangeland.fetch.slice_state import SliceRequest
from rangeland.model import Address, Leader, Partition, Slice
from rangeland.planning.policy import Policy
from tests.examples import tried
from tests.fakes.fetching import take_step

BROKERS = (Address("b1", 1), Address("b2", 1), Address("b3", 1))
PATIENCE = FetchLimits(
    no_progress_ms=10**6,
    backoff_ms=10,
    max_backoff_ms=80,
    fetch_bytes=64,
    smallest_fetch_bytes=16,
    largest_fetch_bytes=4096,
    request_bytes=200,
)
BYTES_PER_OFFSET = 8
LOG_END = 120


@dataclass
class Cluster:
    """Logs with batch borders, leaders that move while ``faults`` last, and what was delivered.

    ``positions`` is the judge's own account: where each slice must be asked for next."""

    random: Random
    faults: int
    slices: list[Slice]
    borders: dict[Partition, list[int]] = field(default_factory=dict)
    leaders: dict[Partition, Address | None] = field(default_factory=dict)
    lags: dict[Address, int] = field(default_factory=dict)
    """How far each broker is behind where it follows."""
    named: set[tuple[Partition, Address]] = field(default_factory=set)
    """Replicas that a leader has named."""
    positions: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for slice_ in self.slices:
            inner = self.random.sample(range(1, LOG_END), self.random.randint(0, 30))
            self.borders.setdefault(slice_.partition, [0, *sorted(inner), LOG_END])
            self.leaders.setdefault(slice_.partition, self.random.choice(BROKERS))
            self.positions[slice_.index] = slice_.from_offset
        self.lags = {broker: self.random.choice((0, 0, 30, LOG_END)) for broker in BROKERS}

    def strikes(self, one_in: int) -> bool:
        """Whether a fault happens now; there are only so many of them."""
        if self.faults <= 0 or self.random.randrange(one_in):
            return False
        self.faults -= 1
        return True

    def move_leaders(self) -> None:
        for partition in self.leaders:
            if self.strikes(6):
                self.leaders[partition] = self.random.choice((*BROKERS, None))
            elif self.faults <= 0 and self.leaders[partition] is None:
                self.leaders[partition] = self.random.choice(BROKERS)

    def answer(self, loop: FetchLoop, ask: SendFetch) -> None:
        partitions = [request.partition for request in ask.requests]
        assert len(partitions) == len(set(partitions))
        assert ask.requests
        for request in ask.requests:
            assert request.offset == self.positions[request.index]
        if self.strikes(8):
            loop.on_lost(ask.address, "reset")
            return
        requests = list(ask.requests)
        self.random.shuffle(requests)
        for request in requests:
            self.answer_one(loop, ask.address, request)

    def answer_one(self, loop: FetchLoop, leader: Address, request: SliceRequest) -> None:
        if loop.states[request.index].broker.mode is ReadMode.DETOUR:
            assert (request.partition, leader) in self.named
            self.answer_as_replica(loop, leader, request)
        elif self.leaders[request.partition] != leader:
            loop.on_error(request, ErrorMeaning.FIND_LEADER, "NOT_LEADER")
        elif self.strikes(8):
            loop.on_error(request, ErrorMeaning.RETRY, "BUSY")
        elif self.strikes(8):
            assert not loop.on_empty(request, LOG_END, throttled=True)
        elif self.strikes(8):
            assert not loop.on_empty(request, request.offset, throttled=False)
        elif self.strikes(8):
            loop.on_error(request, ErrorMeaning.OUT_OF_RANGE, "OUT_OF_RANGE")
        else:
            self.deliver(loop, request)
            self.prefer(loop, request)

    def prefer(self, loop: FetchLoop, request: SliceRequest) -> None:
        """The leader would rather have another read: a replica, itself, or one nobody knows."""
        if self.strikes(3):
            number = self.random.randrange(len(BROKERS) + 1)
            loop.on_preferred(request, number)
            self.named |= {(request.partition, broker) for broker in BROKERS[number : number + 1]}

    def answer_as_replica(self, loop: FetchLoop, replica: Address, request: SliceRequest) -> None:
        """It has less than its leader, and may say anything of what it has not."""
        end = max(b for b in self.borders[request.partition] if b <= LOG_END - self.lags[replica])
        if self.strikes(8):
            meanings = (
                ErrorMeaning.OUT_OF_RANGE,
                ErrorMeaning.CORRUPT,
                ErrorMeaning.RETRY,
                ErrorMeaning.REFUSED,
            )
            loop.on_error(request, self.random.choice(meanings), "ANY")
        elif request.offset < end:
            self.deliver(loop, request, end)
        else:
            assert not loop.on_empty(request, end, throttled=False)

    def deliver(self, loop: FetchLoop, request: SliceRequest, end: int = LOG_END) -> None:
        borders = [b for b in self.borders[request.partition] if b <= end]
        at = bisect_right(borders, request.offset)
        begin = borders[at - 1]
        fitting = [b for b in borders[at:] if (b - begin) * BYTES_PER_OFFSET <= request.max_bytes]
        if not fitting:
            loop.on_too_small(request)
            return
        following = self.random.choice(fitting)
        loop.on_records(request, following)
        self.positions[request.index] = following

    def tell_leaders(self, loop: FetchLoop, step: FindLeaders) -> None:
        if self.strikes(5):
            reasons = dict.fromkeys(step.partitions, "nobody answers")
            loop.on_leaders(FoundLeaders(unreachable=reasons))
            return
        told: dict[Partition, Leader] = {}
        for partition in step.partitions:
            address = self.leaders[partition]
            if self.strikes(5):
                address = self.random.choice(BROKERS)  # stale metadata
            told[partition] = Leader(address, None, "A", BROKERS, (0, 1, 2))
        loop.on_leaders(FoundLeaders(told))


@st.composite
def tasks(draw: st.DrawFn) -> list[Slice]:
    """Slices that tile a stretch of one to three partitions, with leaders that may be wrong."""
    slices: list[Slice] = []
    for number in range(draw(st.integers(1, 3))):
        marks = draw(st.lists(st.integers(0, LOG_END), min_size=2, max_size=4))
        marks.sort()
        for start, end in itertools.pairwise(marks):
            leader = draw(st.sampled_from((*BROKERS, None)))
            size = draw(st.sampled_from((0, 10, 1000)))
            index = len(slices)
            slices.append(Slice(index, Partition("t", number), start, end, size, "A", leader))
    return slices


@tried(50)
@given(tasks(), st.integers(0, 60), st.integers(0, 2**32))
def test_every_slice_is_delivered_once_and_in_order_whatever_the_cluster_does(
    slices: list[Slice], faults: int, seed: int
) -> None:
    cluster = Cluster(Random(seed), faults, slices)
    loop = FetchLoop(slices, PATIENCE, Policy(), 0)
    now = 0
    for _ in range(3000):
        cluster.move_leaders()
        step = take_step(loop, now)
        match step:
            case AllRead():
                break
            case WaitUntil(at_ms):
                assert at_ms > now
                now = at_ms
            case FindLeaders():
                assert step.partitions
                cluster.tell_leaders(loop, step)
            case AskLogRange(leader, request):
                assert request.offset == cluster.positions[request.index]
                if cluster.strikes(3):
                    loop.on_lost(leader, "reset")
                elif cluster.strikes(3):
                    loop.on_log_range(request, 0, request.offset - 1)
                else:
                    loop.on_log_range(request, 0, LOG_END)
            case SendFetch():
                cluster.answer(loop, step)
        now += cluster.random.choice((0, 1, 50))
    else:
        raise AssertionError("the loop never ends")
    assert loop.take_losses() == []
    for slice_ in slices:
        assert cluster.positions[slice_.index] >= slice_.until_offset
        if slice_.width == 0:
            assert cluster.positions[slice_.index] == slice_.from_offset
