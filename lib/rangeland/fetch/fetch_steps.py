"""The steps that the fetch loop asks its caller to carry out, as values. Decides which step is
next, and which slices share a request.

A step is one operation: request records or the range of a log from a broker, find leaders, wait, or
end, with an error if the run fails. Steps say what to do, not how.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rangeland.errors import Bug
from rangeland.fetch.backoff import Throttle
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.slice_state import Fail, Phase, SliceRequest, SliceState
from rangeland.model import Address, Partition


@dataclass(frozen=True, slots=True)
class SendFetch:
    """Send one fetch with all ``requests`` to the broker at ``address``, and report the outcome of
    each. ``stays``: the broker must not redirect us to a replica, so no rack is sent."""

    address: Address
    requests: tuple[SliceRequest, ...]
    stays: bool = False


@dataclass(frozen=True, slots=True)
class AskLogRange:
    """Ask the broker at ``address`` where the partition's log begins and ends: an offset may be
    outside it."""

    address: Address
    request: SliceRequest


@dataclass(frozen=True, slots=True)
class FindLeaders:
    """Find the leaders of these partitions; ask ``replicas`` first, in this order, and brokers in
    ``last`` after all others."""

    partitions: tuple[Partition, ...]
    replicas: tuple[Address, ...]
    last: frozenset[Address] = frozenset()
    """The brokers that named no usable leader the last time they were asked: their metadata may be
    stale."""


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """There is nothing to do before this time."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class AllRead:
    """Every slice has been read to its end."""


Step = SendFetch | AskLogRange | FindLeaders | WaitUntil | AllRead | Fail


def next_step(
    unfinished: Sequence[SliceState], throttle: Throttle, limits: FetchLimits, now_ms: int
) -> Step:
    """The next step for the unfinished slices."""
    if not unfinished:
        return AllRead()
    ready = [s for s in unfinished if _ready_at(s, throttle) <= now_ms]
    if not ready:
        return WaitUntil(min(_ready_at(s, throttle) for s in unfinished))
    for state in ready:
        if state.phase is Phase.MEASURING and state.broker.address:
            return AskLogRange(state.broker.address, state.request)
    if finding := [s for s in ready if s.phase is Phase.FINDING]:
        return _leader_request(finding)
    reading = [s for s in ready if s.phase is Phase.READING]
    return _fetch_request([s for s in reading if s.slice.is_urgent] or reading, limits)


def _ready_at(state: SliceState, throttle: Throttle) -> int:
    if state.phase is Phase.FINDING:
        return state.retry.resume_at_ms
    return max(state.retry.resume_at_ms, throttle.free_at(state.broker.address))


def _fetch_request(ready: Sequence[SliceState], limits: FetchLimits) -> SendFetch:
    """One fetch for all ready slices of one broker, within the bytes of a request."""
    # The slice that has waited longest chooses the broker, so none is starved.
    first = min(ready, key=lambda s: (s.retry.progress_at_ms, s.slice.index))
    address = first.broker.address
    if address is None:
        raise Bug(f"{first.slice} is ready to be read but has no broker")
    sharing = [s for s in ready if s.can_share_request(first) and not s.size.is_alone]
    requests: list[SliceRequest] = []
    partitions: set[Partition] = set()
    budget = limits.request_bytes
    for state in sorted(
        [first] if first.size.is_alone else sharing, key=lambda s: (s is not first, s.slice.index)
    ):
        # A request may name a partition only once: a second slice of it has to wait.
        if state.slice.partition in partitions or (requests and state.size.bytes > budget):
            continue
        partitions.add(state.slice.partition)
        budget -= state.size.bytes
        requests.append(state.request)
    return SendFetch(address, tuple(requests), stays=first.broker.stays)


def _leader_request(finding: Sequence[SliceState]) -> FindLeaders:
    """The request for metadata of all these slices. Their replicas are asked first, except for the
    leaders that the slices have left."""
    replicas: dict[Address, None] = {}
    last = frozenset(s.without_leader for s in finding if s.without_leader is not None)
    for state in finding:
        for replica in state.broker.leader.replicas:
            if replica != state.left_leader:
                replicas[replica] = None
    partitions = tuple(sorted({s.slice.partition for s in finding}))
    return FindLeaders(partitions, tuple(replicas), last)
