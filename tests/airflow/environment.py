"""A real Airflow in an environment of its own, made once: ``python -m tests.airflow.environment``.

It holds what ``airflow_dags/requirements.txt`` asks for and neither Rangeland nor Spark, as a
deployment would. It is kept in the cache directory under a name made of its contents, so
that another version gets another one. Making it takes a minute or two.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from rangeland.jvm.jars import cache_directory

DAGS = Path(__file__).parents[2] / "airflow_dags"
REQUIREMENTS = DAGS / "requirements.txt"
INSTALL_TIMEOUT_S = 900


def airflow_programs() -> Path:
    """The ``bin`` folder of the environment, which is made if it is not there."""
    made_of = f"{sys.version_info[:3]} {REQUIREMENTS.read_text()}"
    name = hashlib.sha256(made_of.encode()).hexdigest()[:12]
    target = cache_directory() / "airflow" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "complete").exists():
            _make(target)
    return target / "bin"


def _make(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    venv.create(target, with_pip=True)
    done = subprocess.run(
        [target / "bin" / "python", "-m", "pip", "install", "-q", "-r", REQUIREMENTS],
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"Airflow could not be installed:\n{done.stdout}{done.stderr}")
    (target / "complete").touch()


if __name__ == "__main__":
    print(airflow_programs())
