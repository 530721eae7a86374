"""Tables by name in a Hive metastore: whole runs, each in its own process, on an embedded one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import deltalake
import pytest

from rangeland.jvm.java import SMALL_JVM
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import create_topic, numbered_records, produce

pytestmark = [pytest.mark.spark, pytest.mark.brokers, pytest.mark.slow]

COUNT = 20


def called(folder: Path, *command: str) -> tuple[int, dict[str, Any], str]:
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:;create=true;"
        f"databaseName={folder / 'metastore'}",
    }
    lines = [f"{name} {value}" for name, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("\n".join(lines))
    done = subprocess.run(
        [sys.executable, "-m", "rangeland", *command, str(folder / "job.yaml"), "--json"],
        env={
            **os.environ,
            "SPARK_CONF_DIR": str(folder),
            "RANGELAND_MASTER": "local[1]",
            "JAVA_TOOL_OPTIONS": f"{' '.join(SMALL_JVM)} -Dderby.system.home={folder}",
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    lines = done.stdout.splitlines()
    return done.returncode, json.loads(lines[-1]) if lines else {}, done.stderr


def test_a_table_of_a_hive_metastore_is_created_found_again_and_proved(
    kafka: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    create_topic(kafka.bootstrap, topic)
    job = {
        "job": "landing",
        "source": {"servers": kafka.bootstrap, "topics": [topic]},
        "sink": {"table": "default.orders"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    for sequence in (1, 2):
        produce(kafka.bootstrap, topic, numbered_records(COUNT), partition=0)
        code, answer, errors = called(tmp_path, "run")
        assert code == 0, errors
        assert (answer["landed"], answer["sequence"]) == (COUNT, sequence)
    code, answer, errors = called(tmp_path, "verify")
    assert (code, answer.get("holes"), answer.get("duplicates")) == (0, [], []), errors
    table = deltalake.DeltaTable(str(tmp_path / "warehouse" / "orders"))
    offsets = table.to_pyarrow_table().column("offset").to_pylist()
    assert sorted(offsets) == list(range(2 * COUNT))
