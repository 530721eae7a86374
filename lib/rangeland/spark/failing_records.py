"""Finds the records that a transform fails on, by trial: Spark reports neither offsets nor slices.

The slices of the failed task are read through the transform again, then half of them, and so
on, for a few seconds. Only what failed in a trial is named, so for a transform that fails now
and then, or only with all of its input, the answer is a wider range.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.dialects.dialect import load_dialect
from rangeland.errors import Bug, TransformFailed
from rangeland.model import Slice
from rangeland.spark.spark_jobs import ByKey, watch
from rangeland.spark.transform import Transform, raised_of
from rangeland.wording import counted

SECONDS = 10
NAMED = 3
Piece = Sequence[Slice]


def failing_slices(
    spark: Any,
    tasks: Sequence[Piece],
    cluster: ClusterSettings,
    transform: Transform,
    read: Callable[[Sequence[Piece]], Any],
    failed: int | None,
) -> list[Slice]:
    """The smallest part of what was read that fails by itself, as far as that was found in time;
    empty if none does. ``read`` makes a data frame of tasks, ``failed`` is the number of the
    failed task."""
    if failed is None and len(tasks) > 1:
        return []
    start = list(tasks[failed or 0]) if (failed or 0) < len(tasks) else []

    def fails(slices: Piece) -> bool:
        made = transform(read([list(slices)])).mapInArrow(nothing, "n long")
        try:
            watch(spark, made.collect, spark.sparkContext.accumulator({}, ByKey()), lambda _: None)
        except Bug as error:
            return raised_of(error.__cause__ or error) is not None
        return False

    can_cut = not load_dialect(cluster.dialect).capabilities.offsets_are_bytes
    return narrowed(start, fails, can_cut=can_cut)


def narrowed(
    slices: Piece,
    fails: Callable[[Piece], bool],
    *,
    can_cut: bool = True,
    seconds: float = SECONDS,
) -> list[Slice]:
    """The smallest part that failed, by bisection; empty if not even all of it fails. Any other
    error ends the search."""
    deadline = time.monotonic() + seconds
    seen: list[Slice] = []
    maybe = list(slices)
    try:
        if not maybe or not fails(maybe):
            return []
        seen = maybe
        while (halves := _halves(maybe, can_cut)) and time.monotonic() < deadline:
            if fails(halves[0]):
                maybe = seen = halves[0]
            else:
                maybe = halves[1]
        return maybe if maybe is seen or fails(maybe) else seen
    except Exception:  # the log may be unreachable by now: the transform's error matters more
        return seen


def _halves(slices: list[Slice], can_cut: bool) -> tuple[list[Slice], list[Slice]] | None:
    if len(slices) > 1:
        middle = len(slices) // 2
        return slices[:middle], slices[middle:]
    (piece,) = slices
    if piece.width < 2 or not can_cut:
        return None
    at = (piece.from_offset + piece.until_offset) // 2
    return [replace(piece, until_offset=at)], [replace(piece, from_offset=at)]


def located(error: TransformFailed, found: Sequence[Slice], slices: Piece) -> TransformFailed:
    """The error with its location: in ``found`` if that is not empty, else in ``slices``."""
    pieces = list(found or slices)
    if not pieces:
        return error
    first = pieces[0]
    if found and len(pieces) == 1 and first.width == 1:
        where = f"on {first.partition} offset {first.from_offset}"
    else:
        named = [str(piece) for piece in pieces[:NAMED]]
        more = [counted(len(pieces) - NAMED, "more slice")] if len(pieces) > NAMED else []
        where = f"on a record of {' or '.join([*named, *more])}"
    return TransformFailed.of(
        error,
        what=f"{error.what} {where}",
        topic=first.partition.topic,
        partition=first.partition.number,
        broker=first.partition.broker or None,
        from_offset=first.from_offset,
        until_offset=first.until_offset,
        slices=[str(piece) for piece in pieces[:100]],
    )


def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Consumes all rows and returns none."""
    for _ in batches:
        pass
    yield from ()
