"""Asks a RocketMQ name server and broker every question there is, and keeps the responses byte
for byte.

    python -m tests.golden.capture_rocketmq

It starts both itself. Topics are written by upstream's own producer and read by upstream's own
consumer, so what the responses must say is known without our own writer or reader: it is in
``expected.json``. A response is kept as it came, without the four bytes of length before it.
Needs a JDK.
"""

from __future__ import annotations

import json
from pathlib import Path

from rangeland.dialects.rocketmq import messages as m
from rangeland.model import Partition
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.rocketmq_clients import RocketmqClient
from tests.brokers.rocketmq import run_clients

VERSION = "5.5.0"
HOME = Path(__file__).parent / "rocketmq"
KINDS = {
    "plain": ("plain", None),
    "zlib": ("large", "ZLIB"),
    "lz4": ("large", "LZ4"),
    "zstd": ("large", "ZSTD"),
    "batch": ("batch", None),
    "transaction": ("transaction", None),
}
COUNT = 6
FAR = 1 << 40
PADDING, SHORT = "x" * 6000, "<6000 x>"


def queue_of(kind: str) -> Partition:
    return Partition(f"golden-{kind}", 0, "broker-a")


PLAIN, NOWHERE = queue_of("plain"), Partition("golden-nowhere", 0, "broker-a")

SERVER_REQUESTS: dict[str, m.RemotingRequest] = {
    "Route.plain": m.route(PLAIN.topic),
    "Route.unknown-topic": m.route(NOWHERE.topic),
    "AllTopics.all": m.all_topics(),
    "MaxOffset.name-server": m.max_offset(PLAIN),
}
BROKER_REQUESTS: dict[str, m.RemotingRequest] = {
    "MaxOffset.plain": m.max_offset(PLAIN),
    "MaxOffset.unknown-topic": m.max_offset(NOWHERE),
    "MinOffset.plain": m.min_offset(PLAIN),
    "SearchOffset.early": m.search_offset(PLAIN, 0),
    "SearchOffset.late": m.search_offset(PLAIN, FAR * 4),
    **{f"Pull.{kind}": m.Pull(queue_of(kind), 0) for kind in KINDS},
    "Pull.two": m.Pull(PLAIN, 1, 2),
    "Pull.end": m.Pull(PLAIN, COUNT),
    "Pull.beyond": m.Pull(PLAIN, FAR),
    "Pull.too-small": m.Pull(PLAIN, -1),
    "Pull.unknown-topic": m.Pull(NOWHERE, 0),
    "Pull.unknown-queue": m.Pull(Partition(PLAIN.topic, 9), 0),
    "Route.broker": m.route(PLAIN.topic),
}


def main() -> None:
    home = HOME / VERSION
    home.mkdir(parents=True, exist_ok=True)
    expected: dict[str, object] = {"broker": VERSION}
    with RocketmqCluster(VERSION) as cluster:
        server = cluster.servers[0]
        for name, (kind, codec) in KINDS.items():
            topic = queue_of(name).topic
            cluster.create_topic(topic, 1)
            options = [f"-Drocketmq.message.compressType={codec}"] if codec else []
            run_clients("produce", server, topic, kind, str(COUNT), options=options)
            count = COUNT if name != "transaction" else COUNT // 3
            seen = run_clients("consume", server, topic, f"golden-{name}", str(count))
            short = ((int(o), body.replace(PADDING, SHORT), names) for _, o, body, names in seen)
            expected[name] = sorted(map(list, short))
        capture(server, SERVER_REQUESTS, home)
        capture(cluster.address(), BROKER_REQUESTS, home)
    text = json.dumps(expected, indent=1, ensure_ascii=False)
    (home / "expected.json").write_text(f"{text}\n", encoding="utf-8")
    (home / "README.md").write_text(readme(), encoding="utf-8")


def capture(address: str, requests: dict[str, m.RemotingRequest], home: Path) -> None:
    """Each on a connection of its own, so that each is its first request."""
    for name, request in requests.items():
        with RocketmqClient(address) as client:
            client.send(request)
            (home / f"{name}.bin").write_bytes(client.receive_raw())


def readme() -> str:
    asked = {**SERVER_REQUESTS, **BROKER_REQUESTS}
    rows = "".join(f"| {n}.bin | {r.code} | `{dict(r.fields)}` |\n" for n, r in asked.items())
    return (
        f"# Responses of RocketMQ {VERSION}\n\n"
        "Byte for byte, without the four bytes of length before each. Topics were written by\n"
        "upstream's own producer; `expected.json` is what upstream's own consumer read. Made by\n"
        "`python -m tests.golden.capture_rocketmq`.\n\n"
        "| file | code | fields |\n|---|---|---|\n" + rows
    )


if __name__ == "__main__":
    main()
