"""What others do to the table, and which rows are missing because of it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from rangeland.delta.table_metadata import AddedFile, CommitMetadata
from tests.simulation.delta import Tables
from tests.simulation.files import MemoryStore
from tests.simulation.sql import Row, rows_of, write_rows
from tests.simulation.world import World

TABLE_ACTS = ("optimize", "restore", "overwrite", "delete", "lose-file", "forget-transactions")
Place = tuple[str, int, int, int]
"""Topic, partition, incarnation and offset of a row."""


def place_of(row: Row) -> Place:
    topic, number, offset, value = row
    return topic, number, int(value.split(b"/")[2]), offset


class TableFaults:
    """``taken`` are the places of the rows that were ever taken out, each with the values that it
    had; ``dead`` the files that the table names and the store has lost."""

    def __init__(self, world: World, tables: Tables, store: MemoryStore, table: str) -> None:
        self._world = world
        self._tables = tables
        self._store = store
        self._table = table
        self.taken: dict[Place, set[bytes]] = {}
        self.undone: set[Place] = set()
        """Those that a RESTORE, or a commit that replaced all rows, took out."""
        self.dead: set[str] = set()

    def act(self, kind: str, rng: random.Random) -> None:
        version = self._tables.newest(self._table)
        if version is None or not version.files:
            return
        if kind == "lose-file" and self._tables.is_locked(self._table):
            return  # what is checked under the lock stays for milliseconds
        files = sorted(version.files)
        match kind:
            case "optimize" if len(files) > 1:  # else there is nothing to combine
                self._rewrite(files, self._rows(files), "OPTIMIZE", {})
            case "overwrite":
                self._undo(self._rows(files))
                self._rewrite(files, [], "WRITE", {"mode": "Overwrite", "predicate": "[]"})
            case "delete":
                rows = self._rows(files)
                gone = rng.sample(rows, rng.randint(1, len(rows))) if rows else []
                self._take(gone)
                touched = [name for name in files if not set(gone).isdisjoint(self._rows([name]))]
                kept = [row for row in self._rows(touched) if row not in gone]
                self._rewrite(touched, kept, "DELETE", {"predicate": '["(value = 1)"]'})
            case "lose-file":
                name = rng.choice(files)
                self._take(self._rows([name]))
                self._store.files.pop(f"{self._table}/{name}", None)
                self.dead.add(name)
            case "restore":
                self._restore(rng)
            case "forget-transactions":
                self._tables.logs[self._table].forget_transactions()

    def vacuum(self) -> None:
        """It commits its start and its end."""
        version = self._tables.newest(self._table)
        if version is None:
            return
        self._commit("VACUUM START")
        self._store.vacuum(self._table, version.files)
        self._commit("VACUUM END")

    def _commit(self, operation: str) -> None:
        self._rewrite((), (), operation, {})

    def _restore(self, rng: random.Random) -> None:
        log = self._tables.logs[self._table]
        number = rng.randrange(len(log.versions))
        then = log.versions[number]
        if then is log.newest:
            return  # nothing is committed
        if any(f"{self._table}/{name}" not in self._store.files for name in then.files):
            return  # RESTORE refuses versions whose files are gone
        self._undo(self._rows(set(log.newest.files) - set(then.files)))
        self._tables.restore(self._table, number)

    def _rewrite(
        self, files: Sequence[str], rows: Sequence[Row], operation: str, how: dict[str, str | None]
    ) -> None:
        added: list[AddedFile] = write_rows(self._world, self._store, self._table, rows)
        number = self._tables.logs[self._table].newest.number + 1
        made = CommitMetadata(number, self._world.clock_ms(), operation, {}, None, how)
        self._tables.change(self._table, removed=files, added=added, made=made)

    def _rows(self, files: Sequence[str] | set[str]) -> list[Row]:
        return [r for name in sorted(files) for r in rows_of(self._store, f"{self._table}/{name}")]

    def _undo(self, rows: Sequence[Row]) -> None:
        self._take(rows)
        self.undone |= set(map(place_of, rows))

    def _take(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.taken.setdefault(place_of(row), set()).add(row[3])
