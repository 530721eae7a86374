"""What the ledger makes of a commit whose response was lost, over a Kernel in a few lines."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from rangeland.delta.ledger.compaction import COMPACTIONS
from rangeland.delta.ledger.event_codec import SCHEMA
from rangeland.delta.ledger.events import PlanEvent
from rangeland.delta.ledger.ledger_table import Ledger
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.table_metadata import AddedFile
from rangeland.delta.table_schema.arrow_schema import schema_json
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_snapshot import (
    AlreadyCommitted,
    CommitRequest,
    Committed,
)
from rangeland.errors import Conflict
from rangeland.model import Partition, Range
from rangeland.planning.plan import PlanId

P0 = Partition("orders", 0)


@dataclass(frozen=True)
class Version:
    """A snapshot."""

    path: str
    version: int
    added: tuple[AddedFile, ...] = ()
    transactions: dict[str, int] = field(default_factory=dict)
    is_own: bool = True

    @property
    def table_id(self) -> str:
        return f"id of {self.path}"

    @property
    def schema_json(self) -> str:
        return schema_json(SCHEMA)

    def property(self, name: str) -> str | None:
        return None

    def files(self) -> Iterator[AddedFile]:
        return iter(self.added)

    def transaction_version(self, application: str) -> int | None:
        return self.transactions.get(application)


class TableInMemory:
    """Its log is a list. ``loses_responses``: a commit is made, its response lost, and sent again
    by a client below, which then finds itself in its own way."""

    def __init__(self) -> None:
        self.versions: list[Version] = []
        self.loses_responses = False

    def resolve(self, path: str) -> str:
        return path

    def storage(self, path: str) -> StoreSettings:
        return StoreSettings(path)

    def load(self, path: str) -> Version | None:
        return self.versions[-1] if self.versions else None

    def create(self, path: str, *about: object) -> Version:
        Path(path).mkdir(parents=True)
        self.versions.append(Version(path, 0))
        return self.versions[-1]

    def commit(self, snapshot: Version, request: CommitRequest) -> Committed | AlreadyCommitted:
        newest = self.versions[-1]
        application, number = request.application, request.sequence
        found = newest.transactions.get(application)
        if request.expected_version not in (None, newest.version):
            raise Conflict("the table has moved on")
        if found is not None and found >= number:
            return AlreadyCommitted(newest.version, found)
        added = tuple(AddedFile(f.path, f.size_bytes, 0, f.stats, {}) for f in request.files)
        after = {**newest.transactions, **request.more_transactions, application: number}
        made = Version(newest.path, newest.version + 1, (*newest.added, *added), after)
        self.versions.append(made)
        if self.loses_responses:
            return AlreadyCommitted(made.version, number)
        return Committed(made.version, cast(Any, made))


@pytest.fixture
def table() -> TableInMemory:
    return TableInMemory()


def ledger_of(table: TableInMemory, path: Path) -> Ledger:
    return Ledger(cast(DeltaKernel, table), str(path / "orders"))


def plan(sequence: int, start: int, end: int) -> PlanEvent:
    ranges = (Range(P0, start, end, "id"),)
    return PlanEvent("rangeland/a", "a", sequence, f"h{sequence}", ranges, "{}", 1_000)


class CompactedAtOnce(TableInMemory):
    """A commit whose response is lost, and whose rows another driver moves before anybody looks."""

    def commit(self, snapshot: Version, request: CommitRequest) -> Committed | AlreadyCommitted:
        done = super().commit(snapshot, request)
        newest = self.versions[-1]
        (file,) = newest.added
        moved = AddedFile("compacted.zstd.parquet", file.size_bytes, 0, file.stats, {})
        shutil.copy(Path(newest.path) / file.path, Path(newest.path) / moved.path)
        after = {**newest.transactions, COMPACTIONS: 1}
        self.versions.append(Version(newest.path, newest.version + 1, (moved,), after))
        return done


def test_a_file_whose_rows_a_compaction_may_have_moved_is_kept_for_those_who_read_it(
    tmp_path: Path,
) -> None:
    table = CompactedAtOnce()
    ledger = ledger_of(table, tmp_path).open_or_create()
    table.loses_responses = True
    assert not ledger.enter(plan(1, 0, 10), 0)
    (named,) = table.versions[-2].added
    assert (Path(ledger.path) / named.path).exists()
    assert ledger.entered() == 1


def test_a_commit_that_conflicts_with_itself_is_ours_and_keeps_its_file(
    table: TableInMemory, tmp_path: Path
) -> None:
    ledger = ledger_of(table, tmp_path).open_or_create()
    table.loses_responses = True
    assert ledger.enter(plan(1, 0, 10), 0)
    table.loses_responses = False
    (named,) = table.versions[-1].added
    assert (Path(ledger.path) / named.path).exists()
    assert ledger.entered() == 1
    again = ledger_of(table, tmp_path).view.plan(PlanId("rangeland/a", 1))
    assert again is not None
    assert again.plan_hash == "h1"
    assert ledger.enter(plan(2, 10, 20), 1)


def test_a_commit_that_conflicts_with_anothers_is_not_ours_and_leaves_no_file(
    table: TableInMemory, tmp_path: Path
) -> None:
    ledger = ledger_of(table, tmp_path).open_or_create()
    other = ledger_of(table, tmp_path)
    assert other.entered() == 0
    assert ledger.enter(plan(1, 0, 10), 0)
    assert not other.enter(plan(1, 0, 5), 0)
    (named,) = table.versions[-1].added
    assert [f.name for f in Path(ledger.path).glob("*.parquet")] == [named.path]


@pytest.mark.parametrize("other", [(), (Version("other", 0),)])
def test_a_ledger_that_is_removed_or_replaced_while_a_command_is_at_work_is_a_conflict(
    table: TableInMemory, tmp_path: Path, other: tuple[Version, ...]
) -> None:
    ledger = ledger_of(table, tmp_path).open_or_create()
    assert ledger.enter(plan(1, 0, 10), 0)
    table.versions[:] = other
    ledger.refresh()
    with pytest.raises(Conflict, match="is gone") as caught:
        ledger.view.outcome(PlanId("rangeland/a", 1))
    assert "rangeland adopt" in caught.value.do
