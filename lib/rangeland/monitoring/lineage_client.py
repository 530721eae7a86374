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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
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
    from openlineage.client.transport import Transport

WAIT_S = 10.0
"""How long the end of a command waits for events that are still being sent."""
INSTALL = "pip install 'rangeland[lineage]'"
CONFIG_FILE = "openlineage.yml"

logger = logging.getLogger(__name__)

_IGNORED = logging.NullHandler()
"""Without a handler, Python would print the client's log to stderr."""
_file: Path | None = None
"""The file of the command that this process runs, as the rest of the configuration is that of the
process."""


_is_off = False
"""Whether the command of this process sends no events, whatever is configured."""


@contextmanager
def without_lineage() -> Iterator[None]:
    """Inside, no events are sent: for landings that concern nobody else."""
    global _is_off
    _is_off = True
    try:
        yield
    finally:
        _is_off = False


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
    if _is_disabled(environment):
        return False
    named = {"OPENLINEAGE__TRANSPORT", "OPENLINEAGE__TRANSPORT__TYPE"}
    if environment.get("OPENLINEAGE_URL") or not named.isdisjoint(map(str.upper, environment)):
        return True
    return _configuration_file(environment) is not None


def _is_disabled(environment: Mapping[str, str]) -> bool:
    return environment.get("OPENLINEAGE_DISABLED", "").lower().strip() == "true"


def _configuration_file(environment: Mapping[str, str]) -> str | None:
    folders = (os.curdir, os.path.expanduser("~/.openlineage"))
    paths = (environment.get("OPENLINEAGE_CONFIG", ""), *(f"{x}/{CONFIG_FILE}" for x in folders))
    return next((path for path in paths if _can_be_read(path)), None)


def _can_be_read(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.R_OK)


def _configuration_warning(environment: Mapping[str, str]) -> str:
    """A warning about a file that the client would ignore without a word, or an empty text."""
    import yaml

    if _is_disabled(environment):
        return ""
    ignored = "so the OpenLineage client uses none of its settings"
    named = environment.get("OPENLINEAGE_CONFIG", "")
    if named and not _can_be_read(named):
        return f"the file {named}, which OPENLINEAGE_CONFIG names, cannot be read, {ignored}"
    if (path := _configuration_file(environment)) is None:
        return ""
    try:
        with open(path, encoding="utf-8") as file:
            yaml.safe_load(file)
    except Exception as error:  # The client, too, ignores whatever it is.
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f", line {mark.line + 1}"
        return f"{path} cannot be read ({type(error).__name__}{where}), {ignored}"
    return ""


def open_destinations() -> tuple[list[LineageDestination], list[str]]:
    """The destinations of this process's events, which may be none, and warnings about what cannot
    be used."""
    if _is_off:
        return [], []
    is_configured = may_be_configured(os.environ)
    warning = _configuration_warning(os.environ)
    warnings = [warning] if warning else []
    if _file is None and not is_configured:
        return [], warnings
    if not _is_installed():
        return [], [
            *warnings,
            "no OpenLineage events are sent: the client is not installed, or cannot be imported. "
            f"Install it ({INSTALL}), or set OPENLINEAGE_DISABLED=true",
        ]
    logging.getLogger("openlineage").addHandler(_IGNORED)  # It is added once only.
    found = [
        None if _file is None else _destination_of_file(_file, warnings),
        _configured_destination(warnings) if is_configured else None,
    ]
    return [destination for destination in found if destination is not None], warnings


def _destination_of_file(path: Path, warnings: list[str]) -> LineageDestination | None:
    """Appends events to a file: by the client with its configuration, which may add facets, or
    without the client if that is refused. Adds a warning if there is a reason for one."""
    try:
        from openlineage.client.transport.file import FileConfig, FileTransport

        transport = FileTransport(FileConfig(str(path), append=True))
        sender = _client_of_file(transport, warnings) or transport
        return LineageDestination(sender, str(path))
    except Exception as error:  # The client raises many classes; a landing must not fail.
        warnings.append(f"no OpenLineage events are written to {path} ({type(error).__name__})")
        return None


def _client_of_file(transport: Transport, warnings: list[str]) -> OpenLineageClient | None:
    try:
        client = _make_client(transport)
    except Exception as error:  # as above
        warnings.append(_refusal_warning(error))
        return None
    # With OPENLINEAGE_DISABLED, the client replaces it; but this file was asked for by name.
    client.transport = transport
    return client


def _configured_destination(warnings: list[str]) -> LineageDestination | None:
    """Sends events where the client's configuration says; None if that names no transport, or is
    refused. Adds a warning if it is."""
    try:
        client = _make_client()
        if _is_wanted(client):
            return LineageDestination(client, _address(client.transport))
    except Exception as error:  # as above
        warnings.append(_refusal_warning(error))
        return None
    logger.info("The configuration of the OpenLineage client names no transport")
    return None


def _refusal_warning(error: Exception) -> str:
    logger.info("Failed to configure the OpenLineage client: %s", type(error).__name__)
    return (
        "the OpenLineage client refuses its configuration, so no events are sent where that says "
        f"({type(error).__name__}); check OPENLINEAGE_URL, its other variables and its "
        f"{CONFIG_FILE}"
    )


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

    def __init__(self, sender: OpenLineageClient | Transport, where: str) -> None:
        self.where = where
        self._sender = sender
        self._transport = getattr(sender, "transport", sender)
        self._events: SimpleQueue[RunEvent | None] = SimpleQueue()
        self._lock = Lock()
        self._unsent = 0
        self._reason = ""
        self._may_lack_events = False
        """Whether a transport has lost events that it took."""
        _watch_parts(self._transport, self._note_lost)
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
            unsent, reason = self._unsent, self._reason or "it did not answer in time"
        if unsent:
            what = f"{count_noun(unsent, 'OpenLineage event')} could not be sent"
        elif self._may_lack_events or self._thread.is_alive():
            what = "OpenLineage events may not have been sent"
        else:
            return ""
        return f"{what} to {self.where}: {reason}. What has landed is not affected"

    def _send_all(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                self._sender.emit(event)
            except Exception as error:  # Transports raise many classes; the next event is tried.
                self._reason = failure_reason(error)
                logger.info("Failed to send an OpenLineage event: %s", self._reason)
            else:
                with self._lock:
                    self._unsent -= 1
        self._close_sender()

    def _close_sender(self) -> None:
        """Lets a transport that sends events in the background send the rest."""
        try:
            if self._sender.close(WAIT_S) is False:
                self._may_lack_events = True
            elif _has_failed_in_background(self._transport):
                self._reason = "it kept failing"
                self._may_lack_events = True
        except Exception as error:  # as above
            self._note_lost(error)

    def _note_lost(self, error: Exception) -> None:
        self._reason = failure_reason(error)
        self._may_lack_events = True
        logger.info("Failed to send OpenLineage events: %s", self._reason)


def _watch_parts(transport: Any, note_lost: Callable[[Exception], None]) -> None:
    """Has the failures of a transport's parts reported, if each event is to go to all of them: the
    transport itself only fails if all parts do."""
    parts = getattr(transport, "transports", ())
    if not getattr(getattr(transport, "config", None), "continue_on_success", True):
        return
    for part in parts:
        _watch_parts(part, note_lost)
        part.emit = partial(_emit_watched, part.emit, note_lost)


def _emit_watched(
    emit: Callable[[Any], Any], note_lost: Callable[[Exception], None], event: Any
) -> None:
    try:
        emit(event)
    except Exception as error:
        note_lost(error)
        raise


def _has_failed_in_background(transport: Any) -> bool:
    """Whether a transport that sends events in the background has counted failures."""
    stats: dict[str, int] = getattr(transport, "get_stats", dict)()
    return bool(stats.get("failed")) or any(
        map(_has_failed_in_background, getattr(transport, "transports", ()))
    )


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
    return type(error).__name__
