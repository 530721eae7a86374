"""What many slices cost the driver: processor time and memory of its own steps, without Spark.

``python -m tests.bench.driver_scale --partitions 1000,10000``: for each number of partitions a
draft from a survey, the plan as a row of the ledger, receipts of all slices, the proof, the outcome
and its losses as rows, by the library's own functions. If the steps are linear, the microseconds
for a slice stay the same. ``--slices`` is how many each partition has.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from rangeland.delta.ledger.covered_offsets import with_ranges
from rangeland.delta.ledger.event_codec import SCHEMA, from_row, to_row
from rangeland.delta.ledger.events import OutcomeEvent, PlanEvent
from rangeland.landing.execution.slice_tasks import written_files
from rangeland.landing.target.loss_records import losses_of
from rangeland.model import (
    Address,
    Counts,
    DataFile,
    Earliest,
    FromCheckpoint,
    Isolation,
    Latest,
    Leader,
    LogState,
    Partition,
    Slice,
    Survey,
)
from rangeland.planning.bound_resolution import Bounds, RangeRequest
from rangeland.planning.coverage import Coverage
from rangeland.planning.job_position import JobPosition
from rangeland.planning.plan import Plan
from rangeland.planning.plan_builder import PlanTerms, draft_new
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.policy import Policy
from rangeland.planning.proof import prove
from rangeland.planning.run_limits import Limits
from rangeland.planning.slice_receipt import Receipt, TaskResult, WrittenFile
from rangeland.planning.slices import Slicing
from rangeland.planning.task_packing import pack_tasks

APPLICATION, TOPIC_ID = "rangeland/orders", "AAAAAAAAAAAAAAAAAAAAAA"
SLICE_BYTES = 1 << 20
WIDTH = 10
"""Offsets of each slice."""


def survey(partitions: int, slices: int) -> Survey:
    leaders = [Leader(Address("127.0.0.1", 9092 + n), 1, TOPIC_ID) for n in range(3)]
    logs = [
        LogState(Partition("orders", n), leaders[n % 3], 0, slices * WIDTH, slices * SLICE_BYTES)
        for n in range(partitions)
    ]
    return Survey(1_700_000_000_000, {log.partition: log for log in logs})


def terms() -> PlanTerms:
    request = RangeRequest(Bounds(FromCheckpoint()), Bounds(Latest()), Earliest(), Policy())
    about = ("orders", APPLICATION, "kafka", Isolation.READ_COMMITTED, request, Limits())
    return PlanTerms(*about, Slicing(SLICE_BYTES), PlanKind.RUN)


def result_of(task: Sequence[Slice]) -> TaskResult:
    """As a task that has landed everything."""
    receipts = tuple(
        Receipt(
            *(s.index, s.partition, s.from_offset, s.until_offset, Counts(landed=s.width)),
            *("127.0.0.1:9092", SLICE_BYTES, (), ()),
        )
        for s in task
    )
    stats = json.dumps({"numRecords": 10, "minValues": {"offset": 0}, "maxValues": {"offset": 9}})
    name = f"part-{task[0].index:08}-0123456789ab.zstd.parquet"
    return TaskResult(receipts, (DataFile(name, SLICE_BYTES, 10, stats, 1),))


class Steps:
    """Measures one step after the other."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def measure(self, name: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        found = work()
        self.seconds[name] = time.process_time() - began
        return found


def go_through(partitions: int, slices: int, steps: Steps) -> None:
    seen, begin = survey(partitions, slices), JobPosition()
    found = steps.measure("draft", lambda: draft_new(terms(), seen, begin))
    plan: Plan = found.plan
    document = steps.measure("plan as JSON", lambda: json.dumps(plan.to_json()))
    about = (APPLICATION, "orders", 1, plan.hash, plan.ranges)
    entered = steps.measure("plan as a row", lambda: _row(PlanEvent(*about, document, 1)))
    tasks = steps.measure("tasks", lambda: pack_tasks(plan.slices, 128 << 20, 2))
    results = [result_of(task) for task in tasks]
    receipts = {r.slice_index: r for result in results for r in result.receipts}
    proved = steps.measure("proof", lambda: prove(plan, receipts))
    files: list[WrittenFile] = steps.measure("files", lambda: written_files(results, plan))
    steps.measure("losses", lambda: losses_of(plan, receipts, 1))
    outcome = OutcomeEvent(APPLICATION, "orders", 1, plan.hash, tuple(proved), tuple(files), 1)
    written = steps.measure("outcome as a row", lambda: _row(outcome))
    steps.measure("rows read", lambda: [from_row(r) for t in (entered, written) for r in t])
    steps.measure("plan read", lambda: Plan.parse(document))
    covered = steps.measure("coverage", lambda: with_ranges({}, proved))
    marks = {p: tuple((s.from_offset, s.until_offset) for s in v) for p, v in covered.items()}
    position = JobPosition(
        plan.checkpoint, Coverage({(p, TOPIC_ID): v for p, v in marks.items()}), 2
    )
    steps.measure("draft of nothing", lambda: draft_new(terms(), seen, position))


def _row(entry: PlanEvent | OutcomeEvent) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.Table.from_pylist([to_row(entry)], schema=SCHEMA).to_pylist()
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m tests.bench.driver_scale", description=__doc__)
    parser.add_argument("--partitions", default="1000,10000", metavar="A,B")
    parser.add_argument("--slices", type=int, default=1)
    given = parser.parse_args(arguments)
    for partitions in map(int, given.partitions.split(",")):
        steps = Steps()
        go_through(partitions, given.slices, steps)
        gc.collect()
        tracemalloc.start()
        go_through(partitions, given.slices, Steps())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        count = partitions * given.slices
        total = sum(steps.seconds.values())
        print(
            f"{partitions:,} partitions, {count:,} slices: {total:.2f} s, {peak >> 20} MiB at most"
        )
        for name, seconds in steps.seconds.items():
            print(f"  {name:18} {seconds:8.3f} s {seconds / count * 1e6:9.1f} us for each slice")


if __name__ == "__main__":
    main()
