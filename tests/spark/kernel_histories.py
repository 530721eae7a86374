"""The same random history on a real Delta table and on the simulation's model of one.

A step is drawn from what the model knows, carried out on both, and what both answer is compared:
results, errors by their class, versions, files, transactions, the history and, where Spark takes
part, the rows. What legitimately differs is left out: ids are compared by which are the same,
the names of files only if they are ours.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rangeland.delta.table_metadata import CommitMetadata
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_snapshot import (
    AlreadyCommitted,
    CommitRequest,
    Committed,
    NotReady,
    Snapshot,
)
from rangeland.errors import RangelandError
from rangeland.model import DataFile
from rangeland.planning.plan import PlanId
from rangeland.spark import replace_where
from rangeland.spark.replace_where import RowsChanged
from tests.simulation import sql
from tests.simulation.delta import DeltaLog, SimulatedKernel, Tables
from tests.simulation.files import MemoryStore, StoredFile
from tests.simulation.table_faults import TableFaults
from tests.simulation.world import World

MODEL = "mem://lake/orders"
SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("value", pa.binary()),
    ]
)
COLUMNS = (("topic", "string"), ("partition", "integer"), ("offset", "long"), ("value", "binary"))
APPLICATIONS = ("rangeland/a", "rangeland/b", "rangeland/plan")
PROPERTIES = ("rangeland.ledger", "rangeland.note")
KERNEL_STEPS = (
    *("append",) * 8,
    *("append-old",) * 4,
    *("load",) * 3,
    *("create", "transaction", "files", "commits", "metadata", "drop", "return"),
)
SPARK_STEPS = (
    *("append",) * 6,
    *("append-old", "load", "commits", "files", "transaction"),
    *("restore", "optimize", "delete", "overwrite", "replace", "vacuum"),
)


def schema_json(extra: int) -> str:
    """With this many columns more than the first schema."""
    names = [*COLUMNS, *((f"extra{n}", "string") for n in range(extra))]
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in names]
    return json.dumps({"type": "struct", "fields": fields})


@dataclass(frozen=True)
class Pair:
    """The same version of the table, really and in the model."""

    real: Snapshot
    model: Snapshot


class KernelHistory:
    """``spark``: Spark takes part."""

    def __init__(self, seed: int, kernel: DeltaKernel, folder: Path, spark: Any = None) -> None:
        self._random = random.Random(seed)
        self._spark = spark
        self._real = kernel
        self._path = folder / f"table {seed}"
        self._world = World(seed)
        self._tables = Tables(self._world)
        self._store = MemoryStore(self._world, self._tables.logs)
        place = SimpleNamespace(world=self._world, tables=self._tables)
        self._model = SimulatedKernel(place)
        self._key = "lake/orders"
        self._faults = TableFaults(self._world, self._tables, self._store, self._key)
        self._pairs: list[Pair] = []
        self._ids: dict[str, str] = {}
        self._away: list[tuple[Path, DeltaLog]] = []
        self._extra = 0
        self._written = 0
        self.steps: list[str] = []

    def play(self, steps: int) -> None:
        self._create()
        kinds = KERNEL_STEPS if self._spark is None else SPARK_STEPS
        for _ in range(steps):
            kind = self._random.choice(kinds)
            getattr(self, "_" + kind.replace("-", "_"))()
        self._load()
        self._commits()
        assert self._real.wait_for_maintenance() == () or self._away, self.steps

    # --- comparing ----------------------------------------------------------------------

    def _both(
        self,
        what: str,
        act: Callable[[DeltaKernel, str], Any],
        shown: Callable[[Any], Any] = lambda found: found,
    ) -> tuple[Any, Any]:
        """What both answer to one question, or None for an error; ``shown`` is compared."""
        self.steps.append(what)
        real = _outcome(lambda: act(self._real, str(self._path)))
        model = _outcome(lambda: act(self._model, MODEL))
        mine, other = _shown(model, shown), _shown(real, shown)
        if mine != other:
            said = f"\nmodel: {mine}\n real: {other}\n  {real!r}"
            raise AssertionError("\n".join([*self.steps, said]))
        return real, model

    def _keep(self, real: Any, model: Any) -> None:
        """A version that both have, which later steps may commit on."""
        if isinstance(real, Committed | AlreadyCommitted):
            real, model = getattr(real, "snapshot", None), getattr(model, "snapshot", None)
        if isinstance(real, Snapshot) and isinstance(model, Snapshot):
            known = self._ids.setdefault(model.table_id, real.table_id)
            assert known == real.table_id, [*self.steps, "another table's id"]
            assert len(set(self._ids.values())) == len(self._ids), self.steps
            self._pairs.append(Pair(real, model))

    # --- Kernel -------------------------------------------------------------------------

    def _create(self) -> None:
        properties = {"rangeland.made": str(len(self._ids))}
        extra = self._extra if self._key in self._tables.logs else 0
        schema = schema_json(extra)
        found = self._both(
            "create",
            lambda kernel, path: kernel.create(path, schema, (), properties),
            lambda s: (s.version, s.is_own, _schema(s), dict(s.metadata.configuration)),
        )
        self._extra = extra
        self._keep(*found)

    def _load(self) -> None:
        found = self._both(
            "load", lambda kernel, path: kernel.load(path), lambda s: s and self._version(s)
        )
        self._keep(*found)

    def _version(self, snapshot: Snapshot) -> tuple[Any, ...]:
        files = {file.path: file.size_bytes for file in snapshot.files()}
        ours = {name: size for name, size in files.items() if name.startswith("ours-")}
        seen = {name: snapshot.transaction_version(name) for name in APPLICATIONS}
        values = {name: snapshot.property(name) for name in PROPERTIES}
        return snapshot.version, _schema(snapshot), ours, seen, values

    def _pick(self) -> Pair | None:
        return self._random.choice(self._pairs[-6:]) if self._pairs else None

    def _transaction(self) -> None:
        if pair := self._pick():
            name = self._random.choice(APPLICATIONS)
            self._compare_pair(
                f"transaction of {name}", pair, lambda s: s.transaction_version(name)
            )

    def _files(self) -> None:
        if pair := self._pick():
            self._compare_pair("files", pair, lambda s: self._version(s)[2])

    def _metadata(self) -> None:
        if pair := self._pick():
            self._compare_pair("schema", pair, _schema)

    def _compare_pair(self, what: str, pair: Pair, ask: Callable[[Snapshot], Any]) -> None:
        self._both(
            f"{what} at version {pair.model.version}",
            lambda kernel, path: ask(pair.model if kernel is self._model else pair.real),
        )

    def _commits(self) -> None:
        since = self._random.randrange(4)
        self._both(
            f"commits since {since}",
            lambda kernel, path: kernel.commits(path, since),
            lambda found: [_commit(one) for one in found],
        )

    def _append(self) -> None:
        found = self._both("load to append", lambda kernel, path: kernel.load(path), bool)
        self._keep(*found)
        if isinstance(found[0], Snapshot):
            self._append_to(self._pairs[-1])

    def _append_old(self) -> None:
        pair = self._pick()
        newest = self._tables.newest(self._key)
        if pair and (newest is None or newest.table_id == pair.model.table_id):
            self._append_to(pair)

    def _append_to(self, pair: Pair) -> None:
        draw = self._random
        files = [self._file() for _ in range(draw.choice((0, 1, 1, 2)))]
        name = draw.choice(APPLICATIONS)
        newest = self._tables.newest(self._key)
        last = newest.transactions.get(name, 0) if newest else 0
        transaction = (name, max(0, last + draw.choice((1, 1, 1, 2, 0, -1))))
        expected = draw.choice((None, None, None, pair.model.version, pair.model.version + 1))
        properties = {draw.choice(PROPERTIES): draw.choice("xy")} if draw.random() < 0.2 else {}
        schema = ""
        if draw.random() < 0.1:
            self._extra += 1
            schema = schema_json(self._extra)
        removed = self._removable(pair) if draw.random() < 0.2 else ()
        if removed:
            # Kernel cannot rebase one commit over another that removes the same file: its own
            # statistics contradict. Who removes rows names the version that they are in.
            expected = pair.model.version
        is_ready = draw.random() < 0.95
        what = f"append {[f.path for f in files]} as {transaction} to {pair.model.version}, "
        what += f"expecting {expected}, without {removed}, {properties}, {schema and self._extra}, "

        def act(kernel: DeltaKernel, path: str) -> Any:
            snapshot = pair.model if kernel is self._model else pair.real
            gone = [file for file in snapshot.files() if file.path in removed]
            return kernel.commit(
                snapshot,
                CommitRequest(
                    *transaction,
                    files,
                    expected_version=expected,
                    removed=gone,
                    properties=properties,
                    schema_json=schema,
                ),
                lambda: is_ready,
            )

        self._keep(*self._both(what + f"ready: {is_ready}", act, _committed))

    def _removable(self, pair: Pair) -> Sequence[str]:
        files = pair.model._java.version.files  # whether or not the log can still be read
        ours = [path for path in files if path.startswith("ours-")]
        return self._random.sample(sorted(ours), min(len(ours), 1))

    def _file(self) -> DataFile:
        """A file with a few rows, in both stores."""
        count = self._random.randint(1, 3)
        numbers = range(self._written, self._written + count)
        values = [f"orders/0/1/{n}/0".encode() for n in numbers]
        self._written += count
        table = pa.table([["orders"] * count, [0] * count, list(numbers), values], SCHEMA)
        name = f"ours-{self._written}.parquet"
        self._path.mkdir(exist_ok=True)
        pq.write_table(table, self._path / name)
        size = (self._path / name).stat().st_size
        self._store.files[f"{self._key}/{name}"] = StoredFile(table, size, 0)
        return DataFile(name, size, count, json.dumps({"numRecords": count}), 0)

    # --- the table is taken away --------------------------------------------------------

    def _drop(self) -> None:
        """Its log is moved aside; a new table may be created in its place. Versions loaded before
        are not asked any more: Kernel would look for their log, and the model does not."""
        if self._key not in self._tables.logs:
            return
        self._real.wait_for_maintenance()
        aside = self._path.with_name(f"{self._path.name} aside {len(self._away)}")
        (self._path / "_delta_log").rename(aside)
        self._away.append((aside, self._tables.logs.pop(self._key)))
        self._pairs.clear()
        self.steps.append("the log is moved away")

    def _return(self) -> None:
        """As it was, in place of what there is now."""
        if not self._away:
            return
        self._real.wait_for_maintenance()
        aside, log = self._away.pop()
        shutil.rmtree(self._path / "_delta_log", ignore_errors=True)
        aside.rename(self._path / "_delta_log")
        self._tables.logs[self._key] = log
        self._pairs.clear()
        self.steps.append("the log is back")

    # --- Spark --------------------------------------------------------------------------

    def _sql(self, text: str) -> None:
        self._spark.sql(text.format(table=f"delta.`{self._path}`"))

    def _act(self, kind: str, text: str) -> None:
        """``{number}`` and ``{gone}`` come from what the model did."""
        newest = self._tables.newest(self._key)
        if newest is None or not newest.files:
            return
        self._real.wait_for_maintenance()
        seed = self._random.random()
        number = random.Random(seed).randrange(len(self._tables.logs[self._key].versions))
        before = set(self._rows())
        self._faults.act(kind, random.Random(seed))
        gone = ", ".join(f"'{row[3].decode()}'" for row in before - set(self._rows())) or "''"
        self.steps.append(f"{kind} {number} {gone}")
        if self._tables.newest(self._key) != newest:
            self._sql(text.format(number=number, gone=gone, table="{table}"))
        self._compare_rows()

    def _restore(self) -> None:
        self._act("restore", "RESTORE TABLE {table} TO VERSION AS OF {number}")

    def _optimize(self) -> None:
        self._act("optimize", "OPTIMIZE {table}")

    def _delete(self) -> None:
        self._act("delete", "DELETE FROM {table} WHERE CAST(value AS STRING) IN ({gone})")

    def _overwrite(self) -> None:
        self._act("overwrite", "INSERT OVERWRITE {table} SELECT * FROM {table} WHERE false")

    def _vacuum(self) -> None:
        newest = self._tables.newest(self._key)
        if newest is None:
            return
        self.steps.append("vacuum")
        self._faults.vacuum()
        self._sql("VACUUM {table} RETAIN 0 HOURS")
        names = {path.name for path in self._path.glob("ours-*.parquet")}
        kept = {path.rpartition("/")[2] for path in self._store.files}
        assert names == {name for name in kept if name.startswith("ours-")}, self.steps
        self._compare_rows()

    def _replace(self) -> None:
        """The rows of a range, by ``replaceWhere``, sometimes a second time."""
        newest = self._tables.newest(self._key)
        if newest is None or not self._written:
            return
        first = self._random.randrange(self._written)
        until = self._random.randint(first + 1, self._written)
        where = f"(`topic` = 'orders' AND `partition` = 0 AND `offset` >= {first} "
        where += f"AND `offset` < {until})"
        name = self._random.choice(APPLICATIONS)
        last = newest.transactions.get(name, 0)
        plan_id = PlanId(name, last + self._random.choice((0, 1, 1)))
        numbers = sorted(self._random.sample(range(first, until), min(2, until - first)))
        self.steps.append(f"replace [{first}, {until}) by {numbers} as {plan_id}")
        values = [f"orders/0/1/{n}/{len(self.steps)}".encode() for n in numbers]
        count = len(numbers)
        table = pa.table([["orders"] * count, [0] * count, numbers, values], SCHEMA)
        place = f"replaced-{len(self.steps)}.parquet"
        pq.write_table(table, self._path / place)
        self._store.files[f"{self._key}/{place}"] = StoredFile(table, 0, 0)
        file = DataFile(place, 0, count, "{}", 0)
        simulated = SimpleNamespace(world=self._world, store=self._store, tables=self._tables)
        schema = newest.schema_json
        model = _outcome(
            lambda: sql.replace_rows(
                self._tables,
                sql.prepared_frame(simulated, MODEL, [file], schema),  # type: ignore[arg-type]
                MODEL,
                where,
                plan_id,
            )
        )
        self._real.wait_for_maintenance()
        frame = replace_where.prepared_frame(self._spark, str(self._path), [file], schema)
        real = _outcome(lambda: replace_where.replace_rows(frame, str(self._path), where, plan_id))
        assert _shown(real) == _shown(model), [*self.steps, real, model]
        self._compare_rows()

    def _rows(self) -> list[sql.Row]:
        newest = self._tables.newest(self._key)
        names = newest.files if newest else ()
        return sorted(row for n in names for row in sql.rows_of(self._store, f"{self._key}/{n}"))

    def _compare_rows(self) -> None:
        """After a commit of Spark's: an empty one may be left out, the rows say what it was."""
        frame = self._spark.read.format("delta").load(str(self._path)).select(*sql.ROW)
        real = sorted((*row[:3], bytes(row[3])) for row in frame.collect())
        assert real == self._rows(), [*self.steps, "model", self._rows(), "real", real]
        self._load()


def _outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except RangelandError as error:
        return error


def _shown(found: Any, shown: Callable[[Any], Any] = lambda found: found) -> Any:
    is_named = isinstance(found, RangelandError | RowsChanged)
    return type(found).__name__ if is_named else shown(found)


def _schema(snapshot: Snapshot) -> Any:
    return json.loads(snapshot.schema_json)


def _committed(found: Committed | AlreadyCommitted | NotReady) -> Any:
    return found, isinstance(found, Committed) and found.snapshot is not None


def _commit(commit: CommitMetadata) -> tuple[Any, ...]:
    return (
        commit.version,
        commit.operation,
        dict(commit.transactions),
        commit.restored_to,
        commit.is_restore,
        commit.replaces_all,
    )
