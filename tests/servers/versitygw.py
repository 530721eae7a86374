"""A second S3 server, since what holds on one need not hold on another: Versity's gateway.

It serves a folder, has nothing in common with S3Proxy, and is built once into the user's cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.build_cache import kept
from tests.servers.s3 import REGION, S3Server

PROGRAM = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
UNOPTIMISED = "-gcflags=all=-N -l"
"""Builds faster, and nobody waits for this server."""


def built() -> Path:
    """The program. Skips the test on a machine without Go, which nothing else here needs."""
    if shutil.which("go") is None:
        pytest.skip("Versity's gateway is built with Go, and this machine has no `go`")
    return kept("versitygw", PROGRAM, _build) / "versitygw"


def _build(folder: Path) -> None:
    folder.mkdir(parents=True)
    environment = {**os.environ, "GOBIN": str(folder)}
    command = ["go", "install", UNOPTIMISED, PROGRAM]
    subprocess.run(command, env=environment, check=True, timeout=1800)


class VersityGateway(S3Server):
    kind = "versitygw"

    def _command(self, folder: Path) -> list[str]:
        for name in ("data", "attributes"):
            (folder / name).mkdir(exist_ok=True)
        keys = ["--access", self.access_key, "--secret", self.secret_key, "--region", REGION]
        store = ["posix", "--sidecar", str(folder / "attributes"), str(folder / "data")]
        return [str(built()), "--port", f"127.0.0.1:{self.port}", *keys, *store]
