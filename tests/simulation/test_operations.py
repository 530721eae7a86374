"""Single histories, written by hand, of commands beside ``run``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.happenings import Happening, Scenario
from tests.simulation.history import SKIP_ALL, History, play
from tests.simulation.replaced import Stage, simulated
from tests.simulation.scenario import long_scenario
from tests.simulation.tally import Counts
from tests.simulation.world import Fault

PRODUCE = Happening("produce", 7)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with simulated() as stage:
        yield stage


def driver(command: str, *faults: Fault) -> Happening:
    return Happening("run", 1, (faults,), (command,))


def played(stage: Stage, *happenings: Happening) -> Counts:
    setup = replace(long_scenario(0).setup, max_records=None)
    counts = Counts()
    play(Scenario(0, setup, happenings), stage, counts)
    return counts


def played_on_newest(stage: Stage, *happenings: Happening) -> Counts:
    """Brokers with topic ids and leader epochs, and a policy that goes on without what is lost."""
    setup = replace(long_scenario(0, "4").setup, max_records=None, policy=SKIP_ALL)
    counts = Counts()
    play(Scenario(0, setup, happenings), stage, counts)
    return counts


def test_verify_of_a_ledger_without_a_table_finds_that_nothing_has_landed(stage: Stage) -> None:
    refused = Fault("delta.create", 1, "refused")
    counts = played(stage, PRODUCE, driver("run", refused), driver("verify"))
    assert counts.ends["StorageFailed"] == 1
    assert counts.ends["VerifyResult"] == 2


@pytest.mark.parametrize("harm", ["restore", "overwrite", "delete", "lose-file"])
def test_rows_that_others_remove_are_landed_again(stage: Stage, harm: str) -> None:
    again = [Happening(harm, 3), driver("verify"), driver("missing"), driver("verify")]
    counts = played(stage, PRODUCE, driver("run"), *again, driver("run"))
    assert counts.ends["VerifyResult"] == 3


@pytest.mark.parametrize("harm", ["delete", "lose-file"])
@pytest.mark.parametrize("drivers", [("run", "missing"), ("missing", "apply"), ("replace", "run")])
def test_a_repair_leaves_the_rows_of_a_new_topic_at_its_offsets(
    stage: Stage, drivers: tuple[str, str], harm: str
) -> None:
    """The topic was deleted and created again; another driver lands the new one meanwhile."""
    setup = replace(long_scenario(0, "4").setup, partitions=1, max_records=None, policy=SKIP_ALL)
    before = (PRODUCE, driver("backfill"), Happening("recreate", 0), PRODUCE, Happening(harm, 0))
    for point, number in (("net.send", 9), ("delta.history", 1), ("delta.commit", 2)):
        for kind in ("pause", "crash"):
            together = Happening("run", 1, ((Fault(point, number, kind),), ()), drivers)
            play(Scenario(0, setup, (*before, together)), stage, Counts())


def test_rows_that_a_repair_leaves_missing_are_not_called_landed(stage: Stage) -> None:
    """An unclean election has cut one log, and a policy holds it. The other's rows come back."""
    policy = (("truncated", "hold"),)
    setup = replace(long_scenario(0).setup, age="1.1", partitions=2, policy=policy)
    setup = replace(setup, max_records=None, transactions=False, slice_bytes=100_000)
    landed = (Happening("produce", 3136753108), driver("run"))
    removed = (Happening("truncate", 3875798814), Happening("restore", 1446442227))
    counts = Counts()
    again = (driver("missing"), driver("backfill"), driver("run"))
    play(Scenario(0, setup, (*landed, *removed, *again)), stage, counts)
    assert counts.ends["Conflict"] == 2


def test_rows_of_two_incarnations_that_are_gone_are_lost_and_landed_again(stage: Stage) -> None:
    landed = [PRODUCE, driver("run"), Happening("recreate", 7), driver("run")]
    counts = played_on_newest(stage, *landed, Happening("overwrite", 3), driver("missing"))
    assert counts.ends["landed"] == 3


def test_rows_that_an_election_has_overwritten_in_the_log_do_not_come_back_as_others(
    stage: Stage,
) -> None:
    landed = [PRODUCE, driver("backfill"), Happening("truncate", 2), PRODUCE]
    counts = played_on_newest(stage, *landed, Happening("overwrite", 3), driver("missing"))
    assert counts.checks["brought back"]


def test_what_lands_while_verify_is_reading_is_no_duplicate(stage: Stage) -> None:
    verify, backfill = (Fault("delta.load", 2, "pause", 3_600_000),), ()
    both = Happening("run", 1309572908, (verify, backfill), ("verify", "backfill"))
    counts = played_on_newest(stage, PRODUCE, driver("run"), Happening("recreate", 7), both)
    assert counts.ends["VerifyResult"] == 2


def test_a_replacement_leaves_each_record_once(stage: Stage) -> None:
    counts = played(stage, PRODUCE, driver("run"), PRODUCE, driver("replace"), driver("verify"))
    assert counts.ends["landed"] >= 2


def test_a_table_whose_first_rows_are_a_replacement_names_its_ledger(stage: Stage) -> None:
    """So that no command goes on beside another ledger."""
    created = driver("run", Fault("delta.create", 1, "lost"))
    another = (Happening("other-ledger", 1), driver("redrive"))
    counts = played(stage, PRODUCE, created, driver("replace"), *another)
    assert counts.ends["StorageFailed"] == 1
    assert counts.ends["Conflict"] == 1


def test_a_reviewed_plan_is_applied_once(stage: Stage) -> None:
    counts = played(stage, PRODUCE, driver("plan"), driver("apply"), driver("apply"))
    assert counts.ends["ReviewedPlan"] == 1
    assert counts.ends["landed"] >= 1


def test_a_replacement_refuses_a_table_that_was_created_again_meanwhile(stage: Stage) -> None:
    """Somebody drops the table and creates another one while the log is read."""
    meanwhile = Fault("net.send", 20, "act:other-table")
    counts = played(stage, PRODUCE, driver("run"), driver("replace", meanwhile))
    assert counts.changes["other-table"] == 1
    assert counts.ends["Conflict"] == 1


def test_a_replacement_in_a_table_that_lost_a_file_is_given_up(stage: Stage) -> None:
    """Otherwise its plan is in the way of the one that lands the missing rows again."""
    again = [driver("replace", Fault("task.end", 1, "act:lose-file")), driver("missing")]
    counts = played(stage, PRODUCE, driver("run"), *again)
    assert counts.ends["TableRefused"] == 1


@pytest.mark.parametrize("point", ["delta.load", "delta.files", "store.list"])
def test_a_replacement_is_not_given_up_whose_response_was_lost(stage: Stage, point: str) -> None:
    """The table loses a file before anybody looks whether the rows were replaced."""
    lost = Fault("spark.write", 1, "lost")
    checks: Counter[str] = Counter()
    for number in range(1, 20):
        gone = Fault(point, number, "act:lose-file")
        again = [driver("replace", lost, gone), driver("missing")]
        checks += played(stage, PRODUCE, driver("run"), *again).checks
    assert checks["given up"]


def test_a_replacement_after_which_the_store_fails_has_landed_all_or_nothing(
    stage: Stage,
) -> None:
    checks: Counter[str] = Counter()
    for point in ("delta.load", "delta.history", "store.list"):
        for number in range(1, 20):
            failures = (Fault("spark.write", 1, "lost"), Fault(point, number, "refused"))
            for faults in (failures, failures[1:]):
                played_through = (PRODUCE, driver("run"), driver("replace", *faults))
                checks += played(stage, *played_through).checks
    assert checks["answer"]


def test_a_plan_is_not_applied_with_the_number_of_one_that_is_not_finished(stage: Stage) -> None:
    died = driver("run", Fault("delta.commit", 3, "crash"))
    counts = played(stage, PRODUCE, died, PRODUCE, driver("apply"))
    assert counts.ends["Crash"] == 1
    assert counts.ends["Conflict"] == 1


def test_drivers_of_a_group_read_one_plan_together(stage: Stage) -> None:
    """The second one dies; the first reads what is left, and mirrors the checkpoint."""
    setup = replace(long_scenario(0).setup, partitions=3, max_records=None, has_group=True)
    together = Happening("run", 1, ((), (Fault("task.end", 1, "crash"),)), ("run", "run"))
    counts = Counts()
    history = play(Scenario(0, setup, (PRODUCE, together)), stage, counts)
    assert counts.ends["Crash"] == 1
    ends = {log.number: log.end for log in history.cluster.topics["orders"].logs}
    assert {p.number: at for p, at in history.groups.offsets().items()} == ends


def test_what_a_driver_has_handed_in_of_an_earlier_topic_without_id_is_read_again(
    stage: Stage,
) -> None:
    """One driver of a group dies, another fails after it has handed in a part, and the topic is
    created again and grows past the plan."""
    setup = replace(long_scenario(0, "1.1").setup, partitions=3, slice_bytes=100, compacts=False)
    setup = replace(setup, max_records=None, has_group=True, transactions=False)
    history = History(Scenario(0, setup, ()), stage, Counts())
    history.act("produce", 7)
    fails = tuple(Fault("store.open", number, "refused") for number in range(2, 6))
    dies = (Fault("task.end", 1, "crash"),)
    history._run_with_faults(Happening("run", 0, (dies, fails), ("run", "run")))
    assert set(history.counts.ends) == {"Crash", "StorageFailed"}
    assert {row["event"] for row in events(history)} == {"plan", "part"}
    for log in history.cluster.recreate("orders").logs:
        while log.end < 40:
            log.append(5, history.world.now_ms)
    history._run_with_faults(driver("run"))
    values = [value.decode() for _, _, _, value in history.judge.rows()]
    assert len(values) == 3 * 40
    assert {value.split("/")[2] for value in values} == {"2"}  # the incarnation


def events(history: History) -> list[dict[str, Any]]:
    history.judge.ledger()
    return [row for rows in history.judge._events.values() for row in rows]


@pytest.mark.parametrize("age", ["4", "2.4", "1.1"])
@pytest.mark.parametrize(("policy", "refused"), [("fail", 1), ("skip", 0), ("hold", 0)])
@pytest.mark.parametrize("landed", [("backfill",), ("backfill", "replace")])
def test_what_an_election_replaces_of_a_backfill_is_truncated(
    stage: Stage, age: str, policy: str, refused: int, landed: tuple[str, ...]
) -> None:
    """Also if the backfill's rows were replaced before it."""
    rules = (("truncated", policy),)
    setup = replace(long_scenario(0).setup, age=age, max_records=None, policy=rules, partitions=1)
    for arg in (0, 1, 3, 4):  # those after which the log has other records at landed offsets
        before = (PRODUCE, *map(driver, landed))
        happened = (*before, Happening("truncate", arg), driver("run"))
        counts = Counts()
        play(Scenario(0, setup, happened), stage, counts)
        assert (counts.ends["RangeLost"] > 0) is bool(refused)


@pytest.mark.parametrize("policy", ["skip", "hold"])
def test_what_a_new_leader_does_not_serve_yet_is_not_recorded_as_lost(
    stage: Stage, policy: str
) -> None:
    """Brokers of Kafka 1.1 report an end that lags."""
    rules = (("truncated", policy), ("recreated", policy))
    setup = replace(long_scenario(0).setup, age="1.1", max_records=None, policy=rules, partitions=1)
    for arg in range(20):
        happened = (PRODUCE, driver("run"), Happening("elect", arg), driver("run"))
        history = play(Scenario(0, setup, happened), stage, Counts())
        assert history.judge.ledger().losses == []
