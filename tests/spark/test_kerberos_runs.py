"""A whole run against a Kafka broker that wants Kerberos: the driver and the tasks log in."""

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
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import create_topic, numbered_records, produce
from tests.servers.kerberos import KerberosCluster, KeyCenter, gssapi_library

pytestmark = [pytest.mark.spark, pytest.mark.brokers, pytest.mark.slow]

SERVICE, USER, COUNT = "log", "lander", 50


def run(job: Path, environment: dict[str, str]) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        [sys.executable, "-m", "rangeland", "run", str(job), "--json"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_a_run_logs_in_with_a_keytab_wherever_it_connects(tmp_path: Path) -> None:
    center = KeyCenter(tmp_path / "center")
    with center, KerberosCluster(center, SERVICE) as cluster:
        create_topic(cluster.bootstrap, "orders", partitions=2)
        for partition in range(2):
            produce(cluster.bootstrap, "orders", numbered_records(COUNT), partition=partition)
        kerberos = {
            "service_name": SERVICE,
            "principal": USER,
            "keytab": str(center.keytab(USER)),
        }
        document = {
            "job": "orders",
            "source": {
                "servers": [cluster.guarded],
                "topics": ["orders"],
                "security": {"sasl": {"mechanism": "GSSAPI", "kerberos": kerberos}},
            },
            "sink": {"table": str(tmp_path / "lake" / "orders")},
        }
        job = tmp_path / "orders.yaml"
        job.write_text(json.dumps(document))
        environment = {
            "PYTHONPATH": str(gssapi_library()),
            "KRB5_CONFIG": str(center.krb5_conf),
            "KRB5CCNAME": f"FILE:{tmp_path}/no-cache",
            "RANGELAND_MASTER": "local[2]",
            "JAVA_TOOL_OPTIONS": " ".join(SMALL_JVM),
        }
        code, answer, errors = run(job, environment)
        assert code == 0, errors
        assert answer["landed"] == 2 * COUNT
        rows = deltalake.DeltaTable(str(tmp_path / "lake" / "orders")).to_pyarrow_table()
        assert sorted(rows.column("offset").to_pylist()) == sorted(2 * list(range(COUNT)))
        # Each task has asked the center for a ticket of its own.
        tickets = (center.folder / "kdc.log").read_text().count(f"for {SERVICE}/127.0.0.1")
        assert tickets >= 2
        kerberos["keytab"] = str(tmp_path / "nowhere.keytab")
        job.write_text(json.dumps(document))
        code, answer, _ = run(job, environment)
        assert (code, answer["error"]) == (78, "AccessDenied")
