"""Fetches bearer tokens from a command, a file, a function, or an OAuth 2 token endpoint.

A token is fetched where the connection is made, on the driver or an executor, and again for each
login, so its source must be available there. Tokens are never stored, and never part of an error: a
command's stdout is not repeated, and anything in its stderr that looks like a token is masked.
Connections that one process makes at the same time share a token: see ``REUSE_S``. Each source has
its own timeout and lock, so a source that hangs delays only its own users.
"""

from __future__ import annotations

import importlib
import platform
import re
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rangeland.cluster_settings import TlsSettings, TokenSource
from rangeland.connection.tls import tls_context
from rangeland.errors import AccessDenied, JobFileError, RangelandError, Unreachable
from rangeland.untrusted import JsonFields, Unreadable

REUSE_S = 10
"""How long a token is reused: a survey connects to many brokers at once, and a task to several."""
MAX_RESPONSE_BYTES = 1 << 20
"""Tokens have a few kilobytes, even with the claims of many groups."""
TAIL_BYTES = 400
"""Only the end of an output is shown: it says what went wrong, and the error stays readable."""
TRY_LATER = 75
"""``EX_TEMPFAIL`` of ``sysexits.h``, an exit code that this library's commands use as well."""
BUSY = (408, 425, 429)
BUSY_ERRORS = ("temporarily_unavailable", "server_error")
"""Status codes and errors (RFC 6749) of an endpoint that may issue a token later."""
REFUSED = (401, 403)
REFUSAL_ERRORS = ("invalid_client", "unauthorized_client", "invalid_scope")
"""The error codes of an endpoint that issues no tokens to this client."""
FIELD = "source.security.sasl.token"
OPERATOR = "the token endpoint's operator"

# RFC 6750, b64token.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_LOOKS_SECRET = re.compile(r"[A-Za-z0-9._~+/=-]{24,}")

_kept: dict[TokenSource, tuple[float, str]] = {}
_lock = threading.Lock()
_locks: dict[TokenSource, threading.Lock] = {}


def fetch_token(source: TokenSource, wait_ms: int, *, refresh: bool = False) -> str:
    """A token from this source. ``refresh``: a recent one is not reused. Raises JobFileError if the
    source does not work, AccessDenied if an endpoint refuses this client, Unreachable if the source
    may work later."""
    wait_s = wait_ms / 1000
    until = time.monotonic() + wait_s
    with _lock:
        source_lock = _locks.setdefault(source, threading.Lock())
    if not source_lock.acquire(timeout=wait_s):
        raise _too_slow_error(_name(source), wait_s)
    try:
        with _lock:
            taken_at, token = _kept.get(source, (-REUSE_S - 1.0, ""))
        if not refresh and time.monotonic() - taken_at <= REUSE_S:
            return token
        token = _in_time(source, max(0.0, until - time.monotonic()))
        with _lock:
            _kept[source] = (time.monotonic(), token)
        return token
    finally:
        source_lock.release()


def forget_token(source: TokenSource) -> None:
    """Forgets a token that was refused: the next login fetches another one."""
    with _lock:
        _kept.pop(source, None)


def _in_time(source: TokenSource, wait_s: float) -> str:
    """Fetches in a separate thread, which is abandoned at the timeout: a file system, a slow server
    or a function may take any time. Commands can be killed instead."""
    if source.command:
        return _fetch_valid(source, wait_s)
    outcome: list[str | BaseException] = []

    def work() -> None:
        try:
            outcome.append(_fetch_valid(source, wait_s))
        except BaseException as error:  # raised again in the waiting thread
            outcome.append(error)

    thread = threading.Thread(target=work, name="rangeland-token", daemon=True)
    thread.start()
    thread.join(wait_s)
    if not outcome:
        raise _too_slow_error(_name(source), wait_s)
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _too_slow_error(name: str, wait_s: float, field: str = FIELD) -> Unreachable:
    return Unreachable(
        f"{name} gave no token",
        why=f"it did not finish within {wait_s:.3g} s on {platform.node()}",
        do=f"find out why it takes so long, or raise source.timeouts.request_ms ({field})",
    )


def _name(source: TokenSource) -> str:
    if source.command:
        return f"the command {source.command[0]}"
    if source.file is not None:
        return f"the file {source.file}"
    if source.function is not None:
        return f"the function {source.function}"
    return f"the endpoint {_without_query(source.endpoint or '')}"


def _fetch_valid(source: TokenSource, wait_s: float) -> str:
    if source.command:
        token = _from_command(source.command, wait_s)
    elif source.file is not None:
        token = _from_file(source.file)
    elif source.function is not None:
        token = _from_function(source.function)
    else:
        token = _from_endpoint(source, wait_s)
    return _require_valid_token(token, _name(source))


def _from_command(command: tuple[str, ...], wait_s: float) -> str:
    field = f"{FIELD}.command"
    process: subprocess.CompletedProcess[bytes] | None = None
    try:
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=wait_s, check=False
        )
    except subprocess.TimeoutExpired:
        pass  # it contains the output so far, so it must not be the cause of the error below
    except (OSError, ValueError) as error:
        raise JobFileError(
            f"the command {command[0]} cannot be started on {platform.node()}",
            why=getattr(error, "strerror", None) or type(error).__name__,
            do=f"correct {field}; it must exist on the driver and on every executor",
        ) from None
    if process is None:
        raise _too_slow_error(f"the command {command[0]}", wait_s, field)
    if process.returncode == 0:
        return process.stdout.decode("utf-8", errors="replace")
    raise _command_error(command, process.returncode, process.stdout, process.stderr)


def _command_error(
    command: tuple[str, ...], code: int, stdout: bytes, stderr: bytes
) -> RangelandError:
    kind = Unreachable if code == TRY_LATER else JobFileError
    output = _tail(stderr, stdout)
    return kind(
        f"the command {command[0]} gave no token",
        why=f"it ended with exit code {code} on {platform.node()}"
        + (f": {output}" if output else ""),
        do=f"run it by hand as this user, then correct {FIELD}.command; a command that ends with "
        f"{TRY_LATER} is retried later",
        code=code,
    )


def _tail(stderr: bytes, stdout: bytes) -> str:
    text = stderr.decode("utf-8", errors="replace")
    for word in stdout.decode("utf-8", errors="replace").split():
        text = text.replace(word, "...") if len(word) >= 8 else text
    text = " ".join(_LOOKS_SECRET.sub("...", text).split())
    return text if len(text) <= TAIL_BYTES else "..." + text[-TAIL_BYTES:]


def _from_file(path: str) -> str:
    why = "it is not UTF-8"
    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_RESPONSE_BYTES).decode("utf-8")
    except UnicodeDecodeError:
        pass  # raised below without its cause, which contains the token
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
    raise JobFileError(
        f"the token file {path} cannot be read on {platform.node()}",
        why=why,
        do=f"make it readable on the driver and on every executor, or correct {FIELD}.file",
    )


def _from_function(name: str) -> str:
    function = _import_function(name)
    try:
        token = function()
        return token if isinstance(token, str) else ""
    except RangelandError:
        raise
    except (Exception, SystemExit) as error:
        # Its message and its traceback may contain the token.
        kind = type(error).__name__
    raise JobFileError(
        f"the function {name} gave no token",
        why=f"it raised {kind} on {platform.node()}",
        do=f"call it by hand, then correct {FIELD}.callable",
    )


def _import_function(name: str) -> Callable[[], Any]:
    module, _, attribute = name.partition(":")
    try:
        function: Callable[[], Any] = getattr(importlib.import_module(module), attribute)
        return function
    except (ImportError, AttributeError) as error:
        why = str(error)
    except (Exception, SystemExit) as error:
        # The import of a module may handle a token as well.
        why = f"its module raised {type(error).__name__}"
    raise JobFileError(
        f"the function {name} cannot be imported on {platform.node()}",
        why=why,
        do=f"ship its module with --py-files, or correct {FIELD}.callable",
    )


def _from_endpoint(source: TokenSource, wait_s: float) -> str:
    from urllib.parse import urlencode

    form = {
        "grant_type": "client_credentials",
        "client_id": source.client_id,
        "client_secret": source.client_secret,
        **({"scope": source.scope} if source.scope else {}),
    }
    url = source.endpoint or ""
    status, body = _post(url, urlencode(form).encode(), wait_s, source.ca)
    token, error_code = _read_response(body)
    if status == 200 and token:
        return token
    what = f"the token endpoint {_without_query(url)} gave no token"
    why = f"it answered {status}, {_mask_secrets(error_code, source)}"
    do = f"check endpoint, client_id, client_secret and scope in {FIELD}"
    if status >= 500 or status in BUSY or error_code in BUSY_ERRORS:
        raise Unreachable(what, why=why, do=do, status=status)
    if status in REFUSED or error_code in REFUSAL_ERRORS:
        raise AccessDenied(
            what, why=why, do=do, operator=OPERATOR, login_is_in_doubt=True, status=status
        )
    raise JobFileError(what, why=why, do=do, status=status)


def _post(url: str, form: bytes, wait_s: float, ca: str | None) -> tuple[int, bytes]:
    """Status and body of the response. Only the configured address is contacted: redirects are not
    followed, and a proxy is used only if it cannot read the request. ``http_client`` uses no proxy
    at all, but token endpoints are often outside the network, where only a proxy reaches them."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import (
        BaseHandler,
        HTTPRedirectHandler,
        HTTPSHandler,
        ProxyHandler,
        Request,
        build_opener,
    )

    class NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *asked: Any) -> None:
            """The response itself, such as 302, is the result."""

    is_safe = url.lower().startswith("https:")
    own: BaseHandler = (
        HTTPSHandler(context=tls_context(TlsSettings(ca=ca))) if is_safe else ProxyHandler({})
    )
    try:
        with build_opener(own, NoRedirect()).open(Request(url, form), timeout=wait_s) as response:
            return response.status, response.read(MAX_RESPONSE_BYTES)
    except HTTPError as error:
        with error:
            return error.code, error.read(MAX_RESPONSE_BYTES)
    except (URLError, OSError, ValueError, HTTPException) as error:
        cause = getattr(error, "reason", error)
        kind = JobFileError if getattr(cause, "verify_code", 0) else Unreachable
        why = _why_silent(cause)
    # Raised without its cause, which quotes a response that is not HTTP.
    raise kind(
        f"the token endpoint {_without_query(url)} does not answer",
        why=why,
        do=f"check {FIELD}: endpoint and ca, then run again",
    )


def _read_response(body: bytes) -> tuple[str, str]:
    """The token, and the error (``error`` of RFC 6749, 5.2). Nothing else of the response is
    repeated."""
    try:
        fields = JsonFields.parse(body, max_bytes=MAX_RESPONSE_BYTES)
        return fields.text("access_token", ""), fields.text("error", "")[:80] or "no access_token"
    except Unreadable:
        return "", "no access_token"


def _mask_secrets(text: str, source: TokenSource) -> str:
    """The text without the secret that was sent, and without anything that looks like one."""
    if source.client_secret:
        text = text.replace(source.client_secret, "...")
    return _LOOKS_SECRET.sub("...", text)


def _without_query(url: str) -> str:
    """The URL without its query and fragment, which may contain a secret."""
    shown, mark, _ = url.partition("?") if "?" in url else url.partition("#")
    return f"{shown.partition('#')[0]}{mark}..." if mark else shown


def _why_silent(cause: object) -> str:
    """The reason, never with the address, which messages of ``http.client`` repeat."""
    if isinstance(cause, OSError):
        return str(cause) or type(cause).__name__
    return type(cause).__name__


def _require_valid_token(text: str, origin: str) -> str:
    token = text.strip()
    if _TOKEN.fullmatch(token):
        return token
    raise JobFileError(
        f"{origin} did not give a valid bearer token",
        why=f"it has {len(token)} characters, some of which RFC 6750 does not allow"
        if token
        else "its output is empty",
        do=f"have it output the token and nothing else ({FIELD})",
    )
