"""Keeps the record batches of real logs as files, with the rows that they must become.

    python -m tests.golden.capture_records      starts the brokers itself

What was written is known here, so the rows in ``rows.json`` come from no decoder. Batches
are those of the client that wrote them and, where a topic has a codec of its own, those
that the broker made of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.fetch_values import FetchedPartition, FetchOptions, PartitionFetch
from rangeland.model import Isolation, Partition
from rangeland.survey.metadata_lookup import ask_metadata
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.testing.producer import CODECS, Record, create_topic, produce, produce_transaction
from rangeland.untrusted import parse_address
from tests.brokers.reading import settings_of, wait_for_end

HOME = Path(__file__).parent / "records"
FIRST_TIME_MS = 1_700_000_000_000
# The records' times are long ago: without these the broker would remove or split the log.
KEPT = {"retention.ms": "-1", "segment.ms": str(2**62)}
Cluster = KafkaCluster | KafkaZooKeeperCluster


def records() -> list[Record]:
    """Nulls, empties, headers that repeat, a value longer than a block of any codec."""
    bodies: list[tuple[bytes | None, bytes | None]] = [
        (b"plain", b"key"),
        (None, b"tombstone"),
        (b"", b""),
        (b"no key", None),
        (b"".join(b"%06d," % (number % 97) for number in range(10_000)), b"long"),
    ]
    headers: list[tuple[tuple[str, bytes | None], ...]] = [
        (),
        (("a", b"1"), ("b", None), ("a", b"2")),
        (("", b""), ("ключ", b"\xff\x00")),
    ]
    return [
        Record(*bodies[i % len(bodies)], headers[i % len(headers)], FIRST_TIME_MS + 10 * i)
        for i in range(9)
    ]


def row(offset: int, record: Record) -> dict[str, Any]:
    """As JSON: bytes in hex, long ones as their SHA-256, null for what is null."""
    return {
        "offset": offset,
        "key": hex_of(record.key),
        "value": hex_of(record.value),
        "timestamp_ms": record.timestamp_ms,
        "headers": [[name, hex_of(value)] for name, value in record.headers] or None,
    }


def hex_of(data: bytes | None) -> str | None:
    if data is None:
        return None
    return data.hex() if len(data) < 1000 else f"sha256:{hashlib.sha256(data).hexdigest()}"


def fetch(server: str, topic: str) -> FetchedPartition:
    """One response of the broker from offset 0, as it came."""
    address, partition = parse_address(server), Partition(topic, 0)
    with ConnectionPool(ClusterSettings("kafka", (address,))) as brokers:
        dialect = brokers.dialect
        view = ask_metadata(brokers, [topic], [address])
        topic_id = view.topics[topic].leaders[partition].topic_id
        asked = [PartitionFetch(partition, topic_id, None, 0, 8 << 20)]
        terms = FetchOptions(Isolation.READ_COMMITTED, 500, 8 << 20)
        responses = brokers.call_all(address, dialect.records_requests(asked, terms))
        (part,) = dialect.read_records(responses, asked, Isolation.READ_COMMITTED).partitions
    return part


def capture_codecs(cluster: Cluster, home: Path, codecs: Sequence[str]) -> dict[str, Any]:
    cases: dict[str, Any] = {}
    for codec in codecs:
        for case, by_broker in ((f"client-{codec}", False), (f"broker-{codec}", True)):
            if case == "broker-none":
                continue
            config = KEPT | ({"compression.type": codec} if by_broker else {})
            create_topic(cluster.bootstrap, case, config=config)
            sent = "none" if by_broker else codec
            produce(cluster.bootstrap, case, records(), codec=sent, partition=0, linger_ms=100)
            part = fetch(cluster.bootstrap[0], case)
            (home / f"{case}.records").write_bytes(part.records.data)
            cases[case] = {
                "until_offset": 9,
                "aborted": [],
                "counts": {"landed": 9},
                "rows": [row(offset, record) for offset, record in enumerate(records())],
            }
    return cases


def capture_transactions(cluster: Cluster, home: Path) -> dict[str, Any]:
    """Four committed, a marker, five rolled back, a marker, nine of nobody's transaction."""
    case = "transactions"
    create_topic(cluster.bootstrap, case, config=KEPT)
    produce_transaction(cluster.bootstrap, case, records()[:4], codec="lz4", partition=0)
    produce_transaction(
        cluster.bootstrap, case, records()[4:], commit=False, codec="snappy", partition=0
    )
    produce(cluster.bootstrap, case, records(), codec="gzip", partition=0, linger_ms=100)
    wait_for_end(settings_of(cluster.bootstrap), case, 20)
    part = fetch(cluster.bootstrap[0], case)
    (home / f"{case}.records").write_bytes(part.records.data)
    rows = [row(offset, record) for offset, record in enumerate(records()[:4])]
    rows += [row(11 + i, record) for i, record in enumerate(records())]
    return {
        case: {
            "until_offset": 20,
            "aborted": [list(pair) for pair in part.records.aborted],
            "counts": {"landed": 13, "control": 2, "aborted": 5},
            "rows": rows,
        }
    }


def capture(cluster: Cluster) -> None:
    home = HOME / cluster.version
    home.mkdir(parents=True, exist_ok=True)
    for old in home.glob("*.records"):
        old.unlink()
    codecs = [c for c in CODECS if c != "zstd" or cluster.version != "0.11.0.3"]
    cases = capture_codecs(cluster, home, codecs) | capture_transactions(cluster, home)
    (home / "rows.json").write_text(json.dumps(cases, indent=1) + "\n", encoding="utf-8")
    lines = [
        f"# Record batches of a Kafka {cluster.version} broker",
        "",
        "The `records` of one Fetch response from offset 0, taken by",
        "`python -m tests.golden.capture_records`. `client-*` were packed by librdkafka,",
        "`broker-*` by the broker. `rows.json` says what was written.",
        "",
        "| file | bytes |",
        "|---|---|",
    ]
    lines += [f"| {p.name} | {p.stat().st_size} |" for p in sorted(home.glob("*.records"))]
    (home / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(cases)} logs of Kafka {cluster.version}")


def main() -> None:
    for cluster in (KafkaCluster(), KafkaZooKeeperCluster()):
        with cluster:
            capture(cluster)


if __name__ == "__main__":
    main()
