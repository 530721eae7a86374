"""Plans, results and status values made by hand, for tests of what people and machines see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rangeland.delta.ledger.events import LossEvent
from rangeland.errors import Unreachable
from rangeland.loss import Action, DecidedLoss, Loss, LossKind
from rangeland.model import Address, Counts, Isolation, Leader, LogState, Partition, Range, Slice
from rangeland.planning.incarnation import LogMark
from rangeland.planning.intervals import subtract
from rangeland.planning.plan import Plan
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.slice_receipt import RangeResult
from rangeland.planning.table_audit import ReplacedRange
from rangeland.query_results import CheckedItem, CheckResult, PartitionStatus, RecentLanding, Status
from rangeland.report_results import JobReport, ReportedLanding, ReportedLoss, ReportedPartition
from rangeland.results import FinishedBy, PlanPreview, PlanToFinish, RunResult

LEADER = Leader(Address("b1", 9092), epoch=3, topic_id="t1")
JOB_YAML = """\
job: orders
source:
  servers: [127.0.0.1:9092]
  topics: [orders]
  security:
    tls: true
    sasl: {username: me, password: "${env:ORDERS_PASSWORD}"}
limits: {max_records: 5000}
sink: {table: lake/orders}
"""


def a_range(number: int, start: int, end: int, topic: str = "orders") -> Range:
    return Range(Partition(topic, number), start, end, "t1", (end - start) * 100)


def a_log(number: int, start: int, end: int, topic: str = "orders") -> LogState:
    return LogState(Partition(topic, number), LEADER, start, end, (end - start) * 100)


def a_plan(ranges: list[Range], losses: list[Loss] | None = None) -> Plan:
    pieces = [
        (r, start, end)
        for r in ranges
        for start, end in subtract(
            (r.from_offset, r.until_offset),
            [(x.from_offset, x.until_offset) for x in losses or () if x.partition == r.partition],
        )
    ]
    slices = [
        Slice(index, r.partition, start, end, (end - start) * 100, r.topic_id)
        for index, (r, start, end) in enumerate(pieces)
    ]
    return Plan(
        job="orders",
        application="rangeland/orders",
        sequence=12,
        dialect="kafka",
        isolation=Isolation.READ_COMMITTED,
        ranges=tuple(ranges),
        slices=tuple(slices),
        losses=tuple(losses or ()),
        checkpoint={r.partition: LogMark(r.until_offset, "t1") for r in ranges},
        made_at_ms=1_700_000_000_000,
    )


def a_preview(
    ranges: list[Range] | None = None,
    logs: list[LogState] | None = None,
    *,
    already: tuple[Range, ...] = (),
    held: tuple[DecidedLoss, ...] = (),
    losses: list[Loss] | None = None,
    unfinished_plans: tuple[PlanToFinish, ...] = (),
    table: str = "lake/orders",
) -> PlanPreview:
    ranges = [a_range(0, 1_000, 26_000), a_range(1, 0, 9_000)] if ranges is None else ranges
    logs = [a_log(0, 0, 40_000), a_log(1, 0, 9_000)] if logs is None else logs
    plan = a_plan(ranges, losses)
    return PlanPreview(
        PlanDraft(plan=plan, requested=tuple(ranges), already_landed=already, held=held),
        table,
        logs,
        2,
        unfinished_plans,
    )


def a_loss(number: int, start: int, end: int, kind: LossKind = LossKind.EXPIRED) -> Loss:
    return Loss(Partition("orders", number), start, end, kind, f"the log begins at {end}")


def a_result(
    outcomes: list[tuple[Range, Counts]] | None = None,
    *,
    state: str = "landed",
    warnings: tuple[str, ...] = (),
    already: tuple[Range, ...] = (),
    replaced: ReplacedRange | None = None,
) -> RunResult:
    if outcomes is None:
        outcomes = [
            (a_range(0, 1_000, 26_000), Counts(landed=24_995, control=5)),
            (a_range(1, 0, 9_000), Counts(landed=8_990, aborted=10)),
        ]
    landed = sum(counts.landed for _, counts in outcomes)
    return RunResult(
        job="orders",
        application="rangeland/orders",
        sequence=12,
        state=state,  # type: ignore[arg-type]
        table="lake/orders",
        table_version=34,
        ranges=tuple(RangeResult(r, counts) for r, counts in outcomes),
        seconds=2.0,
        rows=landed,
        files=4,
        bytes_written=3 << 20,
        already_landed=already,
        warnings=warnings,
        replaced=replaced,
    )


def a_status() -> Status:
    return Status(
        job="orders",
        table="lake/orders",
        table_version=34,
        sequence=12,
        partitions=(
            PartitionStatus(
                Partition("orders", 0), 26_000, 0, 40_000, 25_000, "b1:9092", ((0, 26_000),)
            ),
            PartitionStatus(Partition("orders", 1), None, 0, 9_000, None, "b1:9092"),
        ),
        unfinished_plans=(PlanToFinish(a_plan([a_range(0, 26_000, 27_000)]), FinishedBy.NEXT_RUN),),
        recent=(RecentLanding(12, 1_700_000_000_000, 33_985, 4, "0f2c"),),
    )


def a_check(well: bool = True) -> CheckResult:
    return CheckResult(
        "orders",
        (
            CheckedItem("job file", True, "it is whole"),
            CheckedItem("brokers", well, "3 of 3 answered"),
        ),
        None if well else Unreachable("3 of 3 answered"),
    )


NOW_MS = 1_700_000_000_000


def a_loss_event(action: Action, loss: Loss | None = None, sequence: int = 3) -> LossEvent:
    decided = (loss or a_loss(0, 10, 15)).with_action(action)
    return LossEvent("rangeland/orders", "orders", sequence, decided, NOW_MS, NOW_MS, "0f2c")


def a_landing(sequence: int, landed: int, **more: Any) -> ReportedLanding:
    """One landing an hour, the twelfth just before ``NOW_MS``."""
    return ReportedLanding(
        sequence=sequence,
        kind=more.pop("kind", PlanKind.RUN),
        prepared_at_ms=NOW_MS - (12 - sequence) * 3_600_000 - 60_000,
        counts=more.pop("counts", Counts(landed=landed)),
        ranges=(a_range(0, 0, landed),),
        files=2,
        size_bytes=landed * 100,
        hash="0f2c" * 16,
        **more,
    )


def a_report(**changed: Any) -> JobReport:
    """Two partitions, one of them behind, after twelve landings."""
    behind = PartitionStatus(
        Partition("orders", 0), 26_000, 0, 40_000, 25_000, "b1:9092", ((0, 26_000),), 7_500_000
    )
    whole = PartitionStatus(Partition("orders", 1), 9_000, 0, 9_000, None, "b1:9092", ((0, 9_000),))
    report = JobReport(
        job="orders",
        job_file="orders.yaml",
        table="lake/orders",
        made_at_ms=NOW_MS,
        table_uri="file:/srv/lake/orders",
        table_version=34,
        partitions=tuple(
            ReportedPartition(p.partition, p.checkpoint, p.landed, p) for p in (behind, whole)
        ),
        landings=tuple(a_landing(n, 1_000 * n) for n in range(1, 13)),
        settings={"job": "orders", "sink": {"table": "lake/orders"}},
    )
    return replace(report, **changed)


def a_reported_loss(action: Action, **more: Any) -> ReportedLoss:
    event = a_loss_event(action)
    return ReportedLoss(event, more.pop("remaining", (event.loss.range,)), **more)
