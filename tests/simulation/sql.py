"""A model of what the product asks Spark's SQL for: the rows of a table, and their replacement.

Conditions are the product's own text, of which only the forms that it writes are understood.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rangeland.decode.columns import PLAIN_COLUMNS, LogColumns
from rangeland.delta.stores.table_path import TablePath
from rangeland.delta.table_metadata import AddedFile, CommitMetadata
from rangeland.errors import StorageFailed
from rangeland.model import DataFile, Partition
from rangeland.planning.plan import PlanId
from rangeland.planning.table_audit import (
    CountedRange,
    IntervalArrays,
    LandedRange,
    ReplacedRange,
    intervals_of,
)
from rangeland.spark.replace_where import RowsChanged
from tests.simulation.delta import Tables, Version
from tests.simulation.files import ROW_BYTES, MemoryStore, StoredFile
from tests.simulation.spark import SimulatedSpark
from tests.simulation.world import World

PIECE = re.compile(
    r"`topic` = '(\w+)' AND `partition` = (\d+) AND `offset` >= (\d+) AND `offset` < (\d+)"
)
TOPICS = re.compile(r"topic IN \((.*)\)")
ROW = ("topic", "partition", "offset", "value")
Row = tuple[str, int, int, bytes]


def rows_of(store: MemoryStore, path: str) -> list[Row]:
    """Files that are gone have no rows."""
    found = store.files.get(path)
    if found is None:
        return []
    columns = [found.table.column(name).to_pylist() for name in ROW]
    if pa.types.is_struct(found.table.column(ROW[-1]).type):  # typed values
        columns[-1] = [repr(value).encode() for value in columns[-1]]
    return list(zip(*columns, strict=True))


@dataclass(frozen=True)
class Frame:
    """Rows of one version of a table, or of files that are not in it; ``files`` they come from."""

    store: MemoryStore
    world: World
    version: Version
    files: tuple[str, ...]
    is_wanted: Callable[[Row], bool] = lambda row: True

    @property
    def columns(self) -> list[str]:
        return list(ROW)

    def where(self, condition: str) -> Frame:
        holds = _condition(condition)
        return replace(self, is_wanted=lambda row: self.is_wanted(row) and holds(row))

    def rows(self) -> list[Row]:
        return [
            row for path in self.files for row in rows_of(self.store, path) if self.is_wanted(row)
        ]

    def count(self) -> int:
        return len(self.rows())


def _condition(text: str) -> Callable[[Row], bool]:
    if named := TOPICS.fullmatch(text):
        topics = {one.strip().strip("'") for one in named[1].split(",")}
        return lambda row: row[0] in topics
    landed_ranges = [(t, int(p), int(a), int(b)) for t, p, a, b in PIECE.findall(text)]
    assert landed_ranges, text
    negated = text.startswith("NOT ")

    def holds(row: Row) -> bool:
        inside = any(row[:2] == (t, p) and a <= row[2] < b for t, p, a, b in landed_ranges)
        return inside != negated

    return holds


def table_frame(
    spark: SimulatedSpark,
    path: str,
    columns: LogColumns = PLAIN_COLUMNS,
    *,
    version: int | None = None,
    all_files: bool = False,
) -> Frame:
    """Spark takes the newest version, or the one that is asked for; the files are read later."""
    spark.world.point("spark.read")
    key = TablePath.parse(path).key
    log = spark.tables.logs.get(key)
    versions = [] if log is None else log.versions
    if len(versions) <= (version or 0):
        raise StorageFailed(
            f"could not read {path}", why="there is no table, or not that version of it"
        )
    found = versions[-1 if version is None else version]
    return Frame(spark.store, spark.world, found, tuple(f"{key}/{one}" for one in found.files))


def prepared_frame(
    spark: SimulatedSpark, path: str, files: Sequence[DataFile], schema: str
) -> Frame:
    key = TablePath.parse(path).key
    names = tuple(f"{key}/{file.path}" for file in files)
    log = spark.tables.logs.get(key)
    if log is None:
        raise StorageFailed(f"could not read the new rows for {path}", why="their folder is gone")
    return Frame(spark.store, spark.world, log.newest, names)


def has_rows(frame: Frame, where: str) -> bool:
    return frame.where(where).count() > 0


def intervals_in(
    frame: Frame,
    columns: LogColumns = PLAIN_COLUMNS,
    *,
    by_broker: bool = False,
) -> dict[Partition, IntervalArrays]:
    found: dict[Partition, list[int]] = {}
    brokers = _brokers(frame) if by_broker else {}
    for topic, number, offset, _ in frame.rows():
        broker = brokers.get((topic, number), "")
        found.setdefault(Partition(topic, number, broker), []).append(offset)
    return {p: intervals_of(np.array(offsets, np.int64)) for p, offsets in found.items()}


def rows_of_entries(
    frame: Frame,
    landed_ranges: Mapping[Partition, Sequence[LandedRange]],
    columns: LogColumns = PLAIN_COLUMNS,
) -> dict[Partition, CountedRange]:
    """A value is in its record's entry, and unique."""
    found = {}
    for partition, mine in landed_ranges.items():
        rows = [row for row in frame.rows() if row[:2] == (partition.topic, partition.number)]
        counts = tuple(
            len({row for row in rows if r.from_offset <= row[2] < r.until_offset})
            for r in (landed_range.range for landed_range in mine)
        )
        inside = [
            row
            for row in rows
            if any(p.range.from_offset <= row[2] < p.range.until_offset for p in mine)
        ]
        twice = tuple(sorted({row[2] for row, n in Counter(inside).items() if n > 1}))
        strange = tuple(sorted({row[2] for row in set(rows) - set(inside)}))
        found[partition] = CountedRange(counts, twice, strange)
    return found


def _brokers(frame: Frame) -> dict[tuple[str, int], str]:
    """In the models each partition has one."""
    tables = [frame.store.files[path].table for path in frame.files if path in frame.store.files]
    names = ("topic", "partition", "broker")
    columns = [
        [t.column(name).to_pylist() for name in names] for t in tables if names[2] in t.column_names
    ]
    return {(t, n): b for each in columns for t, n, b in zip(*each, strict=True)}


def compare(
    old: Frame, new: Frame, columns: LogColumns = PLAIN_COLUMNS, *, by_broker: bool = False
) -> ReplacedRange:
    before, after = _by_offset(old.rows()), _by_offset(new.rows())
    both = before.keys() & after.keys()
    same = sum(before[key] == after[key] for key in both)
    return ReplacedRange(
        same, len(after.keys() - both), len(both) - same, len(before.keys() - both)
    )


def _by_offset(rows: Iterable[Row]) -> Mapping[tuple[str, int, int], list[bytes]]:
    found: dict[tuple[str, int, int], list[bytes]] = {}
    for row in sorted(rows):
        found.setdefault(row[:3], []).append(row[3])
    return found


def replace_rows(
    tables: Tables, new: Frame, path: str, where: str, plan_id: PlanId
) -> RowsChanged | None:
    """Delta's ``replaceWhere`` in one commit: files with such rows are rewritten without them, and
    the new rows are written to files of Spark's own."""
    world, store, key = new.world, new.store, TablePath.parse(path).key
    log, then = tables.logs[key], tables.logs[key].newest
    application, sequence = plan_id.application, plan_id.sequence
    if then.transactions.get(application, -1) >= sequence:
        return RowsChanged(path, f"another driver has committed {plan_id}")
    gone, kept = _cut(store, [f"{key}/{name}" for name in then.files], _condition(where))
    if lost := [name for name in (*gone, *new.files) if name not in store.files]:
        raise StorageFailed(f"could not replace rows of {path}", why=f"there is no file {lost[0]}")
    found = world.point("spark.write")
    if found == "refused":
        raise StorageFailed(f"could not replace rows of {path}", why="the store refuses")
    added = write_rows(world, store, key, [*kept, *new.rows()])
    if log is not tables.logs.get(key):
        raise StorageFailed(f"could not replace rows of {path}", why="the table is gone")
    since = [c for c in log.commits if c.metadata.version > then.number]
    if any(application in commit.metadata.transactions for commit in since):
        return RowsChanged(path, "ConcurrentTransactionException")
    removed = {name[len(key) + 1 :] for name in gone}
    if any(commit.changes or removed & commit.removed for commit in since):
        return RowsChanged(path, "ConcurrentDeleteReadException")
    tables.excused |= {name[len(key) + 1 :] for name in new.files}
    tables.change(
        key,
        removed=removed,
        added=added,
        made=CommitMetadata(
            log.newest.number + 1,
            world.clock_ms(),
            "WRITE",
            {application: sequence},
            None,
            {"mode": "Overwrite", "predicate": where},
        ),
    )
    world.log(f"replaced rows with {application} {sequence}")
    if found == "lost":
        raise StorageFailed(f"could not replace rows of {path}", why="the response was lost")
    return None


def _cut(
    store: MemoryStore, files: Sequence[str], holds: Callable[[Row], bool]
) -> tuple[list[str], list[Row]]:
    """The files with such rows, or that cannot be read, and the other rows in them."""
    found = {name: rows_of(store, name) for name in files}
    gone = [name for name in files if name not in store.files or any(map(holds, found[name]))]
    return gone, [row for name in gone for row in found[name] if not holds(row)]


def write_rows(world: World, store: MemoryStore, key: str, rows: Sequence[Row]) -> list[AddedFile]:
    """A file that is not the product's, with these rows."""
    if not rows:
        return []
    columns = list(zip(*rows, strict=True))
    table = pa.table(dict(zip(ROW, map(list, columns), strict=True)))
    name, size = f"spark-{world.new_id()}.parquet", ROW_BYTES * len(rows)
    store.files[f"{key}/{name}"] = StoredFile(table, size, world.now_ms)
    action = {"path": name, "deletionVector": None}
    return [AddedFile(name, size, world.clock_ms(), None, {}, False, action)]
