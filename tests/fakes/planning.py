"""What a command makes of resolved requests and drafts."""

from __future__ import annotations

from typing import TypeVar

from rangeland.planning.bound_resolution import ResolvedRequest
from rangeland.planning.loss_errors import failing_error
from rangeland.planning.plan_draft import PlanDraft

Found = TypeVar("Found", ResolvedRequest, PlanDraft)


def unless_failing(found: Found) -> Found:
    """The same, unless losses fail: a command ends with their error."""
    if found.failing is not None:
        raise failing_error(found.failing)
    return found
