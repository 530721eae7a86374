"""What the chaos suite shares: folders that are removed, a judge, drivers that are ended.

Tests here harm only what they started. Each module is bounded in time by the waits of
``drivers`` and of the brokers, and looks for processes that were left when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import remove_directory, temporary_directory
from tests.chaos.drivers import Driver, StartDrivers, living_drivers
from tests.spark_sessions import open_session

HERE = Path(__file__).parent
MARKS = (pytest.mark.chaos, pytest.mark.brokers, pytest.mark.spark)
Start = Callable[..., Driver]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            for mark in MARKS:
                item.add_marker(mark)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The judge's session, which also makes the runs that no one is to kill."""
    folder = temporary_directory("rangeland-judge-")
    session = open_session(folder, "local[2]")
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    remove_directory(folder)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for the tables, job files and drivers of one test."""
    path = temporary_directory("rangeland-chaos-")
    yield path
    remove_directory(path)


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Starts drivers that are ended with the test, and that must leave nothing behind."""
    started: list[Driver] = []

    def start_one(name: str = "driver", **options: Any) -> Driver:
        driver = Driver(folder / f"{name}-{len(started)}", **options)
        started.append(driver)
        return driver

    yield start_one
    problems = []
    for driver in started:
        try:
            driver.close()
        except Exception as error:  # every driver is to be ended, then all is told
            problems.append(error)
    if problems:
        raise ExceptionGroup("drivers did not end well", problems)


@pytest.fixture(scope="session")
def start_drivers() -> Iterator[StartDrivers]:
    """Drivers that all modules share, as many as a test asks for."""
    with living_drivers() as start_drivers:
        yield start_drivers


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaCluster]:
    """One broker of this module's own, to be paused."""
    with KafkaCluster() as cluster:
        yield cluster
