"""The files for Kubernetes: they parse, fit each other and name what there is."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml

from rangeland.jvm.jar_sets import LIBRARY_JARS
from rangeland.spark.supported_versions import CATALOG, EXTENSION, NEWEST
from tests import docs

FOLDER = docs.ROOT / "jobs" / "kubernetes"
DAG = docs.ROOT / "airflow_dags" / "kubernetes" / "land_in_pod.py"


def manifests(name: str) -> dict[str, Any]:
    found = yaml.safe_load_all((FOLDER / name).read_text())
    return {manifest["kind"]: manifest for manifest in found}


def test_the_pod_finds_its_service_its_account_and_its_script() -> None:
    found = manifests("pod.yaml")
    pod = found["Pod"]
    labels, spec = pod["metadata"]["labels"], pod["spec"]
    assert found["Service"]["spec"]["selector"].items() <= labels.items()
    account = found["ServiceAccount"]["metadata"]["name"]
    assert spec["serviceAccountName"] == account
    assert [subject["name"] for subject in found["RoleBinding"]["subjects"]] == [account]
    assert found["RoleBinding"]["roleRef"]["name"] == found["Role"]["metadata"]["name"]
    (container,) = spec["containers"]
    settings = dict(a[7:].split("=", 1) for a in container["args"] if a.startswith("--conf="))
    assert settings["spark.driver.host"] == found["Service"]["metadata"]["name"]
    ports = {str(port["port"]) for port in found["Service"]["spec"]["ports"]}
    assert ports == {settings["spark.driver.port"], settings["spark.driver.blockManager.port"]}
    assert settings["spark.kubernetes.driver.pod.name"] == pod["metadata"]["name"]
    assert settings["spark.kubernetes.container.image"] == container["image"]
    assert settings["spark.sql.extensions"] == EXTENSION
    assert settings["spark.sql.catalog.spark_catalog"] == CATALOG
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}


def test_the_operator_starts_the_same_script_with_the_newest_spark() -> None:
    spec = manifests("spark-application.yaml")["SparkApplication"]["spec"]
    script = spec["mainApplicationFile"].removeprefix("local:///opt/rangeland/")
    assert (docs.ROOT / script).is_file()
    assert script in (FOLDER / "pod.yaml").read_text()
    assert spec["sparkVersion"].startswith(NEWEST.spark)
    assert spec["sparkConf"] == {
        "spark.sql.extensions": EXTENSION,
        "spark.sql.catalog.spark_catalog": CATALOG,
    }


def test_the_image_has_jars_that_there_are_and_copies_files_that_there_are() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    named = set(re.findall(r"'([\w.-]+-\d[\d.]*)'", text))
    assert named <= LIBRARY_JARS.keys()
    assert {build.jars.name for build in NEWEST.builds.values()} & named
    copied = re.findall(r"^COPY (\S+)", text, re.MULTILINE)
    assert all((docs.ROOT / path).exists() for path in copied)


def test_the_entry_point_starts_what_spark_asks_for(tmp_path: Path) -> None:
    for program in ("java", "bin/spark-submit"):
        path = tmp_path / program
        path.parent.mkdir(exist_ok=True)
        path.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        path.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SPARK_HOME": str(tmp_path),
        "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1",
        "SPARK_JAVA_OPT_0": "-Da=b c",
        "SPARK_JAVA_OPT_1": "-Dd=$e",
        "SPARK_EXECUTOR_MEMORY": "2g",
        "SPARK_DRIVER_URL": "spark://driver",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "pod",
    }

    def started(*words: str) -> list[str]:
        command = ["/bin/sh", str(FOLDER / "entrypoint.sh"), *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    executor = started("executor")
    assert executor[:4] == ["-Da=b c", "-Dd=$e", "-Xms2g", "-Xmx2g"]
    assert executor[4:6] == ["-cp", f"{tmp_path}/jars/*"]
    assert executor[executor.index("--driver-url") + 1] == "spark://driver"
    assert started("driver", "--class", "x y") == [
        *("--conf", "spark.driver.bindAddress=10.0.0.1"),
        *("--deploy-mode", "client", "--class", "x y"),
    ]
    assert started("echo", "a  b") == ["a  b"]


class Pod:
    """Stands for KubernetesPodOperator."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.after: list[Pod] = []

    def __rshift__(self, other: Pod) -> Pod:
        self.after.append(other)
        return other


@pytest.fixture
def pods(monkeypatch: pytest.MonkeyPatch) -> dict[str, Pod]:
    """The tasks of the DAG for pods, by their ids, and its schedule."""
    found: dict[str, Pod] = {}

    def pod(**options: Any) -> Pod:
        return found.setdefault(options["task_id"], Pod(**options))

    modules: dict[str, dict[str, Any]] = {
        "airflow.providers.cncf.kubernetes.operators.pod": {"KubernetesPodOperator": pod},
        "airflow.sdk": {
            "DAG": lambda **options: nullcontext(),
            "CronDataIntervalTimetable": lambda cron, timezone: found.update(
                schedule=Pod(cron=cron)
            ),
        },
        "kubernetes.client": {"models": MagicMock()},
    }
    for name in modules:
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(parts[end - 1]))
    for name, names in modules.items():
        vars(sys.modules[name]).update(names)
    runpy.run_path(str(DAG))
    return found


def test_the_dag_for_pods_lands_full_hours_once_the_log_has_reached_their_end(
    pods: dict[str, Pod],
) -> None:
    assert pods["schedule"].options["cron"] == "0 * * * *"  # A run's interval is a full hour.
    assert pods["wait"].after == [pods["land"]]
    waits = pods["wait"].options["arguments"]
    assert waits[-1] == "{{ data_interval_end }}"
    assert "--until={{ data_interval_end }}" in pods["land"].options["arguments"]
    job_file = pods["land"].options["arguments"][2]
    assert any(job_file in word for word in waits)


@pytest.mark.parametrize(
    ("codes", "code", "checks"), [([75, 75, 0], 0, 3), ([75, 78, 0], 78, 2), ([137], 137, 1)]
)
def test_the_pod_that_waits_checks_again_after_75_only(
    pods: dict[str, Pod], tmp_path: Path, codes: list[int], code: int, checks: int
) -> None:
    (tmp_path / "codes").write_text("".join(f"{n}\n" for n in codes))
    rangeland = f"""#!/bin/sh
echo "$@" >> {tmp_path}/asked
exit "$(sed -n "$(wc -l < {tmp_path}/asked)p" {tmp_path}/codes)"
"""
    for program, text in {"rangeland": rangeland, "sleep": "#!/bin/sh\n"}.items():
        (tmp_path / program).write_text(text)
        (tmp_path / program).chmod(0o755)
    words = pods["wait"].options["arguments"]
    words = [word.replace("{{ data_interval_end }}", "2026-01-31 06:00:00+00:00") for word in words]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    command = ["/bin/sh", str(FOLDER / "entrypoint.sh"), *words]
    assert subprocess.run(command, env=environment, check=False).returncode == code
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == checks
    assert asked[0].startswith("reached /etc/rangeland/orders.yaml --until")
    assert "2026-01-31 06:00:00+00:00" in asked[0]


def test_the_dag_for_pods_is_an_example_that_airflow_does_not_load() -> None:
    ast.parse(DAG.read_text())
    ignored = (docs.ROOT / "airflow_dags" / ".airflowignore").read_text().split()
    assert f"{DAG.parent.name}/" in ignored
