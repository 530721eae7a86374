"""Plans that have been entered but have not landed: whose they are, and who will finish them."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType

from rangeland.render.text_drawing import list_lines
from rangeland.results import FinishedBy, PlanToFinish
from rangeland.wording import count_noun


def unfinished_lines(plans: Iterable[PlanToFinish]) -> list[RenderableType]:
    return list_lines(
        "entered but not landed yet", [unfinished_line(plan) for plan in plans], "yellow"
    )


def unfinished_line(to_finish: PlanToFinish) -> str:
    """``plan 12 of rangeland/orders, 1,000 offsets: the next run finishes it``."""
    plan = to_finish.plan
    label = f"plan {plan.sequence} of {plan.application}, {count_noun(plan.width, 'offset')}"
    match to_finish.finished_by:
        case FinishedBy.NEXT_RUN:
            return f"{label}: the next run finishes it"
        case FinishedBy.SAME_OFFSETS:
            command = plan.kind.traits.planned_by
            return f"{label}: the next {command} of any of these offsets finishes it"
        case FinishedBy.OTHER_JOB:
            return f"{label}: only the job {plan.job} finishes it"
