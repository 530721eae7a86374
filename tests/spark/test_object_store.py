"""Landings in a bucket: driver through Hadoop's S3A, executors through Arrow, one set of keys.

The server is real and checks every signature. A bucket has settings of its own in Hadoop's
configuration, so each test has a bucket, and none sees another's keys."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rangeland
from rangeland.delta.parquet_files.data_files import FileWriter, FileWriterSettings
from rangeland.delta.stores.s3_access import S3Keys, S3Settings
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.table_metadata import TableLayout
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.errors import RangelandError, StorageFailed, TableRefused
from rangeland.jvm.java import SMALL_JVM
from rangeland.planning.plan import Plan
from rangeland.progress_events import NoProgress
from rangeland.queries import job_check
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import create_topic, numbered_records, produce
from tests.servers.s3 import S3Server
from tests.spark.buckets import Bucket
from tests.spark.landings import expected, job_of, judged, offsets_of, rows_of, table_of

pytestmark = [pytest.mark.spark, pytest.mark.brokers]


def topic_of(kafka: KafkaCluster, topic: str, **counts: int) -> str:
    create_topic(kafka.bootstrap, topic, partitions=len(counts))
    return more(kafka, topic, **counts)


def more(kafka: KafkaCluster, topic: str, **counts: int) -> str:
    for name, count in counts.items():
        produce(
            kafka.bootstrap, topic, numbered_records(count), partition=int(name.removeprefix("p"))
        )
    return topic


# --- what lands ----------------------------------------------------------------------------


def test_a_topic_is_landed_in_a_bucket_once_and_goes_on(
    kafka: KafkaCluster, spark: Any, topic: str, lake: str
) -> None:
    topic_of(kafka, topic, p0=30, p1=20)
    job = job_of(kafka.bootstrap, lake, topic)
    first, again = (rangeland.land(job, spark) for _ in range(2))
    assert (first.state, first.rows, again.state) == ("landed", 50, "nothing")
    more(kafka, topic, p1=7)
    third = rangeland.land(job, spark)
    assert (third.state, third.rows, third.sequence) == ("landed", 7, 2)
    landed = rows_of(table_of(spark, lake))
    assert landed == judged(kafka.bootstrap, [topic])
    assert [(r.partition, r.offset) for r in landed] == expected(p0=range(30), p1=range(27))


@pytest.mark.slow
def test_a_partitioned_table_and_its_ledger_are_read_with_sql(
    kafka: KafkaCluster, spark: Any, topic: str, lake: str, s3: S3Server
) -> None:
    topic_of(kafka, topic, p0=12, p1=5)
    partitions = {"partition_by": ["topic", "hour(timestamp)"]}
    rangeland.land(job_of(kafka.bootstrap, lake, topic, sink=partitions), spark)
    assert rows_of(table_of(spark, lake)) == judged(kafka.bootstrap, [topic])
    counted = spark.sql(f"SELECT count(*) n FROM delta.`{lake}` WHERE topic = '{topic}'").first()
    assert counted.n == 17
    ledger = f"delta.`{lake}/_rangeland/ledger`"
    events = spark.sql(f"SELECT event, job, sequence FROM {ledger} ORDER BY event DESC").collect()
    assert [tuple(row) for row in events] == [("plan", "landing", 1), ("outcome", "landing", 1)]
    folder = lake.removeprefix("s3a://")
    files = [key for key in s3.keys_in(folder) if "/topic=" in key]
    assert files
    assert all(f"/topic={topic}/hour=" in key for key in files)


@pytest.mark.slow
def test_rows_of_a_transform_are_written_to_the_bucket_too(
    kafka: KafkaCluster,
    spark: Any,
    topic: str,
    lake: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    name = f"transform_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text("def even(df):\n    return df.where('offset % 2 = 0')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    topic_of(kafka, topic, p0=10)
    job = job_of(kafka.bootstrap, lake, topic, sink={"transform": f"{name}:even"})
    rangeland.land(job, spark)
    assert offsets_of(table_of(spark, lake)) == expected(p0=range(0, 10, 2))


# --- nothing half ----------------------------------------------------------------------------

ROWS = pa.schema([pa.field("value", pa.binary())])
WRITER = """
import pickle, sys, time
import pyarrow as pa
from rangeland.delta.table_metadata import TableLayout
from rangeland.delta.parquet_files.data_files import FileWriter, FileWriterSettings
table = pickle.load(sys.stdin.buffer)
rows = pa.schema([pa.field("value", pa.binary())])
settings = FileWriterSettings(table, TableLayout(rows), compression="none")
writer = FileWriter(settings, row_group_bytes=1 << 20)
for _ in range(14):
    writer.write(pa.record_batch([pa.array([bytes(1 << 20)])], schema=rows))
print("written", flush=True)
time.sleep(60)
"""


def test_a_killed_writer_leaves_no_object(spark: Any, lake: str, s3: S3Server) -> None:
    command = [sys.executable, "-c", WRITER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(pickle.dumps(DeltaKernel(spark).storage(lake)))
        child.stdin.close()
        assert child.stdout.readline() == b"written\n"  # enough for parts of an upload
        child.kill()
    assert s3.keys_in(lake.removeprefix("s3a://")) == []


def test_an_aborted_writer_leaves_no_object(spark: Any, lake: str, s3: S3Server) -> None:
    settings = FileWriterSettings(DeltaKernel(spark).storage(lake), TableLayout(ROWS))
    writer = FileWriter(settings, row_group_bytes=100)
    for _ in range(3):
        writer.write(pa.record_batch([pa.array([b"x" * 90])], schema=ROWS))
    writer.abort()
    assert s3.keys_in(lake.removeprefix("s3a://")) == []


def test_a_store_that_takes_nothing_holds_the_writer_back(
    spark: Any, lake: str, s3: S3Server
) -> None:
    table = DeltaKernel(spark).storage(lake)
    settings = FileWriterSettings(table, TableLayout(ROWS), compression="none")
    writer = FileWriter(settings, row_group_bytes=1 << 20)
    taken: list[int] = []

    def write() -> None:
        for number in range(40):
            writer.write(pa.record_batch([pa.array([bytes(1 << 20)])], schema=ROWS))
            taken.append(number)

    s3.pause()
    try:
        thread = threading.Thread(target=write)
        thread.start()
        thread.join(2)
        assert len(taken) < 25  # else it all would be waiting in memory
    finally:
        s3.resume()
    thread.join(30)
    (file,) = writer.close()
    assert file.rows == len(taken) == 40


def test_a_file_is_not_in_the_table_until_it_is_committed(
    kafka: KafkaCluster, spark: Any, topic: str, lake: str
) -> None:
    topic_of(kafka, topic, p0=4)
    job = job_of(kafka.bootstrap, lake, topic)
    rangeland.land(job, spark)
    writer = FileWriter(FileWriterSettings(DeltaKernel(spark).storage(lake), TableLayout(ROWS)))
    writer.write(pa.record_batch([pa.array([b"not yet"])], schema=ROWS))
    assert len(writer.close()) == 1
    assert offsets_of(table_of(spark, lake)) == expected(p0=range(4))
    assert rangeland.land(job, spark).state == "nothing"


# --- what goes wrong -------------------------------------------------------------------------


def secrets_of(server: S3Server) -> tuple[str, str]:
    return server.access_key, server.secret_key


def shown(error: RangelandError) -> str:
    return f"{error} {error!r} {json.dumps(error.facts, default=str)}"


def test_a_wrong_key_is_refused_by_driver_and_executor(
    kafka: KafkaCluster, spark: Any, topic: str, bucket: Bucket
) -> None:
    lake = f"s3a://{bucket(settings={'secret.key': 'wRoNg'})}/orders"
    topic_of(kafka, topic, p0=1)
    with pytest.raises(TableRefused, match="signature") as driver:
        rangeland.land(job_of(kafka.bootstrap, lake, topic), spark)
    settings = FileWriterSettings(DeltaKernel(spark).storage(lake), TableLayout(ROWS))
    writer = FileWriter(settings, row_group_bytes=1)
    with pytest.raises(TableRefused, match="SIGNATURE_DOES_NOT_MATCH") as executor:
        writer.write(pa.record_batch([pa.array([b"x"])], schema=ROWS))
    for error in (driver.value, executor.value):
        assert error.exit_code == 73
        assert "fs.s3a" in error.do
        assert "wRoNg" not in shown(error)


def test_a_bucket_that_is_not_there_is_refused(
    kafka: KafkaCluster, spark: Any, topic: str, bucket: Bucket, s3: S3Server
) -> None:
    name = bucket()
    s3.filesystem().delete_dir_contents(name)
    (s3.directory / "data" / name).rmdir()
    topic_of(kafka, topic, p0=1)
    with pytest.raises(TableRefused, match="bucket exists"):
        rangeland.land(job_of(kafka.bootstrap, f"s3a://{name}/orders", topic), spark)


class AtPlan(NoProgress):
    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def planned(self, plan: Plan, recovered: bool) -> None:
        self._act()


@pytest.mark.slow
def test_a_server_that_goes_while_files_are_written_costs_a_run_and_no_record(
    kafka: KafkaCluster, spark: Any, topic: str, bucket: Bucket
) -> None:
    topic_of(kafka, topic, p0=20)
    with S3Server() as server:
        lake = f"s3a://{bucket(server)}/orders"
        job = job_of(kafka.bootstrap, lake, topic)
        with pytest.raises(StorageFailed) as gone:
            rangeland.land(job, spark, AtPlan(server.kill))
        with pytest.raises(StorageFailed) as still:
            rangeland.land(job, spark)
        for error in (gone.value, still.value):
            assert error.exit_code == 75
            assert not any(secret in shown(error) for secret in secrets_of(server))
        server.restart()
        result = rangeland.land(job, spark)
        assert (result.state, result.recovered) == ("landed", (1,))
        assert offsets_of(table_of(spark, lake)) == expected(p0=range(20))


# --- keys and drivers ------------------------------------------------------------------------


def test_a_provider_that_arrow_does_not_have_is_asked_by_the_driver(
    spark: Any, bucket: Bucket, s3: S3Server
) -> None:
    """Java's system properties stand for a vault of one's own."""
    provider = "software.amazon.awssdk.auth.credentials.SystemPropertyCredentialsProvider"
    name = bucket(settings={"aws.credentials.provider": provider, "secret.key": "unused"})
    system = spark._jvm.java.lang.System
    given = {"aws.accessKeyId": s3.access_key, "aws.secretAccessKey": s3.secret_key}
    try:
        for key, value in given.items():
            system.setProperty(key, value)
        found = DeltaKernel(spark).storage(f"s3a://{name}/orders")
    finally:
        for key in given:
            system.clearProperty(key)
    assert isinstance(found.service, S3Settings)
    assert found.service.keys == S3Keys(s3.access_key, s3.secret_key)


def test_check_says_what_excludes_other_writers_and_a_run_has_no_reason_to_warn(
    kafka: KafkaCluster, spark: Any, topic: str, lake: str
) -> None:
    topic_of(kafka, topic, p0=1)
    job = job_of(kafka.bootstrap, lake, topic)
    findings = {f.what: f for f in job_check.check(job, lambda: spark, NoProgress()).findings}
    assert "Any number of our drivers may commit at once" in findings["table"].seen
    assert "spark.delta.logStore.s3a.impl" in findings["table"].seen
    assert rangeland.land(job, spark).warnings == ()


def test_without_conditions_a_run_says_that_one_driver_may_commit(
    kafka: KafkaCluster, spark: Any, topic: str, bucket: Bucket
) -> None:
    lake = f"s3a://{bucket(settings={'create.conditional.enabled': 'false'})}/orders"
    topic_of(kafka, topic, p0=1)
    (warning,) = rangeland.land(job_of(kafka.bootstrap, lake, topic), spark).warnings
    assert "run one driver at a time" in warning
    assert "spark.delta.logStore.s3a.impl" in warning


def test_hadoop_lets_a_second_writer_overwrite_the_first(spark: Any, lake: str) -> None:
    """Why our commits pass Delta's log stores over: they trust in this."""
    jvm = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{lake}/_delta_log/0.json")
    store = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    first, second = (store.create(path, False) for _ in range(2))
    first.write(bytearray(b"one"))
    second.write(bytearray(b"second"))
    first.close()
    second.close()
    assert store.getFileStatus(path).getLen() == len(b"second")


# --- from the outside ------------------------------------------------------------------------

DEFAULTS = """
spark.hadoop.fs.s3a.endpoint {endpoint}
spark.hadoop.fs.s3a.endpoint.region us-east-1
spark.hadoop.fs.s3a.path.style.access true
spark.hadoop.fs.s3a.access.key {access_key}
spark.hadoop.fs.s3a.secret.key {secret_key}
"""


@pytest.mark.slow
def test_the_command_needs_nothing_but_sparks_own_settings_and_shows_no_secret(
    kafka: KafkaCluster, topic: str, s3: S3Server, tmp_path: Path
) -> None:
    topic_of(kafka, topic, p0=9)
    name = f"lake-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(name)
    (tmp_path / "spark-defaults.conf").write_text(
        DEFAULTS.format(endpoint=s3.endpoint, access_key=s3.access_key, secret_key=s3.secret_key)
    )
    job = {
        "job": "landing",
        "source": {"servers": kafka.bootstrap, "topics": [topic]},
        "sink": {"table": f"s3a://{name}/orders"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    command = [sys.executable, "-m", "rangeland", "run", str(tmp_path / "job.yaml"), "--json"]
    done = subprocess.run(
        command,
        env={
            **os.environ,
            "SPARK_CONF_DIR": str(tmp_path),
            "RANGELAND_MASTER": "local[1]",
            "JAVA_TOOL_OPTIONS": " ".join(SMALL_JVM),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    response = json.loads(done.stdout.splitlines()[-1])
    assert (response["state"], response["landed"]) == ("landed", 9)
    stored = [s3.filesystem().open_input_file(key).read() for key in s3.keys_in(name)]
    assert len(stored) >= 5
    for secret in secrets_of(s3):
        assert secret not in done.stdout + done.stderr
        assert not any(secret.encode() in content for content in stored)


def test_settings_without_keys_say_nothing_of_a_local_table(spark: Any, table: str) -> None:
    assert DeltaKernel(spark).storage(table) == StoreSettings(DeltaKernel(spark).resolve(table))
