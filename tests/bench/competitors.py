"""The sides of the benchmark: each lands, or reads, the same topic from its beginning.

A side is a function of the ground (where the records are, and how many) and a place to
land in. What it has landed is counted afterwards from the files themselves, outside the
time; a table's files are those that its log names. ``SIDES`` is the table: one more side is
one more line there.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rangeland import run
from rangeland.api import plan
from rangeland.dataframe.frozen_plan import freeze
from rangeland.decode.columns import row_schema
from rangeland.delta.parquet_files.data_files import FileWriterSettings
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.table_schema.schema_compatibility import new_table
from rangeland.job import Job
from rangeland.planning.task_packing import pack_tasks
from rangeland.progress_events import NoProgress, Progress
from rangeland.spark.executor_tasks import WriterSettings, read_and_write
from tests.bench.cpu_time import cpu_seconds
from tests.bench.peers import BareProcesses, land_with_client


@dataclass(frozen=True)
class Ground:
    """What all sides read. ``slicing`` are settings of a job's ``slices``; ``spark`` and
    ``bare`` are None where no side needs them."""

    bootstrap: str
    topic: str
    partitions: int
    records: int
    spark: Any = None
    bare: BareProcesses | None = None
    slicing: Mapping[str, Any] = field(default_factory=dict)


def job(
    ground: Ground,
    out: Path,
    compression: str = "zstd",
    decode: Mapping[str, Any] | None = None,
) -> Job:
    """A job as a person would write it, with nothing but what it must say."""
    slicing = f"slices: {dict(ground.slicing)}\n" if ground.slicing else ""
    decoding = f"decode: {json.dumps(decode)}\n" if decode else ""
    return Job.parse(
        "job: bench\n"
        f"source: {{servers: ['{ground.bootstrap}'], topics: [{ground.topic}]}}\n"
        f"{slicing}{decoding}"
        f"sink: {{table: '{out}', compression: {compression}}}\n"
    )


# --- this project -----------------------------------------------------------------------


def land(
    ground: Ground,
    out: Path,
    compression: str = "zstd",
    progress: Progress | None = None,
    decode: Mapping[str, Any] | None = None,
) -> None:
    """``rangeland run``, but for the command line around it."""
    run.run(job(ground, out, compression, decode), ground.spark, progress or NoProgress())


def _land_snappy(ground: Ground, out: Path) -> None:
    land(ground, out, "snappy")


def _land_in_one_process(ground: Ground, out: Path) -> None:
    """Survey, read, decode, count and write in this process; no Spark, no table."""
    out.mkdir(parents=True)
    found, cluster = freeze(job(ground, out))
    layout = new_table(row_schema()).layout
    files = FileWriterSettings(StoreSettings(str(out)), layout, "snappy", name_prefix="b")
    read_and_write(found.slices, cluster, WriterSettings(files))


def _read_frame(ground: Ground, out: Path) -> None:
    """``plan.read`` to nowhere."""
    frame = plan(job(ground, out), ground.spark).read(ground.spark)
    frame.write.format("noop").mode("overwrite").save()


def _count_frame(ground: Ground, out: Path) -> int:
    return int(plan(job(ground, out), ground.spark).read(ground.spark).count())


# --- the others -------------------------------------------------------------------------


def spark_frame(ground: Ground) -> Any:
    """Spark's own source, over what the topic holds now."""
    return (
        ground.spark.read.format("kafka")
        .option("kafka.bootstrap.servers", ground.bootstrap)
        .option("subscribe", ground.topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .option("includeHeaders", "true")
        .load()
    )


def _land_with_spark(ground: Ground, out: Path) -> None:
    spark_frame(ground).write.format("delta").mode("append").save(str(out))


def _stream_with_spark(ground: Ground, out: Path) -> None:
    """Structured Streaming's way to land what is there and stop."""
    stream = (
        ground.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", ground.bootstrap)
        .option("subscribe", ground.topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    checkpoint = out.with_name(f"{out.name}-checkpoint")
    try:
        writer = stream.writeStream.format("delta").trigger(availableNow=True)
        writer.option("checkpointLocation", str(checkpoint)).start(str(out)).awaitTermination()
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def _read_with_spark(ground: Ground, out: Path) -> None:
    spark_frame(ground).write.format("noop").mode("overwrite").save()


def _count_with_spark(ground: Ground, out: Path) -> int:
    return int(spark_frame(ground).count())


def _land_with_client(ground: Ground, out: Path) -> None:
    land_with_client(ground.bootstrap, ground.topic, ground.partitions, ground.records, out)


def _land_bare(ground: Ground, out: Path) -> None:
    assert ground.bare is not None
    host, _, port = ground.bootstrap.rpartition(":")
    ends = [ground.records // ground.partitions] * ground.partitions
    ground.bare.land((host, int(port)), ground.topic, ends, "zstd", out)


# --- counting ---------------------------------------------------------------------------


def rows_of_table(ground: Ground, out: Path) -> int:
    """Of the files that the table's log names; see ``distinct_rows``."""
    uris = ground.spark.read.format("delta").load(str(out)).inputFiles()
    return distinct_rows([unquote(urlparse(uri).path) for uri in uris])


def rows_of_files(ground: Ground, out: Path) -> int:
    return distinct_rows([str(file) for file in out.glob("*.parquet")])


def distinct_rows(files: Sequence[str]) -> int:
    """Raises RuntimeError unless each row has a partition and an offset of its own."""
    keys: list[pa.Array] = []
    for file in files:
        found = pq.read_table(file, columns=["partition", "offset"])
        number = pc.cast(found["partition"], pa.int64())
        keys += pc.add(pc.shift_left(number, 48), found["offset"]).chunks
    rows = pa.chunked_array(keys, pa.int64())
    distinct = int(pc.count_distinct(rows).as_py())
    if distinct != len(rows):
        raise RuntimeError(f"{len(rows)} rows hold {distinct} offsets: some came twice")
    return distinct


def bytes_of(out: Path) -> int:
    """Of the data files alone."""
    return sum(file.stat().st_size for file in out.glob("*.parquet"))


# --- the table of sides -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Side:
    """``group`` are sides that do the same job and may be compared; the first of a group is
    ours. ``is_cheap_to_count``: the count can be had after every round. ``shows_phases``: ``land``
    takes a ``progress`` as well."""

    name: str
    label: str
    group: str
    land: Callable[..., None]
    count: Callable[[Ground, Path], int]
    is_cheap_to_count: bool = True
    shows_phases: bool = False


SIDES = {
    side.name: side
    for side in (
        Side(
            "rangeland",
            "Rangeland -> Delta, zstd",
            "table",
            land,
            rows_of_table,
            shows_phases=True,
        ),
        Side("snappy", "Rangeland -> Delta, snappy", "table", _land_snappy, rows_of_table),
        Side("spark", "Spark's Kafka source -> Delta", "table", _land_with_spark, rows_of_table),
        Side("stream", "Spark's availableNow -> Delta", "table", _stream_with_spark, rows_of_table),
        Side("bare", "bare calls -> Parquet, 2 processes", "table", _land_bare, rows_of_files),
        Side("process", "Rangeland's task alone", "process", _land_in_one_process, rows_of_files),
        Side("client", "confluent-kafka -> Parquet", "process", _land_with_client, rows_of_files),
        Side("frame", "Rangeland frame -> noop", "frame", _read_frame, _count_frame, False),
        Side(
            "spark-frame",
            "Spark's Kafka source -> noop",
            "frame",
            _read_with_spark,
            _count_with_spark,
            False,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Landing:
    """One landing: its time, that of the processors, and the bytes of its files."""

    seconds: float
    cpu_seconds: float
    bytes_written: int


def measure(side: Side, ground: Ground, out: Path, *, count: bool = True) -> Landing:
    """Lands once into a place that is not there yet, counts, and removes it. Raises
    RuntimeError where the count is not that of the ground."""
    used, started = cpu_seconds(), time.perf_counter()
    side.land(ground, out)
    seconds, used = time.perf_counter() - started, cpu_seconds() - used
    if count:
        rows = side.count(ground, out)
        if rows != ground.records:
            raise RuntimeError(f"{side.label} gave {rows} rows of {ground.records}")
    written = bytes_of(out) if out.exists() else 0
    shutil.rmtree(out, ignore_errors=True)
    return Landing(seconds, used, written)


def tasks_of(ground: Ground, out: Path) -> list[list[int]]:
    """The estimated bytes of each slice of each task, as a run would cut them."""
    described = job(ground, out)
    found = plan(described, ground.spark)
    parallelism = int(ground.spark.sparkContext.defaultParallelism)
    tasks = pack_tasks(found.slices, described.slices.target_bytes, parallelism)
    return [[slice_.estimated_bytes for slice_ in task] for task in tasks]
