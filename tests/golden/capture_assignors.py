"""Asks Kafka's own client how it assigns partitions and what members say, and keeps it.

    python -m tests.golden.capture_assignors

The cases are made by ``KafkaAssignors.java``, which runs on the jars of a broker and needs a
JDK. One line of JSON each: ``kind`` is a way of assigning, ``subscription`` or ``assignment``.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from rangeland.jvm.jars import class_path, fetch_jars
from rangeland.jvm.java import find_java
from rangeland.testing.broker_jars import BROKER_JARS

HERE = Path(__file__).parent
JARS = BROKER_JARS["kafka-4.1.0"]


def main() -> None:
    fetch_jars(JARS)
    command = [find_java(), "-cp", class_path(JARS), str(HERE / "KafkaAssignors.java")]
    shown = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    lines = [line for line in shown.stdout.splitlines() if line.startswith("{")]
    (HERE / "groups" / "4.1.0.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} lines")


if __name__ == "__main__":
    main()
