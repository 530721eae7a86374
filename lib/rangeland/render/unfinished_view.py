"""Plans that are entered and have not landed: whose they are, and who finishes them."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType

from rangeland.render.text_drawing import list_lines
from rangeland.results import FinishedBy, PlanToFinish
from rangeland.wording import count_noun


def unfinished_lines(plans: Iterable[PlanToFinish]) -> list[RenderableType]:
    return list_lines("entered but not landed yet", [_line(one) for one in plans], "yellow")


def _line(one: PlanToFinish) -> str:
    """``plan 12 of rangeland/orders, 1,000 offsets: the next run finishes it``."""
    plan = one.plan
    what = f"plan {plan.sequence} of {plan.application}, {count_noun(plan.width, 'offset')}"
    match one.finished_by:
        case FinishedBy.NEXT_RUN:
            return f"{what}: the next run finishes it"
        case FinishedBy.SAME_OFFSETS:
            command = plan.kind.traits.planned_by
            return f"{what}: the next {command} of any of these offsets finishes it"
        case FinishedBy.OTHER_JOB:
            return f"{what}: only the job {plan.job} finishes it"
