"""Sends OpenLineage events.

They go where the configuration of the OpenLineage client says, and to the file of ``--lineage``.
The client is imported only if there is either. Each destination has a thread of its own: an
endpoint that is slow, or does not answer, delays neither a landing nor the file. Messages contain
no text of the client's errors, which may repeat a URL with a password, or a header with a key.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rangeland.errors import UsageError, causes_of
from rangeland.wording import count_noun

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

WAIT_S = 10.0
"""How long the end of a command waits for events that are still being sent."""
INSTALL = "pip install 'rangeland[lineage]'"
CONFIG_FILE = "openlineage.yml"

logger = logging.getLogger(__name__)

_file: Path | None = None
"""The file of the command that this process runs, as the rest of the configuration is that of the
process."""


@contextmanager
def lineage_file(path: Path | None) -> Iterator[None]:
    """Inside, events are also appended to this file. Raises UsageError if they cannot be."""
    global _file
    if path is not None:
        _check_file_can_be_written(path)
    _file = path and path.absolute()
    try:
        yield
    finally:
        _file = None


def _check_file_can_be_written(path: Path) -> None:
    name = f"--lineage {path}"
    if str(path).startswith("-"):
        raise UsageError(f"{name}: that is an option", do="name the file right after --lineage")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"{name}: its folder does not exist", do="create it, or name another")
    if path.is_dir():
        raise UsageError(f"{name}: that is a folder", do="name a file in it")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UsageError(f"{name}: it cannot be written", do="name a file that can be written to")
    if not _is_installed():
        raise UsageError(
            f"{name}: the OpenLineage client is not installed, or cannot be imported",
            do=f"run {INSTALL}",
        )


def _is_installed() -> bool:
    try:
        return find_spec("openlineage") is not None and find_spec("openlineage.client") is not None
    except Exception as error:  # The package is imported for the second, and may be another one.
        logger.info("Failed to import the package openlineage: %s", type(error).__name__)
        return False


def may_be_configured(environment: Mapping[str, str]) -> bool:
    """Whether the client's configuration may name a transport, by the rules of the client, which
    need not be imported for this: variables, or the first of its files that can be read."""
    if environment.get("OPENLINEAGE_DISABLED", "").lower().strip() == "true":
        return False
    named = {"OPENLINEAGE__TRANSPORT", "OPENLINEAGE__TRANSPORT__TYPE"}
    if environment.get("OPENLINEAGE_URL") or not named.isdisjoint(map(str.upper, environment)):
        return True
    folders = (os.curdir, os.path.expanduser("~/.openlineage"))
    files = [os.path.join(folder, CONFIG_FILE) for folder in folders]
    files.insert(0, environment.get("OPENLINEAGE_CONFIG", ""))
    return any(os.path.isfile(path) and os.access(path, os.R_OK) for path in files)


def open_destinations() -> tuple[list[LineageDestination], str]:
    """The destinations of this process's events, which may be none, and a warning about what
    cannot be used, or an empty text."""
    is_configured = may_be_configured(os.environ)
    if _file is None and not is_configured:
        return [], ""
    if not _is_installed():
        return [], (
            "no OpenLineage events are sent: the client is not installed, or cannot be imported. "
            f"Install it ({INSTALL}), "
            "or set OPENLINEAGE_DISABLED=true"
        )
    # Without a handler, Python would print the client's log to stderr.
    logging.getLogger("openlineage").addHandler(logging.NullHandler())
    destinations = []
    try:
        if _file is not None:
            destinations.append(LineageDestination(_client_for_file(_file), str(_file)))
        if is_configured:
            client = _make_client()
            if _is_wanted(client):
                destinations.append(LineageDestination(client, _address(client.transport)))
    except Exception as error:  # The client raises many classes; a landing must not fail.
        logger.info("Failed to configure the OpenLineage client: %s", type(error).__name__)
        return destinations, (
            "the OpenLineage client refuses its configuration, so it sends no events "
            f"({type(error).__name__}); check OPENLINEAGE_URL, its other variables and its "
            f"{CONFIG_FILE}"
        )
    return destinations, ""


def _client_for_file(path: Path) -> OpenLineageClient:
    from openlineage.client.transport.file import FileConfig, FileTransport

    transport = FileTransport(FileConfig(str(path), append=True))
    client = _make_client(transport)
    # With OPENLINEAGE_DISABLED, the client replaces it; but this file was asked for by name.
    client.transport = transport
    return client


def _make_client(transport: Any = None) -> OpenLineageClient:
    from openlineage.client import OpenLineageClient

    # The client would add the URL of the working directory's git remote, which may have a token.
    config = {"facets": {"source_code_location": {"disabled": True}}}
    return OpenLineageClient(transport=transport, config=config)


def _is_wanted(client: OpenLineageClient) -> bool:
    """Whether there is a transport that somebody has chosen. The client prints events if there is
    none, for example because its file only has other settings."""
    if client.transport.kind == "console":
        return bool((client.config.transport or {}).get("type"))
    return client.transport.kind != "noop"


def _address(transport: Any) -> str:
    """The address that a transport sends events to, without the user and the query of its URL."""
    url = urlsplit(str(getattr(transport, "url", "")))
    if not url.hostname:
        return f"the transport {transport.kind}"
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}"


class LineageDestination:
    """Sends events to one destination, in their order, in the background."""

    def __init__(self, client: OpenLineageClient, where: str) -> None:
        self.where = where
        self._client = client
        self._events: SimpleQueue[RunEvent | None] = SimpleQueue()
        self._lock = Lock()
        self._unsent = 0
        self._reason = ""
        # A daemon: it may still wait for an answer when the process ends.
        self._thread = Thread(target=self._send_all, name="rangeland-lineage", daemon=True)
        self._thread.start()
        logger.info("Sending OpenLineage events to %s", where)

    def send(self, event: RunEvent) -> None:
        with self._lock:
            self._unsent += 1
        self._events.put(event)

    def close(self, deadline_s: float) -> str:
        """Waits until all events are sent, but no longer than until this moment of the monotonic
        clock. Returns a warning about events that were not sent, or an empty text."""
        self._events.put(None)
        self._thread.join(max(0.0, deadline_s - time.monotonic()))
        with self._lock:
            unsent, reason = self._unsent, self._reason
        if not unsent:
            return ""
        return (
            f"{count_noun(unsent, 'OpenLineage event')} could not be sent to {self.where}: "
            f"{reason or 'it did not answer in time'}. What has landed is not affected"
        )

    def _send_all(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                self._client.emit(event)
            except Exception as error:  # Transports raise many classes; the next event is tried.
                self._reason = failure_reason(error)
                logger.info("Failed to send an OpenLineage event: %s", self._reason)
            else:
                with self._lock:
                    self._unsent -= 1
        self._close_client()

    def _close_client(self) -> None:
        """Lets a transport that sends events in the background send the rest."""
        try:
            self._client.close(WAIT_S)
        except Exception as error:  # as above
            logger.info("Failed to close the OpenLineage client: %s", failure_reason(error))


def failure_reason(error: BaseException) -> str:
    """Why an event was not sent, in words that contain none of the error's own text."""
    from requests.exceptions import HTTPError, RetryError, Timeout

    for cause in causes_of(error):
        if isinstance(cause, HTTPError) and cause.response is not None:
            return f"it answered with status {cause.response.status_code}"
        if isinstance(cause, RetryError):
            return "it kept answering with an error (status 5xx)"
        if isinstance(cause, Timeout):
            return "it did not answer in time"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
    return f"{type(error).__name__}; the client's log, openlineage.client, says more"
