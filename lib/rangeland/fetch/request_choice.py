"""Which request is sent next, for which of the slices that are ready. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from rangeland.errors import Bug
from rangeland.fetch.fetch_steps import FetchLimits, FetchTarget, FindLeaders, SendFetch
from rangeland.fetch.slice_state import SliceState
from rangeland.model import Address, Partition


def fetch_request(ready: Sequence[SliceState], limits: FetchLimits) -> SendFetch:
    """One fetch for all ready slices of one leader, within the bytes of a request."""
    # The slice that has waited longest chooses the leader, so none is starved.
    first = min(ready, key=lambda s: (s.progress_at_ms, s.slice.index))
    address = first.server.address
    if address is None:
        raise Bug(f"{first.slice} is to be read and has no leader")
    sharing = [s for s in ready if s.can_share_request(first) and not s.fetch_alone]
    targets: list[FetchTarget] = []
    named: set[Partition] = set()
    budget = limits.request_bytes
    for state in sorted(
        [first] if first.fetch_alone else sharing, key=lambda s: (s is not first, s.slice.index)
    ):
        # A request names a partition once: a second slice of it has its turn later.
        if state.slice.partition in named or (targets and state.fetch_bytes > budget):
            continue
        named.add(state.slice.partition)
        budget -= state.fetch_bytes
        targets.append(state.target)
    return SendFetch(address, tuple(targets), stays=first.server.stays)


def leader_request(finding: Sequence[SliceState]) -> FindLeaders:
    """Metadata for all of them; their replicas are asked first, but not the leaders they left."""
    seeds: dict[Address, None] = {}
    for state in finding:
        for replica in state.server.leader.replicas:
            if replica != state.left_leader:
                seeds[replica] = None
    return FindLeaders(tuple(sorted({s.slice.partition for s in finding})), tuple(seeds))
