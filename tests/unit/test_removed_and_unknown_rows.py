"""Which rows a run looks for after somebody has removed some, and until when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rangeland.delta.table_metadata import CommitMetadata
from rangeland.errors import Conflict, TableRefused
from rangeland.landing.audit import removed_and_unknown_rows
from rangeland.landing.target import landing_commits
from rangeland.loss import Action, DecidedLoss, Loss, LossKind
from rangeland.model import Counts, DataFile, Partition, Range
from rangeland.planning.plan import Plan
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.proof import prove
from rangeland.planning.slice_receipt import Receipt, WrittenFile
from rangeland.planning.table_audit import Audit
from rangeland.progress_events import NoProgress
from tests.unit import test_landing_target
from tests.unit.test_landing_target import (
    P0,
    Drivers,
    LakeInMemory,
    columns_are_there,
    land_until_30,
    plan,
)
from tests.unit.test_ledger_lost_responses import Version

drivers, lake = test_landing_target.drivers, test_landing_target.lake
RESTORE = CommitMetadata(2, 0, "RESTORE", {}, 0, {})
RESTORE_TO_TIME = CommitMetadata(2, 0, "RESTORE", {}, None, {"timestamp": "2026-11-26 08:00:00.0"})
OVERWRITE = CommitMetadata(2, 0, "WRITE", {}, None, {"mode": "Overwrite"})
FILE = WrittenFile(DataFile("a.parquet", 10, 30, "{}", 0))
REMOVALS = [(RESTORE, "was restored to version 0"), (OVERWRITE, "were replaced at version 2")]


class Table:
    """A job's table in which 30 rows were landed at version 1. ``missing`` are the offsets that
    lack their rows, None if the table cannot be read. The log has lost what was committed before
    version ``log_begins_at``."""

    def __init__(
        self, lake: LakeInMemory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._lake, self._drivers = lake, drivers
        self._others: dict[int, CommitMetadata] = {}
        self.log_begins_at = 0
        self.missing: list[Range] | None = []
        self.unproved: tuple[Range, ...] = ()
        self.looked = 0
        self.warnings: list[str] = []
        columns_are_there(monkeypatch)
        monkeypatch.setattr(removed_and_unknown_rows, "examine", self._examine)
        monkeypatch.setattr(lake, "commits", self._commits)

    def land(self, first: Plan, *files: WrittenFile) -> None:
        target = self._drivers.another()
        assert target.writer.enter(first, [])
        for file in files:
            Path(self._drivers.path, file.file.path).write_bytes(bytes(file.file.size_bytes))
        land_until_30(target, first, *files)

    def remove(
        self, removal: CommitMetadata, missing: list[Range] | None, *, files: Sequence[str] = ()
    ) -> None:
        """``files``: those that are still in the table."""
        versions = self._lake.tables[self._drivers.path].versions
        newest = versions[-1]
        kept = tuple(file for file in newest.added if file.path in files)
        versions.append(Version(newest.path, removal.version, kept, newest.transactions))
        self._others[removal.version] = removal
        self.missing = missing

    def enter(self, kind: PlanKind, sequence: int = 1, **more: Any) -> Plan:
        application = kind.application("orders", "0123")
        made = plan(sequence, 0, 30, application=application, kind=kind)
        found = replace(made, **more)
        target = self._drivers.another()
        assert target.writer.enter(found, target.history.unfinished_plans())
        return found

    def prepare(self, repair: Plan, *, until: int = 30) -> None:
        """Up to an offset at which a policy holds the partition, if that is not the end."""
        held = DecidedLoss(
            P0, until, 30, LossKind.CORRUPT, "its checksum is wrong", action=Action.HOLD
        )
        losses = (held,) if until < 30 else ()
        read = {0: Receipt(0, P0, 0, until, Counts(landed=until), losses=losses)}
        receipts = read if repair.slices else {}
        self._writer = self._drivers.another().writer
        self._outcome = self._writer.prepare_outcome(
            repair, prove(repair, receipts), (), receipts
        ).outcome

    def commit(self) -> None:
        self._writer.commit_outcome(self._outcome)

    def expect_refusal(self) -> None:
        with pytest.raises(Conflict, match="was restored"):
            self.check()

    def check(self) -> None:
        target = self._drivers.another()
        removed_and_unknown_rows.check_rows_remain(
            None, target, self._drivers.job, NoProgress(), self.warnings.append
        )

    def _examine(self, *about: object) -> SimpleNamespace:
        self.looked += 1
        if self.missing is None:
            raise TableRefused("a file is gone")
        return SimpleNamespace(audit=Audit(tuple(self.missing), unproved=self.unproved))

    def _commits(self, path: str, since: int) -> list[CommitMetadata]:
        first = max(since, self.log_begins_at)
        versions = self._lake.tables[path].versions
        return [
            self._others.get(now.version) or _landing(before, now)
            for before, now in pairwise([versions[0], *versions])
            if now.version >= first
        ]


def _landing(before: Version, now: Version) -> CommitMetadata:
    transactions = dict(now.transactions.items() - before.transactions.items())
    return CommitMetadata(now.version, 0, "WRITE", transactions, None, {"mode": "Append"})


@pytest.fixture
def table(lake: LakeInMemory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> Table:
    return Table(lake, drivers, monkeypatch)


GONE = Range(P0, 0, 30)


def test_rows_are_not_looked_for_where_nothing_was_removed(table: Table) -> None:
    table.check()
    table.land(plan())
    table.check()
    assert table.looked == 0


@pytest.mark.parametrize(("removal", "what"), REMOVALS)
@pytest.mark.parametrize("missing", [[GONE], None])
def test_a_table_without_its_rows_is_refused_and_the_ways_out_are_named(
    table: Table, removal: CommitMetadata, what: str, missing: list[Range] | None
) -> None:
    """If it cannot be read, too."""
    table.land(plan())
    table.remove(removal, missing)
    with pytest.raises(Conflict, match=what) as caught:
        table.check()
    for way in ("version 1", "backfill JOB.yaml --missing", "rangeland adopt JOB.yaml"):
        assert way in caught.value.do


@pytest.mark.parametrize(("removal", "what"), REMOVALS)
def test_what_nobody_can_count_any_more_counts_as_removed(
    table: Table, removal: CommitMetadata, what: str
) -> None:
    table.land(plan())
    table.remove(removal, [])
    table.unproved = (Range(Partition("others", 0), 0, 30),)
    table.check()
    table.unproved = (GONE,)
    with pytest.raises(Conflict, match=what):
        table.check()


@pytest.mark.parametrize(("missing", "is_refused"), [([GONE], True), (None, True), ([], False)])
def test_a_restore_to_a_time_is_noticed_while_the_next_plan_is_unfinished(
    table: Table, missing: list[Range] | None, is_refused: bool
) -> None:
    """Nothing has landed since that plan was made, and the log does not say how far it went back:
    only the table shows whether it removed anything."""
    table.land(plan())
    table.enter(PlanKind.RUN, sequence=2)
    table.remove(RESTORE_TO_TIME, missing)
    if not is_refused:
        table.check()
        assert table.looked == 1
        return
    with pytest.raises(Conflict, match="was restored to an earlier time") as caught:
        table.check()
    assert caught.value.facts["restored_to"] is None
    assert "restore the table to version 1" in caught.value.do


def test_a_restore_to_a_time_does_not_hide_an_earlier_one_to_a_version(table: Table) -> None:
    table.land(plan())
    table.enter(PlanKind.RUN, sequence=2)
    table.remove(RESTORE, [GONE])
    table.remove(replace(RESTORE_TO_TIME, version=3), [GONE])
    table.expect_refusal()


ROUTINE = CommitMetadata(40, 0, "OPTIMIZE", {})


def test_a_removal_that_the_log_has_lost_is_noticed_by_the_rows_that_are_missing(
    table: Table,
) -> None:
    """As by a job that was paused for longer than the log is kept."""
    table.land(plan())
    table.remove(RESTORE, [GONE])
    table.remove(ROUTINE, [GONE])
    table.expect_refusal()
    table.log_begins_at = 40
    with pytest.raises(Conflict, match="log no longer shows why") as caught:
        table.check()
    assert caught.value.facts == {"planned_at_version": 0, "log_begins_at": 40}
    assert "backfill JOB.yaml --missing" in caught.value.do
    assert "rangeland adopt JOB.yaml" in caught.value.do


def test_where_the_log_has_lost_commits_a_table_with_all_of_its_rows_is_landed_in(
    table: Table,
) -> None:
    """And nobody looks for them again once a plan was entered there."""
    table.land(plan())
    table.remove(ROUTINE, [])
    table.log_begins_at = 40
    table.check()
    assert table.looked == 1
    table.enter(PlanKind.RUN, sequence=2)
    table.check()
    table.log_begins_at = 41
    table.check()
    assert (table.looked, table.warnings) == (1, [])


def test_where_the_log_has_lost_commits_what_nobody_can_count_is_only_warned_of(
    table: Table,
) -> None:
    table.land(plan())
    table.remove(ROUTINE, [])
    table.log_begins_at = 40
    table.unproved = (GONE,)
    table.check()
    (warning,) = table.warnings
    assert "how many rows orders/0 [0, 30) has" in warning


def test_rows_are_not_looked_for_where_a_file_of_the_newest_landing_is_in_the_table(
    table: Table,
) -> None:
    """An earlier version of the table, as RESTORE brings back, would not have it. Rows of earlier
    landings may have been deleted since: they are not missed."""
    first = plan()
    table.land(first, FILE)
    table.remove(ROUTINE, [GONE], files=["a.parquet"])
    table.log_begins_at = 40
    table.check()
    assert table.looked == 0
    table.remove(replace(ROUTINE, version=41), [GONE])
    table.log_begins_at = 41
    with pytest.raises(Conflict, match="log no longer shows why"):
        table.check()


def test_each_application_of_a_job_needs_a_file_of_its_newest_landing(table: Table) -> None:
    """A backfill may have landed after the run whose file is there, and a RESTORE in between may
    have removed only its rows."""
    table.land(plan(), FILE)
    backfill = PlanKind.BACKFILL.application("orders", "0123")
    other = plan(application=backfill, kind=PlanKind.BACKFILL)
    table.land(other, WrittenFile(replace(FILE.file, path="b.parquet")))
    table.remove(ROUTINE, [GONE], files=["a.parquet"])
    table.log_begins_at = 40
    with pytest.raises(Conflict, match="log no longer shows why"):
        table.check()


def test_a_table_whose_rows_do_not_show_their_offsets_is_not_refused_for_a_cleaned_log(
    table: Table,
) -> None:
    """Neither adopting it nor landing rows again would be possible there."""
    table.land(plan())
    table.remove(ROUTINE, None)
    table.log_begins_at = 40
    table.check()
    (warning,) = table.warnings
    assert "unknown whether" in warning


@pytest.mark.parametrize(("begins_at", "is_unknown"), [(6, False), (8, True)])
def test_a_restore_to_before_the_beginning_of_the_log_may_have_undone_landings(
    begins_at: int, is_unknown: bool
) -> None:
    log = [CommitMetadata(version, 0, "OPTIMIZE", {}) for version in range(begins_at, 12)]
    log.append(CommitMetadata(12, 0, "RESTORE", {}, 5, {"version": "5"}))
    delta = SimpleNamespace(commits=lambda path, since: [c for c in log if c.version >= since])
    found = landing_commits.last_restore(delta, "lake/orders", log)
    assert found == (landing_commits.Restored(12, 5, 0, ()) if is_unknown else None)


def test_rows_of_topics_that_the_job_does_not_read_are_not_missed(table: Table) -> None:
    table.land(plan())
    table.remove(RESTORE, [Range(Partition("others", 0), 0, 30)])
    table.check()


@pytest.mark.parametrize(("removal", "what"), REMOVALS)
def test_a_repair_that_leaves_rows_missing_changes_nothing(
    table: Table, removal: CommitMetadata, what: str
) -> None:
    table.land(plan())
    table.remove(removal, [GONE])
    table.enter(PlanKind.HOLES)
    table.missing = [Range(P0, 20, 30)]
    with pytest.raises(Conflict, match=what):
        table.check()
    table.missing = []
    table.check()


def test_a_repair_of_all_that_was_missing_settles_a_removal_once_it_has_landed(
    table: Table,
) -> None:
    """Rows that somebody deletes later are not missed, as those of any other landing."""
    table.land(plan())
    table.remove(RESTORE, [GONE])
    repair = table.enter(PlanKind.HOLES, repairs_all=True)
    table.expect_refusal()
    table.prepare(repair)
    table.expect_refusal()
    table.commit()
    table.check()
    assert table.looked == 2


def test_a_repair_with_recorded_losses_settles_a_removal(table: Table) -> None:
    table.land(plan())
    table.remove(RESTORE, [GONE])
    lost = Loss(P0, 0, 30, LossKind.EXPIRED, "the log begins at 30")
    repair = table.enter(PlanKind.HOLES, repairs_all=True, slices=(), losses=(lost,))
    table.prepare(repair)
    table.commit()
    table.check()
    assert table.looked == 0


@pytest.mark.parametrize(("repairs_all", "until"), [(True, 20), (False, 30)])
def test_a_repair_that_a_policy_cuts_short_settles_nothing(
    table: Table, repairs_all: bool, until: int
) -> None:
    """While it is read, or when it is made."""
    table.land(plan())
    table.remove(RESTORE, [GONE])
    table.prepare(table.enter(PlanKind.HOLES, repairs_all=repairs_all), until=until)
    table.commit()
    table.expect_refusal()


@pytest.mark.parametrize("kind", [kind for kind in PlanKind if kind is not PlanKind.HOLES])
def test_after_any_other_plan_rows_are_no_longer_looked_for(table: Table, kind: PlanKind) -> None:
    """It is entered where none are missing. The decision to adopt the table is a run's."""
    table.land(plan())
    table.remove(RESTORE, [GONE])
    table.enter(kind, sequence=2 if kind is PlanKind.RUN else 1)
    table.check()
    assert table.looked == 0


def test_rows_are_looked_for_where_all_plans_of_a_job_are_repairs(table: Table) -> None:
    """As of one that goes on under another name."""
    table.land(plan(application=PlanKind.HOLES.application("orders", "4567"), kind=PlanKind.HOLES))
    table.remove(RESTORE, [GONE])
    table.expect_refusal()
