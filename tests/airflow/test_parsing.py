"""The DAG files parse, quickly, where neither Rangeland nor Spark can be imported."""

from __future__ import annotations

import json

import pytest

from tests.airflow.deployment import Airflow
from tests.airflow.environment import DAGS

pytestmark = pytest.mark.slow

LOOK = f"""
import importlib.util, json, sys, time
import airflow.sdk
from airflow.dag_processing.dagbag import DagBag
started = time.process_time()  # of this process: the machine may be busy
bag = DagBag({str(DAGS)!r})
print(json.dumps({{
    "seconds": time.process_time() - started,
    "errors": bag.import_errors,
    "dags": {{dag.dag_id: sorted(dag.task_ids) for dag in bag.dags.values()}},
    "params": list(bag.dags["backfill_range"].params),
    "importable": [n for n in ("rangeland", "pyspark") if importlib.util.find_spec(n)],
    "imported": sorted({{name.split(".")[0] for name in sys.modules}}),
}}))
"""


def test_all_dags_parse_fast_and_without_rangeland_or_spark(airflow: Airflow) -> None:
    done = airflow.run("python", "-c", LOOK)
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["errors"] == {}
    assert seen["dags"] == {
        "backfill_range": ["land", "read_form"],
        "land_hourly": ["orders-hourly.land", "orders-hourly.wait"],
    }
    assert seen["importable"] == []
    assert not {"rangeland", "pyspark"} & set(seen["imported"])
    assert seen["seconds"] < 1


def test_the_form_asks_which_log_then_how_far_then_whether(airflow: Airflow) -> None:
    done = airflow.run("python", "-c", LOOK)
    assert json.loads(done.stdout.splitlines()[-1])["params"] == [
        "job_file",
        "topic",
        "partition",
        "from_offset",
        "until_offset",
        "dry_run",
        "from_time",
        "until_time",
    ]
