"""What a run says of its rows if the store fails once they are committed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from rangeland import run
from rangeland.delta.ledger.events import OutcomeEvent
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.table_metadata import CommitMetadata
from rangeland.delta.transaction_log import table_commit
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_commit import CommittedOutcome
from rangeland.delta.transaction_log.table_snapshot import AlreadyCommitted, CommitRequest, Snapshot
from rangeland.error_answers import PLAN_STAYS
from rangeland.errors import (
    ALL_OR_NOTHING,
    AccessDenied,
    Conflict,
    RangelandError,
    StorageFailed,
    TableRefused,
    Unreachable,
    UsageError,
)
from rangeland.landing import landing_steps
from rangeland.landing.execution.commit_failures import MAX_ATTEMPTS
from rangeland.landing.execution.committer import PlanCommitter
from rangeland.landing.landing_steps import LandingSteps
from rangeland.landing.special_plans import replacement
from rangeland.landing.special_plans.replacement import Replacement
from rangeland.landing.target import table_location
from rangeland.landing.target.landing_commits import landed_at
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.landing.target.target_schema import TargetSchema
from rangeland.landing.target.target_writer import TargetWriter
from rangeland.planning.plan import PlanId
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.table_audit import ReplacedRange
from rangeland.progress_events import NoProgress
from rangeland.spark.replace_where import RowsChanged
from tests.unit import test_landing_target
from tests.unit.test_landing_target import (
    APP,
    EXPIRED,
    Drivers,
    LakeInMemory,
    columns_are_there,
    finisher_of,
    plan,
    reading_of,
    whole_reading,
)
from tests.unit.test_ledger_lost_responses import Version

drivers = test_landing_target.drivers
REPLACING = plan(application=f"{APP}/replace/0123", kind=PlanKind.REPLACE)
FAILURES = (
    StorageFailed("the store is down"),
    AccessDenied("the store refuses"),
    Conflict("the table has moved on"),
    UsageError("the store is unknown"),
)


class FailingLake(LakeInMemory):
    """One that raises an error where the log or the history of one table is read, from when it is
    told to on."""

    def __init__(self) -> None:
        super().__init__()
        self.path = ""
        self.load_error: RangelandError | None = None
        self.history_error: RangelandError | None = None
        self.parameters: dict[str, str | None] = {}

    def load(self, path: str) -> Version | None:
        if path == self.path and self.load_error is not None:
            raise self.load_error
        return super().load(path)

    def commits(self, path: str, since: int) -> list[CommitMetadata]:
        if path == self.path and self.history_error is not None:
            raise self.history_error
        commits = super().commits(path, since)
        return [replace(commit, parameters=self.parameters) for commit in commits]


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> FailingLake:
    made = FailingLake()
    monkeypatch.setattr(table_location, "DeltaKernel", lambda spark: made)
    return made


class Replacing:
    """A driver that replaces rows. ``then`` is called after each commit that Spark has made, or in
    its place, with the number of the attempt."""

    def __init__(
        self, lake: FailingLake, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        columns_are_there(monkeypatch)
        self.lake = lake
        self.lake.path = drivers.path
        self.attempts = 0
        self.then: Callable[[int], RowsChanged | None] = lambda attempt: None
        self.commits_at = 1
        self.target: LandingTarget = drivers.another()
        assert self.target.writer.enter(REPLACING, [])
        self.reading = whole_reading(drivers, self.target, "rows.parquet")
        monkeypatch.setattr(Replacement, "check_rows_inside", lambda *_: None)
        monkeypatch.setattr(Replacement, "differences", lambda *_: ReplacedRange(same=100))
        monkeypatch.setattr(Replacement, "_swap", lambda *_: (None, None, "true"))
        monkeypatch.setattr(replacement, "replace_rows", self._replace_rows)

    def _replace_rows(
        self, new: object, path: str, where: str, plan_id: PlanId, *, evolves: bool
    ) -> RowsChanged | None:
        self.attempts += 1
        if self.attempts == self.commits_at:
            self.commit()
        return self.then(self.attempts)

    def commit(self) -> None:
        request = CommitRequest(REPLACING.application, REPLACING.sequence)
        self.lake.tables[self.lake.path].commit(cast(Any, None), request)

    @property
    def committer(self) -> PlanCommitter:
        return finisher_of(self.reading)

    def attempt_in_ledger(self, drivers: Drivers) -> int:
        self.lake.load_error = self.lake.history_error = None
        outcome = drivers.another().ledger.view.outcome(REPLACING.id)
        assert outcome is not None
        assert outcome.ranges
        return outcome.attempt


@pytest.fixture
def replacing(lake: FailingLake, drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> Replacing:
    return Replacing(lake, drivers, monkeypatch)


def lose_a_file(target: LandingTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target.table, "gone_files", lambda: [SimpleNamespace(path="old.parquet")])


# --- a replacement -----------------------------------------------------------------------------


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_rows_that_were_replaced_count_as_landed_if_their_version_cannot_be_read(
    replacing: Replacing, drivers: Drivers, monkeypatch: pytest.MonkeyPatch, error: RangelandError
) -> None:
    lose_a_file(replacing.target, monkeypatch)

    def fail(attempt: int) -> None:
        replacing.lake.load_error = replacing.lake.history_error = error

    replacing.then = fail
    done = replacing.committer.finish_new(REPLACING)
    assert (done.landed.version, done.is_ours) == (None, True)
    assert done.replaced == ReplacedRange(same=100)
    assert replacing.attempt_in_ledger(drivers) == 0


def lose_the_response(attempt: int) -> None:
    raise StorageFailed("could not replace rows").with_answers(data=ALL_OR_NOTHING)


def test_a_replacement_is_not_given_up_that_was_committed_and_whose_response_was_lost(
    replacing: Replacing, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_a_file(replacing.target, monkeypatch)
    replacing.then = lose_the_response
    done = replacing.committer.finish_new(REPLACING)
    assert (done.landed.version, done.landed.is_new) == (2, False)
    assert replacing.attempt_in_ledger(drivers) == 0


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_replacement_is_not_given_up_as_long_as_nothing_shows_whether_it_was_committed(
    replacing: Replacing, drivers: Drivers, monkeypatch: pytest.MonkeyPatch, error: RangelandError
) -> None:
    lose_a_file(replacing.target, monkeypatch)

    def fail(attempt: int) -> None:
        replacing.lake.load_error = error
        lose_the_response(attempt)

    replacing.then = fail
    with pytest.raises(type(error)) as caught:
        replacing.committer.finish_new(REPLACING)
    assert caught.value.data == ALL_OR_NOTHING
    assert replacing.attempt_in_ledger(drivers) == 0


def miss_the_file(attempt: int) -> None:
    why = "File file:/lake/t/day%3D1/old.parquet does not exist"
    raise StorageFailed("could not replace rows", why=why).with_answers(data=ALL_OR_NOTHING)


def test_a_replacement_that_the_table_does_not_have_is_given_up(
    replacing: Replacing, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_a_file(replacing.target, monkeypatch)
    replacing.commits_at = 0
    replacing.then = miss_the_file
    with pytest.raises(TableRefused, match=r"file old\.parquet is gone") as caught:
        replacing.committer.finish_new(REPLACING)
    assert caught.value.data == Conflict.data
    replacing.target.ledger.refresh()
    assert replacing.target.history.unfinished_plans() == []


def test_a_replacement_that_fails_for_another_reason_than_a_file_that_is_gone_stays(
    replacing: Replacing, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_a_file(replacing.target, monkeypatch)
    replacing.commits_at = 0
    replacing.then = lose_the_response
    with pytest.raises(StorageFailed, match="could not replace rows") as caught:
        replacing.committer.finish_new(REPLACING)
    assert caught.value.data == ALL_OR_NOTHING
    replacing.target.ledger.refresh()
    (left,) = replacing.target.history.unfinished_plans()
    assert left.plan.id == REPLACING.id
    assert replacing.attempt_in_ledger(drivers) == 0


@pytest.mark.parametrize("replaces", [True, False], ids=["replaced", "given up"])
def test_a_replacement_that_another_driver_ends_while_it_is_given_up_ends_as_it_did_there(
    replacing: Replacing, monkeypatch: pytest.MonkeyPatch, replaces: bool
) -> None:
    lose_a_file(replacing.target, monkeypatch)
    replacing.commits_at = 0
    replacing.then = miss_the_file
    give_up = TargetWriter.give_up

    def give_up_late(*about: Any) -> OutcomeEvent:
        outcome = give_up(*about)
        replacing.commit()
        condition = {"predicate": '["(offset < 100)"]'} if replaces else {}
        replacing.lake.parameters = {"mode": "Overwrite", **condition}
        return outcome

    monkeypatch.setattr(TargetWriter, "give_up", give_up_late)
    if replaces:
        done = replacing.committer.finish_new(REPLACING)
        assert (len(done.outcome.files), done.landed.is_new) == (1, False)
    else:
        with pytest.raises(TableRefused, match=r"file old\.parquet is gone"):
            replacing.committer.finish_new(REPLACING)


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_an_error_of_the_commit_itself_keeps_its_answer(
    replacing: Replacing, error: RangelandError
) -> None:
    def fail(attempt: int) -> None:
        raise error.with_answers(data=ALL_OR_NOTHING)

    replacing.commits_at = 0
    replacing.then = fail
    with pytest.raises(type(error)) as caught:
        replacing.committer.finish_new(REPLACING)
    assert caught.value.data == ALL_OR_NOTHING


@pytest.mark.parametrize("attempt", [1, MAX_ATTEMPTS])
def test_a_replacement_that_conflicts_with_itself_has_landed(
    replacing: Replacing, attempt: int
) -> None:
    replacing.commits_at = attempt
    replacing.then = lambda _: RowsChanged("lake/t", "ConcurrentTransactionException")
    done = replacing.committer.finish_new(REPLACING)
    assert (replacing.attempts, done.landed.is_new) == (attempt, False)
    assert done.landed.version is not None


def test_a_plan_is_not_given_up_that_another_driver_lands_while_it_is_read_again(
    replacing: Replacing, drivers: Drivers
) -> None:
    """The files that were gone may be back by then."""
    prepared = replacing.committer._outcomes.read_and_prepare(REPLACING, is_new=True)[0]
    (Path(drivers.path) / "rows.parquet").unlink()

    def read_all(*_: object, is_new: bool) -> Any:
        replacing.commit()
        raise EXPIRED

    replacing.reading.read_all = read_all  # type: ignore[method-assign]
    replacing.target.ledger.refresh()
    (left,) = replacing.target.history.unfinished_plans()
    done = replacing.committer.finish_entered(left)
    assert (done.outcome, done.landed.is_new) == (prepared, False)
    assert replacing.attempt_in_ledger(drivers) == 0


def test_a_plan_that_is_read_again_stays_if_a_right_is_missing(
    replacing: Replacing, drivers: Drivers
) -> None:
    replacing.committer._outcomes.read_and_prepare(REPLACING, is_new=True)
    (Path(drivers.path) / "rows.parquet").unlink()
    replacing.reading.error = AccessDenied("orders/0 may not be read")
    replacing.target.ledger.refresh()
    (left,) = replacing.target.history.unfinished_plans()
    with pytest.raises(AccessDenied) as caught:
        replacing.committer.finish_entered(left)
    assert caught.value.data == PLAN_STAYS


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_an_error_of_the_result_says_that_the_rows_have_landed(
    replacing: Replacing, monkeypatch: pytest.MonkeyPatch, error: RangelandError
) -> None:
    done = replacing.committer.finish_new(REPLACING)
    steps = LandingSteps(replacing.reading._context)
    steps._finished.append(done)
    monkeypatch.setattr(landing_steps, "result_of_plans", Mock(side_effect=error))
    monkeypatch.setattr(landing_steps, "plaintext_secret_warnings", lambda _: ())
    monkeypatch.setattr(replacing.lake, "wait_for_maintenance", tuple, raising=False)
    with pytest.raises(type(error)) as caught:
        steps.result(None)
    assert caught.value.data.startswith("1 plan had been landed completely; after that, ")


# --- a commit that adds rows -------------------------------------------------------------------


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_plan_that_is_found_in_the_table_has_landed_if_its_version_cannot_be_read(
    lake: FailingLake, drivers: Drivers, error: RangelandError
) -> None:
    lake.path = drivers.path
    target = drivers.another()
    assert target.writer.enter(plan(), [])
    reading = whole_reading(drivers, target, "rows.parquet")
    finisher_of(reading).finish_new(plan())
    target.ledger.refresh()
    entered = target.history.plan_with_outcome(plan())
    assert entered is not None
    lake.history_error = error
    done = finisher_of(reading_of(target)).finish_entered(entered)
    assert (done.landed.version, done.landed.is_new) == (None, False)


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_rows_whose_null_partitions_cannot_be_named_have_landed(
    lake: FailingLake, drivers: Drivers, monkeypatch: pytest.MonkeyPatch, error: RangelandError
) -> None:
    """An earlier driver may have prepared them with another job file."""
    target = drivers.another()
    assert target.writer.enter(plan(), [])
    reading = whole_reading(drivers, target, "rows.parquet")
    (written,) = reading.files
    without_time = replace(written.file, partition_values={"date": None})
    reading.files = (replace(written, file=without_time),)
    monkeypatch.setattr(TargetSchema, "layout", Mock(side_effect=error))
    done = finisher_of(reading).finish_new(plan())
    assert done.landed.is_new
    (warning,) = reading._context.warnings
    assert warning.startswith("records have landed with NULL in a column")
    assert str(error) in warning


@pytest.mark.parametrize(
    "error",
    [*FAILURES, Unreachable("the registry is down")],
    ids=lambda error: type(error).__name__,
)
def test_an_error_after_a_redrive_says_that_its_rows_have_landed(
    lake: FailingLake, drivers: Drivers, monkeypatch: pytest.MonkeyPatch, error: RangelandError
) -> None:
    target = drivers.another()
    assert target.writer.enter(plan(), [])
    reading = whole_reading(drivers, target, "rows.parquet")
    done = finisher_of(reading).finish_new(plan())
    lease = SimpleNamespace(
        is_needed=False, shared_reader=None, mirror=lambda **_: None, hold=nullcontext
    )
    monkeypatch.setattr(run, "open_landing", lambda *_: reading._context)
    monkeypatch.setattr(run, "RunLease", lambda _: lease)
    monkeypatch.setattr(run, "quarantined_ranges", Mock(side_effect=error))
    monkeypatch.setattr(LandingSteps, "land_until_done", lambda steps: steps._finished.append(done))
    monkeypatch.setattr(LandingSteps, "result", lambda *_: None)
    with pytest.raises(type(error)) as caught:
        run.redrive(drivers.job, cast(Any, None), NoProgress())
    assert caught.value.data.startswith("1 plan had been landed completely; after that, ")
    with pytest.raises(type(error)) as dry:
        run.redrive(drivers.job, cast(Any, None), NoProgress(), dry_run=True)
    assert dry.value.data == error.data


TABLE = SimpleNamespace(
    path="/lake/orders",
    version=3,
    table_id="id",
    transaction_version=lambda _: None,
    property=lambda _: None,
)
LANDED = CommitRequest(APP, 4)


class Kernel:
    """One for which a commit has this result, and that then reads, or fails to read."""

    def __init__(self, result: AlreadyCommitted | RangelandError, **reads: Any) -> None:
        self._result = result
        self._reads = reads

    def storage(self, path: str) -> StoreSettings:
        return StoreSettings(path)

    def commit(self, *_: object) -> AlreadyCommitted:
        return _unless_error(self._result)

    def load(self, path: str) -> Any:
        return _unless_error(self._reads["load"])

    def commits(self, path: str, since: int) -> Any:
        return _unless_error(self._reads["commits"])


def _unless_error(result: Any) -> Any:
    if isinstance(result, RangelandError):
        raise result
    return result


def land(result: AlreadyCommitted | RangelandError, **reads: Any) -> Any:
    kernel = cast(DeltaKernel, Kernel(result, **reads))
    return table_commit.commit_once(kernel, cast(Snapshot, TABLE), LANDED)


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_commit_that_is_found_in_the_table_needs_no_version(error: RangelandError) -> None:
    found = AlreadyCommitted(5, 4)
    assert land(found, load=TABLE, commits=error) == CommittedOutcome(None, is_new=False)
    kernel = cast(DeltaKernel, Kernel(found, commits=error))
    assert landed_at(kernel, TABLE.path, PlanId(LANDED.application, LANDED.sequence)) is None


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_commit_that_may_be_in_another_table_is_all_or_nothing(error: RangelandError) -> None:
    with pytest.raises(type(error)) as caught:
        land(AlreadyCommitted(5, 4), load=error)
    assert caught.value.data == ALL_OR_NOTHING
    with pytest.raises(Conflict, match="dropped and created again") as other:
        land(AlreadyCommitted(5, 4), load=SimpleNamespace(**vars(TABLE) | {"table_id": "other"}))
    assert other.value.data == ALL_OR_NOTHING


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_conflict_that_nothing_explains_is_all_or_nothing(error: RangelandError) -> None:
    with pytest.raises(type(error)) as caught:
        land(Conflict("the metadata was changed"), load=error)
    assert caught.value.data == ALL_OR_NOTHING
