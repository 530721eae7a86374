"""An HTTP server that answers from a script, byte by byte if a test wants it so."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Reply = Callable[[socket.socket], None]


def response(
    content: object, status: int = 200, kind: str = "application/json", **headers: str
) -> Reply:
    """``content``: what becomes JSON, or bytes as they are."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    named = {"Content-Type": kind, "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name.replace('_', '-')}: {text}\r\n" for name, text in named.items())
    return sends(f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + body)


def error(status: int, code: int, message: str = "no") -> Reply:
    return response({"error_code": code, "message": message}, status)


def sends(data: bytes) -> Reply:
    return lambda peer: peer.sendall(data)


def drips(data: bytes, every_s: float) -> Reply:
    """A byte at a time, so that no single read takes long."""

    def reply(peer: socket.socket) -> None:
        for byte in data:
            peer.sendall(bytes([byte]))
            time.sleep(every_s)

    return reply


def is_silent(peer: socket.socket) -> None:
    with suppress(OSError):
        peer.recv(1)  # until the client gives up


@dataclass
class ScriptedServer:
    """``requests``: the first line and the headers of each request, in order."""

    port: int
    requests: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [line.split(" ")[1] for line, _ in self.requests]


@contextmanager
def scripted(
    replies: Sequence[Reply] | Mapping[str, Reply], context: ssl.SSLContext | None = None
) -> Iterator[ScriptedServer]:
    """A reply for each connection, the last one for all that follow; or a reply for each path, and
    404 without JSON for others."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        scheme = "https" if context else "http"
        server = ScriptedServer(listener.getsockname()[1], scheme=scheme)

        def serve() -> None:
            while True:
                try:
                    plain, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=talk, args=(plain,), daemon=True).start()

        def talk(plain: socket.socket) -> None:
            plain.settimeout(20)
            with plain, suppress(OSError):
                peer = context.wrap_socket(plain, server_side=True) if context else plain
                with peer:
                    data = b""
                    while b"\r\n\r\n" not in data:
                        piece = peer.recv(65536)
                        if not piece:
                            return
                        data += piece
                    first, *lines = data.decode("latin-1").split("\r\n\r\n")[0].split("\r\n")
                    server.requests.append((first, dict(line.split(": ", 1) for line in lines)))
                    chosen(len(server.requests) - 1, first.split(" ")[1])(peer)

        def chosen(number: int, path: str) -> Reply:
            if isinstance(replies, Mapping):
                return replies.get(path, response(b"<html>", 404, "text/html"))
            return replies[min(number, len(replies) - 1)]

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)
