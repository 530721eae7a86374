"""Emulators of Azure's and Google's stores, and a small HDFS: real servers on this machine.

Azurite comes from npm, Google's emulator from PyPI, HDFS from Maven; each is fetched once into the
user's cache.
"""

from __future__ import annotations

import base64
import datetime as dt
import hmac
import json
import secrets
import shutil
import subprocess
import sys
import urllib.request
from abc import abstractmethod
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow.fs as pafs
import pytest
from py4j.java_gateway import JavaGateway

from rangeland.jvm.jars import class_path
from rangeland.jvm.java import SMALL_JVM, find_java
from rangeland.testing.context_managers import Closing
from rangeland.testing.ports import free_ports
from rangeland.testing.processes import PATIENCE_S, Process
from tests.build_cache import INSTALL_TIMEOUT_S, kept, pip_install
from tests.jar_sets import TEST_JARS
from tests.servers.sparkcluster import SPARK_HOME

AZURITE = "azurite@3.37.0"
GOOGLE_EMULATOR = "gcp-storage-emulator==2026.7.19"
END_S = 20


class Emulator(Closing):
    """Started by the constructor, with its files in ``folder``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        (self.port,) = free_ports(1)
        command, environment = self._command()
        self.process = Process(
            type(self).__name__,
            command,
            log=folder / "log",
            environment=environment,
            directory=folder,
        )
        try:
            self.process.wait_for_port(self.port, PATIENCE_S)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.process.kill()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @abstractmethod
    def _command(self) -> tuple[list[str], dict[str, str]]:
        """What starts it, with which environment."""


class Azurite(Emulator):
    """Azure's blob service, with one account whose key it checks."""

    account = "acme"

    def __init__(self, folder: Path) -> None:
        self.key = base64.b64encode(secrets.token_bytes(32)).decode()
        super().__init__(folder)

    def _command(self) -> tuple[list[str], dict[str, str]]:
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("Azurite is installed with npm, which this machine has not")
        program = kept("packages", AZURITE, lambda target: _npm_install(npm, target, AZURITE))
        command = [
            *("node", str(program / "node_modules/azurite/dist/src/blob/main.js")),
            *("--blobHost", "127.0.0.1", "--blobPort", str(self.port)),
            *(
                "--location",
                str(self.folder),
                "--disableTelemetry",
                "--silent",
                "--skipApiVersionCheck",
            ),
        ]
        return command, {"AZURITE_ACCOUNTS": f"{self.account}:{self.key}"}

    def sas_token(self) -> str:
        """A token that may do everything in the account's blobs, for an hour."""
        until = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
        fields = {
            "sp": "rwdlac",
            "ss": "b",
            "srt": "sco",
            "st": "",
            "se": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "sip": "",
            "spr": "https,http",
            "sv": "2022-11-02",
            "ses": "",
        }
        text = "".join(f"{line}\n" for line in (self.account, *fields.values()))
        signature = hmac.digest(base64.b64decode(self.key), text.encode(), "sha256")
        given = {name: value for name, value in fields.items() if value}
        return urlencode(given | {"sig": base64.b64encode(signature).decode()})

    def filesystem(self, key: str) -> pafs.AzureFileSystem:
        return pafs.AzureFileSystem(
            self.account,
            account_key=key,
            blob_storage_authority=self.address,
            dfs_storage_authority=self.address,
            blob_storage_scheme="http",
            dfs_storage_scheme="http",
        )


def _npm_install(npm: str, target: Path, package: str) -> None:
    target.mkdir(parents=True)
    command = [npm, "install", "--prefix", str(target), "--no-audit", "--no-fund", package]
    subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S)


class GoogleEmulator(Emulator):
    """Google's JSON interface. It does not ask who sends a request."""

    def _command(self) -> tuple[list[str], dict[str, str]]:
        place = kept(
            "packages",
            f"{sys.version_info[:2]} {GOOGLE_EMULATOR} with what it needs",
            lambda target: pip_install(
                Path(sys.executable), ["--target", str(target), GOOGLE_EMULATOR]
            ),
        )
        start = [sys.executable, "-m", "gcp_storage_emulator", "start", "--in-memory"]
        return [*start, "--host=127.0.0.1", f"--port={self.port}"], {"PYTHONPATH": str(place)}

    def create_bucket(self, name: str) -> None:
        request = urllib.request.Request(
            f"http://{self.address}/storage/v1/b?project=p",
            data=json.dumps({"name": name}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            assert answer.status == 200


class SmallHdfs(Closing):
    """A name node and a data node in one JVM. This process's user is the superuser."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        (jar,) = (SPARK_HOME / "jars").glob("py4j*.jar")
        options = [f"-Djava.io.tmpdir={folder}", f"-Dtest.build.data={folder / 'data'}"]
        self._log = (folder / "log").open("w")
        jars = class_path(TEST_JARS["hadoop-minicluster-3.5.0"])
        self._gateway = JavaGateway.launch_gateway(
            jarpath=str(jar),
            classpath=f"{jars}:{SPARK_HOME / 'jars'}/*",
            javaopts=["-Xmx512m", *SMALL_JVM, *options],
            java_path=find_java(),
            die_on_exit=True,
            redirect_stdout=self._log,
            redirect_stderr=self._log,
        )
        try:
            self._hdfs = self._started(self._gateway.jvm, folder)
            self.port = int(self._hdfs.getNameNodePort())
        except BaseException:
            self._end()
            raise

    def _started(self, jvm: Any, folder: Path) -> Any:
        conf = jvm.org.apache.hadoop.hdfs.HdfsConfiguration()
        conf.set("hdfs.minidfs.basedir", str(folder / "dfs"))
        builder = getattr(jvm.org.apache.hadoop.hdfs, "MiniDFSCluster$Builder")(conf)
        hdfs = builder.numDataNodes(1).build()
        hdfs.waitActive()
        return hdfs

    def close(self) -> None:
        try:
            self._hdfs.shutdown()
        finally:
            self._end()

    def _end(self) -> None:
        self._gateway.shutdown()
        java = self._gateway.java_process
        java.stdin.close()
        try:
            java.wait(END_S)
        except subprocess.TimeoutExpired:
            java.kill()
            java.wait()
        self._log.close()
