"""One standalone cluster and one broker for the whole suite, and Pythons for its workers.

The cluster's workers find nothing of ours: only what a command ships. Tests run one after
the other, and leave cluster and broker whole.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import remove_directory, temporary_directory
from rangeland.testing.producer import create_topic
from tests.chaos.invariants import add_records, write_job
from tests.cluster.spark_submit import JOBS, Submitted, rangeland_submit, start_submit
from tests.servers.sparkcluster import SparkCluster

HERE = Path(__file__).parent
# What tasks import and a zip cannot carry.
PACKAGES = ("pyarrow", "numpy", "cramjam", "crc32c")
PARTITIONS, COUNT = 2, 5_000
Submit = Callable[..., Submitted]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.brokers)


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaCluster]:
    """One broker of this suite's own, to be paused."""
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[SparkCluster]:
    folder = temporary_directory("rangeland-cluster-")
    with SparkCluster(folder, bare=True) as found:
        yield found
    remove_directory(folder)


@pytest.fixture(scope="session")
def naked_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python without any package."""
    return make_python(tmp_path_factory.mktemp("naked") / "python")


@pytest.fixture(scope="session")
def lean_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the few packages that tasks import and a zip cannot carry."""
    python = make_python(tmp_path_factory.mktemp("lean") / "python")
    site = next(python.parents[1].glob("lib/python*/site-packages"))
    for name in PACKAGES:
        for pattern in (name, f"{name}.libs", f"{name}-*.dist-info"):
            for source in Path(sysconfig.get_paths()["platlib"]).glob(pattern):
                (site / source.name).symlink_to(source)
    return python


def make_python(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


@pytest.fixture
def folder() -> Iterator[Path]:
    path = temporary_directory("rangeland-submit-")
    yield path
    remove_directory(path)


@pytest.fixture
def table(folder: Path) -> Path:
    return folder / "table"


@pytest.fixture
def job(broker: KafkaCluster, topic: str, folder: Path, table: Path) -> Path:
    """A job that lands ``PARTITIONS`` times ``COUNT`` records."""
    create_topic(broker.bootstrap, topic, PARTITIONS)
    add_records(broker.bootstrap, topic, PARTITIONS, COUNT)
    return write_job(folder / "job.yaml", broker.bootstrap, topic, table)


@pytest.fixture
def submit(cluster: SparkCluster, folder: Path, lean_python: Path) -> Iterator[Submit]:
    """Starts a job as ``rangeland submit`` says; ends it with the test if it still runs."""
    started: list[Submitted] = []

    def start(
        job: Path,
        *flags: str,
        entry: str = "land.py",
        python: Path = lean_python,
        arguments: tuple[str, ...] = ("--json",),
        settings: dict[str, str] | None = None,
        environment: dict[str, str] | None = None,
        change: Callable[[list[str]], list[str]] = list,
    ) -> Submitted:
        common = ("--master", cluster.master, "--delta", "jars", "--python", str(python))
        made = rangeland_submit(
            job, *common, "--entry", str(JOBS / entry), "--out", str(folder / "dist"), *flags
        )
        command = [*change(made["command"]), *arguments]
        place = folder / f"submit-{len(started)}"
        started.append(start_submit(cluster, place, command, settings, environment))
        return started[-1]

    yield start
    for one in started:
        one.process.stop()
