"""A group request that is sent again until it succeeds or the caller's patience is over."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from rangeland.errors import Unreachable
from rangeland.groups.backend import GroupIO

T = TypeVar("T")

logger = logging.getLogger(__name__)

PAUSE_MS: Final = 250


def ask_until_ready(edge: GroupIO, patience_ms: int, attempt: Callable[[], T]) -> T:
    """What ``attempt`` returns. It is repeated as long as it raises Unreachable, for
    ``patience_ms``; then that error is raised."""
    deadline_ms = edge.now_ms() + patience_ms
    while True:
        try:
            return attempt()
        except Unreachable as error:
            if edge.now_ms() >= deadline_ms:
                raise
            logger.debug("Asking again in %d ms: %s", PAUSE_MS, error)
        edge.pause(PAUSE_MS)
