"""Counts, sizes and durations as people read them, and how a sentence begins and ends."""

from __future__ import annotations

import re
from typing import Final

_OPENER: Final = re.compile(
    "(a|all|an|another|both|broker|brokers|bytes|checking|codec|column|columns|committing|comparing"
    "|compiling|could|creating|each|everything|executors|file|files|group|it|its|job|keeping|landing"
    "|listing|maintenance|member|message|messages|module|no|nobody|not|nothing|offsets|opening|option"
    "|other|others|partition|plan|queues|reading|record|records|replacing|resolving|rows|schema|servers"
    "|slice|some|starting|table|tasks|the|their|there|these|they|this|those|topic|topics|two|when"
    "|whether|writing)(?=[ ,:;]|$)"
)
"""Words that our messages begin with. Anything else may be a name, which keeps its spelling."""


def counted(count: int, noun: str) -> str:
    """``1 file``, ``2,000 files``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


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


def capitalised(text: str) -> str:
    """The text with a capital letter, for one that begins with a word and not with a name."""
    return text[:1].upper() + text[1:]


def sentence(text: str, *, is_advice: bool = False) -> str:
    """The text with a capital letter and a full stop. Advice begins with a verb."""
    is_word = re.match("(?!pip )[a-z]+(?=[ ,:;]|$)" if is_advice else _OPENER, text)
    if is_word:
        text = capitalised(text)
    return ended(text)


def ended(text: str) -> str:
    """The text with a full stop, if it has none."""
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."
