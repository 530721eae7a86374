"""Downloads all that the ordinary suites need, several at once: ``python -m tests.download``.

A test that needs a set of jars or a package downloads it itself; this only does it earlier. What
cannot be downloaded is printed and is no failure here: the tests that need it will fail.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from rangeland.errors import RangelandError
from rangeland.jvm.jars import fetch_jars
from tests.build_cache import JAVA_11, OLDER_SPARK, installed
from tests.class_archive import make_archive
from tests.jar_sets import ALL_JARS

AT_ONCE = 3
FIRST = ["delta-kernel-4.4.0", "delta-4.4.0", "kafka-4.1.0", "hadoop-aws-3.5.0"]
"""What most tests need, the first ones above all."""
ONLY_SLOW = {
    "delta-3.3.2-scala-2.13",
    "delta-4.0.0",
    "delta-4.4.0-spark-4.0",
    "delta-4.4.0-spark-4.1",
    "hadoop-azure-3.5.0",
    "hadoop-gcp-3.5.0",
    "hadoop-minicluster-3.5.0",
    "postgres-17.5.0",
    "spark-3.5.9-scala-2.13",
}
ONLY_BENCH = {"spark-kafka-4.2.0", "spark-kafka-token-provider-4.0.0", "spark-avro-4.1.1"}


def main() -> int:
    others = sorted(ALL_JARS.keys() - ONLY_SLOW - ONLY_BENCH - set(FIRST))
    packages = [OLDER_SPARK, *([JAVA_11] if platform.machine() == "x86_64" else [])]
    work: list[Callable[[], object]] = [partial(fetch_jars, ALL_JARS[name]) for name in FIRST]
    work.append(make_archive)
    work += [partial(installed, name) for name in packages]
    work += [partial(fetch_jars, ALL_JARS[name]) for name in others]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for trouble in pool.map(_tried, work):
            if trouble:
                print(trouble, flush=True)
    return 0


def _tried(work: Callable[[], object]) -> str:
    try:
        work()
    except (RangelandError, AssertionError, OSError, subprocess.SubprocessError) as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main())
