"""An adoption whose driver dies leaves nothing, or what the next run commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rangeland.delta.stores.table_path import TablePath
from rangeland.errors import Conflict
from rangeland.job import Job
from rangeland.landing.execution.committer import PlanCommitter
from rangeland.loss import LossKind
from rangeland.results import AdoptResult, RunResult
from tests.simulation.dialects import TABLE
from tests.simulation.happenings import Scenario
from tests.simulation.history import SKIP_ALL, History
from tests.simulation.replaced import Stage, simulated
from tests.simulation.scenario import long_scenario
from tests.simulation.tally import Counts
from tests.simulation.world import Crash, Fault, Process

KEY = TablePath.parse(TABLE).key
LEDGER = f"{KEY}/_rangeland/ledger"


@pytest.fixture
def stage() -> Iterator[Stage]:
    with simulated() as stage:
        yield stage


def started(stage: Stage) -> History:
    """A table with rows, whose ledger is gone."""
    history = started_with_ledger(stage)
    del history.tables.logs[LEDGER]
    return history


def started_with_ledger(stage: Stage) -> History:
    """A table with rows."""
    setup = replace(long_scenario(0).setup, max_records=None, policy=SKIP_ALL, transactions=False)
    history = History(Scenario(0, setup, ()), stage, Counts())
    history.act("produce", 7)
    assert isinstance(carried_out(history, "run"), RunResult)
    return history


def carried_out(history: History, command: str, *faults: Fault, job: Job | None = None) -> Any:
    """By the history's own job, unless another one is given."""
    drivers = [(Process(command, list(faults)), command)]
    (found,) = history._carry_out(drivers, job or history._job())
    return found


def adopted(history: History) -> list[AdoptResult]:
    """What a person does who is told to adopt the table, and the runs after it."""
    results = []
    if isinstance(found := carried_out(history, "run"), Conflict):
        assert "`rangeland adopt JOB.yaml`" in found.do, found
        results.append(carried_out(history, "adopt"))
        found = carried_out(history, "run")
    assert isinstance(found, RunResult), found
    assert all(isinstance(result, AdoptResult) for result in results)
    return results


def without_outcome(history: History) -> set[tuple[str, int]]:
    if not history.judge.has_ledger():
        return set()
    ledger = history.judge.ledger()
    return ledger.plans.keys() - ledger.outcomes.keys()


def offsets(history: History) -> list[tuple[int, int]]:
    return sorted((number, offset) for _, number, offset, _ in history.judge.rows())


STEPS = (
    *(("delta.load", "crash"), ("delta.files", "crash"), ("delta.history", "crash")),
    *(("delta.create", "crash"), ("delta.create", "refused"), ("delta.create", "lost")),
    *(("delta.commit", "crash"), ("delta.commit", "refused"), ("delta.commit", "lost")),
    *(("store.open", "crash"), ("store.close", "crash"), ("store.read", "crash")),
    *(("store.list", "crash"), ("spark.read", "crash")),
)


@pytest.mark.parametrize(("tag", "kind"), STEPS)
def test_an_adoption_that_fails_at_any_step_is_in_nobodys_way(
    stage: Stage, tag: str, kind: str
) -> None:
    ends: Counter[str] = Counter()
    for number in range(1, 30):
        history = started(stage)
        landed = offsets(history)
        fault = Fault(tag, number, kind)
        found = carried_out(history, "adopt", fault)
        ends[type(found).__name__] += 1
        assert not without_outcome(history), "nothing is entered that cannot be finished"
        again = adopted(history)
        assert offsets(history) == landed, "nothing is landed twice"
        assert not (again and isinstance(found, AdoptResult))
        history.act("produce", 8)
        assert isinstance(carried_out(history, "run"), RunResult)
        assert len(set(offsets(history))) == len(offsets(history)) > len(landed)
        if history.counts.faults[tag, kind] == 0:
            assert isinstance(found, AdoptResult)
            return
    raise AssertionError(ends)


def test_after_a_table_from_a_backup_was_adopted_no_offset_is_left_out(stage: Stage) -> None:
    """Its ledger is newer: another job has seen what the table lacks, so nobody finishes it."""
    history = started_with_ledger(stage)
    others = history._job().model_copy(update={"name": "others"})

    def land(job: Job) -> Any:
        history.act("produce", 7)
        return carried_out(history, "run", job=job)

    assert isinstance(land(others), RunResult)
    log = history.tables.logs[KEY]
    versions, commits = list(log.versions), list(log.commits)
    assert isinstance(land(history._job()), RunResult)
    assert isinstance(land(others), RunResult)
    everything = offsets(history)
    log.versions[:], log.commits[:] = versions, commits
    refused = land(history._job())
    assert isinstance(refused, Conflict)
    assert "from different times" in refused.why
    assert isinstance(carried_out(history, "adopt"), AdoptResult)
    assert isinstance(carried_out(history, "run"), RunResult)
    assert carried_out(history, "verify").to_json()["holes"]
    assert isinstance(carried_out(history, "missing"), RunResult)
    landed = offsets(history)
    assert set(everything) < set(landed)
    assert len(set(landed)) == len(landed)
    for number in {number for number, _ in landed}:
        found = [offset for n, offset in landed if n == number]
        assert found == list(range(len(found))), "none is skipped"


@pytest.mark.parametrize("tag", ["store.open", "store.close", "delta.commit", "delta.load"])
def test_a_run_that_is_reading_while_the_table_is_adopted_loses_nothing(
    stage: Stage, tag: str
) -> None:
    ended = 0
    for number in range(1, 8):
        history = started_with_ledger(stage)
        history.act("produce", 5)
        slow = Process("run", [Fault(tag, number, "pause", 600_000)])
        person = Process("person", [Fault("delta.load", 1, "pause", 30_000)])
        run, _ = history._carry_out([(slow, "run"), (person, "adopt")], history._job())
        if isinstance(run, Conflict):
            assert "was ended while it was being read" in run.what
            ended += 1
        else:
            assert isinstance(run, RunResult), run
        assert isinstance(carried_out(history, "run"), RunResult)
        assert_all_is_landed(history)
    assert ended or tag == "delta.commit", "the adoption came while the run was reading"


def test_prepared_rows_are_committed_before_a_table_is_adopted(stage: Stage) -> None:
    ends: Counter[str] = Counter()
    for number in range(1, 8):
        history = started_with_ledger(stage)
        history.act("produce", 5)
        carried_out(history, "run", Fault("delta.commit", number, "crash"))
        landed = history.tables.landed(KEY)
        was_prepared = any(landed[a] < n for a, n in history.judge.ledger().outcomes)
        assert isinstance(carried_out(history, "adopt"), AdoptResult)
        run = carried_out(history, "run")
        assert isinstance(run, RunResult)
        assert not (was_prepared and run.counts.landed), "it was landed by the adoption"
        ends["prepared" if was_prepared else "not prepared"] += 1
        assert_all_is_landed(history)
    assert len(ends) == 2


@pytest.mark.parametrize("dies_at", [None, 1, 2])
def test_prepared_rows_that_are_gone_when_a_table_is_adopted_are_read_again(
    stage: Stage, dies_at: int | None
) -> None:
    were_gone = 0
    for number in range(1, 8):
        history = started_with_ledger(stage)
        history.act("produce", 5)
        carried_out(history, "run", Fault("delta.commit", number, "crash"))
        landed = history.tables.landed(KEY)
        was_prepared = any(landed[a] < n for a, n in history.judge.ledger().outcomes)
        count = len(history.store.files)
        history.table_faults.vacuum()
        were_gone += was_prepared and len(history.store.files) < count
        if dies_at is not None:
            carried_out(history, "adopt", Fault("delta.commit", dies_at, "crash"))
        assert isinstance(carried_out(history, "adopt"), AdoptResult)
        run = carried_out(history, "run")
        assert isinstance(run, RunResult), run
        assert run.counts.landed or not was_prepared
        assert_all_is_landed(history)
    assert were_gone


def test_prepared_rows_that_are_gone_from_the_log_as_well_are_lost_as_the_policy_says(
    stage: Stage,
) -> None:
    history = started_with_ledger(stage)
    landed = offsets(history)
    history.act("produce", 5)
    assert isinstance(carried_out(history, "run", Fault("delta.commit", 3, "crash")), Crash)
    history.table_faults.vacuum()
    assert isinstance(carried_out(history, "adopt"), AdoptResult)
    for log in history.cluster.topics["orders"].logs:
        log.expire(len(log.entries))
    run = carried_out(history, "run")
    assert isinstance(run, RunResult)
    assert {event.loss.kind for event in run.losses} == {LossKind.EXPIRED}
    assert run.counts.lost == sum(log.end for log in history.cluster.topics["orders"].logs) - len(
        landed
    )
    assert carried_out(history, "verify").to_json()["holes"] == []


@pytest.mark.parametrize("pause_ms", [10_001, 10_025, 600_000])
def test_a_driver_whose_prepared_rows_are_gone_does_not_say_that_they_landed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, pause_ms: int
) -> None:
    """Somebody removes its files and adopts the table while it is about to commit them."""
    history = started_with_ledger(stage)
    history.act("produce", 5)
    landed = offsets(history)
    commit_quarantine = PlanCommitter._commit_quarantine

    def pause_first(self: PlanCommitter, outcome: Any) -> Any:
        if history.world.current.name == "run" and not outcome.attempt:
            history.world.sleep(pause_ms / 1000)
        return commit_quarantine(self, outcome)

    monkeypatch.setattr(PlanCommitter, "_commit_quarantine", pause_first)
    harm = [Fault("delta.load", 1, "pause", 10_000), Fault("delta.load", 1, "act:vacuum")]
    drivers = [(Process("run"), "run"), (Process("person", harm), "adopt")]
    run, adoption = history._carry_out(drivers, history._job())
    assert isinstance(adoption, AdoptResult | Conflict)
    if isinstance(run, Conflict):
        assert "was ended" in run.what
        assert run.do == "run again: a new plan lands these offsets"
        assert offsets(history) == landed
    else:
        assert isinstance(run, RunResult), run
        assert len(offsets(history)) == len(landed) + run.counts.landed
    assert isinstance(carried_out(history, "run"), RunResult)
    assert_all_is_landed(history)


def assert_all_is_landed(history: History) -> None:
    logs = history.cluster.topics["orders"].logs
    everything = [(log.number, offset) for log in logs for offset in range(log.start, log.end)]
    assert offsets(history) == sorted(everything)
    verified = carried_out(history, "verify").to_json()
    assert (verified["holes"], verified["duplicates"]) == ([], [])
