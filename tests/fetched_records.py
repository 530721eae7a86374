"""Fetched records, as tests of dialects have them: bytes, and where they were fetched."""

from __future__ import annotations

from typing import Any

from rangeland.dialects.fetch_values import FetchedRecords


def fetched_at(
    data: bytes | bytearray | memoryview, offset: int = 0, **known: Any
) -> FetchedRecords:
    return FetchedRecords(memoryview(data), offset, **known)
