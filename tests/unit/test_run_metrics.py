"""How a command ended, as Prometheus metrics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rangeland.delta.ledger.events import LossEvent
from rangeland.errors import BadRecord, DamagedLog, RangelandError, RangeLost, Unreachable
from rangeland.loss import Action, DecidedLoss, LossKind
from rangeland.model import Counts, Partition, Range
from rangeland.monitoring.run_metrics import HELP, metric_families
from rangeland.monitoring.table_run import TableRun
from rangeland.planning.incarnation import LogMark
from rangeland.results import RunResult
from tests import sample_results as made

P0, P1 = Partition("orders", 0), Partition("orders", 1)
TABLE = {"command": "run", "job": "orders", "table": "lake/orders"}


def ended(result: RunResult | None = None, **fields: Any) -> TableRun:
    run = TableRun("run", "orders", "lake/orders", 0, 1_700_000_000_500, 2.5, result)
    return replace(run, **fields)


def failed(error: RangelandError) -> TableRun:
    return ended(exit_code=error.exit_code, error=error)


def values(*runs: TableRun) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The labels, without those of the table and without empty ones, and the value of each
    sample."""
    return {
        family.name: [
            ({k: v for k, v in s.labels.items() if k not in TABLE and v}, s.value)
            for s in family.samples
        ]
        for family in metric_families(runs)
    }


def test_a_run_that_succeeded_says_what_it_landed() -> None:
    result = replace(made.a_result(warnings=("slow",)), recovered=(11,))
    found = values(ended(result))
    assert {name: of_name[0][1] for name, of_name in found.items() if of_name[0][0] == {}} == {
        "rangeland_run_success": 1,
        "rangeland_run_exit_code": 0,
        "rangeland_run_end_timestamp_seconds": 1_700_000_000.5,
        "rangeland_run_duration_seconds": 2.5,
        "rangeland_run_landed_records": 33_985,
        "rangeland_run_written_rows": 33_985,
        "rangeland_run_written_bytes": 3 << 20,
        "rangeland_run_written_files": 4,
        "rangeland_run_recovered_plans": 1,
        "rangeland_run_passed_over_offsets": 0,
        "rangeland_run_held_partitions": 0,
        "rangeland_run_warnings": 1,
        "rangeland_table_version": 34,
    }
    classes = {labels["class"]: value for labels, value in found["rangeland_run_offsets"]}
    assert classes == {
        "landed": 33_985, "control": 5, "aborted": 10, "compacted": 0, "filtered": 0,
        "quarantined": 0, "lost": 0,
    }  # fmt: skip
    assert not {"rangeland_run_losses", "rangeland_run_loss_offsets"} & found.keys()


def test_all_samples_name_their_command_job_and_table() -> None:
    families = metric_families([ended(made.a_result())])
    assert all(s.labels.items() >= TABLE.items() for f in families for s in f.samples)


def test_lag_is_the_distance_from_the_checkpoint_to_the_end_that_the_survey_saw() -> None:
    logs = (made.a_log(0, 0, 40_000), made.a_log(1, 100, 9_000), made.a_log(2, 0, 5))
    recreated = made.a_log(4, 0, 30)
    recreated = replace(recreated, leader=replace(recreated.leader, topic_id="new"))
    logs = (*logs, recreated)
    offsets = {P0: 26_000, Partition("orders", 2): 7, Partition("orders", 3): 50}
    checkpoint = {partition: LogMark(offset) for partition, offset in offsets.items()}
    checkpoint[recreated.partition] = LogMark(900, "old")
    found = values(ended(replace(made.a_result(), checkpoint=checkpoint, logs=logs)))

    def by_partition(name: str) -> dict[str, float]:
        samples = found[f"rangeland_partition_{name}"]
        assert {labels["topic"] for labels, _ in samples} == {"orders"}
        return {labels["partition"]: value for labels, value in samples}

    assert by_partition("checkpoint_offset") == {"0": 26_000, "2": 7, "3": 50}
    assert by_partition("end_offset") == {"0": 40_000, "1": 9_000, "2": 5, "4": 30}
    # Nothing of partition 1 has landed, 2 is still behind on its new leader, 3 was not seen, and
    # nothing has landed since 4 was recreated.
    assert by_partition("lag_offsets") == {"0": 14_000, "1": 8_900, "2": 0, "4": 30}
    assert "rangeland_partition_until_offset" not in found


def test_a_backfill_has_the_ends_of_its_ranges_and_no_lag() -> None:
    ranges = [made.a_range(0, 5, 9), made.a_range(0, 2, 4), made.a_range(1, 0, 3)]
    result = made.a_result([(r, Counts(landed=r.width)) for r in ranges])
    found = values(ended(replace(result, logs=(made.a_log(0, 0, 100),))))
    assert found["rangeland_partition_until_offset"] == [
        ({"topic": "orders", "partition": "0"}, 9),
        ({"topic": "orders", "partition": "1"}, 3),
    ]
    assert not {n for n in found if "lag" in n or "checkpoint" in n}


@pytest.mark.parametrize(
    "run",
    [
        failed(Unreachable("no broker answers")),
        ended(exit_code=143),
        ended(exit_code=70, table=None, seconds=None),
    ],
)
def test_a_run_that_failed_says_so_and_nothing_that_is_not_known(run: TableRun) -> None:
    found = values(run)
    assert found.pop("rangeland_run_success") == [({}, 0)]
    assert found.pop("rangeland_run_exit_code") == [({}, run.exit_code)]
    assert found.pop("rangeland_run_end_timestamp_seconds") == [({}, 1_700_000_000.5)]
    assert found.pop("rangeland_run_duration_seconds", None) == (
        [({}, 2.5)] if run.seconds is not None else None
    )
    assert found == {}


def of_plan(loss: DecidedLoss) -> LossEvent:
    return LossEvent("rangeland/orders", "orders", 1, loss, 0, 0, plan_hash="hash")


def test_losses_are_added_up_by_partition_kind_and_action() -> None:
    expired = [made.a_loss(0, 0, 10), made.a_loss(0, 20, 25), made.a_loss(1, 0, 3)]
    skipped = [loss.with_action(Action.SKIP) for loss in expired]
    held = made.a_loss(1, 50, 90, LossKind.CORRUPT).with_action(Action.HOLD)
    # A loss that was held while reading is in both fields.
    events = tuple(map(of_plan, [*skipped, held]))
    passed = (Range(P0, 100, 140), Range(P1, 5, 7))
    result = replace(made.a_result(), losses=events, held_losses=(held,), passed_over=passed)
    found = values(ended(result))
    assert found["rangeland_run_loss_offsets"] == [
        ({"topic": "orders", "partition": "0", "kind": "expired", "action": "skip"}, 15),
        ({"topic": "orders", "partition": "1", "kind": "expired", "action": "skip"}, 3),
        ({"topic": "orders", "partition": "1", "kind": "corrupt", "action": "hold"}, 40),
    ]
    assert found["rangeland_run_losses"] == [
        ({"topic": "orders", "partition": "0", "kind": "expired", "action": "skip"}, 2),
        ({"topic": "orders", "partition": "1", "kind": "expired", "action": "skip"}, 1),
        ({"topic": "orders", "partition": "1", "kind": "corrupt", "action": "hold"}, 1),
    ]
    assert found["rangeland_run_held_partitions"] == [({}, 1)]
    assert found["rangeland_run_passed_over_offsets"] == [({}, 42)]


def test_losses_that_a_policy_skips_before_reading_are_counted() -> None:
    gone = [
        made.a_loss(0, 30, 30, LossKind.RECREATED),
        made.a_loss(1, 7, 7, LossKind.VANISHED),
        made.a_loss(2, 40, 50, LossKind.TRUNCATED),
    ]
    skipped = tuple(loss.with_action(Action.SKIP) for loss in gone)
    found = values(ended(replace(made.a_result(), skipped_losses=skipped)))
    assert found["rangeland_run_losses"] == [
        ({"topic": "orders", "partition": "0", "kind": "recreated", "action": "skip"}, 1),
        ({"topic": "orders", "partition": "1", "kind": "vanished", "action": "skip"}, 1),
        ({"topic": "orders", "partition": "2", "kind": "truncated", "action": "skip"}, 1),
    ]
    # How many offsets a log had that is gone is not known.
    assert found["rangeland_run_loss_offsets"] == [
        ({"topic": "orders", "partition": "2", "kind": "truncated", "action": "skip"}, 10)
    ]


@pytest.mark.parametrize("kind", [k for k in LossKind if k.traits.is_whole_log])
def test_a_log_that_is_gone_and_ends_a_run_is_counted(kind: LossKind) -> None:
    found = values(failed(RangeLost("the log is gone", losses=[made.a_loss(0, 30, 30, kind)])))
    assert found["rangeland_run_losses"] == [
        ({"topic": "orders", "partition": "0", "kind": kind.value, "action": "fail"}, 1)
    ]
    assert "rangeland_run_loss_offsets" not in found


def test_a_run_that_ended_with_a_loss_says_which() -> None:
    lost = failed(RangeLost("offsets are gone", losses=[made.a_loss(0, 3, 10)]))
    assert values(lost)["rangeland_run_loss_offsets"] == [
        ({"topic": "orders", "partition": "0", "kind": "expired", "action": "fail"}, 7)
    ]
    damaged = failed(BadRecord("a checksum is wrong", log=DamagedLog(P1, 5)))
    ((labels, _),) = values(damaged)["rangeland_run_loss_offsets"]
    assert labels == {"topic": "orders", "partition": "1", "kind": "corrupt", "action": "fail"}


def test_a_broker_is_named_only_where_it_is_part_of_the_partition() -> None:
    of_broker = Partition("orders", 0, "broker-a")
    results = [replace(made.a_result(), checkpoint={p: LogMark(5)}) for p in (P0, of_broker)]
    runs = [ended(results[0]), ended(results[1], job="other")]
    assert values(*runs)["rangeland_partition_checkpoint_offset"] == [
        ({"topic": "orders", "partition": "0"}, 5),
        ({"topic": "orders", "partition": "0", "broker": "broker-a"}, 5),
    ]
    (without,) = metric_families(runs[:1])[-1].samples
    assert "broker" not in without.labels


def test_no_sample_is_there_twice() -> None:
    runs = [ended(exit_code=75, table=None), ended(exit_code=78, table=None)]
    assert values(*runs)["rangeland_run_exit_code"] == [({}, 78)]


def test_names_follow_the_conventions_of_prometheus() -> None:
    for name, text in HELP.items():
        assert name.startswith("rangeland_")
        assert not name.endswith(("_total", "_count", "_sum", "_bucket", "_info", "_ms"))
        assert text.endswith(".")
        assert "\n" not in text


@pytest.mark.parametrize(
    "name", ["rangeland_partition_end_offset", "rangeland_partition_lag_offsets"]
)
def test_the_end_of_what_can_be_read_is_not_passed_off_as_the_end_of_the_log(name: str) -> None:
    """A survey asks for the last stable offset only; what is behind it may be waiting for days."""
    assert "can be read" in HELP[name]
    assert "behind an open transaction" in HELP[name]
