"""The coverage rule: an offset is landed in a table once, whichever kind of plan lands it.

The covered offsets, with or without rows, and the offsets of other unfinished plans are interval
lists per partition and topic incarnation, since the offsets of a recreated topic refer to other
records. A new plan has no covered offsets, and sees which unfinished plans block it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from rangeland.grouping import group_by
from rangeland.model import Partition, Range
from rangeland.planning.intervals import Interval, insert, merge, near, overlap, subtract


@dataclass(frozen=True, slots=True)
class Coverage:
    """Covered intervals per partition and topic id, which is None for brokers without topic ids."""

    intervals: Mapping[tuple[Partition, str | None], list[Interval]] = field(default_factory=dict)

    def of(self, partition: Partition, topic_id: str | None) -> list[Interval]:
        """The covered offsets of this incarnation of the partition. An unknown id matches every
        incarnation: it is better to land too little, and say so, than to land twice."""
        if topic_id is None:
            return merge(i for (p, _), x in self.intervals.items() if p == partition for i in x)
        known = self.intervals.get((partition, topic_id), [])
        return merge([*known, *self.nameless(partition)])

    def nameless(self, partition: Partition) -> list[Interval]:
        """The covered offsets of incarnations without a known id."""
        return self.intervals.get((partition, None), [])


class GrowingCoverage:
    """A coverage to which ranges are added one by one, and which is asked in between. Neither
    takes longer the more ranges there are, as long as these are next to each other."""

    def __init__(self) -> None:
        self._intervals: dict[Partition, dict[str | None, list[Interval]]] = {}

    def add(self, covered: Range) -> None:
        of_partition = self._intervals.setdefault(covered.partition, {})
        insert(of_partition.setdefault(covered.topic_id, []), covered.interval)

    def uncovered_parts(self, r: Range) -> list[Range]:
        """The parts of a range that are not covered, by the rule of ``Coverage.of``."""
        of_partition = self._intervals.get(r.partition, {})
        ids = of_partition if r.topic_id is None else (r.topic_id, None)
        taken = [i for x in ids for i in near(of_partition.get(x, []), r.interval)]
        return [
            replace(r, from_offset=start, until_offset=end)
            for start, end in subtract(r.interval, taken)
        ]


def coverage_of(ranges: Iterable[Range]) -> Coverage:
    """The coverage of these ranges together."""
    groups = group_by(ranges, lambda r: (r.partition, r.topic_id))
    return Coverage({key: merge(r.interval for r in group) for key, group in groups.items()})


def uncovered_parts(ranges: Iterable[Range], coverage: Coverage) -> list[Range]:
    """The uncovered parts of the ranges. A range that is covered entirely disappears; if its
    middle is covered, it becomes two."""
    return [
        replace(r, from_offset=start, until_offset=end)
        for r in ranges
        for start, end in subtract(r.interval, coverage.of(r.partition, r.topic_id))
    ]


def covered_parts(ranges: Iterable[Range], coverage: Coverage) -> list[Range]:
    """The parts of the ranges that are covered."""
    return [
        replace(r, from_offset=start, until_offset=end)
        for r in ranges
        for start, end in overlap(r.interval, coverage.of(r.partition, r.topic_id))
    ]
