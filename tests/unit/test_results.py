"""The JSON of the commands is a contract: these keys may be added to, and never taken away."""

from __future__ import annotations

import json

from rangeland.dialects.cluster_values import GroupMember
from rangeland.errors import Unreachable, error_json
from rangeland.loss import Action, Loss, LossKind
from rangeland.model import (
    Address,
    Counts,
    Isolation,
    Leader,
    LogState,
    OpenTransaction,
    Partition,
    Range,
    Slice,
)
from rangeland.planning.plan import Plan
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.slice_receipt import RangeResult
from rangeland.query_results import (
    CheckedItem,
    CheckResult,
    Finding,
    FindState,
    GroupStatus,
    PartitionStatus,
    Status,
)
from rangeland.results import FinishedBy, PlanPreview, PlanToFinish, RunResult

P0 = Partition("orders", 0)
P1 = Partition("orders", 1, "broker-a")
WHERE = {"topic", "partition", "broker", "from_offset", "until_offset"}
CLASSES = {"landed", "control", "aborted", "compacted", "filtered", "quarantined", "lost"}

PLAN = Plan(
    job="orders",
    application="rangeland/orders",
    sequence=4,
    dialect="kafka",
    isolation=Isolation.READ_COMMITTED,
    ranges=(Range(P0, 10, 20, "A", 100),),
    slices=(Slice(0, P0, 10, 20, 100, "A", Address("b1", 1)),),
)
UNFINISHED = PlanToFinish(PLAN, FinishedBy.NEXT_RUN)


def test_run_json_has_the_keys_of_the_contract() -> None:
    result = RunResult(
        job="orders",
        application="rangeland/orders",
        sequence=4,
        state="landed",
        table="lake/orders",
        table_version=9,
        ranges=(
            RangeResult(Range(P0, 10, 20), Counts(landed=7, control=1, lost=2)),
            RangeResult(Range(P1, 0, 3), Counts(landed=3)),
        ),
        seconds=1.23456,
        already_landed=(Range(P0, 0, 10),),
    )
    document = json.loads(json.dumps(result.to_json()))
    assert document.keys() >= {
        "job",
        "sequence",
        "state",
        "table_version",
        "landed",
        "partitions",
        "seconds",
    }
    assert document["landed"] == 10
    assert document["seconds"] == 1.235
    assert [entry.keys() for entry in document["partitions"]] == [WHERE | CLASSES] * 2
    first, second = document["partitions"]
    assert (first["topic"], first["partition"], first["broker"]) == ("orders", 0, None)
    assert (first["from_offset"], first["until_offset"]) == (10, 20)
    assert (first["landed"], first["control"], first["lost"]) == (7, 1, 2)
    assert second["broker"] == "broker-a"
    assert sum(second[name] for name in CLASSES) == 3
    assert [entry.keys() for entry in document["already_landed"]] == [WHERE]


def test_a_run_that_had_nothing_to_do_has_the_same_keys() -> None:
    nothing = RunResult("o", "rangeland/o", 0, "nothing", "t", None, (), 0.0).to_json()
    assert (nothing["landed"], nothing["partitions"], nothing["table_version"]) == (0, [], None)


def test_plan_json_has_hash_ranges_and_slices_with_estimated_bytes() -> None:
    loss = Loss(P1, 0, 5, LossKind.EXPIRED, "gone").with_action(Action.HOLD)
    state = LogState(P0, Leader(Address("b1", 1)), 0, 20)
    drafted = PlanDraft(
        plan=PLAN, requested=PLAN.ranges, already_landed=(Range(P0, 0, 10),), held=(loss,)
    )
    preview = PlanPreview(drafted, "lake/orders", [state], tasks=1, unfinished_plans=(UNFINISHED,))
    document = json.loads(json.dumps(preview.to_json()))
    assert document["hash"] == PLAN.hash
    assert document["ranges"][0].keys() >= WHERE | {"estimated_bytes"}
    assert document["slices"][0].keys() >= WHERE | {"estimated_bytes"}
    assert (document["records"], document["estimated_bytes"], document["tasks"]) == (10, 100, 1)
    (pending,) = document["pending"]
    assert (pending["sequence"], pending["hash"]) == (4, PLAN.hash)
    assert (pending["job"], pending["finished_by"]) == (PLAN.job, "next-run")
    assert document["held"] == ["orders/broker-a-1 [0, 5) is expired"]
    assert document["already_landed"][0].keys() == WHERE


def test_the_document_of_plan_out_can_be_applied() -> None:
    preview = PlanPreview(PlanDraft(plan=PLAN, requested=PLAN.ranges), "lake/orders", [], tasks=1)
    assert Plan.from_json(json.loads(json.dumps(preview.to_json()))) == PLAN


def test_status_json_has_checkpoint_end_lag_and_group_offset() -> None:
    status = Status(
        job="orders",
        table="lake/orders",
        table_version=9,
        sequence=4,
        partitions=(PartitionStatus(P0, 15, 10, 20, 12, "b1:1"), PartitionStatus(P1, None, 10, 20)),
        unfinished_plans=(UNFINISHED,),
    )
    document = json.loads(json.dumps(status.to_json()))
    first, second = document["partitions"]
    assert first.keys() >= {"topic", "partition", "broker", "checkpoint", "end", "lag"}
    assert (first["checkpoint"], first["end"], first["lag"], first["group_offset"]) == (
        15,
        20,
        5,
        12,
    )
    assert (second["checkpoint"], second["lag"], second["group_offset"]) == (None, 10, None)
    assert second["leader"] is None
    assert document["live_plans"][0]["hash"] == PLAN.hash
    assert document["live_plans"][0]["job"] == PLAN.job
    assert document["live_plans"][0]["finished_by"] == "next-run"


def test_status_json_says_who_holds_what_and_how_old_the_lag_is() -> None:
    members = (GroupMember("m-1", "rangeland", "h", frozenset({P0}), True),)
    group = GroupStatus("g", "the coordinator", "stable", members)
    first = PartitionStatus(P0, 15, 10, 20, 12, lag_ms=4_000, owner="m-1")
    status = Status("o", "t", 1, 1, (first, PartitionStatus(P1, None, 10, 20)), group=group)
    document = json.loads(json.dumps(status.to_json()))
    mine, nobodys = document["partitions"]
    assert (mine["lag_ms"], mine["owner"]) == (4_000, "m-1")
    assert (nobodys["lag_ms"], nobodys["owner"]) == (None, None)
    assert document["group"].keys() == {"id", "home", "state", "members", "why"}
    assert document["group"]["members"][0]["partitions"] == [
        {"topic": P0.topic, "partition": P0.number, "broker": None}
    ]
    gone = Status("o", "t", 1, 1, (first,), group=GroupStatus("g", why="refused"))
    assert gone.to_json()["group"]["why"] == "refused"
    assert Status("o", "t", 1, 1, (first,)).to_json()["group"] is None


def test_lag_is_never_negative() -> None:
    assert PartitionStatus(P0, 30, 10, 20).lag == 0


def test_lag_counts_what_is_held_back_behind_an_open_transaction() -> None:
    found = PartitionStatus(
        P0,
        20,
        10,
        20,
        high_watermark=5_020,
        last_stable_offset=20,
        open_transaction=OpenTransaction(20, 7, 1, 123),
        open_for_ms=60_000,
    )
    document = found.to_json()
    assert (document["lag"], document["held_back"], document["end"]) == (5_000, 5_000, 20)
    assert document["open_transaction"] == {
        "first_offset": 20,
        "producer_id": 7,
        "producer_epoch": 1,
        "last_write_ms": 123,
        "age_ms": 60_000,
    }


def test_a_check_is_well_only_if_all_of_it_is() -> None:
    well = CheckResult("o", (CheckedItem("brokers", True, "3"),))
    ill = CheckResult("o", (CheckedItem("brokers", True, "3"), CheckedItem("table", False, "none")))
    assert (well.is_well, ill.is_well) == (True, False)
    assert ill.to_json() == {
        "job": "o",
        "ok": False,
        "findings": [
            {"what": "brokers", "ok": True, "seen": "3"},
            {"what": "table", "ok": False, "seen": "none"},
        ],
    }


def test_offsets_that_a_later_begin_has_left_out_are_passed_over() -> None:
    landed = ((20, 30), (50, 60))
    assert PartitionStatus(P0, 60, 10, 99, landed=landed).passed_over == ((30, 50),)
    assert PartitionStatus(P0, 60, 40, 99, landed=landed).passed_over == ((40, 50),)
    assert PartitionStatus(P0, 60, 70, 99, landed=landed).passed_over == ()
    assert PartitionStatus(P0, None, 10, 99, landed=landed).passed_over == ()
    assert PartitionStatus(P0, 60, 10, 99).passed_over == ()


def test_a_check_that_found_something_has_the_keys_of_an_error() -> None:
    bad = CheckedItem("brokers", False, "no broker could be reached")
    findings = (bad, CheckedItem("spark", True, "4.2.0"))
    problem = Unreachable("no broker could be reached", do="start one")
    found = CheckResult("orders", findings, problem).to_json()
    assert found["exit"] == 75
    assert found.items() >= error_json(problem).items()
    assert "error" not in CheckResult("orders", findings[1:]).to_json()


def test_only_a_row_that_is_missing_makes_find_fail() -> None:
    """An offset that has not landed may land with the next run: its state says so."""
    codes = {state: Finding(P0, 7, state).exit_code for state in FindState}
    assert codes == {state: 66 if state is FindState.HOLE else 0 for state in FindState}
