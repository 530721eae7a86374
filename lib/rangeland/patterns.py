"""Topics by pattern: regular expressions that take linear time, whatever they and the topics are.

The expressions are RE2's, which Arrow carries: what Python's have, without lookaround and back
references, since those cannot be matched in linear time. A pattern matches a whole name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

MAX_PATTERN: Final = 1_000
"""Characters of a pattern."""


def check_pattern(pattern: str) -> None:
    """Raises ValueError for what is not a pattern, saying why."""
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"it has {len(pattern)} characters, and {MAX_PATTERN} are allowed")
    _matched(pattern, ("",))
    _matched(_anchored(pattern), ("",))


def matching(pattern: str, topics: Iterable[str]) -> list[str]:
    """Those that the pattern matches as a whole, in their order. Raises ValueError."""
    listed = tuple(topics)
    found = _matched(_anchored(pattern), listed)
    return [topic for topic, is_match in zip(listed, found, strict=True) if is_match]


@lru_cache(10_000)
def matches(pattern: str, topic: str) -> bool:
    """Whether the pattern matches all of the topic's name. Raises ValueError."""
    return bool(matching(pattern, (topic,)))


def _anchored(pattern: str) -> str:
    return rf"\A(?:{pattern})\z"


def _matched(pattern: str, texts: Sequence[str]) -> list[bool]:
    # Here, since it takes a while: most jobs name their topics.
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        found: list[bool] = pc.match_substring_regex(
            pa.array(texts, pa.string()), pattern=pattern
        ).to_pylist()
    except pa.ArrowInvalid as error:
        raise ValueError(str(error).partition("expression: ")[2] or str(error)) from None
    return found
