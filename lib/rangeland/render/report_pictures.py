"""The geometry of the pictures in a report: logs as bars, and landings over time. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rangeland.render.text_drawing import LogBar
from rangeland.wording import number

CELLS: Final = 120
"""How many cells a bar has; this bounds its size, however fragmented a log is."""
LEFT, RIGHT, TOP, BOTTOM = 72.0, 700.0, 10.0, 150.0
"""The area of the chart in which bars are drawn."""
MAX_TICKS: Final = 6
DAY_S: Final = 86_400
_STEPS_S: Final = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200),
    *(DAY_S * days for days in (1, 2, 7, 14, 28, 91, 182, 364)),
)


@dataclass(frozen=True, slots=True)
class KindPath:
    """All parts of a bar that have one kind, as the ``d`` of an SVG path."""

    kind: str
    d: str


def kind_paths(bar: LogBar) -> list[KindPath]:
    """The bar in a view box of ``CELLS`` by 10."""
    paths: dict[str, str] = {}
    for kind, start, end in bar.runs(CELLS):
        paths[kind] = paths.get(kind, "") + f"M{start} 0h{end - start}v10h-{end - start}z"
    return [KindPath(kind, d) for kind, d in paths.items()]


def mark_place(bar: LogBar, offset: int | None) -> float | None:
    """The place of an offset in the view box, with room for a mark; None if the bar lacks it."""
    if offset is None or bar.last <= bar.first or not bar.first <= offset <= bar.last:
        return None
    place = (offset - bar.first) / (bar.last - bar.first) * CELLS
    return round(min(max(place, 0.5), CELLS - 0.5), 2)


@dataclass(frozen=True, slots=True)
class ChartBar:
    """One landing in the chart. ``title`` says in words what it shows."""

    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True, slots=True)
class AxisTick:
    """A line of the grid, and its label."""

    place: float
    label: str


@dataclass(frozen=True, slots=True)
class LandingChart:
    """Landings over time: one bar each, as high as the number of its records."""

    bars: tuple[ChartBar, ...]
    times: tuple[AxisTick, ...]
    records: tuple[AxisTick, ...]


def landing_chart(points: Sequence[tuple[int, int, str]]) -> LandingChart:
    """The chart of ``(time in ms, records, title)``, of which there is at least one."""
    times_ms = [time_ms for time_ms, _, _ in points]
    first_ms, last_ms = min(times_ms), max(times_ms)
    most = max(1, *(records for _, records, _ in points))
    step = _record_step(most)
    top = -(-most // step) * step
    bar_width = min(18.0, max(2.0, (RIGHT - LEFT) / len(points) * 0.7))

    def x_of(time_ms: float) -> float:
        left, right = LEFT + bar_width, RIGHT - bar_width
        share = (time_ms - first_ms) / (last_ms - first_ms) if last_ms > first_ms else 0.5
        return round(left + share * (right - left), 1)

    def height_of(records: int) -> float:
        return round((BOTTOM - TOP) * records / top, 1)

    return LandingChart(
        bars=tuple(
            ChartBar(
                x=round(x_of(time_ms) - bar_width / 2, 1),
                y=round(BOTTOM - max(1.0, height_of(records)), 1),
                width=round(bar_width, 1),
                height=max(1.0, height_of(records)),
                title=title,
            )
            for time_ms, records, title in points
        ),
        times=tuple(AxisTick(x_of(ms), label) for ms, label in _time_ticks(first_ms, last_ms)),
        records=tuple(
            AxisTick(round(BOTTOM - height_of(value), 1), number(value))
            for value in range(0, top + 1, step)
        ),
    )


def _record_step(most: int) -> int:
    """The smallest of 1, 2, 5, 10, 20, ... of which at most four reach the largest number."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if step * factor * 4 >= most:
                return step * factor
        step *= 10


def _time_ticks(first_ms: int, last_ms: int) -> list[tuple[int, str]]:
    """Round times between the first and the last, at most ``MAX_TICKS``; if there are none, these
    two themselves."""
    span_s = (last_ms - first_ms) / 1000
    longest = math.ceil(span_s / (MAX_TICKS - 1))
    step_s = next((step for step in _STEPS_S if step >= longest), longest)
    form = "%Y-%m-%d" if step_s >= DAY_S else "%m-%d %H:%M" if step_s >= 60 else "%H:%M:%S"
    step_ms = step_s * 1000
    ticks = list(range(-(-first_ms // step_ms) * step_ms, last_ms + 1, step_ms))
    if not ticks or first_ms == last_ms:
        ticks, form = sorted({first_ms, last_ms}), "%Y-%m-%d %H:%M:%S"
    return [(ms, f"{datetime.fromtimestamp(ms / 1000, UTC):{form}}") for ms in ticks]
