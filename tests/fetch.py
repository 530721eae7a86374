"""``python -m tests.fetch``: all jars that the ordinary rings need, several sets at once.

A test that needs a set fetches it itself; this only has it there sooner, while the machine has
other things to do than to wait for a repository. What cannot be fetched is said, and is not
held against anybody here: the tests that need it will fail.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from rangeland.errors import RangelandError
from rangeland.jvm.jars import JAR_SETS, fetch_jars

AT_ONCE = 3
ONLY_SLOW = {"delta-4.0.0", "hadoop-minicluster-3.5.0"}
ONLY_BENCH = {"spark-kafka-4.2.0", "spark-kafka-token-provider-4.0.0"}


def main() -> int:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for trouble in pool.map(_fetch, sorted(JAR_SETS.keys() - ONLY_SLOW - ONLY_BENCH)):
            if trouble:
                print(trouble, flush=True)
    return 0


def _fetch(name: str) -> str:
    try:
        fetch_jars(name)
    except RangelandError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main())
