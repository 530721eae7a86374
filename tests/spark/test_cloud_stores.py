"""Files written to emulators of Azure's and Google's stores, and whole runs into a real HDFS.

delta-rs, which shares no code with Spark or Hadoop, reads what has landed."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangeland.delta.azure_access import AzureSettings
from rangeland.delta.data_files import FileWriter, foreign_entries
from rangeland.delta.google_access import GoogleSettings
from rangeland.delta.store_access import StoreSettings
from rangeland.delta.store_probe import try_store
from rangeland.delta.table_metadata import TableLayout
from rangeland.errors import TableRefused
from rangeland.jvm.java import SMALL_JVM
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producing import create_topic, numbered, produce
from tests.spark.cloud_stores import Azurite, GoogleEmulator, SmallHdfs

pytestmark = [pytest.mark.spark, pytest.mark.brokers, pytest.mark.slow]

COUNT = 40
CONTAINER = "lake"


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with Azurite(tmp_path_factory.mktemp("azure") / "store") as server:
        server.filesystem(server.key).create_dir(CONTAINER)
        yield server


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleEmulator]:
    with GoogleEmulator(tmp_path_factory.mktemp("google") / "store") as server:
        server.create_bucket(CONTAINER)
        yield server


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallHdfs]:
    with SmallHdfs(tmp_path_factory.mktemp("hdfs") / "store") as server:
        yield server


def run(
    folder: Path, kafka: KafkaCluster, topic: str, table: str, conf: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """The command ``rangeland run``, in a process of its own."""
    lines = [f"spark.hadoop.{name} {value}" for name, value in conf.items()]
    (folder / "spark-defaults.conf").write_text("\n".join(lines))
    job = {
        "job": "landing",
        "source": {"servers": kafka.bootstrap, "topics": [topic]},
        "sink": {"table": table, "partition_by": ["partition"]},
    }
    (folder / "job.yaml").write_text(json.dumps(job))
    return subprocess.run(
        [sys.executable, "-m", "rangeland", "run", str(folder / "job.yaml"), "--json"],
        env={
            **os.environ,
            "SPARK_CONF_DIR": str(folder),
            "RANGELAND_MASTER": "local[1]",
            "JAVA_TOOL_OPTIONS": " ".join(SMALL_JVM),
        },
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )


def landed(done: subprocess.CompletedProcess[str]) -> tuple[Any, ...]:
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    return answer["state"], answer["landed"], answer["sequence"]


def lands_twice(
    folder: Path, kafka: KafkaCluster, topic: str, table: str, conf: Mapping[str, str]
) -> str:
    """All that the commands have printed."""
    create_topic(kafka.bootstrap, topic, partitions=1)
    produce(kafka.bootstrap, topic, numbered(COUNT), partition=0)
    first = run(folder, kafka, topic, table, conf)
    assert landed(first) == ("landed", COUNT, 1)
    produce(kafka.bootstrap, topic, numbered(3), partition=0)
    second = run(folder, kafka, topic, table, conf)
    assert landed(second) == ("landed", 3, 2)
    return "".join((first.stdout, first.stderr, second.stdout, second.stderr))


def offsets(uri: str, options: Mapping[str, str]) -> list[int]:
    table = deltalake.DeltaTable(uri, storage_options=dict(options)).to_pyarrow_table()
    return sorted(table.column("offset").to_pylist())


def written(table: StoreSettings) -> list[int]:
    """Writes rows as a task does; the offsets that are there."""
    store, root = table.open()
    schema = pa.schema([("offset", pa.int64()), ("value", pa.binary())])
    layout = TableLayout(schema)
    rows = pa.table({"offset": range(COUNT), "value": [b"v" * 1000] * COUNT}, schema=schema)
    writer = FileWriter(table, layout)
    for batch in rows.to_batches():
        writer.write(batch)
    try_store(table)
    (file,) = writer.close()
    (info,) = store.get_file_info([f"{root}/{file.path}"])
    assert info.size == file.size_bytes
    with store.open_input_file(info.path) as source:
        found: list[int] = pq.read_table(source).column("offset").to_pylist()
    writer.abort()
    assert [entry for entry in foreign_entries(table) if "parquet" in entry] == []
    return found


def test_files_are_written_to_azure_with_the_accounts_key(azurite: Azurite) -> None:
    service = AzureSettings(
        azurite.account, "http", azurite.address, azurite.address, account_key=azurite.key
    )
    uri = f"abfs://{CONTAINER}@{azurite.account}.dfs.core.windows.net/a lake/orders"
    assert written(StoreSettings(uri, service)) == list(range(COUNT))
    wrong = replace(service, account_key=base64.b64encode(b"wrong").decode())
    with pytest.raises(TableRefused, match=r"Authorization\w+|Authentication\w+") as caught:
        written(StoreSettings(uri, wrong))
    assert "fs.azure" in caught.value.do
    with pytest.raises(TableRefused, match="ContainerNotFound"):
        written(StoreSettings(uri.replace(CONTAINER, "sea"), service))


def test_files_are_written_to_google_storage(google: GoogleEmulator) -> None:
    service = GoogleSettings(google.address, "http", anonymous=True)
    assert written(StoreSettings(f"gs://{CONTAINER}/a lake/orders", service)) == list(range(COUNT))


def test_a_topic_is_landed_on_hdfs(
    kafka: KafkaCluster, topic: str, hdfs: SmallHdfs, tmp_path: Path
) -> None:
    table = f"hdfs://127.0.0.1:{hdfs.port}/lake/orders"
    lands_twice(tmp_path, kafka, topic, table, {})
    assert offsets(table, {}) == list(range(COUNT + 3))
