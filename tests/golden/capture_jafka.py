"""Asks a Jafka broker every question there is, and keeps the responses byte for byte.

    python -m tests.golden.capture_jafka

It starts the broker itself. The log is written by upstream's own producer, so what the
responses must say is known without our own writer or reader: it is in ``expected.json``. A
response is kept as it came, without the four bytes of length before it. Needs a JDK.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from rangeland.dialects.jafka import messages as m
from rangeland.jvm.jars import class_path
from rangeland.jvm.java import find_java
from rangeland.testing.broker_jars import BROKER_JARS
from rangeland.testing.jafka import JafkaCluster
from rangeland.testing.jafka_clients import JafkaClient
from rangeland.testing.processes import PATIENCE_S

VERSION = "3.0.6"
HOME = Path(__file__).parent / "jafka"
PRODUCER = Path(__file__).with_name("ProduceLines.java")
PLAIN, PACKED, NOWHERE = "golden-plain", "golden-packed", "golden-nowhere"
LINES = ["line-1", "", "größer", "line-4"]
FAR = 1 << 40


def fetch(topic: str, partition: int, offset: int, max_bytes: int = 1 << 20) -> m.FetchRequest:
    return m.FetchRequest(topic=topic, partition=partition, offset=offset, max_bytes=max_bytes)


def offsets(topic: str, time_ms: int, max_count: int = 100) -> m.OffsetsRequest:
    return m.OffsetsRequest(topic=topic, partition=0, time_ms=time_ms, max_count=max_count)


REQUESTS: dict[str, m.Request] = {
    "Fetch.plain": fetch(PLAIN, 0, 0),
    "Fetch.packed": fetch(PACKED, 0, 0),
    "Fetch.cut": fetch(PLAIN, 0, 0, 30),
    "Fetch.nothing": fetch(PLAIN, 0, 0, 0),
    "Fetch.out-of-range": fetch(PLAIN, 0, FAR),
    "Fetch.wrong-partition": fetch(PLAIN, 9, 0),
    "Fetch.unknown-topic": fetch(NOWHERE, 0, 0),
    "MultiFetch.all-kinds": m.MultiFetchRequest(
        (
            fetch(PLAIN, 0, 0),
            fetch(PACKED, 0, 0),
            fetch(PLAIN, 9, 0),
            fetch(PLAIN, 0, FAR),
            fetch(NOWHERE, 0, 0),
        )
    ),
    "Offsets.latest": offsets(PLAIN, m.LATEST_TIME),
    "Offsets.earliest": offsets(PLAIN, m.EARLIEST_TIME),
    "Offsets.too-early": offsets(PLAIN, 1000),
    "Offsets.unknown-topic": offsets(NOWHERE, m.LATEST_TIME),
}


def produce_lines(server: str, topic: str, lines: list[str], *, packed: bool) -> None:
    """With upstream's producer, in one request."""
    command = [
        find_java(),
        "-Dlog4j.configuration=none",
        "-cp",
        class_path(BROKER_JARS[f"jafka-{VERSION}"]),
    ]
    command += [str(PRODUCER), server, topic, "1" if packed else "0"]
    text = "".join(f"{line}\n" for line in lines)
    subprocess.run(
        command, input=text.encode(), capture_output=True, check=True, timeout=PATIENCE_S
    )


def main() -> None:
    home = HOME / VERSION
    home.mkdir(parents=True, exist_ok=True)
    with JafkaCluster(VERSION, partitions=1) as cluster:
        for topic in (PLAIN, PACKED):
            produce_lines(cluster.servers[0], topic, LINES, packed=topic == PACKED)
        with JafkaClient(cluster.address()) as client:
            ends = {topic: wait_for_end(client, topic) for topic in (PLAIN, PACKED)}
            for name, request in REQUESTS.items():
                client.send(request)
                (home / f"{name}.bin").write_bytes(client.receive_raw())
    expected = {"broker": VERSION, "lines": LINES, "ends": ends}
    text = json.dumps(expected, indent=2, ensure_ascii=False)
    (home / "expected.json").write_text(f"{text}\n", encoding="utf-8")
    (home / "README.md").write_text(readme(), encoding="utf-8")


def wait_for_end(client: JafkaClient, topic: str) -> int:
    while not (end := client.end_offset(topic)):
        time.sleep(0.1)
    return end


def readme() -> str:
    rows = "".join(f"| {name}.bin | `{request}` |\n" for name, request in REQUESTS.items())
    return (
        f"# Responses of Jafka {VERSION}\n\n"
        "Byte for byte, without the four bytes of length before each. The log was written by\n"
        "upstream's own producer; `expected.json` has its lines. Made by\n"
        "`python -m tests.golden.capture_jafka`.\n\n"
        "| file | asked |\n|---|---|\n" + rows
    )


if __name__ == "__main__":
    main()
