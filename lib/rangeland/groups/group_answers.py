"""What follows from a group request that a broker did not answer with success.

What may pass is asked again after a pause, until the caller's patience is over. The error for
anything else says whether the same request would be refused again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from rangeland.dialects.error_meaning import ErrorCode, ErrorMeaning
from rangeland.errors import JobFileError, RangelandError, Unreachable
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


def not_ready(who: str, code: ErrorCode, remark: str = "", **facts: Any) -> Unreachable:
    """``remark``: what the broker itself says of the code."""
    return Unreachable(
        f"{who} is not ready",
        why=f"{code.name}: {remark or code.description}",
        do="try again in a moment",
        **facts,
        code=code.name,
    )


def refusal(
    code: ErrorCode,
    group: str,
    when: str,
    *,
    failed: str,
    remedies: Mapping[str, str],
    remark: str = "",
) -> RangelandError:
    """The error for a code that the caller does not handle: the same request would be refused
    again, or the brokers have ``failed``, a sentence. ``when`` is a clause for the message.
    ``remedies`` by the code's name."""
    why = f"{code.name}: {remark or code.description}, when {when}"
    facts: dict[str, Any] = {"group": group, "code": code.name}
    if code.verdict in (ErrorMeaning.REFUSED, ErrorMeaning.UNSUPPORTED):
        remedy = remedies.get(code.name, "check the group and the brokers' settings")
        return JobFileError(
            f"the brokers refuse group {group}", why=why, do=remedy.format(group=group), **facts
        )
    return Unreachable(failed, why=why, do="try again in a moment", **facts)
