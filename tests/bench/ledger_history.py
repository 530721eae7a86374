"""What opening a ledger costs, by the number of landings in it.

``python -m tests.bench.ledger_history --landings 10,10000``: makes a ledger for each number, as
runs leave it: a commit for each plan and each outcome, compacted whenever that is due. Then it
does what a run does with it: opens it, looks at the newest plans, enters a plan, prepares its
outcome. CPU seconds are of this process and its JVM.

Rows are written with the library's own codec, compacted by its own ledger; the log's JSON is
written here, since twenty thousand real commits would take minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from rangeland.delta.ledger.compaction import MANY, NEWEST
from rangeland.delta.ledger.event_codec import SCHEMA, stats_of, to_row
from rangeland.delta.ledger.events import CoveredInterval, LedgerEvent, OutcomeEvent, PlanEvent
from rangeland.delta.ledger.ledger_files import OUR_FILES
from rangeland.delta.ledger.ledger_table import FOLDER, PLANS, Ledger
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.log_actions import add_lines
from rangeland.model import Counts, DataFile, Isolation, Partition, Range, Slice
from rangeland.planning.incarnation import LogMark
from rangeland.planning.plan import Plan, PlanId
from rangeland.planning.slice_receipt import RangeResult, WrittenFile
from rangeland.testing.processes import remove_directory, temporary_directory
from tests.spark_sessions import open_session

JOB, APPLICATION, OUTCOMES = "orders", "rangeland/orders", "rangeland/orders/outcome"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
PARTITIONS = 8
WIDTH = 1_000
HOUR_MS = 3_600_000
READ_AT_MOST = 1_000
"""How many files are read to the last."""


@dataclass(frozen=True)
class History:
    """Landings of one job, each of the same width in all partitions, an hour apart, up to now."""

    landings: int
    ends_at_ms: int

    def plan(self, sequence: int) -> PlanEvent:
        start = (sequence - 1) * WIDTH
        made_at_ms = self.ends_at_ms - (self.landings - sequence) * HOUR_MS
        places = [Partition("orders", number) for number in range(PARTITIONS)]
        ranges = tuple(Range(p, start, start + WIDTH, TOPIC_ID, 100 * WIDTH) for p in places)
        slices = tuple(
            Slice(n, r.partition, r.from_offset, r.until_offset, r.estimated_bytes, r.topic_id)
            for n, r in enumerate(ranges)
        )
        checkpoint = {place: LogMark(start + WIDTH, TOPIC_ID, 0) for place in places}
        about = (JOB, APPLICATION, sequence, "kafka", Isolation.READ_COMMITTED, ranges, slices)
        plan = Plan(*about, checkpoint=checkpoint, made_at_ms=made_at_ms)
        covered = (
            {place: (CoveredInterval(0, start, TOPIC_ID),) for place in places} if start else {}
        )
        return PlanEvent(
            *(APPLICATION, JOB, sequence, plan.hash, tuple(ranges)),
            *(json.dumps(plan.to_json()), made_at_ms, sequence, sequence, covered),
            unfinished=(PlanId(APPLICATION, sequence - 1),) if sequence > 1 else (),
            table_id="00000000-0000-0000-0000-000000000000",
        )

    def outcome(self, of: PlanEvent) -> OutcomeEvent:
        ranges = tuple(
            RangeResult(r, Counts(landed=r.width), "127.0.0.1:9092", ()) for r in of.ranges
        )
        file = DataFile(f"part-{of.sequence}.parquet", 1 << 20, PARTITIONS * WIDTH, "{}", 1)
        about = (of.application, of.job, of.sequence, of.plan_hash, ranges, (WrittenFile(file),))
        return OutcomeEvent(*about, of.written_at_ms + 60_000, table_id=of.table_id)

    def events(self) -> Iterator[tuple[LedgerEvent, tuple[str, int]]]:
        """Every event with its transaction."""
        for sequence in range(1, self.landings + 1):
            plan = self.plan(sequence)
            yield plan, (PLANS, sequence)
            yield self.outcome(plan), (OUTCOMES, sequence)


def fill(kernel: DeltaKernel, table: Path, history: History) -> None:
    """The ledger of this table."""
    ledger = Ledger(kernel, str(table)).open_or_create()
    kernel.wait_for_maintenance()
    version, since_compaction = 0, 0
    log = table / FOLDER / "_delta_log"
    for event, transaction in history.events():
        version, since_compaction = version + 1, since_compaction + 1
        file = _written(table / FOLDER, event)
        _commit(table / FOLDER, version, file, transaction, event.written_at_ms)
        if since_compaction == MANY:
            _checkpoint(kernel, ledger.path)
            assert Ledger(kernel, str(table)).compact()
            kernel.wait_for_maintenance()
            version, since_compaction = version + 1, NEWEST
            _age(log, event.written_at_ms)
    _checkpoint(kernel, ledger.path)


def _written(folder: Path, entry: LedgerEvent) -> DataFile:
    """As ``LedgerFiles.write`` does, without waiting for the disk."""
    row = to_row(entry)
    path = folder / f"{OUR_FILES}{row['event']}-{uuid.uuid4()}.zstd.parquet"
    table = pa.Table.from_pylist([row], schema=SCHEMA)
    pq.write_table(table, path, compression="zstd", store_schema=False)
    return DataFile(path.name, path.stat().st_size, 1, stats_of([row]), entry.written_at_ms)


def _checkpoint(kernel: DeltaKernel, path: str) -> None:
    """As Kernel writes one after every twentieth commit; it also removes what is out of date."""
    kernel.wait_for_maintenance()
    found = kernel.load(path)
    assert found is not None
    found._java.writeCheckpoint(kernel.engine)


def _age(log: Path, at_ms: int) -> None:
    """Dates what was written just now: nothing is removed from a log after its first new file."""
    for path in log.iterdir():
        if path.stat().st_mtime * 1000 > at_ms:
            os.utime(path, (at_ms / 1000, at_ms / 1000))


def _commit(
    folder: Path, version: int, file: DataFile, transaction: tuple[str, int], at_ms: int
) -> None:
    name, number = transaction
    about = {"timestamp": at_ms, "operation": "WRITE", "operationParameters": {}}
    lines = [
        json.dumps({"commitInfo": {**about, "engineInfo": "bench", "txnId": str(uuid.uuid4())}}),
        json.dumps({"txn": {"appId": name, "version": number, "lastUpdated": at_ms}}),
        add_lines([file]),
    ]
    path = folder / "_delta_log" / f"{version:020}.json"
    path.write_text("\n".join(lines) + "\n")
    os.utime(path, (at_ms / 1000, at_ms / 1000))


class CpuClock:
    """Wall time and CPU seconds of this process and of its children, the JVM among them."""

    def __init__(self) -> None:
        me = psutil.Process()
        self._processes = [me, *me.children(recursive=True)]

    def now(self) -> tuple[float, float]:
        times = [process.cpu_times() for process in self._processes]
        return time.perf_counter(), sum(one.user + one.system for one in times)

    @contextmanager
    def measured(self, found: dict[str, list[tuple[float, float]]], name: str) -> Iterator[None]:
        wall, cpu = self.now()
        yield
        later = self.now()
        found.setdefault(name, []).append((later[0] - wall, later[1] - cpu))


def measure(kernel: DeltaKernel, table: Path, history: History, rounds: int) -> None:
    found: dict[str, list[tuple[float, float]]] = {}
    clock, many = CpuClock(), history.landings
    for entered in range(many, many + rounds):
        ledger = Ledger(kernel, str(table))
        with clock.measured(found, "open"):
            assert ledger.exists()
            assert ledger.entered() == entered
            assert ledger.view.keys
        with clock.measured(found, "look"):  # what a run asks before it plans
            view = ledger.view
            view.newest(), view.possibly_unfinished(), view.without_outcome(), view.coverage()
            view.last_sequence(APPLICATION), next(view.plans(job=JOB), None)
        plan = replace(history, landings=entered + 1).plan(entered + 1)
        with clock.measured(found, "enter, prepare"):
            assert ledger.enter(plan, entered)
            assert ledger.prepare_outcome(history.outcome(plan))
        with clock.measured(found, "maintenance"):
            assert not kernel.wait_for_maintenance()
    ledger = Ledger(kernel, str(table))
    files = len({key.path for key in ledger.view.keys})
    if files <= READ_AT_MOST:  # else it takes minutes
        with clock.measured(found, "read all"):
            assert len(ledger.view.prepared_plans()) == many + rounds
    log = list((table / FOLDER / "_delta_log").iterdir())
    size_mib = sum(path.stat().st_size for path in log) >> 20
    print(f"{many:>9,} landings in {files:,} files, log of {len(log):,} files, {size_mib} MiB")
    for name, taken in found.items():
        walls, cpus = zip(*taken, strict=True)
        first = f"first {walls[0]:6.3f} s, cpu {cpus[0]:5.2f}"
        print(f"  {name:16} {median(walls):6.3f} s, cpu {median(cpus):5.2f}; {first}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m tests.bench.ledger_history", description=__doc__)
    parser.add_argument("--landings", default="10,10000", metavar="A,B")
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args(arguments)
    folder = temporary_directory("rangeland-ledger-history-")
    session = open_session(folder, "local[2]")
    session.sparkContext.setLogLevel("ERROR")
    try:
        kernel = DeltaKernel(session)
        for number in [1, *map(int, given.landings.split(","))]:  # the first one warms the JVM up
            history = History(number, time.time_ns() // 1_000_000)
            table = folder / f"table-{number}"
            fill(kernel, table, history)
            measure(kernel, table, history, given.rounds)
    finally:
        session.stop()
        remove_directory(folder)


if __name__ == "__main__":
    main()
