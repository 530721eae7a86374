"""Errors that answer the questions of their reader otherwise than their class does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rangeland.errors import RangelandError


@contextmanager
def answer_about_data(
    data: str, kinds: tuple[type[RangelandError], ...] = (RangelandError,)
) -> Iterator[None]:
    """Gives errors of these kinds that are raised inside it this answer about the data."""
    try:
        yield
    except kinds as error:
        raise error.with_answers(data=data) from error.__cause__
