"""Typed landings: each format's topic, landed by both sides in turn in one warm session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rangeland.testing.producing import create_topic, spread
from tests.bench.competitors import Ground, Side
from tests.bench.parts import Bench, Found, warm
from tests.bench.typed_orders import AVRO, avro_orders, json_orders
from tests.bench.typed_sides import SameRows, avro_sides, json_sides

FORMATS = ("json", "avro")
CODEC = "lz4"


def typed(bench: Bench, spark: Any, formats: Sequence[str]) -> Found:
    """``label``: what each side is called in a table, by name."""
    same = SameRows()
    schema = bench.folder / "order.avsc"
    schema.write_text(AVRO)
    made: dict[str, Callable[[], tuple[Iterator[bytes], list[Side]]]] = {
        "json": lambda: (json_orders(bench.records), json_sides(same)),
        "avro": lambda: (avro_orders(bench.records), avro_sides(same, schema)),
    }
    found: Found = {}
    for name in formats:
        payloads, sides = made[name]()
        ground = replace(_filled(bench, f"orders-{name}", payloads), spark=spark)
        found[name] = warm(bench, ground, sides)
        found[name]["label"] = {side.name: side.label for side in sides}
    return found


def _filled(bench: Bench, topic: str, payloads: Iterator[bytes]) -> Ground:
    bench.say(f"filling {topic} with {bench.records:,} records")
    create_topic(bench.bootstrap, topic, bench.partitions)
    pairs = ((b"k%07d" % number, value) for number, value in enumerate(payloads))
    spread(bench.bootstrap, topic, pairs, bench.partitions, codec=CODEC)
    return Ground(bench.bootstrap, topic, bench.partitions, bench.records)
