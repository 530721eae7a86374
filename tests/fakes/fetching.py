"""The fetch loop without its thread."""

from __future__ import annotations

from rangeland.fetch.fetch_loop import FetchLoop
from rangeland.fetch.fetch_steps import Step
from rangeland.fetch.slice_state import Fail


def take_step(loop: FetchLoop, now_ms: int) -> Step:
    """The next step. Raises what ends the run, as the thread does."""
    step = loop.next(now_ms)
    if isinstance(step, Fail):
        raise step.error
    return step
