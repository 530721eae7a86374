"""One HTTP request with a deadline, to a server other than a broker; the response has a size limit.

The deadline covers everything except the lookup of the host name: a server that sends a byte now
and then is cut off. Redirects are not followed, and no proxy is used. The caller decides what a
response means.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl

READ_BYTES = 1 << 16
"""The size is checked after each read, so a response exceeds its limit by at most this much."""
_SHUT_BOTH = 2


class HttpFailed(Exception):
    """There is no complete response. ``is_untrusted``: the server's certificate was refused. The
    message repeats neither the URL nor any part of a response."""

    def __init__(self, why: str, *, is_untrusted: bool = False) -> None:
        super().__init__(why)
        self.is_untrusted = is_untrusted


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response. ``location``: the target of a redirect, as the server wrote it."""

    status: int
    body: bytes
    location: str = ""


def http_get(
    url: str,
    headers: Mapping[str, str],
    context: ssl.SSLContext,
    *,
    connect_s: float,
    request_s: float,
    max_bytes: int,
) -> HttpResponse:
    """The response to a GET, whatever its status. ``context`` is used for ``https``. Raises
    HttpFailed."""
    late = f"no complete response in {request_s:.3g} s"
    is_over = threading.Event()
    try:
        connection, target = _prepare(url, context, min(connect_s, request_s))
        with closing(connection), _CutOff(connection, request_s, is_over):
            connection.request("GET", target, headers={"Connection": "close", **headers})
            with connection.getresponse() as response:
                body = _body(response, max_bytes)
                location = response.headers.get("Location") or ""
        failure = HttpFailed(late) if is_over.is_set() else None
    except HttpFailed as error:
        failure = error
    except (OSError, ValueError, HTTPException) as error:
        failure = HttpFailed(late) if is_over.is_set() else _http_error(error, late)
    if failure is not None:
        # Raised outside the handlers: the context would repeat headers, or parts of the response.
        raise failure
    return HttpResponse(response.status, body, location)


def _prepare(url: str, context: ssl.SSLContext, timeout_s: float) -> tuple[HTTPConnection, str]:
    at = urlsplit(url)
    host, port = at.hostname, at.port
    if not host or not url.isascii():
        raise HttpFailed("its URL has no valid host and port")
    target = (at.path or "/") + (f"?{at.query}" if at.query else "")
    if at.scheme == "https":
        return HTTPSConnection(host, port, timeout=timeout_s, context=context), target
    return HTTPConnection(host, port, timeout=timeout_s), target


class _CutOff:
    """Connects, and shuts down the socket at the deadline, whatever has arrived by then: a socket's
    own timeout starts again with each packet."""

    def __init__(self, connection: HTTPConnection, in_s: float, is_over: threading.Event) -> None:
        self._connection = connection
        self._is_over = is_over
        self._until = time.monotonic() + in_s
        self._socket: Any = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> None:
        self._connection.connect()
        self._socket = self._connection.sock  # the connection drops it before the body is read
        remaining = max(0.001, self._until - time.monotonic())
        self._socket.settimeout(remaining)
        self._timer = threading.Timer(remaining, self._shut)
        self._timer.daemon = True
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _shut(self) -> None:
        self._is_over.set()
        with suppress(OSError):
            self._socket.shutdown(_SHUT_BOTH)


def _body(response: HTTPResponse, most: int) -> bytes:
    blocks, size = [], 0
    while block := response.read1(READ_BYTES):
        blocks.append(block)
        size += len(block)
        if size > most:
            raise HttpFailed(f"its response has more than {most} bytes")
    if response.length:
        raise HttpFailed(f"its response ended {response.length} bytes early")
    return b"".join(blocks)


def _http_error(error: Exception, late: str) -> HttpFailed:
    """The error, without the messages of ``http.client``: those repeat parts of the request and
    the response, while the system's messages do not."""
    if isinstance(error, TimeoutError):
        return HttpFailed(late)
    if isinstance(error, OSError) and not isinstance(error, HTTPException):
        reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or error
        is_untrusted = bool(getattr(error, "verify_code", 0))
        return HttpFailed(str(reason) or type(error).__name__, is_untrusted=is_untrusted)
    return HttpFailed(f"its response is not HTTP ({type(error).__name__})")
