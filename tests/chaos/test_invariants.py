"""The checks of this suite are checked first: they must see what they are there to see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.invariants import judge, records

PARTITIONS, COUNT = 2, 20
SCHEMA = "topic string, partition int, offset long, key binary, value binary"
Rows = list[tuple[Any, ...]]


def sound_rows() -> Rows:
    numbered = enumerate(records(PARTITIONS, COUNT))
    return [("t", r.partition, i // PARTITIONS, r.key, r.value) for i, r in numbered]


def write(spark: Any, table: Path, rows: Rows) -> None:
    frame = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    frame.write.format("delta").mode("overwrite").save(str(table))


def test_a_table_with_each_record_once_passes(spark: Any, folder: Path) -> None:
    write(spark, folder / "table", sound_rows())
    judge(spark, folder / "table", dict.fromkeys(range(PARTITIONS), COUNT))


DAMAGES: dict[str, Callable[[Rows], Rows]] = {
    "a record twice": lambda rows: [*rows, rows[7]],
    "a record missing": lambda rows: rows[:7] + rows[8:],
    "one twice in place of another": lambda rows: [*rows[:-1], rows[0]],
    "a record with another's bytes": lambda rows: [*rows[:-1], (*rows[-1][:4], rows[0][4])],
    "a record too many": lambda rows: [*rows, ("t", 0, COUNT, b"%d" % COUNT, b"")],
}


FIRST, *OTHERS = DAMAGES


@pytest.mark.parametrize(
    "damage", [FIRST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_a_damaged_table_does_not_pass(damage: str, spark: Any, folder: Path) -> None:
    write(spark, folder / "table", DAMAGES[damage](sound_rows()))
    with pytest.raises(AssertionError):
        judge(spark, folder / "table", dict.fromkeys(range(PARTITIONS), COUNT))
