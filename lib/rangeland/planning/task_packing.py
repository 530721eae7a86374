"""Packs slices into tasks, and orders them. Pure.

Many small slices of one leader become one task, so that they share its requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace

from rangeland.grouping import group_by
from rangeland.model import Slice


def pack_tasks(slices: Sequence[Slice], target_bytes: int, min_tasks: int = 1) -> list[list[Slice]]:
    """Tasks: lists of slices of the same leader, each list about ``target_bytes``.

    Urgent slices are assigned first, then the others, each from the largest to the smallest, to the
    lightest task of its leader. A leader has as many tasks as its bytes fill; all leaders together
    have at least ``min_tasks``, if there are enough slices. Tasks with urgent slices come first,
    and these slices are spread over tasks and read before others. The other tasks are ordered from
    the largest to the smallest, so that the last to start is the shortest."""
    groups = list(group_by(slices, lambda s: s.leader).values())
    sizes = [sum(s.estimated_bytes for s in group) for group in groups]
    counts = [
        min(len(group), max(1, round(size / target_bytes)))
        for group, size in zip(groups, sizes, strict=True)
    ]
    for _ in range(min(min_tasks, len(slices)) - sum(counts)):
        divisible = [i for i, group in enumerate(groups) if counts[i] < len(group)]
        counts[max(divisible, key=lambda i: sizes[i] / counts[i])] += 1
    tasks: list[list[Slice]] = []
    for group, count in zip(groups, counts, strict=True):
        tasks += _spread(group, count)
    return sorted(
        tasks,
        key=lambda task: (
            not any(s.is_urgent for s in task),
            -sum(s.estimated_bytes for s in task),
        ),
    )


def _spread(group: Sequence[Slice], count: int) -> list[list[Slice]]:
    tasks: list[list[Slice]] = [[] for _ in range(count)]
    lightest = [(0, 0, number) for number in range(count)]  # bytes, slices and number: a heap
    for s in sorted(group, key=lambda s: (not s.is_urgent, -s.estimated_bytes, s.index)):
        load_bytes, load, number = lightest[0]
        tasks[number].append(s)
        heapreplace(lightest, (load_bytes + s.estimated_bytes, load + 1, number))
    return [sorted(task, key=lambda s: (not s.is_urgent, s.index)) for task in tasks if task]
