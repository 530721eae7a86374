"""What tests of landings share: jobs from a few words, and rows to hold side by side."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from rangeland.job import Job
from rangeland.testing.consumer import Consumed, consume

CONTRACT = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
    "timestampType:int,headers:array<struct<key:string,value:binary>>>"
)
QUICK = {"connect_ms": 2000, "request_ms": 5000, "survey_ms": 3000, "no_progress_ms": 5000}


def job_of(
    bootstrap: Sequence[str],
    table: str | Path,
    topics: Sequence[str] | str,
    *,
    name: str = "landing",
    source: dict[str, Any] | None = None,
    sink: dict[str, Any] | None = None,
    **sections: Any,
) -> Job:
    """A job for these topics, in the words of a job file; mistakes show within seconds."""
    listed = [topics] if isinstance(topics, str) else list(topics)
    document = {
        "job": name,
        "source": {
            "servers": list(bootstrap),
            "topics": listed,
            "timeouts": QUICK,
            **(source or {}),
        },
        "sink": {"table": str(table), **(sink or {})},
        **sections,
    }
    return Job.parse(json.dumps(document))


def between(topic: str, **offsets: tuple[int, int]) -> dict[str, Any]:
    """The ``range`` of a job: ``p0=(3, 7)`` is ``[3, 7)`` of partition 0."""
    sides = zip(("from", "until"), zip(*offsets.values(), strict=True), strict=True)
    numbers = [name.removeprefix("p") for name in offsets]
    return {side: {topic: dict(zip(numbers, values, strict=True))} for side, values in sides}


def table_of(spark: Any, path: str | Path) -> Any:
    return spark.read.format("delta").load(str(path))


def rows_of(frame: Any) -> list[Consumed]:
    """Rows with the columns of the contract, in the order of topic, partition, offset."""
    found = [
        Consumed(
            row["topic"],
            row["partition"],
            row["offset"],
            None if row["key"] is None else bytes(row["key"]),
            None if row["value"] is None else bytes(row["value"]),
            -1 if row["time_ms"] is None else row["time_ms"],
            None if row["headers"] is None else tuple(_header(h) for h in row["headers"]),
        )
        for row in frame.selectExpr("*", "unix_millis(timestamp) time_ms").collect()
    ]
    return sorted(found, key=lambda row: (row.topic, row.partition, row.offset))


def _header(row: Any) -> tuple[str, bytes | None]:
    return row["key"], None if row["value"] is None else bytes(row["value"])


def judged(bootstrap: Sequence[str], topics: Iterable[str]) -> list[Consumed]:
    """The same topics as confluent-kafka reads them."""
    return [row for topic in sorted(topics) for row in consume(bootstrap, topic)]


def stored_rows(table: str | Path, *columns: str) -> list[dict[str, Any]]:
    """The rows of a table in a local folder as delta-rs reads them: a third reader beside Kernel
    and Spark, and one that starts no jobs."""
    found: pa.Table = DeltaTable(str(table)).to_pyarrow_table(columns=list(columns) or None)
    return found.to_pylist()


def offsets_in(table: str | Path) -> list[tuple[int, int]]:
    """(partition, offset) of all rows in order, as ``offsets_of`` has them."""
    found = stored_rows(table, "partition", "offset")
    return sorted((row["partition"], row["offset"]) for row in found)


def offsets_of(frame: Any) -> list[tuple[int, int]]:
    """(partition, offset) of all rows, in order; what is there twice is listed twice."""
    found = frame.select("partition", "offset").collect()
    return sorted((row["partition"], row["offset"]) for row in found)


def expected(**offsets: Iterable[int]) -> list[tuple[int, int]]:
    """``p0=range(3)`` is ``[(0, 0), (0, 1), (0, 2)]``."""
    return sorted((int(name.removeprefix("p")), o) for name, many in offsets.items() for o in many)


class Died(BaseException):
    pass


@contextmanager
def dying_before_commit(monkeypatch: pytest.MonkeyPatch, committer: type) -> Iterator[None]:
    """What runs inside dies when it is about to commit an outcome."""

    def die(*_: object, **__: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(committer, "commit_outcome", die)
        with pytest.raises(Died):
            yield
