"""An S3 server on this machine, small and short-lived: S3Proxy over a folder.

It supports what tables on S3 need: signed requests, multipart uploads, listings, and conditional
writes. Each server has new random keys. The data is in a temporary folder that is removed at the
end; a server that was killed can be started again on its port and with its data.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

import pyarrow.fs as pafs

from rangeland.testing.server_command import java_command, write_settings
from tests.jar_sets import TEST_JARS
from tests.servers.local_server import LocalServer

JARS = TEST_JARS["s3proxy-4.1.0"]
REGION = "us-east-1"
# Left to itself it writes down every step of every request.
_LOGGING = """<configuration>
  <appender name="stdout" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %p %m \\(%c\\)%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="stdout"/></root>
</configuration>
"""


class S3Server(LocalServer):
    """Started by ``start`` or ``with``. ``buckets`` are made as soon as it runs."""

    kind = "S3Proxy"

    def __init__(self, buckets: Sequence[str] = (), heap_mb: int = 128) -> None:
        super().__init__(JARS)
        self.buckets = tuple(buckets)
        self.heap_mb = heap_mb
        self.access_key = f"AK{secrets.token_hex(8).upper()}"
        self.secret_key = secrets.token_hex(20)

    # --- what tests ask of it ----------------------------------------------------------

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

    def _command(self, folder: Path) -> list[str]:
        (folder / "data").mkdir(exist_ok=True)
        logging = folder / "logback.xml"
        logging.write_text(_LOGGING)
        settings = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": self.access_key,
            "s3proxy.credential": self.secret_key,
            "jclouds.provider": "filesystem",
            "jclouds.filesystem.basedir": str(folder / "data"),
        }
        config = folder / "s3proxy.conf"
        config.touch(mode=0o600)
        write_settings(config, settings)
        arguments = ("org.gaul.s3proxy.Main", "--properties", str(config))
        properties = {"java.io.tmpdir": folder, "logback.configurationFile": logging}
        return java_command(JARS, self.heap_mb, *arguments, properties=properties)

    def _prepare(self) -> None:
        for bucket in self.buckets:
            self.create_bucket(bucket)
