"""Writes counts, sizes and durations for people, and begins and ends sentences."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_WORD: Final = re.compile("[a-z]+(?=[ ,;]|: |:?$)")
"""A plain word, unlike ``orders/0``, ``host:9092``, ``sink.table`` and ``--set``, which keep their
spelling. A name that may look like a word never begins a message."""


def count_noun(count: int, noun: str) -> str:
    """``1 file``, ``2,000 files``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def utc_time(time_ms: int) -> str:
    """``2026-01-31T06:00:00Z``, with milliseconds if there are any."""
    seconds, ms = divmod(time_ms, 1000)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=ms * 1000)
    precision = "milliseconds" if ms else "seconds"
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def number(value: int) -> str:
    return f"{value:,}"


def size(count_bytes: int) -> str:
    value = float(count_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def capitalise(text: str) -> str:
    """The text with a capital letter; it must begin with a word, not with a name."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """The text with a capital letter, unless it begins with a name, and with a full stop."""
    return end_sentence(capitalise(text) if _WORD.match(text) else text)


def end_sentence(text: str) -> str:
    """The text with a full stop, if it has none."""
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."
