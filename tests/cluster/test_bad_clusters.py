"""A cluster that cannot do the work is reported, with the cause, and nothing is in the table."""

from __future__ import annotations

import platform
import zipfile
from pathlib import Path

import pytest

from rangeland.delta.java_bridge.delta_kernel_loader import JARS_SETTING
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import create_topic
from tests.chaos.invariants import add_records, write_job
from tests.cluster.conftest import COUNT, PARTITIONS, Submit
from tests.cluster.spark_submit import LIB

AT_HOME = {"PYTHONPATH": str(LIB)}


def without(flag: str, command: list[str]) -> list[str]:
    """The command without a flag and its value."""
    at = command.index(flag)
    return [*command[:at], *command[at + 2 :]]


def on_this_machine(command: list[str]) -> list[str]:
    """For what is refused before a task runs."""
    at = command.index("--master")
    return [*command[: at + 1], "local[1]", *command[at + 2 :]]


@pytest.mark.slow
def test_workers_without_packages_are_named_with_what_they_lack(
    submit: Submit, job: Path, table: Path, naked_python: Path
) -> None:
    error = submit(job, python=naked_python).refused()
    assert (error["error"], error["exit"]) == ("MissingRequirement", 78)
    assert error["facts"]["missing"] == ["numpy", "pyarrow", "cramjam", "crc32c"]
    for word in ("pyarrow", platform.node(), str(naked_python), "--env packed"):
        assert word in error["message"]
    assert not table.exists()


def test_a_package_that_was_not_shipped_is_missed_by_name(
    submit: Submit, job: Path, table: Path
) -> None:
    run = submit(job, environment=AT_HOME, change=lambda c: without("--py-files", c))
    error = run.refused()
    assert (error["exit"], error["facts"]["missing"]) == (78, ["rangeland"])
    assert "--py-files" in error["message"]
    assert not table.exists()


@pytest.mark.slow
def test_a_python_that_is_not_on_the_hosts_is_named(submit: Submit, job: Path, table: Path) -> None:
    error = submit(job, python=Path("/nowhere/python3")).refused()
    assert error["exit"] == 78
    assert "/nowhere/python3" in error["message"]
    assert "spark.pyspark.python" in error["message"]
    assert not table.exists()


@pytest.mark.slow
def test_a_session_without_delta_is_refused(submit: Submit, job: Path, table: Path) -> None:
    run = submit(job, change=lambda c: on_this_machine(without("--jars", c)))
    error = run.refused()
    assert error["exit"] == 64
    assert "--packages io.delta:delta-spark_4.2_2.13:4.4.0" in error["message"]
    assert not table.exists()


@pytest.mark.slow
def test_delta_kernel_of_another_version_is_refused(
    submit: Submit, job: Path, table: Path, tmp_path: Path
) -> None:
    def with_older(command: list[str]) -> list[str]:
        (setting,) = (word for word in command if word.startswith(JARS_SETTING))
        for jar in Path(setting.partition("=")[2]).glob("*.jar"):
            add_older(jar, tmp_path)
        other = f"{JARS_SETTING}={tmp_path}"
        return on_this_machine([other if word == setting else word for word in command])

    error = submit(job, change=with_older).refused()
    assert error["exit"] == 64
    assert f"{tmp_path} has no Delta Kernel 4.4.0: found: 4.3.0" in error["message"]
    assert not Path(table, "_delta_log").exists()


def add_older(jar: Path, folder: Path) -> None:
    """Puts the jar into the folder, or a copy that says 4.3.0 where Kernel says its version."""
    if not jar.name.startswith("delta-kernel-api"):
        (folder / jar.name).symlink_to(jar)
        return
    copy = folder / jar.name
    with zipfile.ZipFile(jar) as found, zipfile.ZipFile(copy, "w") as made:
        for name in found.namelist():
            data = found.read(name)
            if name == "io/delta/kernel/Meta.class":
                assert b"4.4.0" in data
                data = data.replace(b"4.4.0", b"4.3.0")
            made.writestr(name, data)


@pytest.mark.slow
def test_a_path_that_hosts_do_not_share_is_refused(
    submit: Submit, broker: KafkaCluster, topic: str, folder: Path
) -> None:
    path = "/proc/self/cwd/table"  # another folder in each process
    create_topic(broker.bootstrap, topic, PARTITIONS)
    add_records(broker.bootstrap, topic, PARTITIONS, COUNT)
    job = write_job(folder / "job.yaml", broker.bootstrap, topic, Path(path))
    error = submit(job).refused()
    assert (error["error"], error["exit"]) == ("TableRefused", 73)
    assert path in error["message"]
    assert "driver and executors share" in error["message"]
    commits = folder.glob("submit-0/table/_delta_log/*.json")
    assert not any('"add"' in commit.read_text() for commit in commits)
