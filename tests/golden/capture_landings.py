"""Keeps a small landed table with its ledger, a plan file and the answers of runs, as this
version writes them.

``python -m tests.golden.capture_landings VERSION`` writes ``landings/VERSION``: run it with the
release of that version and keep the result, so that later versions can prove that they still
read it. ``table.zip`` holds the table's folder without the lock file and checksum files,
``ledger.jsonl`` the rows of its ledger.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import rangeland
from rangeland import run
from rangeland.errors import BadRecord
from rangeland.job import Job
from rangeland.job.job_text import JobText, parse_job_text
from rangeland.landing.drafts.plan_file import write_plan_file
from rangeland.landing.drafts.planner import Planner
from rangeland.landing.execution.plan_settings import look_up_plan_settings
from rangeland.landing.execution.slice_tasks import SliceTasks
from rangeland.landing.landing_steps import LandingSteps
from rangeland.progress_events import NoProgress
from rangeland.testing.demo_story import open_local_spark
from rangeland.testing.kafka import KafkaCluster
from tests.spark.damage import BATCH, WIDTH, add, filled, flip
from tests.spark.landings import between, job_of

HERE = Path(__file__).parent / "landings"
TOPIC = "golden"


def capture(version: str) -> None:
    folder = HERE / version
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="rangeland-golden-") as work, KafkaCluster() as kafka:
        table = Path(work) / "orders"
        spark = open_local_spark("golden", Path(work))
        results = land_all(kafka, spark, table, folder / "plan.json")
        text = "\n".join(json.dumps(result) for result in results)
        (folder / "results.jsonl").write_text(text + "\n", encoding="utf-8")
        (folder / "ledger.jsonl").write_text(ledger_lines(spark, table), encoding="utf-8")
        pack(table, folder / "table.zip")
        spark.stop()


def land_all(kafka: KafkaCluster, spark: Any, table: Path, plan_file: Path) -> list[Any]:
    """Landings that write every kind of row: plans and outcomes of runs and of backfills,
    parts, bytes kept in quarantine, and losses of each action."""

    def job(**sections: Any) -> Job:
        return job_of(kafka.bootstrap, table, TOPIC, name="golden", **sections)

    filled(kafka, TOPIC)
    first = job(range=between(TOPIC, p0=(0, 7), p1=(0, BATCH)))
    results = [rangeland.land(first, spark)]
    beside = job(range=between(TOPIC, p0=(2 * BATCH, WIDTH)))
    results.append(rangeland.backfill(beside, spark))
    flip(kafka, TOPIC)
    try:
        rangeland.land(job(), spark)
        raise AssertionError("damage was not met")
    except BadRecord:
        pass
    results.append(rangeland.land(job(policy={"corrupt": "quarantine"}), spark))
    add(kafka, TOPIC, (0, 1))
    share(job(), spark)
    results.append(rangeland.land(job(), spark))
    add(kafka, TOPIC, (0, 1))
    flip(kafka, TOPIC, 3 + 3 + 1)
    text = job_text(kafka, table)
    preview = run.preview(Job.of(text), spark, NoProgress())
    write_plan_file(plan_file, preview, text)
    results.append(rangeland.land(job(policy={"corrupt": "hold"}), spark))
    results.append(rangeland.backfill(job(range=between(TOPIC, p0=(0, 7))), spark, replace=True))
    return [result.to_json() for result in results]


def share(job: Job, spark: Any) -> None:
    """Enters a plan and hands in a part of it, as a driver does that dies after it."""
    context = run.open_landing(job, spark, NoProgress())
    plan = Planner(context).draft().plan
    steps = LandingSteps(context)
    assert steps._enter(plan, [], ())
    tasks, settings = SliceTasks(context), look_up_plan_settings(context, plan)
    units, _ = tasks.read_until_stopped(plan, settings, plan.slices[:1], lambda: False, {})
    files = tasks.files_of(plan, units)
    assert context.target.writer.append_part(plan, "member-1", 1, units, files, {})


def job_text(kafka: KafkaCluster, table: Path) -> JobText:
    document = {
        "job": "golden",
        "source": {"servers": list(kafka.bootstrap), "topics": [TOPIC]},
        "sink": {"table": str(table)},
        "policy": {"corrupt": "hold"},
    }
    return parse_job_text(json.dumps(document), "golden.yaml")


def ledger_lines(spark: Any, table: Path) -> str:
    rows = spark.read.format("delta").load(f"{table}/_rangeland/ledger").toArrow().to_pylist()
    rows.sort(key=lambda row: row["written_at"])
    return "".join(f"{json.dumps(row, default=plain)}\n" for row in rows)


def plain(value: object) -> str:
    assert isinstance(value, dt.datetime)
    return value.isoformat()


def pack(table: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(table.rglob("*")):
            if path.is_file() and path.suffix not in (".crc", ".lock"):
                stamp = zipfile.ZipInfo(str(path.relative_to(table)), (1980, 1, 1, 0, 0, 0))
                packed.writestr(stamp, path.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    capture(sys.argv[1])
