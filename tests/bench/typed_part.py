"""Typed landings: each format's topic, landed by both sides in turn in one warm session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from rangeland.testing.producer import create_topic, spread
from tests.bench.competitors import Ground, Side
from tests.bench.parts import Bench, Found, warm
from tests.bench.typed_orders import AVRO, avro_orders, json_orders
from tests.bench.typed_sides import SameRows, avro_sides, json_sides, registry_sides
from tests.servers.apicurio import ApicurioRegistry

FORMATS = ("json", "avro", "registry")
CODEC = "lz4"
Payloads = Iterator[bytes]


def typed(bench: Bench, spark: Any, formats: Sequence[str]) -> Found:
    """``label``: what each side is called in a table, by name."""
    same = SameRows()
    found: Found = {}
    with ExitStack() as servers:
        for name in formats:
            payloads, sides = MADE[name](bench, same, servers)
            ground = replace(_filled(bench, topic_of(name), payloads), spark=spark)
            found[name] = warm(bench, ground, sides)
            found[name]["label"] = {side.name: side.label for side in sides}
    return found


def topic_of(name: str) -> str:
    return f"orders-{name}"


def _json(bench: Bench, same: SameRows, servers: ExitStack) -> tuple[Payloads, list[Side]]:
    return json_orders(bench.records), json_sides(same)


def _avro(bench: Bench, same: SameRows, servers: ExitStack) -> tuple[Payloads, list[Side]]:
    schema = bench.folder / "order.avsc"
    schema.write_text(AVRO)
    return avro_orders(bench.records), avro_sides(same, schema)


def _registry(bench: Bench, same: SameRows, servers: ExitStack) -> tuple[Payloads, list[Side]]:
    registry = servers.enter_context(ApicurioRegistry())
    schema_id = registry.register(f"{topic_of('registry')}-value", AVRO)
    return avro_orders(bench.records, schema_id), registry_sides(same, registry.url)


MADE = dict(zip(FORMATS, (_json, _avro, _registry), strict=True))


def _filled(bench: Bench, topic: str, payloads: Iterator[bytes]) -> Ground:
    bench.say(f"filling {topic} with {bench.records:,} records")
    create_topic(bench.bootstrap, topic, bench.partitions)
    pairs = ((b"k%07d" % number, value) for number, value in enumerate(payloads))
    spread(bench.bootstrap, topic, pairs, bench.partitions, codec=CODEC)
    return Ground(bench.bootstrap, topic, bench.partitions, bench.records)
