"""A reverse proxy in front of a schema registry that wants a login, with or without TLS."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from rangeland.testing.processes import PATIENCE_S


@contextmanager
def guarded(
    url: str, authorization: str = "", context: ssl.SSLContext | None = None
) -> Iterator[str]:
    """The URL of the proxy. Only requests with exactly this ``Authorization`` are passed on; all
    are if it is empty."""

    class Guard(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            if authorization and self.headers.get("Authorization") != authorization:
                self._answer(401, b'{"error_code": 40101, "message": "who are you?"}')
                return
            try:
                with urlopen(Request(url + self.path), timeout=PATIENCE_S) as response:
                    self._answer(response.status, response.read())
            except HTTPError as error:
                with error:
                    self._answer(error.code, error.read())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Guard) as server:
        server.daemon_threads = True
        if context is not None:
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"{'https' if context else 'http'}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(5)
