"""Matches topic patterns: regular expressions, in linear time for any pattern and topic.

They use the syntax of RE2, which comes with Arrow: like Python's, but without lookaround and
backreferences, which cannot be matched in linear time. A pattern must match the whole name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

MAX_PATTERN: Final = 1_000
"""Maximum length of a pattern, in characters."""


def check_pattern_is_valid(pattern: str) -> None:
    """Raises ValueError with the reason if it is not a valid pattern."""
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"it has {len(pattern)} characters, and {MAX_PATTERN} are allowed")
    _match_texts(pattern, ("",))
    _match_texts(_anchor(pattern), ("",))


def match_topics(pattern: str, topics: Iterable[str]) -> list[str]:
    """The topics whose whole name matches, in the given order. Raises ValueError."""
    names = tuple(topics)
    matched = _match_texts(_anchor(pattern), names)
    return [topic for topic, is_match in zip(names, matched, strict=True) if is_match]


@lru_cache(10_000)
def matches(pattern: str, topic: str) -> bool:
    """Whether the pattern matches the whole name. Raises ValueError."""
    return bool(match_topics(pattern, (topic,)))


def _anchor(pattern: str) -> str:
    return rf"\A(?:{pattern})\z"


def _match_texts(pattern: str, texts: Sequence[str]) -> list[bool]:
    # Imported here because it is slow, and most jobs list their topics.
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        matched: list[bool] = pc.match_substring_regex(
            pa.array(texts, pa.string()), pattern=pattern
        ).to_pylist()
    except pa.ArrowInvalid as error:
        raise ValueError(str(error).partition("expression: ")[2] or str(error)) from None
    return matched
