"""Logging: how the ``rangeland`` logger writes to stderr, in the driver and in tasks.

Each module that logs has a ``logger = logging.getLogger(__name__)``. A line begins with a capital
letter. It says in the past tense what has happened ("Committed ..."), or with "-ing" what begins
and may take a while ("Waiting for ..."). A line about a partition has ``partition_fields`` as its
``extra``.

The command line calls ``configure``; a script may configure ``logging`` in any other way. The
driver sends ``current_settings`` to its tasks. Only the standard library is imported here, since
every task imports this module.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rangeland.model import Partition

ROOT = "rangeland"
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class LogLevel(StrEnum):
    """The least severe records that are written."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    DEBUG = "debug"


class LogFormat(StrEnum):
    """One line per record in either format."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The settings for logging. Small, since they travel with every task."""

    level: LogLevel = LogLevel.WARNING
    format: LogFormat = LogFormat.TEXT


def configure(settings: LogSettings, task: str = "") -> None:
    """Makes the ``rangeland`` logger write to stderr. ``task``: the name of the Spark task in each
    line. A second call replaces the first."""
    reset()
    logger = logging.getLogger(ROOT)
    handler = _StderrHandler(settings)
    is_json = settings.format is LogFormat.JSON
    handler.setFormatter(JsonFormatter(task) if is_json else TextFormatter(task))
    logger.addHandler(handler)
    logger.setLevel(settings.level.upper())


def reset() -> None:
    """Undoes ``configure``."""
    logger = logging.getLogger(ROOT)
    if handlers := _own_handlers():
        logger.setLevel(logging.NOTSET)
    for handler in handlers:
        logger.removeHandler(handler)


def current_settings() -> LogSettings:
    """The settings that were configured; otherwise text, at the level of the driver's own
    logging."""
    for handler in _own_handlers():
        return handler.settings
    logger = logging.getLogger(ROOT)
    enabled = [level for level in LogLevel if logger.isEnabledFor(getattr(logging, level.upper()))]
    return LogSettings(enabled[-1] if enabled else LogLevel.ERROR)


def partition_fields(partition: Partition, offset: int | None = None) -> dict[str, object]:
    """The ``extra`` of a line about a partition, with its ``broker`` if it has one."""
    fields: dict[str, object] = {"topic": partition.topic, "partition": partition.number}
    if partition.broker:
        fields["broker"] = partition.broker
    if offset is not None:
        fields["offset"] = offset
    return fields


def escape_controls(text: object) -> str:
    """The text with control characters spelled out, so that a name in it cannot forge a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


class _StderrHandler(logging.Handler):
    """Writes to the current ``sys.stderr``, which a progress display replaces, so that lines appear
    above its bars."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__()
        self.settings = settings

    def emit(self, record: logging.LogRecord) -> None:
        try:
            # One write per line: driver and tasks may share a stderr.
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


class TextFormatter(logging.Formatter):
    """Formats a log record as one line: ``2026-01-31T06:00:00.123Z WARNING rangeland.fetch: message
    topic=orders partition=0``"""

    def __init__(self, task: str = "") -> None:
        super().__init__()
        self._task = f" [task {task}]" if task else ""

    def format(self, record: logging.LogRecord) -> str:
        head = f"{_time(record)} {record.levelname} {record.name}{self._task}"
        fields = "".join(
            f" {name}={escape_controls(value)}" for name, value in _extra(record).items()
        )
        line = f"{head}: {escape_controls(record.getMessage())}{fields}"
        if record.exc_info:
            trace = self.formatException(record.exc_info).splitlines()
            line = "\n  ".join([line, *map(escape_controls, trace)])
        return line


class JsonFormatter(logging.Formatter):
    """One object per line: ts, level, logger, message, task, and the record's own fields."""

    def __init__(self, task: str = "") -> None:
        super().__init__()
        self._task = {"task": task} if task else {}

    def format(self, record: logging.LogRecord) -> str:
        own = {
            "ts": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._task,
        }
        document = {**own, **_extra(record), **own}  # Our own fields come first, and win.
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


def _own_handlers() -> list[_StderrHandler]:
    handlers = logging.getLogger(ROOT).handlers
    return [handler for handler in handlers if isinstance(handler, _StderrHandler)]


def _extra(record: logging.LogRecord) -> dict[str, object]:
    """The fields that were passed as ``extra``."""
    fields = vars(record).items()
    return {name: value for name, value in fields if name not in _STANDARD_FIELDS}


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
