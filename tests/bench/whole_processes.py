"""One landing as a whole process: from the command line to its end, session and all.

``python -m tests.bench.whole_processes --records 4000000 --rounds 3``: ``rangeland run``, a script
with Spark's own source, the same with Structured Streaming's ``availableNow``, and a session that
counts one row, in turn. The scripts are what a person would write, with jars that are cached: they
import nothing of this project. The first round makes what later ones find (an archive of classes,
pages of files in memory) and is dropped.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from rangeland.jvm.jars import jar_files
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import remove_directory, temporary_directory
from rangeland.testing.producer import fill
from tests.bench.competitors import bytes_of, distinct_rows
from tests.bench.measuring import load_average, ratio, spread
from tests.bench.session import DRIVER_MEMORY, JAR_SETS
from tests.bench.short_commands import Taken, measured, measuring_process

TOPIC = "views"
SESSION = """
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", {jars!r})
    .config("spark.driver.memory", {memory!r})
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.local.dir", {scratch!r})
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config(
        "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    )
    .getOrCreate()
)
"""
ROWS = """
def rows(reader):
    return (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", {servers!r})
        .option("subscribe", {topic!r})
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
"""
SCRIPTS = {
    "bare session": SESSION + "\nassert spark.range(1).count() == 1\n",
    "Spark's source": SESSION
    + ROWS
    + '\nrows(spark.read).write.format("delta").mode("append").save({out!r})\n',
    "availableNow": SESSION
    + ROWS
    + """
stream = rows(spark.readStream).writeStream.format("delta").trigger(availableNow=True)
stream.option("checkpointLocation", {out!r} + "-checkpoint").start({out!r}).awaitTermination()
""",
}
OURS = "rangeland run"


def command_of(side: str, folder: Path, out: Path, bootstrap: str) -> list[str]:
    if side == OURS:
        job = {
            "job": "bench-whole",
            "source": {"servers": [bootstrap], "topics": [TOPIC]},
            "sink": {"table": str(out)},
        }
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        return [sys.executable, "-m", "rangeland", "run", str(folder / "job.yaml"), "--quiet"]
    script = SCRIPTS[side].format(
        jars=",".join(str(jar) for one in JAR_SETS for jar in jar_files(one)),
        memory=DRIVER_MEMORY,
        scratch=str(folder / "spark"),
        servers=bootstrap,
        topic=TOPIC,
        out=str(out),
    )
    return [sys.executable, "-c", script]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    folder = temporary_directory("rangeland-whole-")
    environment = {**os.environ, "RANGELAND_MASTER": "local[2]", "SPARK_LOCAL_IP": "127.0.0.1"}
    taken: dict[str, list[Taken]] = {}
    written: dict[str, int] = {}
    try:
        with KafkaCluster("4.1.0", brokers=1, heap_mb=1024) as kafka, measuring_process() as pool:
            fill(kafka.bootstrap, TOPIC, given.records, codec="lz4", partitions=4)
            for turn in range(given.rounds + 1):
                for side in (OURS, *SCRIPTS):
                    out = folder / f"out-{turn}-{len(written)}-{side.split()[0]}"
                    os.sync()
                    command = command_of(side, folder, out, kafka.bootstrap[0])
                    took = pool.submit(measured, command, 0, environment).result()
                    if out.exists():
                        files = [str(file) for file in out.glob("*.parquet")]
                        assert distinct_rows(files) == given.records, side
                        written[side] = bytes_of(out)
                        remove_directory(out)
                    if turn > 0:
                        taken.setdefault(side, []).append(took)
                    print(f"{load_average():5.2f}  {turn} {side}: {took}", flush=True)
    finally:
        remove_directory(folder)
    show(taken, written)


def show(taken: Mapping[str, list[Taken]], written: Mapping[str, int]) -> None:
    ours = [each.seconds for each in taken[OURS]]
    for side, each in taken.items():
        line = f"{side:16} {spread([x.seconds for x in each])} s, "
        line += f"processor {spread([x.cpu for x in each])} s"
        if side in written:
            line += f", {written[side] / 1e6:.0f} MB"
        if side != OURS:
            line += f"; {ratio([x.seconds for x in each], ours)} times ours"
        print(line)


if __name__ == "__main__":
    main()
