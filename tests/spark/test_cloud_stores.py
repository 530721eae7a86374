"""Whole runs into an emulator of Azure's blob service and a real HDFS, and files on an emulator
of Google storage.

delta-rs, which shares no code with Spark or Hadoop, reads what has landed."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangeland.delta.parquet_files.data_files import FileWriter, FileWriterSettings
from rangeland.delta.stores.azure_access import AzureSettings
from rangeland.delta.stores.google_access import GoogleSettings
from rangeland.delta.stores.hadoop_settings import HadoopSettings
from rangeland.delta.stores.store_access import StoreSettings, store_settings
from rangeland.delta.stores.store_probe import foreign_entries, try_store
from rangeland.delta.table_metadata import TableLayout
from rangeland.errors import TableRefused
from rangeland.jvm.java import SMALL_JVM
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import create_topic, numbered_records, produce
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


COMMANDS = """
import json, sys
from rangeland.cli.command_line import main
for words in json.loads(sys.argv[1]):
    if code := main([*words, "--json"]):
        sys.exit(code)
"""


def answers(
    folder: Path, conf: Mapping[str, str], commands: Sequence[Sequence[str]]
) -> tuple[list[Any], str]:
    """What these commands answer, one after the other in a process with one session, which has
    these settings of Hadoop; and all that they print."""
    lines = [f"spark.hadoop.{name} {value}" for name, value in conf.items()]
    (folder / "spark-defaults.conf").write_text("\n".join(lines))
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(commands)],
        env={
            **os.environ,
            "SPARK_CONF_DIR": str(folder),
            "RANGELAND_MASTER": "local[1]",
            "JAVA_TOOL_OPTIONS": " ".join(SMALL_JVM),
        },
        capture_output=True,
        text=True,
        timeout=6 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stdout + done.stderr


def lands_proves_and_finds(
    folder: Path, kafka: KafkaCluster, topic: str, table: str, conf: Mapping[str, str]
) -> str:
    """Lands ``COUNT`` records, then three. All that the commands have printed."""
    create_topic(kafka.bootstrap, topic, partitions=1)
    produce(kafka.bootstrap, topic, numbered_records(COUNT + 3), partition=0)
    document = {
        "job": "landing",
        "source": {"servers": kafka.bootstrap, "topics": [topic]},
        "sink": {"table": table, "partition_by": ["partition"]},
        "limits": {"max_records": COUNT},
    }
    (folder / "job.yaml").write_text(json.dumps(document))
    job = str(folder / "job.yaml")
    commands = [
        ["plan", job],
        ["run", job],
        ["run", job],
        ["run", job],
        ["verify", job],
        ["find", job, topic, "0", str(COUNT)],
    ]
    (plan, first, second, third, proof, found), printed = answers(folder, conf, commands)
    assert [(one["from_offset"], one["until_offset"]) for one in plan["ranges"]] == [(0, COUNT)]
    assert (first["state"], first["landed"], first["sequence"]) == ("landed", COUNT, 1)
    assert (second["state"], second["landed"], second["sequence"]) == ("landed", 3, 2)
    assert third["state"] == "nothing"
    assert (proof["holes"], proof["duplicates"]) == ([], [])
    assert found["sequence"] == 2
    return printed


def offsets(uri: str, options: Mapping[str, str]) -> list[int]:
    table = deltalake.DeltaTable(uri, storage_options=dict(options)).to_pyarrow_table()
    return sorted(table.column("offset").to_pylist())


def written(table: StoreSettings) -> list[int]:
    """Writes rows as a task does; the offsets that are there."""
    store, root = table.open()
    schema = pa.schema([("offset", pa.int64()), ("value", pa.binary())])
    layout = TableLayout(schema)
    rows = pa.table({"offset": range(COUNT), "value": [b"v" * 1000] * COUNT}, schema=schema)
    writer = FileWriter(FileWriterSettings(table, layout))
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


def test_files_are_written_to_azure_with_a_sas_token(azurite: Azurite) -> None:
    token = azurite.sas_token()
    conf = {
        "fs.azure.account.auth.type": "SAS",
        "fs.azure.sas.fixed.token": token,
        "fs.azure.abfs.endpoint": azurite.address,
        "fs.azure.always.use.https": "false",
    }

    def table(container: str) -> StoreSettings:
        uri = f"abfs://{container}@{azurite.account}.dfs.core.windows.net/by token/orders"
        hadoop = HadoopSettings(conf.get, conf.get, lambda _: {})
        return store_settings(uri, hadoop, NotImplemented)

    assert written(table(CONTAINER)) == list(range(COUNT))
    with pytest.raises(TableRefused, match="ContainerNotFound") as absent:
        written(table("sea"))
    signature = token.rpartition("=")[2]
    conf["fs.azure.sas.fixed.token"] = token.replace(signature, "d3Jvbmc%3D")
    with pytest.raises(TableRefused, match=r"Authorization\w+|Authentication\w+") as refused:
        written(table(CONTAINER))
    for error in (absent.value, refused.value):
        shown = "".join(traceback.format_exception(error))
        assert "sig=" not in shown
        assert signature not in shown


def test_files_are_written_to_google_storage(google: GoogleEmulator) -> None:
    service = GoogleSettings(google.address, "http", anonymous=True)
    assert written(StoreSettings(f"gs://{CONTAINER}/a lake/orders", service)) == list(range(COUNT))


def test_a_topic_is_landed_on_azure(
    kafka: KafkaCluster, topic: str, azurite: Azurite, tmp_path: Path
) -> None:
    """In an account without a hierarchical namespace: Hadoop then speaks to the blob service."""
    host = f"{azurite.account}.dfs.core.windows.net"
    conf = {
        f"fs.azure.account.key.{host}": azurite.key,
        "fs.azure.abfs.endpoint": azurite.address,
        "fs.azure.always.use.https": "false",
        "fs.azure.account.hns.enabled": "false",
        "fs.azure.fns.account.service.type": "BLOB",
        "fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",  # the other one wants TLS
    }
    table = f"abfs://{CONTAINER}@{host}/a lake/orders"
    printed = lands_proves_and_finds(tmp_path, kafka, topic, table, conf)
    assert azurite.key not in printed
    options = {
        "account_name": azurite.account,
        "account_key": azurite.key,
        "endpoint": f"http://{azurite.address}/{azurite.account}",
        "allow_http": "true",
    }
    assert offsets(table, options) == list(range(COUNT + 3))


def test_a_topic_is_landed_on_hdfs(
    kafka: KafkaCluster, topic: str, hdfs: SmallHdfs, tmp_path: Path
) -> None:
    """On a cluster whose other paths are there, too."""
    home = f"hdfs://127.0.0.1:{hdfs.port}"
    table = f"{home}/lake/orders"
    lands_proves_and_finds(tmp_path, kafka, topic, table, {"fs.defaultFS": home})
    assert offsets(table, {}) == list(range(COUNT + 3))
