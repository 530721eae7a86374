"""Orders with 12 fields, as JSON and as Avro: what the typed part of the benchmark lands."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro

DDL = (
    "id BIGINT, customer STRING, amount DOUBLE, price DECIMAL(10,2), active BOOLEAN, "
    "at TIMESTAMP, day DATE, city STRING, score FLOAT, count INT, note STRING, "
    "items ARRAY<STRUCT<sku: STRING, quantity: INT>>"
)
_ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "sku", "type": "string"}, {"name": "quantity", "type": "int"}],
}
_FIELDS: dict[str, Any] = {
    "id": "long",
    "customer": "string",
    "amount": "double",
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    "active": "boolean",
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "day": {"type": "int", "logicalType": "date"},
    "city": "string",
    "score": "float",
    "count": "int",
    "note": ["null", "string"],
    "items": {"type": "array", "items": _ITEM},
}
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": kind} for name, kind in _FIELDS.items()],
    }
)
_CITIES = ("Berlin", "Zürich", "Oslo", "Lisboa", "Kraków")
_START = 1_767_225_600  # 2026-01-01


def orders(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        noise = number * 2_654_435_761 % (1 << 32)
        at = datetime.fromtimestamp(_START + number % 31_536_000, UTC)
        yield {
            "id": number,
            "customer": f"customer-{noise % 100_000}",
            "amount": noise / 1024,
            "price": Decimal(noise % 1_000_000).scaleb(-2),
            "active": noise % 2 == 0,
            "at": at.replace(microsecond=noise % 1000 * 1000),
            "day": date(2026, 1 + noise % 12, 1 + noise % 28),
            "city": _CITIES[noise % len(_CITIES)],
            "score": noise % 400 / 4,
            "count": noise % 1000,
            "note": None if noise % 3 else "leave it at the door",
            "items": [{"sku": f"sku-{noise % 5000}", "quantity": n} for n in range(noise % 4)],
        }


def json_orders(count: int) -> Iterator[bytes]:
    for order in orders(count):
        order["price"] = float(order["price"])
        order["at"] = order["at"].isoformat(timespec="milliseconds").replace("+00:00", "Z")
        order["day"] = order["day"].isoformat()
        yield json.dumps(order, ensure_ascii=False, separators=(",", ":")).encode()


def avro_orders(count: int, schema_id: int | None = None) -> Iterator[bytes]:
    """Framed with ``schema_id``, as a schema registry's clients write them, if there is one."""
    parsed = fastavro.parse_schema(json.loads(AVRO))
    frame = b"" if schema_id is None else struct.pack(">bi", 0, schema_id)
    for order in orders(count):
        out = io.BytesIO(frame)
        out.seek(len(frame))
        fastavro.schemaless_writer(out, parsed, order)
        yield out.getvalue()
