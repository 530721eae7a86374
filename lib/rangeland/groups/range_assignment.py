"""Range assignment, which clients of every backend support.

For each topic, the sorted partitions are cut into as many runs as there are members that read it;
if the division leaves a remainder, the first few runs have one partition more. Every member
computes the entire assignment from the same lists, so their order is part of the rule: each backend
uses the order of its upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from rangeland.errors import LocalProtocolError
from rangeland.grouping import group_by
from rangeland.model import Partition

T = TypeVar("T")


def assign_ranges(
    partitions: Iterable[Partition], members: Sequence[str], rank: Callable[[Partition], Any]
) -> dict[str, frozenset[Partition]]:
    """The partitions of each member, which may be none. Every member reads all topics."""
    assigned: dict[str, list[Partition]] = {member: [] for member in members}
    for of_topic in group_by(set(partitions), lambda partition: partition.topic).values():
        for member, run in cut_into_runs(sorted(of_topic, key=rank), members).items():
            assigned[member] += run
    return {member: frozenset(owned) for member, owned in assigned.items()}


def cut_into_runs(ordered: Sequence[T], members: Sequence[str]) -> dict[str, Sequence[T]]:
    """Each member's run of one topic's partitions. Raises LocalProtocolError without members."""
    if not members:
        raise LocalProtocolError("partitions cannot be assigned", why="there are no members")
    length, extra = divmod(len(ordered), len(members))
    runs = {}
    start = 0
    for index, member in enumerate(members):
        end = start + length + (1 if index < extra else 0)
        runs[member] = ordered[start:end]
        start = end
    return runs
