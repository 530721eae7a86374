"""Asks RocketMQ's own client how it shares queues out, and keeps the responses.

    python -m tests.golden.capture_allocation

``AllocateAveragely.java`` makes the cases and runs on the jars of a broker; needs a JDK. One line
of JSON each: ``queues`` as they were given, ``found`` with each client's share in its order.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from rangeland.jvm.jars import class_path, fetch_jars
from rangeland.jvm.java import find_java
from rangeland.testing.broker_jars import BROKER_JARS
from rangeland.testing.processes import remove_directory, temporary_directory

HERE = Path(__file__).parent
JARS = BROKER_JARS["rocketmq-5.5.0"]


def main() -> None:
    fetch_jars(JARS)
    home = temporary_directory("rangeland-allocation-")  # the client logs below its home
    command = [find_java(), f"-Duser.home={home}", "-cp", class_path(JARS)]
    command.append(str(HERE / "AllocateAveragely.java"))
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    try:
        shown = subprocess.run(
            command, stdout=subprocess.PIPE, check=True, text=True, env=environment
        )
    finally:
        remove_directory(home)
    lines = [line for line in shown.stdout.splitlines() if line.startswith("{")]
    (HERE / "rocketmq" / "5.5.0" / "allocation.jsonl").write_text(
        "\n".join(lines) + "\n", encoding="utf-8"
    )
    print(f"{len(lines)} lines")


if __name__ == "__main__":
    main()
