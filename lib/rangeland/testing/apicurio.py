"""A schema registry on this machine, small and short-lived: Apicurio, which has Confluent's API.

Its schemas are in memory: one that was killed starts again without any. It has no logins and no
TLS of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from rangeland.errors import UsageError
from rangeland.jvm.jars import class_path, fetch_jars
from rangeland.jvm.java import SMALL_JVM, find_java
from rangeland.testing.context_managers import Startable
from rangeland.testing.ports import free_ports
from rangeland.testing.processes import Process, remove_directory, temporary_directory

JARS = "apicurio-2.6.13"
START_TIMEOUT_S = 120
REQUEST_TIMEOUT_S = 30
API = "/apis/ccompat/v7"


class ApicurioRegistry(Startable):
    """Started by ``start`` or ``with``."""

    def __init__(self, heap_mb: int = 128) -> None:
        self.heap_mb = heap_mb
        self.port = 0
        self._directory: Path | None = None
        self._process: Process | None = None

    # --- life --------------------------------------------------------------------------

    def start(self) -> Self:
        """Returns when it answers. Raises `Unreachable` with the end of its log if not."""
        if self._directory is not None:
            raise UsageError("The registry is already started", do="Use restart after kill")
        fetch_jars(JARS)  # before anything is made: the first time takes a while
        self._directory = temporary_directory("rangeland-apicurio-")
        try:
            (self.port,) = free_ports(1)
            self.restart()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Ends the registry at once."""
        self.kill()
        if self._directory is not None:
            remove_directory(self._directory)
        self._directory = None

    def kill(self) -> None:
        """SIGKILL: a crash. Its port is kept for `restart`, its schemas are gone."""
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        """SIGSTOP: connections are accepted and nothing is answered."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        if self._process is not None:
            self._process.resume()

    def restart(self) -> None:
        """Starts it again on its port, without schemas."""
        if self._directory is None:
            raise UsageError("The registry is not started", do="Call start() or use `with`")
        self.kill()
        options = [
            *SMALL_JVM,
            f"-Xmx{self.heap_mb}m",
            f"-Djava.io.tmpdir={self._directory}",
            "-Dquarkus.http.host=127.0.0.1",
            f"-Dquarkus.http.port={self.port}",
            "-Dquarkus.log.level=WARN",
        ]
        command = [
            find_java(),
            *options,
            "-cp",
            class_path(JARS),
            "io.quarkus.runner.GeneratedMain",
        ]
        self._process = Process("Apicurio", command, log=self._directory / "apicurio.log")
        self._process.wait_for_port(self.port, START_TIMEOUT_S)
        self._process.wait_until(self._answers, "its API to answer", START_TIMEOUT_S)

    def _answers(self) -> bool:
        try:
            self._call("/subjects")
        except OSError:
            return False
        return True

    # --- what tests ask of it ----------------------------------------------------------

    @property
    def url(self) -> str:
        """As a job file names it."""
        return f"http://127.0.0.1:{self.port}{API}"

    def register(
        self,
        subject: str,
        schema: str | Mapping[str, Any],
        kind: str = "AVRO",
        references: Sequence[tuple[str, str, int]] = (),
    ) -> int:
        """The id of a schema, registered as the next version of a subject, unless it is there
        already. ``references``: name, subject and version of what it refers to."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        listed = [{"name": n, "subject": s, "version": v} for n, s, v in references]
        body = {"schema": text, "schemaType": kind, "references": listed}
        found = self._call(f"/subjects/{quote(subject, safe='')}/versions", body)
        return int(found["id"])

    def _call(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with urlopen(request, timeout=REQUEST_TIMEOUT_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                why = error.read(1000).decode(errors="replace")
            if error.code >= 500:
                raise
            raise UsageError(f"Apicurio refused {path}", why=f"{error.code}: {why}") from error
