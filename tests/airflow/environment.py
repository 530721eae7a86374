"""A real Airflow in an environment of its own, made once: ``python -m tests.airflow.environment``.

It holds what ``airflow_dags/requirements.txt`` asks for, PostgreSQL's drivers, and neither
Rangeland nor Spark, as a deployment would. Making it takes a minute or two.
"""

from __future__ import annotations

import sys
import venv
from pathlib import Path

from tests.build_cache import kept, pip_install

DAGS = Path(__file__).parents[2] / "airflow_dags"
REQUIREMENTS = DAGS / "requirements.txt"
DRIVERS = ["psycopg2-binary==2.9.10", "asyncpg==0.30.0"]


def airflow_programs() -> Path:
    """The ``bin`` folder of the environment, which is made if it is not there."""
    made_of = f"{sys.version_info[:3]} {REQUIREMENTS.read_text()} {DRIVERS}"
    return kept("airflow", made_of, _make) / "bin"


def _make(target: Path) -> None:
    venv.create(target, with_pip=True)
    pip_install(target / "bin" / "python", ["-r", str(REQUIREMENTS), *DRIVERS])


if __name__ == "__main__":
    print(airflow_programs())
