"""A PostgreSQL, and one Airflow with a home and a database of its own, for all tests of this
suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.airflow.deployment import Airflow
from tests.airflow.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Airflow:
    return Airflow(tmp_path_factory.mktemp("airflow"), postgres)
