"""Captures the JSON of every command and a plan file, from values with every field set.

    python -m tests.golden.capture_answers

Run it when a key is added, and review what has changed: nothing but additions may.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rangeland.delta.ledger.events import LossEvent
from rangeland.delta.quarantine.quarantine_table import QuarantinedBatch
from rangeland.dialects.cluster_values import GroupMember
from rangeland.errors import Conflict
from rangeland.job.job_text import parse_job_text
from rangeland.landing.drafts.plan_file import write_plan_file
from rangeland.loss import Action, DamagedBytes, Loss, LossKind
from rangeland.model import Address, Cluster, Counts, Isolation, OpenTransaction, Partition, Range
from rangeland.planning.incarnation import LogMark
from rangeland.planning.log_reach import PartitionReach
from rangeland.planning.plan import Plan, PlanId
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.retention_risk import ReadSpeed, RetentionRisk
from rangeland.planning.slice_receipt import RangeResult
from rangeland.planning.table_audit import Audit, LandedRange, ReplacedRange
from rangeland.query_results import (
    CheckedItem,
    CheckResult,
    Finding,
    FindState,
    GroupStatus,
    MirroredPartition,
    MirrorResult,
    PartitionStatus,
    ReachResult,
    RecentLanding,
    SampleResult,
    Status,
    VerifyResult,
)
from rangeland.report_results import ReportResult
from rangeland.results import (
    AdoptResult,
    FinishedBy,
    PlanPreview,
    PlanToFinish,
    QuarantinedRange,
    RedriveResult,
    RunResult,
    WriterSchema,
)
from tests import sample_results as made

FOLDER = Path(__file__).parent / "answers"
P0, P1 = Partition("orders", 0), Partition("orders", 1, "broker-a")
R0, R1 = Range(P0, 10, 30, "A", 300), Range(P1, 5, 9, None, 40)
LOST = Loss(P0, 10, 30, LossKind.EXPIRED, "", topic_id="A")
LOSS = LossEvent(
    *("rangeland/orders", "orders", 4, LOST.with_action(Action.SKIP)),
    *(1_700_000_000_000, 1_700_000_000_001, "f00", 1),
)


def _plan(kind: PlanKind = PlanKind.RUN) -> Plan:
    plan = made.a_plan([R0, R1], [made.a_loss(0, 10, 15)])
    first, *others = plan.slices
    return replace(
        plan,
        kind=kind,
        application=kind.application("orders", "0123456789abcdef"),
        slices=(replace(first, leader=Address("::1", 9092), is_urgent=True), *others),
        checkpoint={P1: LogMark(9, None, -1), P0: LogMark(30, "A", 3, True)},
        tags=("paid", "sent"),
        cluster=Cluster("", ("b1:9092", "b2:9092")),
    )


def _preview(plan: Plan) -> PlanPreview:
    draft = PlanDraft(
        plan=plan,
        requested=plan.ranges,
        already_landed=(Range(P0, 0, 10, "A"),),
        held=(made.a_loss(3, 1, 2, LossKind.RECREATED).with_action(Action.HOLD),),
        notes=("a note",),
        skipped_losses=(made.a_loss(1, 9_000, 9_500, LossKind.TRUNCATED).with_action(Action.SKIP),),
        risks=(RetentionRisk(P1, 5, 7, "the log is nearly full"),),
        passed_over=(Range(P1, 0, 5),),
    )
    logs = [made.a_log(0, 0, 40), made.a_log(1, 0, 9)]
    where = "file:/srv/lake/orders"
    return PlanPreview(
        draft, "lake/orders", logs, 2, (_unfinished(plan),), 1.5, where, ReadSpeed(7, True)
    )


def _unfinished(plan: Plan) -> PlanToFinish:
    return PlanToFinish(plan, FinishedBy.NEXT_RUN)


def _result() -> RunResult:
    counts = Counts(landed=7, control=1, aborted=2, compacted=3, filtered=4, quarantined=1, lost=2)
    return RunResult(
        job="orders",
        application="rangeland/orders",
        sequence=4,
        state="landed",
        table="lake/orders",
        table_version=9,
        ranges=(RangeResult(R0, counts, ((10, 20),), "b1:9092"), RangeResult(R1, Counts(4))),
        seconds=1.23456,
        rows=11,
        files=2,
        bytes_written=4_000,
        recovered=(3,),
        already_landed=(Range(P0, 0, 10, "A"),),
        held_losses=(made.a_loss(2, 1, 2, LossKind.RECREATED).with_action(Action.HOLD),),
        warnings=("a warning",),
        losses=(LOSS,),
        replaced=ReplacedRange(1, 2, 3, 4),
        passed_over=(Range(P1, 0, 5),),
    )


def _status() -> Status:
    member = GroupMember("m-1", "rangeland", "h", frozenset({P1, P0}), True)
    group = GroupStatus("g", "the coordinator", "stable", (member, GroupMember("m-2")), "")
    whole = PartitionStatus(
        *(P0, 15, 10, 20, 12, "b1:9092", ((0, 5), (12, 15)), 4_000, "m-1", LOSS),
        *(5_020, 20, OpenTransaction(20, 7, 1, 123), 60_000),
    )
    return Status(
        job="orders",
        table="lake/orders",
        table_version=9,
        sequence=4,
        partitions=(whole, PartitionStatus(P1, None, 10, 20)),
        unfinished_plans=(_unfinished(_plan()),),
        recent=(RecentLanding(12, 1_700_000_000_000, 33_985, 4, "0f2c"),),
        group=group,
        losses=(LOSS,),
        warnings=("a warning",),
    )


def _reported() -> ReportResult:
    numbers = (9, "orders.html", 20_480, 4, 33_985, None, 5, 3, 6, 1, 2)
    return ReportResult("orders", "lake/orders", *numbers, ("a warning",), 1.23456)


def _verified() -> VerifyResult:
    audit = Audit((R0,), (R1,), (R0,), (R1,), (R0,))
    landed_ranges = (LandedRange(R0, 7), LandedRange(R1, None, (), True))
    return VerifyResult("orders", "t", 9, 2, landed_ranges, audit, ("a.parquet",), 1.23456, (R1,))


def _quarantined(why: str) -> QuarantinedRange:
    kept = DamagedBytes(b"", (), "bad checksum")
    leader = "b1:9092" if why else ""
    batch = QuarantinedBatch(R0, "rangeland/orders", 4, "bad checksum", leader, 900, kept)
    return QuarantinedRange(batch, Isolation.READ_COMMITTED, why)


FOUND = Finding(
    *(P0, 12, FindState.LANDED, ("a.parquet", "b.parquet"), "orders", "rangeland/orders", 4, 9),
    *("b1:9092", 1_700_000_000_123, R0, (PlanId("rangeland/orders/backfill/f00", 1),), "why"),
)
ANSWERS: dict[str, Callable[[], Any]] = {
    "run": _result,
    "run-nothing": lambda: RunResult("o", "rangeland/o", 0, "nothing", "t", None, (), 0.0),
    **{f"plan-{kind}": lambda kind=kind: _preview(_plan(kind)) for kind in PlanKind},
    "plan-least": made.a_preview,
    "status": _status,
    "report": lambda: replace(_reported(), log_error="no broker answers", is_well=False),
    "report-least": lambda: replace(_reported(), lag=7),
    "status-least": lambda: Status("o", "t", None, 0, (), group=GroupStatus("g", why="refused")),
    "status-no-group": made.a_status,
    "check": made.a_check,
    "check-failed": lambda: CheckResult("o", (CheckedItem("table", False, ""),), Conflict("")),
    "verify": _verified,
    "find": lambda: FOUND,
    "find-nothing": lambda: Finding(P1, 12, FindState.NOT_LANDED),
    "redrive": lambda: RedriveResult("o", "t", (_quarantined("no key"),), 1.23456, _result()),
    "redrive-dry": lambda: RedriveResult("o", "t", (_quarantined(""),), 1.23456),
    "sample": lambda: SampleResult(3, {"json": 2}, (WriterSchema(7, 1),), "id BIGINT"),
    "reached": lambda: ReachResult("o", 5, (PartitionReach(P1, "idle", 9, None),)),
    "reached-unasked": lambda: ReachResult(
        *("o", 5, (PartitionReach(P1, "waiting", None, None, "it has no leader"),)),
        {"broker-b": "connection refused"},
    ),
    "mirror": lambda: MirrorResult(
        *("o", "g", "the coordinator", "mirrored"),
        *((MirroredPartition(P0, 7, None, 7, 9), MirroredPartition(P1, 7, 8, 7, 6)), 1.23456),
    ),
    "adopt": lambda: AdoptResult("o", "t", 4, 9, (R0, R1)),
}


def answer(name: str) -> str:
    return json.dumps(ANSWERS[name]().to_json(), indent=1) + "\n"


def plan_file() -> str:
    text = parse_job_text(made.JOB_YAML, "orders.yaml")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        write_plan_file(path, _preview(_plan()), text)
        return path.read_text(encoding="utf-8")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in ANSWERS:
        (FOLDER / f"{name}.json").write_text(answer(name), encoding="utf-8")
    (FOLDER / "plan-file.json").write_text(plan_file(), encoding="utf-8")


if __name__ == "__main__":
    main()
