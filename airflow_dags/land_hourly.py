"""Lands every hour of every configured job, each record once.

The bounds are the times of the run's data interval. A run that is cleared, retried or created by
`airflow backfill` requests the same hour again, and the table's ledger leaves out what is
landed already: the result is then `already-landed`, and no row is duplicated.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, CronDataIntervalTimetable, TaskGroup
from rangeland_airflow.operators import HOME, RangelandBackfillOperator, asset_of, retrying
from rangeland_airflow.sensors import LogReachedSensor

# Read when the file is parsed: set these environment variables for the dag processor and the
# workers. Job files are separated as in PATH; each is named after its job.
JOB_FILES = os.environ.get("RANGELAND_HOURLY_JOBS", str(HOME / "configs" / "orders-hourly.yaml"))
FIRST_HOUR = datetime.fromisoformat(os.environ.get("RANGELAND_HOURLY_START", "2026-11-01"))
RETRY_DELAY_S = float(os.environ.get("RANGELAND_RETRY_DELAY_S", "60"))
# How long after the hour a partition without newer records counts as idle. Records that
# arrive later, with a timestamp in the hour, are landed when the run is cleared.
IDLE_AFTER = timedelta(seconds=float(os.environ.get("RANGELAND_IDLE_AFTER_S", "600")))
POLL_EVERY = timedelta(seconds=float(os.environ.get("RANGELAND_POLL_S", "30")))
# node_exporter's textfile folder on the workers, for a file of metrics of each job; empty: none.
METRICS_FOLDER = os.environ.get("RANGELAND_METRICS_FOLDER", "")

# Empty if a run has no interval (triggered by hand without a date): that is an error.
BEGIN = "{{ data_interval_start | default('', true) }}"
END = "{{ data_interval_end | default('', true) }}"

with DAG(
    dag_id="land_hourly",
    description="Lands each hour of a log in its Delta table, once",
    doc_md=__doc__,
    # In Airflow 3 the interval of a plain "@hourly" is empty.
    schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
    start_date=FIRST_HOUR.replace(tzinfo=FIRST_HOUR.tzinfo or UTC),
    # A missed hour must be landed later.
    catchup=True,
    max_active_runs=1,
    default_args=retrying(RETRY_DELAY_S),
    tags=["rangeland"],
):
    for job_file in JOB_FILES.split(os.pathsep):
        job = Path(job_file).stem
        with TaskGroup(job.replace(".", "-")):
            # If an hour were landed before its end, its last records would belong to no run.
            wait = LogReachedSensor(
                task_id="wait",
                job_file=job_file,
                until_bound=END,
                idle_after=IDLE_AFTER,
                poll_every=POLL_EVERY,
                timeout=timedelta(days=1).total_seconds(),
            )
            # `backfill` and not `run`: a run starts at the checkpoint and moves it, so an older
            # hour would have to move it back. A backfill has its own two bounds and does not
            # touch the checkpoint; hours may be landed in any order, and twice.
            land = RangelandBackfillOperator(
                task_id="land",
                job_file=job_file,
                from_bound=BEGIN,
                until_bound=END,
                metrics=str(Path(METRICS_FOLDER, f"{job}.prom")) if METRICS_FOLDER else "",
                outlets=[asset_of(job)],
            )
            wait >> land
