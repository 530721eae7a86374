"""An HTTP server that collects OpenLineage events, as Marquez does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Collector:
    """``status``: what it answers; None for nothing at all, while the connection stays open."""

    def __init__(self, status: int | None) -> None:
        self.status = status
        self.events: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.address = ""
        self.is_done = threading.Event()

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def states(self) -> list[tuple[str, str]]:
        """What happened to which job, in the order of arrival."""
        return [(event["eventType"], event["job"]["name"]) for event in self.events]


@contextmanager
def collecting(status: int | None = 201) -> Iterator[Collector]:
    collector = Collector(status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.paths.append(self.path)
            collector.headers.append(dict(self.headers))
            collector.events.append(json.loads(body))
            if collector.status is None:
                collector.is_done.wait(60)
                return
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector.address = f"127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield collector
    finally:
        collector.is_done.set()
        server.shutdown()
        server.server_close()
