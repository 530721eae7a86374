"""Finds, by trial, the records on which a transform fails, because Spark reports neither offsets
nor slices.

The slices of the failed task are read through the transform again, then half of them, and so on,
for a few seconds. Only slices that failed in a trial are named, so if a transform fails only now
and then, or only on all of its input, the result is a wider range. If a policy leaves such records
out, the search looks for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rangeland.deadline import Deadline
from rangeland.errors import Bug, TransformFailed
from rangeland.model import Slice
from rangeland.spark.spark_jobs import watch
from rangeland.spark.transform import RaisedByTransform, Transform, raised_of
from rangeland.wording import count_noun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEARCH_S = 10
"""How long to search: the run has failed already, and the search can only improve its error."""
NAMED = 3
"""How many slices an error names, so that it shows what the failing records have in common."""
TRIED = 20
"""If this many records fail before one passes, the transform itself is at fault."""
Slices = Sequence[Slice]


class Trials:
    """Reads slices of a plan through its transform again. ``read`` makes a data frame for given
    tasks."""

    def __init__(
        self, spark: SparkSession, transform: Transform, read: Callable[[Sequence[Slices]], Any]
    ) -> None:
        self._spark = spark
        self._transform = transform
        self._read = read

    def try_slices(self, slices: Slices) -> RaisedByTransform | None:
        """The error that the transform raises for these slices; None if it does not fail."""
        frame = self._transform(self._read([[slice_] for slice_ in slices]))
        try:
            watch(self._spark, frame.mapInArrow(consume_rows, "n long").collect)
        except Bug as error:
            if (raised := raised_of(error.__cause__ or error)) is not None:
                return raised
            raise
        return None


def failed_slices(tasks: Sequence[Slices], failed: int | None) -> list[Slice]:
    """The slices of the failed task; none if it is unknown which task failed."""
    if failed is None and len(tasks) > 1:
        return []
    return list(tasks[failed or 0]) if (failed or 0) < len(tasks) else []


@dataclass(frozen=True, slots=True)
class FailingRecord:
    """A record on which a transform fails even if it gets no other record."""

    slice: Slice
    raised: RaisedByTransform


class NotAttributable(Exception):
    """The reason why a transform's failure cannot be attributed to single records."""


class RecordSearch:
    """Searches for all single records on which a transform fails."""

    def __init__(
        self, raised: Callable[[Slices], RaisedByTransform | None], *, most: int, seconds: float
    ) -> None:
        self._raised = raised
        self._most = most
        self._seconds = seconds
        self._deadline = Deadline(seconds)
        self._passed = 0
        self.found: list[FailingRecord] = []

    def search(self, slices: Slices) -> list[FailingRecord]:
        """The failing records of these slices. Raises NotAttributable if the transform also fails
        without them, on too many of them or on every one tried, or if time runs out."""
        if slices:
            self._search(list(slices), is_known=False)
        return self.found

    def _search(self, slices: list[Slice], *, is_known: bool) -> int:
        """The number of failing records. ``is_known``: it is already known that these slices
        together fail."""
        halves = _halves(slices, True)
        if halves is None or not is_known:
            failure = self._try(slices)
            if failure is None:
                return 0
            if halves is None:
                self.found.append(FailingRecord(slices[0], failure))
                return 1
        count = self._search(halves[0], is_known=False)
        count += self._search(halves[1], is_known=count == 0)
        if count == 0:
            raise NotAttributable("it fails on several records together, not on single ones")
        return count

    def _try(self, slices: Slices) -> RaisedByTransform | None:
        if self._deadline.has_passed:
            raise NotAttributable(f"they were not all found in {self._seconds:.0f} s")
        if len(self.found) > self._most:
            raise NotAttributable(f"it fails on more than {self._most} of them")
        if len(self.found) >= TRIED and self._passed == 0:
            raise NotAttributable(f"it fails on each of the first {len(self.found)}")
        failure = self._raised(slices)
        self._passed += failure is None
        return failure


def narrow_slices(
    slices: Slices, fails: Callable[[Slices], object], *, can_cut: bool = True
) -> list[Slice]:
    """The smallest set of slices that failed, found by bisection; empty if not even all of them
    together fail. Any other error ends the search."""
    deadline = Deadline(SEARCH_S)
    failing: list[Slice] = []
    candidates = list(slices)
    try:
        if not candidates or not fails(candidates):
            return []
        failing = candidates
        while (halves := _halves(candidates, can_cut)) and not deadline.has_passed:
            if fails(halves[0]):
                candidates = failing = halves[0]
            else:
                candidates = halves[1]
        return candidates if candidates is failing or fails(candidates) else failing
    except Exception:  # whatever ended the search, the transform's own error is reported
        return failing


def _halves(slices: list[Slice], can_cut: bool) -> tuple[list[Slice], list[Slice]] | None:
    if len(slices) > 1:
        middle = len(slices) // 2
        return slices[:middle], slices[middle:]
    (slice_,) = slices
    if slice_.width < 2 or not can_cut:
        return None
    at = (slice_.from_offset + slice_.until_offset) // 2
    return [replace(slice_, until_offset=at)], [replace(slice_, from_offset=at)]


def located_error(
    error: TransformFailed, found: Sequence[Slice], slices: Slices
) -> TransformFailed:
    """The error with its location: in ``found`` if that is not empty, otherwise in ``slices``."""
    failed = list(found or slices)
    if not failed:
        return error
    first = failed[0]
    if found and len(failed) == 1 and first.width == 1:
        where = f"on {first.partition} offset {first.from_offset}"
    else:
        names = [str(slice_) for slice_ in failed[:NAMED]]
        more = [count_noun(len(failed) - NAMED, "more slice")] if len(failed) > NAMED else []
        where = f"on a record of {' or '.join([*names, *more])}"
    return error.with_words(what=f"{error.what} {where}").with_facts(
        topic=first.partition.topic,
        partition=first.partition.number,
        broker=first.partition.broker or None,
        from_offset=first.from_offset,
        until_offset=first.until_offset,
        slices=[str(slice_) for slice_ in failed[:100]],
    )


def consume_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Consumes all rows and returns none."""
    for _ in batches:
        pass
    yield from ()
