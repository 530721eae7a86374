"""franz-go's own cluster as a process: built once, by hash of its source, into the cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from rangeland.jvm.jars import cache_directory

SOURCE = Path(__file__).parent
UNOPTIMISED = "-gcflags=github.com/twmb/franz-go/...=-N -l"
"""Builds in half the time, and nobody waits for this cluster."""


def built() -> Path:
    """The program. Skips the test on a machine without Go, which nothing else here needs."""
    if shutil.which("go") is None:
        pytest.skip("franz-go's cluster is built with Go, and this machine has no `go`")
    sources = [SOURCE / name for name in ("go.mod", "go.sum", "main.go")]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    program = cache_directory() / "kfake" / digest
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_suffix(f".{os.getpid()}")
        command = ["go", "build", "-buildvcs=false", UNOPTIMISED, "-o", str(unfinished), "."]
        subprocess.run(command, cwd=SOURCE, check=True, timeout=900)
        unfinished.replace(program)
    return program


class FakeCluster:
    """Three brokers. They end with this process, since they read its commands."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [str(built())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.bootstrap: list[str] = self._answer()

    def create_topic(self, topic: str, partitions: int) -> None:
        assert self._tell(f"topic {topic} {partitions}") == "<nil>"

    def trouble(self, seed: int) -> None:
        """From now on leaders move every 150 ms, and a third of the fetches fail."""
        self._tell(f"trouble {seed}")

    def calm(self) -> dict[str, Any]:
        """Ends the trouble: ``fetches`` that came meanwhile, and those that ``failed``, by code."""
        return self._tell("calm")

    def _tell(self, command: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._process as process:
            process.kill()
