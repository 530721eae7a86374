"""What the steps of a landing have in common, where a test needs only some of it."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

from rangeland.landing.landing_context import LandingContext
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.model import Survey
from rangeland.planning.plan_kind import PlanKind
from rangeland.progress_events import NoProgress, Progress


def landing_context(
    parts: Any,
    job: Any = None,
    kind: PlanKind = PlanKind.RUN,
    *,
    surveys: Any = None,
    progress: Progress | None = None,
    spark: Any = None,
) -> LandingContext:
    """The context of a command whose target has these parts, and None for the others."""
    target = LandingTarget(*[getattr(parts, part.name, None) for part in fields(LandingTarget)])
    surveys = surveys or SimpleNamespace(last=Survey(0, {}))
    return LandingContext(
        spark, job, kind, target, surveys, progress or NoProgress(), None, row_schema=None
    )
