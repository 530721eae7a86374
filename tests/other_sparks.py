"""Other Sparks than the installed one: ``python -m tests.other_sparks 3.5 [PYTEST ARGUMENTS]``.

Each is installed once into the user's cache; ``3.5-scala-2.13`` is PySpark 3.5 with the jars of a
Spark that is built for that Scala, without Hive, MLlib, YARN and Kubernetes. It comes first on the
Python path, before the environment that runs the tests, which has everything else. Without
arguments for pytest, what must work on every Spark is tried; any tests of ``tests/spark`` can be.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rangeland.jvm.jars import jar_files
from tests.build_cache import OLDER_SPARK, installed, kept
from tests.jar_sets import TEST_JARS
from tests.spark_sessions import SPARK_JAVA_HOME

ROOT = Path(__file__).parents[1]
EVERY = "tests/spark/test_every_spark.py"
SPARKS = {
    "3.5": OLDER_SPARK,
    "3.5-scala-2.13": OLDER_SPARK,
    "4.0": "pyspark==4.0.5",
    "4.1": "pyspark==4.1.4",
}


def packages_of(spark: str) -> Path:
    """The folder that PySpark is in."""
    package, scala = SPARKS[spark], spark.partition("-scala-")[2]
    found = installed(package)
    if not scala:
        return found
    jars = jar_files(TEST_JARS[f"spark-{package.removeprefix('pyspark==')}-scala-{scala}"])
    names = [jar.name for jar in jars]
    return kept("packages", f"{found} {names}", lambda target: with_jars(found, jars, target))


def with_jars(packages: Path, jars: Sequence[Path], target: Path) -> None:
    """PySpark with these jars in place of those that are made for a Scala."""
    # Other files are links: together they have hundreds of megabytes, and nothing changes them.
    shutil.copytree(packages / "pyspark", target / "pyspark", copy_function=os.link)
    folder = target / "pyspark" / "jars"
    for pattern in ("*_2.*-*.jar", "scala-*.jar"):
        for jar in folder.glob(pattern):
            jar.unlink()
    for jar in jars:
        shutil.copy(jar, folder)


def spark_home(spark: str) -> Path:
    return packages_of(spark) / "pyspark"


def python_path(spark: str) -> str:
    """What makes a Python import this PySpark, and this checkout."""
    return os.pathsep.join(map(str, (packages_of(spark), ROOT / "lib")))


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
