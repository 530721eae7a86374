"""Landings of logs that differ from the usual one in one thing: ours against Spark's source."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rangeland.testing.producer import create_topic, page_views, spread
from tests.bench.competitors import SIDES, Ground
from tests.bench.parts import Bench, Found, warm

Pairs = Iterator[tuple[bytes, bytes]]
_USUAL_BYTES = 175


@dataclass(frozen=True, slots=True)
class Shape:
    """``share`` of the records of a usual log, so that all take about as long."""

    label: str
    pairs: Callable[[int], Pairs]
    share: float = 1.0
    partitions: int = 4
    batch_records: int = 10_000
    codec: str = "lz4"


def _views_of(size: int) -> Callable[[int], Pairs]:
    """Values of ``size`` bytes, made of several page views each."""

    def pairs(count: int) -> Pairs:
        views = page_views(count * (size // _USUAL_BYTES + 1))
        for _ in range(count):
            key, value = next(views)
            while len(value) < size:
                value += next(views)[1]
            yield key, value[:size]

    return pairs


def _noise(count: int) -> Pairs:
    draw = random.Random(7).randbytes
    for _ in range(count):
        yield draw(8), draw(_USUAL_BYTES)


SHAPES = (
    Shape("as usual: 175 B, 4 partitions", page_views),
    Shape("batches of 10 records", page_views, share=0.25, batch_records=10),
    Shape("one partition", page_views, partitions=1),
    Shape("200 partitions", page_views, share=0.25, partitions=200),
    Shape("1 KB values", _views_of(1_000), share=0.2),
    Shape("10 KB values", _views_of(10_000), share=0.025),
    Shape("incompressible values", _noise, codec="none"),
)


def shapes(bench: Bench, spark: Any, found: Found) -> None:
    """Adds to ``found``, by label, what ``warm`` measures for two sides: each shape once it is
    done, so that a measurement that is stopped keeps the earlier ones."""
    for number, shape in enumerate(SHAPES):
        found[shape.label] = _one_shape(bench, shape, number, spark)


def _one_shape(bench: Bench, shape: Shape, number: int, spark: Any) -> Found:
    topic, records = f"shape-{number}", int(bench.records * shape.share)
    bench.say(f"filling {topic} with {records:,} records: {shape.label}")
    create_topic(bench.bootstrap, topic, shape.partitions)
    spread(
        bench.bootstrap,
        topic,
        shape.pairs(records),
        shape.partitions,
        codec=shape.codec,
        batch_records=shape.batch_records,
    )
    ground = Ground(bench.bootstrap, topic, shape.partitions, records, spark)
    return warm(bench, ground, [SIDES["rangeland"], SIDES["spark"]])
