"""Lands every hour of every job that is named here, each record once.

The bounds are times, those of the run's data interval. So a run that is cleared, retried or
made by `airflow backfill` asks for the same hour again, and the table's ledger leaves out
what is landed already: the answer is then `already-landed`, and no row is there twice.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, CronDataIntervalTimetable, TaskGroup
from rangeland_airflow.operators import HOME, RangelandBackfillOperator, asset_of, retrying
from rangeland_airflow.sensors import LogReachedSensor

# Read when the file is parsed, so they are environment variables of the dag processor and
# the workers. Job files are separated as in PATH; each is named after its job.
JOB_FILES = os.environ.get("RANGELAND_HOURLY_JOBS", str(HOME / "configs" / "orders-hourly.yaml"))
FIRST_HOUR = datetime.fromisoformat(os.environ.get("RANGELAND_HOURLY_START", "2026-11-01"))
RETRY_DELAY_S = float(os.environ.get("RANGELAND_RETRY_DELAY_S", "60"))
# How long after the hour a partition without newer records counts as idle. Records that
# come later still, with a timestamp of the hour, are landed when the run is cleared.
IDLE_AFTER = timedelta(seconds=float(os.environ.get("RANGELAND_IDLE_AFTER_S", "600")))
POLL_EVERY = timedelta(seconds=float(os.environ.get("RANGELAND_POLL_S", "30")))

# Empty where a run has no interval (triggered by hand without a date): that fails, and says so.
BEGIN = "{{ data_interval_start | default('', true) }}"
END = "{{ data_interval_end | default('', true) }}"

with DAG(
    dag_id="land_hourly",
    description="Lands each hour of a log in its Delta table, once",
    doc_md=__doc__,
    # Airflow 3 gives a plain "@hourly" an interval of no length.
    schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
    start_date=FIRST_HOUR.replace(tzinfo=FIRST_HOUR.tzinfo or UTC),
    # An hour that was missed must not stay missed.
    catchup=True,
    max_active_runs=1,
    default_args=retrying(RETRY_DELAY_S),
    tags=["rangeland"],
):
    for job_file in JOB_FILES.split(os.pathsep):
        job = Path(job_file).stem
        with TaskGroup(job.replace(".", "-")):
            # Landed before its end is reached, an hour would end at the end of the log, and
            # what is written in its last moments would belong to no run.
            wait = LogReachedSensor(
                task_id="wait",
                job_file=job_file,
                until_bound=END,
                idle_after=IDLE_AFTER,
                poll_every=POLL_EVERY,
                timeout=timedelta(days=1).total_seconds(),
            )
            # `backfill` and not `run`: a run goes on from the checkpoint and moves it, so an
            # older hour would have to move it back. A backfill has both ends of its own and
            # stands beside the checkpoint; hours may be landed in any order, and twice.
            land = RangelandBackfillOperator(
                task_id="land",
                job_file=job_file,
                from_bound=BEGIN,
                until_bound=END,
                outlets=[asset_of(job)],
            )
            wait >> land
