"""The errors for a group request that a broker did not answer with success."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rangeland.dialects.error_meaning import ErrorCode, ErrorMeaning
from rangeland.errors import JobFileError, RangelandError, Unreachable


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
