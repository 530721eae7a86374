"""Numbers in sentences. Nothing is imported here."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """``1 file``, ``2,000 files``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
