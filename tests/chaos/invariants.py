"""What must hold after any chaos: each record once, one outcome per plan, a sound log.

Spark's own Delta reader says which files the table holds, not the code under test. Records
are numbered: partition and offset alone tell what the bytes of a row must be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from rangeland.testing.producer import Record, produce

PADDING = b" " + b"0123456789abcdef" * 8


def records(partitions: int, count: int, start: int = 0) -> Iterator[Record]:
    """``count`` records for each partition, whose offsets must begin at ``start``."""
    for offset in range(start, start + count):
        for partition in range(partitions):
            yield Record(
                b"%d/%d" % (partition, offset) + PADDING, b"%d" % offset, partition=partition
            )


def add_records(
    servers: Sequence[str], topic: str, partitions: int, count: int, start: int = 0
) -> None:
    """Appends numbered records to each partition; all are acknowledged by all replicas."""
    produce(
        servers,
        topic,
        records(partitions, count, start),
        codec="lz4",
        batch_bytes=64 << 10,
        idempotent=True,
    )


def write_job(
    path: Path, servers: Sequence[str], topic: str, table: Path, **sections: Mapping[str, Any]
) -> Path:
    """A job file that lands ``topic`` in ``table``, in small slices and small files."""
    source = {"servers": list(servers), "topics": [topic], **sections.pop("source", {})}
    sink = {"table": str(table), "target_file_bytes": "4MiB", **sections.pop("sink", {})}
    job = {
        "job": sections.pop("job", "chaos"),
        "source": source,
        "sink": sink,
        "slices": {"target_bytes": "64KiB"},
        **sections,
    }
    path.write_text(yaml.safe_dump(job))
    return path


def judge(spark: Any, table: Path, ends: Mapping[int, int]) -> None:
    """The table holds offsets ``[0, end)`` of each partition, each once, with its bytes."""
    frame = spark.read.format("delta").load(str(table))
    rows = rows_of(frame.inputFiles())
    assert frame.count() == rows.num_rows
    assert len(pc.unique(rows["topic"])) == 1
    numbers, offsets = rows["partition"].to_numpy(), rows["offset"].to_numpy()
    for partition, end in ends.items():
        found = np.sort(offsets[numbers == partition])
        # Sorted offsets that equal their own positions: none twice, none missing.
        assert np.array_equal(found, np.arange(end)), f"{partition}: {len(found)} of {end}"
    assert rows.num_rows == sum(ends.values())
    texts = [rows[name].cast(pa.string()) for name in ("partition", "offset")]
    values = pc.binary_join_element_wise(*texts, "/")
    assert rows["key"].cast(pa.string()).equals(texts[1])
    assert (
        rows["value"]
        .cast(pa.string())
        .equals(pc.binary_join_element_wise(values, PADDING.decode(), ""))
    )


def rows_of(uris: Sequence[str]) -> pa.Table:
    """The rows of the files that Spark holds for the table's."""
    columns = ["topic", "partition", "offset", "key", "value"]
    paths = [unquote(urlparse(uri).path) for uri in uris]
    return pa.concat_tables(
        pq.read_table(path, columns=columns, partitioning=None) for path in paths
    )


def judge_ledger(spark: Any, table: Path) -> None:
    """Each plan was entered once and has one outcome, which the table has landed once."""
    events = (
        spark.read.format("delta")
        .load(f"{table}/_rangeland/ledger")
        .select("event", "application", "sequence", "attempt", "entered")
        .collect()
    )
    plans = [(e["application"], e["sequence"]) for e in events if e["event"] == "plan"]
    outcomes = [
        (e["application"], e["sequence"], e["attempt"] or 0)
        for e in events
        if e["event"] == "outcome"
    ]
    assert len(set(plans)) == len(plans)
    assert len(set(outcomes)) == len(outcomes)
    assert {o[:2] for o in outcomes} == set(plans)
    entered = sorted(e["entered"] for e in events if e["event"] == "plan")
    assert entered == list(range(1, len(plans) + 1))
    assert sorted(landings(table)) == sorted(plans)


def landings(table: Path) -> list[tuple[str, int]]:
    """(application, sequence) of each commit of the table's log that set one, in order."""
    found = []
    for entry in sorted(Path(table, "_delta_log").glob("*.json")):
        for line in entry.read_text().splitlines():
            if txn := json.loads(line).get("txn"):
                found.append((txn["appId"], txn["version"]))
    return found


def data_files(table: Path) -> list[Path]:
    """The Parquet files in the table's folder, committed or not, without the ledger's."""
    return [
        path
        for path in Path(table).rglob("*.parquet")
        if not any(part.startswith("_") for part in path.relative_to(table).parts)
    ]
