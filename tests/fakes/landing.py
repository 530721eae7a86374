"""What the steps of a landing have in common, where a test needs only some of it."""

from __future__ import annotations

from typing import Any

from rangeland.landing.landing_context import LandingContext
from rangeland.planning.plan_kind import PlanKind
from rangeland.progress_events import NoProgress, Progress


def landing_context(
    target: Any,
    job: Any = None,
    kind: PlanKind = PlanKind.RUN,
    *,
    surveys: Any = None,
    progress: Progress | None = None,
    spark: Any = None,
) -> LandingContext:
    return LandingContext(
        spark, job, kind, target, surveys, progress or NoProgress(), None, row_schema=None
    )
