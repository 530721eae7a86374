"""Other Sparks than the installed one: ``python -m tests.other_sparks 3.5 [PYTEST ARGUMENTS]``.

Each is installed once into the user's cache. It comes first on the Python path, before the
environment that runs the tests, which has everything else. Without arguments for pytest, what must
work on every Spark is tried; any tests of ``tests/spark`` can be.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.build_cache import OLDER_SPARK, installed
from tests.spark_sessions import SPARK_JAVA_HOME

ROOT = Path(__file__).parents[1]
EVERY = "tests/spark/test_every_spark.py"
SPARKS = {
    "3.5": OLDER_SPARK,
    "4.0": "pyspark==4.0.5",
    "4.1": "pyspark==4.1.4",
}


def spark_home(spark: str) -> Path:
    return installed(SPARKS[spark]) / "pyspark"


def python_path(spark: str) -> str:
    """What makes a Python import this PySpark, and this checkout."""
    return os.pathsep.join(map(str, (installed(SPARKS[spark]), ROOT / "lib")))


def run_tests(
    spark: str, arguments: Sequence[str] = (), java_home: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs pytest on this Spark, with its output in one text. ``java_home`` is for Spark alone."""
    # Neither options of the outer run are for this one, nor the archive of another Spark's classes.
    left_out = ("SPARK_HOME", "SPARK_SUBMIT_OPTS", "PYTEST_ADDOPTS")
    kept = {k: v for k, v in os.environ.items() if k not in left_out}
    more = {"PYTHONPATH": python_path(spark), "SPARK_LOCAL_IP": "127.0.0.1"}
    if java_home:
        more[SPARK_JAVA_HOME] = java_home
    # Older PySparks warn at import of what later Pythons deprecate.
    common = ["-q", "-p", "no:randomly", "-o", "filterwarnings=default"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *common, *(arguments or [EVERY])],
        cwd=ROOT,
        env={**kept, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


if __name__ == "__main__":
    done = run_tests(sys.argv[1], sys.argv[2:])
    print(done.stdout)
    sys.exit(done.returncode)
