"""The sides of the typed part: payloads become columns of a Delta table, whoever decodes them.

Both sides of a format write the same columns. Spark's side is what its own documentation shows:
its Kafka source, ``from_json`` or ``from_avro``, and Delta's writer; it gets the schema as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rangeland.decode.payload.schema_ids.confluent_framing import FRAME_BYTES
from tests.bench.competitors import Ground, Side, land, rows_of_table, spark_frame
from tests.bench.typed_orders import AVRO, DDL

Decoded = Callable[[Any], Any]
"""What Spark makes of the column of payloads."""


class SameRows:
    """Counts rows, and holds all tables of a topic to the same values."""

    def __init__(self) -> None:
        self._digests: dict[str, Any] = {}

    def __call__(self, ground: Ground, out: Path) -> int:
        frame = ground.spark.read.format("delta").load(str(out))
        digest = frame.selectExpr("bit_xor(xxhash64(partition, offset, value))").first()[0]
        first = self._digests.setdefault(ground.topic, digest)
        if digest != first:
            raise RuntimeError(f"the tables of {ground.topic} have different values")
        return rows_of_table(ground, out)


def json_sides(same: SameRows) -> list[Side]:
    decode = {"value": {"format": "json", "schema": DDL}}
    return [_ours("json", decode, same), _sparks("from_json", _from_json, same)]


def avro_sides(same: SameRows, schema: Path) -> list[Side]:
    """Bare Avro; ``schema`` is the file with the schema."""
    decode = {"value": {"format": "avro", "schema": str(schema)}}
    return [_ours("avro", decode, same), _sparks("from_avro", _from_avro, same)]


def registry_sides(same: SameRows, url: str) -> list[Side]:
    """Avro that begins with a schema id. Spark's own ``from_avro`` knows no registry: its users cut
    the frame off, and give it the schema."""
    decode = {"value": {"format": "avro"}, "registry": {"url": url}}
    return [
        _ours("registry", decode, same, "Avro with a registry"),
        _sparks("from_avro", _from_framed_avro, same),
    ]


def _ours(name: str, decode: Mapping[str, Any], same: SameRows, what: str = "") -> Side:
    label = f"Rangeland, {what or name} -> Delta"
    return Side(name, label, "typed", partial(land, decode=decode), same, shows_phases=True)


def _sparks(name: str, decoded: Decoded, same: SameRows) -> Side:
    return Side(name, f"Spark, {name} -> Delta", "typed", partial(_land, decoded=decoded), same)


def _land(ground: Ground, out: Path, decoded: Decoded) -> None:
    from pyspark.sql.functions import col

    frame = spark_frame(ground).withColumn("value", decoded(col("value")))
    frame.write.format("delta").mode("append").save(str(out))


def _from_json(value: Any) -> Any:
    from pyspark.sql.functions import from_json

    return from_json(value.cast("string"), DDL)


def _from_avro(value: Any) -> Any:
    from pyspark.sql.avro.functions import from_avro

    return from_avro(value, AVRO)


def _from_framed_avro(value: Any) -> Any:
    from pyspark.sql.functions import expr

    return _from_avro(expr(f"substring(value, {FRAME_BYTES + 1})"))
