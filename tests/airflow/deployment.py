"""An Airflow of a test: its home, its database, its commands, and a look into both.

``test_dag`` is Airflow's own `dags test`: the whole run in one process, tasks and triggers
as in production, and what is there of the same date is cleared and run again. What a table
holds is read from its log and its files, without Spark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import rangeland
from tests.airflow.environment import DAGS, airflow_programs
from tests.airflow.postgres import PostgresServer

LIBRARY = Path(rangeland.__file__).parents[1]
RUN_TIMEOUT_S = 300
# The command of the environment that has Spark; Airflow's own cannot import it.
PROGRAM = f"/usr/bin/env PYTHONPATH={LIBRARY} {sys.executable} -m rangeland"
OURS = ("AIRFLOW", "RANGELAND_", "SPARK_", "PYSPARK_", "PYTHON")


def full_hour(hours_ago: int) -> datetime:
    """The beginning of an hour that is over."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    return now - timedelta(hours=hours_ago)


class Airflow:
    """A home and a database of its own. ``programs`` is where its executables are."""

    def __init__(self, home: Path, postgres: PostgresServer) -> None:
        self.programs = airflow_programs()
        self.home = home
        self._postgres = postgres
        self._database = postgres.create_database()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
        self.environment = kept | {
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(DAGS),
            "PYTHONDONTWRITEBYTECODE": "1",
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": postgres.url(self._database),
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "AIRFLOW_VAR_RANGELAND_COMMAND": PROGRAM,
            "AIRFLOW_VAR_RANGELAND_DIRECTORY": str(home),
            "RANGELAND_HOURLY_START": f"{full_hour(72):%Y-%m-%d}",
            "RANGELAND_RETRY_DELAY_S": "2",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "RANGELAND_MASTER": "local[2]",
        }
        done = self.run("airflow", "db", "migrate")
        assert done.returncode == 0, done.stdout + done.stderr

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self.environment | environment,
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )

    def test_dag(
        self,
        dag_id: str,
        date: datetime | None = None,
        conf: Mapping[str, Any] | None = None,
        **environment: str,
    ) -> str:
        """What `airflow dags test` printed, the tasks' logs among it."""
        when = [] if date is None else [date.isoformat()]
        given = [] if conf is None else ["--conf", json.dumps(conf)]
        return self.run("airflow", "dags", "test", dag_id, *when, *given, **environment).stdout

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._postgres.rows(self._database, query, *values)

    def tasks(self, dag_id: str) -> dict[str, tuple[str, int]]:
        """State and number of tries of each task in the latest run."""
        found = self.rows(
            "select t.task_id, t.state, t.try_number from task_instance t join dag_run r "
            "on t.dag_id = r.dag_id and t.run_id = r.run_id where r.id = "
            "(select max(id) from dag_run where dag_id = %s)",
            dag_id,
        )
        return {task: (state, tries) for task, state, tries in found}

    def events(self, asset: str) -> list[dict[str, Any]]:
        """The extra of all events of an asset, the oldest first."""
        found = self.rows(
            "select e.extra::text from asset_event e join asset a on a.id = e.asset_id "
            "where a.name = %s order by e.id",
            asset,
        )
        return [json.loads(extra) for (extra,) in found]


def write_job(
    folder: Path, name: str, bootstrap: list[str], topic: str, **timeouts_ms: int
) -> Path:
    """A job file named after its job, whose table is ``lake/<name>`` of the home."""
    path = folder / f"{name}.yaml"
    timeouts = {"connect_ms": 2000, "request_ms": 5000, "survey_ms": 3000, "no_progress_ms": 5000}
    document = {
        "job": name,
        "source": {"servers": bootstrap, "topics": [topic], "timeouts": timeouts | timeouts_ms},
        "sink": {"table": f"lake/{name}"},
    }
    path.write_text(json.dumps(document))  # JSON is YAML too
    return path


def offsets_in(table: Path) -> list[tuple[int, int]]:
    """(partition, offset) of all rows of a young Delta table; what is there twice is twice."""
    files: set[str] = set()
    for entry in sorted((table / "_delta_log").glob("*.json")):
        for action in map(json.loads, entry.read_text().splitlines()):
            files |= {action["add"]["path"]} if "add" in action else set()
            files -= {action["remove"]["path"]} if "remove" in action else set()
    found: list[tuple[int, int]] = []
    for path in files:
        columns = pq.read_table(table / path, columns=["partition", "offset"]).to_pydict()
        found += zip(columns["partition"], columns["offset"], strict=True)
    return sorted(found)
