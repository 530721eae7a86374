"""A schema registry on this machine, small and short-lived: Apicurio, which has Confluent's API.

Its schemas are in memory: one that was killed starts again without any. It has no logins and no
TLS of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from rangeland.errors import UsageError
from rangeland.testing.server_command import java_command
from tests.jar_sets import TEST_JARS
from tests.servers.local_server import LocalServer

JARS = TEST_JARS["apicurio-2.6.13"]
REQUEST_TIMEOUT_S = 30
API = "/apis/ccompat/v7"


class ApicurioRegistry(LocalServer):
    """Started by ``start`` or ``with``."""

    kind = "Apicurio"
    start_timeout_s = 120

    def __init__(self, heap_mb: int = 128) -> None:
        super().__init__(JARS)
        self.heap_mb = heap_mb

    def _command(self, folder: Path) -> list[str]:
        properties = {
            "java.io.tmpdir": folder,
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self.port,
            "quarkus.log.level": "WARN",
        }
        main = "io.quarkus.runner.GeneratedMain"
        return java_command(JARS, self.heap_mb, main, properties=properties)

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
            with urlopen(request, timeout=REQUEST_TIMEOUT_S) as response:
                return json.load(response)
        except HTTPError as error:
            with error:
                why = error.read(1000).decode(errors="replace")
            if error.code >= 500:
                raise
            raise UsageError(f"Apicurio refused {path}", why=f"{error.code}: {why}") from error
