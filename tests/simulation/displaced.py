"""A table or a ledger that is gone, or is another one: nothing may land until it is back."""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.delta import DeltaLog, Tables, Version
from tests.simulation.files import MemoryStore, StoredFile
from tests.simulation.invariants import JOB
from tests.simulation.world import Violation, World

DISPLACEMENTS = ("lose-ledger", "other-ledger", "drop-table", "other-table")


class Displacement:
    """Each act takes something away, or brings back what is away."""

    def __init__(self, world: World, tables: Tables, store: MemoryStore, table: str) -> None:
        self._world = world
        self._tables = tables
        self._store = store
        self._table = table
        self._ledger = f"{table}/_rangeland/ledger"
        self._kept: dict[str, DeltaLog] = {}
        self._files: dict[str, StoredFile] = {}
        self._landed: Mapping[str, int] = {}
        self.moves = 0
        """How often something was taken away or brought back."""

    @property
    def is_open(self) -> bool:
        """Something is away."""
        return bool(self._kept)

    def act(self, kind: str) -> None:
        if self.is_open:
            self.bring_back()
            return
        landed, newest = self._tables.landed(self._table), self._tables.newest(self._table)
        if not landed or self._tables.is_locked(self._table):
            return  # nothing would be missed; or a commit is under way, for milliseconds
        key = self._ledger if kind.endswith("ledger") else self._table
        if key == self._ledger and JOB not in landed and not (newest and newest.files):
            return  # without rows and without a checkpoint nothing is landed twice, or left out
        self._landed = landed
        self.moves += 1
        now = self._tables.logs.pop(key)
        self._kept[key] = now
        if kind == "drop-table":  # so that a new table could be made in its folder
            for path in [path for path in self._store.files if self._is_data(path)]:
                self._files[path] = self._store.files.pop(path)
        if kind.startswith("other"):
            then = now.versions[0]
            other = Version(
                0,
                str(self._world.new_id()),
                then.schema_json,
                then.partition_columns,
                then.configuration,
            )
            self._tables.logs[key] = DeltaLog(other, self._world.clock_ms())

    def bring_back(self) -> None:
        """As it was. Raises Violation if something has landed meanwhile."""
        self.check()
        self.moves += 1
        self._tables.logs.update(self._kept)
        self._store.files.update(self._files)
        self._kept.clear()
        self._files.clear()

    def _is_data(self, path: str) -> bool:
        return path.startswith(f"{self._table}/") and "/_rangeland/" not in path

    def check(self) -> None:
        if not self.is_open:
            return
        away = {key: log for key, log in self._tables.logs.items() if key in self._kept}
        others = [key for key, log in away.items() if log.newest.number > 0 or log.landed]
        if self._ledger in self._kept and self._tables.landed(self._table) != self._landed:
            others.append(self._table)
        if others:
            raise Violation("displaced", f"something has landed in {others} all the same")
