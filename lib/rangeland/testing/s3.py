"""An S3 server on this machine, small and short-lived: S3Proxy over a folder.

It supports what tables on S3 need: signed requests, multipart uploads, listings, and conditional
writes. Each server has new random keys. The data is in a temporary folder that is removed at the
end; a server that was killed can be started again on its port and with its data.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pyarrow.fs as pafs

from rangeland.errors import UsageError
from rangeland.jvm.jars import class_path, fetch_jars
from rangeland.jvm.java import SMALL_JVM, find_java
from rangeland.testing.context_managers import Startable
from rangeland.testing.ports import free_ports
from rangeland.testing.processes import Process, remove_directory, temporary_directory

JARS = "s3proxy-4.1.0"
START_TIMEOUT_S = 60
REGION = "us-east-1"
# Left to itself it writes down every step of every request.
_LOGGING = """<configuration>
  <appender name="stdout" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %p %m \\(%c\\)%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="stdout"/></root>
</configuration>
"""


class S3Server(Startable):
    """Started by ``start`` or ``with``. ``buckets`` are made as soon as it runs."""

    def __init__(self, buckets: Sequence[str] = (), heap_mb: int = 128) -> None:
        self.buckets = tuple(buckets)
        self.heap_mb = heap_mb
        self.access_key = f"AK{secrets.token_hex(8).upper()}"
        self.secret_key = secrets.token_hex(20)
        self.port = 0
        self._directory: Path | None = None
        self._process: Process | None = None

    # --- life --------------------------------------------------------------------------

    def start(self) -> Self:
        """Returns when it answers. Raises `Unreachable` with the end of its log if not."""
        if self._directory is not None:
            raise UsageError("The server is already started", do="Use restart after kill")
        fetch_jars(JARS)  # before anything is made: the first time takes a while
        self._directory = temporary_directory("rangeland-s3-")
        try:
            (self.port,) = free_ports(1)
            (self._directory / "data").mkdir()
            self._write_config(self._directory)
            self.restart()
            for bucket in self.buckets:
                self.create_bucket(bucket)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Ends the server at once and removes its data."""
        self.kill()
        if self._directory is not None:
            remove_directory(self._directory)
        self._directory = None

    def kill(self) -> None:
        """SIGKILL: a crash. Its port and data are kept for `restart`."""
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing is taken or answered."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        if self._process is not None:
            self._process.resume()

    def restart(self) -> None:
        """Starts it again on its port and data."""
        self.kill()
        folder = self.directory
        options = [*SMALL_JVM, f"-Xmx{self.heap_mb}m", f"-Djava.io.tmpdir={folder}"]
        options.append(f"-Dlogback.configurationFile={folder / 'logback.xml'}")
        main = ["org.gaul.s3proxy.Main", "--properties", str(folder / "s3proxy.conf")]
        command = [find_java(), *options, "-cp", class_path(JARS), *main]
        self._process = Process("S3Proxy", command, log=folder / "s3proxy.log")
        self._process.wait_for_port(self.port, START_TIMEOUT_S)

    # --- what tests ask of it ----------------------------------------------------------

    @property
    def directory(self) -> Path:
        """Where configuration, log and ``data`` of a started server are."""
        if self._directory is None:
            raise UsageError("The server is not started", do="Call start() or use `with`")
        return self._directory

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def create_bucket(self, name: str) -> None:
        self.filesystem(allow_bucket_creation=True).create_dir(name)

    def filesystem(self, allow_bucket_creation: bool = False) -> pafs.S3FileSystem:
        """The whole server, seen with its own keys."""
        return pafs.S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            region=REGION,
            allow_bucket_creation=allow_bucket_creation,
        )

    def keys_in(self, path: str) -> list[str]:
        """The paths of all objects under ``bucket/folder``, sorted. An upload that was not
        completed is not an object."""
        found = self.filesystem().get_file_info(
            pafs.FileSelector(path, recursive=True, allow_not_found=True)
        )
        return sorted(info.path for info in found if info.type == pafs.FileType.File)

    def hadoop_settings(self, bucket: str | None = None) -> dict[str, str]:
        """What Hadoop's S3A needs to know, for one bucket or for all."""
        prefix = f"fs.s3a.bucket.{bucket}." if bucket else "fs.s3a."
        settings = {
            "endpoint": self.endpoint,
            "endpoint.region": REGION,
            "path.style.access": "true",
            "access.key": self.access_key,
            "secret.key": self.secret_key,
        }
        return {prefix + name: value for name, value in settings.items()}

    # --- how it is done ----------------------------------------------------------------

    def _write_config(self, folder: Path) -> None:
        settings = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": self.access_key,
            "s3proxy.credential": self.secret_key,
            "jclouds.provider": "filesystem",
            "jclouds.filesystem.basedir": str(folder / "data"),
        }
        (folder / "logback.xml").write_text(_LOGGING)
        config = folder / "s3proxy.conf"
        config.touch(mode=0o600)
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
