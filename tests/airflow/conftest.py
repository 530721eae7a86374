"""One Airflow, with a home and a database of its own, for all tests of this ring."""

from __future__ import annotations

import pytest

from tests.airflow.deployment import Airflow


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    return Airflow(tmp_path_factory.mktemp("airflow"))
