"""``python -m tests.bench.json_decoding``: records a second of JSON with 12 fields, by library.

All sides decode the same payloads into the same columns, in turn, on one thread. The numbers count
the processor's time, so that a busy machine does not change them much; take the ratios. Only the
kernel tells damaged records apart. duckdb is measured if it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.json as arrow_json
from rich.console import Console
from rich.table import Table

from rangeland.decode.payload.json.json_format import JsonFormat
from rangeland.decode.payload.schema_ddl import parse_ddl

SCHEMA = parse_ddl(
    "id BIGINT NOT NULL, customer STRING, amount DOUBLE, price DECIMAL(10,2), active BOOLEAN, "
    "at TIMESTAMP, day DATE, city STRING, score FLOAT, count INT, note STRING, "
    "items ARRAY<STRUCT<sku: STRING, quantity: INT>>"
)
DUCKDB_TYPES = {
    "id": "BIGINT",
    "customer": "VARCHAR",
    "amount": "DOUBLE",
    "price": "DECIMAL(10,2)",
    "active": "BOOLEAN",
    "at": "TIMESTAMP",
    "day": "DATE",
    "city": "VARCHAR",
    "score": "FLOAT",
    "count": "INTEGER",
    "note": "VARCHAR",
    "items": [{"sku": "VARCHAR", "quantity": "INTEGER"}],
}
Side = Callable[[pa.BinaryArray], object]


def payloads(count: int) -> pa.BinaryArray:
    chance = random.Random(1)
    return pa.array(
        [json.dumps(_record(i, chance), ensure_ascii=False).encode() for i in range(count)]
    )


def _record(number: int, chance: random.Random) -> dict[str, object]:
    return {
        "id": number,
        "customer": f"customer-{number % 1000}",
        "amount": chance.random() * 1000,
        "price": round(chance.random() * 100, 2),
        "active": number % 2 == 0,
        "at": "2026-05-06T07:08:09.123Z",
        "day": "2026-05-06",
        "city": "Zürich" if number % 7 == 0 else "Berlin",
        "score": number % 100 / 4,
        "count": number % 1000,
        "note": None,
        "items": [{"sku": f"sku-{i}", "quantity": i} for i in range(2)],
    }


def by_kernel(given: pa.BinaryArray) -> object:
    result = JsonFormat(SCHEMA).decoder().decode(given)
    assert not result.undecodable
    return result


def by_arrow(given: pa.BinaryArray) -> object:
    """Its reader takes dates and decimals as strings only."""
    lines = b"\n".join(given.to_pylist())
    as_written = {pa.date32(): pa.string(), pa.decimal128(10, 2): pa.float64()}
    fields = [SCHEMA.field(i) for i in range(SCHEMA.num_fields)]
    schema = pa.schema(
        [field.with_type(as_written.get(field.type, field.type)) for field in fields]
    )
    return arrow_json.read_json(
        io.BytesIO(lines),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore"
        ),
    )


def by_duckdb(given: pa.BinaryArray) -> object:
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    connection.register("given", pa.table({"value": given.cast(pa.string())}))
    types = json.dumps(DUCKDB_TYPES)
    return connection.sql(f"SELECT json_transform(value, '{types}') FROM given").fetch_arrow_table()


def by_python(given: pa.BinaryArray) -> object:
    return pa.Table.from_pylist([json.loads(payload) for payload in given.to_pylist()])


def sides() -> dict[str, Side]:
    found: dict[str, Side] = {"this kernel": by_kernel, "pyarrow.json": by_arrow}
    if importlib.util.find_spec("duckdb"):
        found["duckdb json_transform"] = by_duckdb
    return found | {"json.loads and from_pylist": by_python}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    given = payloads(options.records)
    taken: dict[str, list[float]] = {name: [] for name in sides()}
    for _ in range(options.rounds):
        for name, side in sides().items():
            begin = time.process_time()
            side(given)
            taken[name].append(time.process_time() - begin)
    ours = statistics.median(taken["this kernel"])
    table = Table("side", "records/s (median)", "range", "this kernel is faster by")
    for name, seconds in taken.items():
        speeds = [options.records / second for second in seconds]
        table.add_row(
            name,
            f"{statistics.median(speeds):,.0f}",
            f"{min(speeds):,.0f}-{max(speeds):,.0f}",
            f"{statistics.median(seconds) / ours:.1f}x",
        )
    size = given.nbytes / len(given)
    Console().print(f"{options.records:,} records of {size:.0f} bytes, one thread")
    Console().print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
