"""The chart: seconds of every side, where our own go, and memory by slice. One SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.competitors import SIDES
from tests.bench.measuring import medians, ratio
from tests.bench.phases import PHASES
from tests.bench.pulling import LABELS
from tests.bench.pulling import OURS as OURS_PULLING
from tests.bench.report import first_of_group

MIB = 1 << 20
OURS, THEIRS, LIGHT = "#1b6ca8", "#9a9a9a", "#bcd4e6"
PHASE_COLORS = ("#d9d9d9", "#8dd3c7", "#fdb462", "#1b6ca8", "#bebada", "#fb8072", "#b3de69")
OUR_SIDES = frozenset({"rangeland", "snappy", "process", "frame"})

WHISKER = {"ecolor": "#333", "capsize": 3}

Panel = tuple[str, Callable[[Any], None], int]


def draw(found: Mapping[str, Any], place: Path) -> None:
    """One panel for each thing that was measured; nothing measured, no file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = _panels(found)
    if not panels:
        return
    heights = [rows for _, _, rows in panels]
    size = (9.5, 0.42 * sum(heights) + 1.1 * len(panels) + 0.6)
    figure, axes = pyplot.subplots(
        len(panels), 1, figsize=size, height_ratios=heights, squeeze=False, layout="constrained"
    )
    for axis, (title, paint, _) in zip(axes[:, 0], panels, strict=True):
        paint(axis)
        axis.set_title(title, loc="left", fontsize=10, fontweight="bold")
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.18)
        axis.invert_yaxis()
    options, machine = found["options"], found["machine"]
    figure.suptitle(
        f"{options['records']:,} records of about 175 B, {options['partitions']} partitions, "
        f"{options['cores']} Spark cores, {machine['cpus']} CPUs; median of "
        f"{options['rounds']} rounds, whiskers min and max",
        fontsize=9,
    )
    figure.savefig(place)
    pyplot.close(figure)


def _panels(found: Mapping[str, Any]) -> list[Panel]:
    panels: list[Panel] = []
    for codec, part in found.get("warm", {}).items():
        title = f"Warm, codec {codec}: seconds"
        panels.append((title, _painter(_paint_warm, part), len(part["samples"]) + 1))
    if found.get("shapes"):
        title = "Logs of other shapes, warm: how many times as long Spark's source takes"
        panels.append((title, _painter(_paint_shapes, found["shapes"]), len(found["shapes"]) + 1))
    for codec, part in found.get("cold", {}).items():
        title = f"Fresh Spark process, codec {codec}: seconds"
        panels.append((title, _painter(_paint_cold, part), 3))
    if "warm" in found:
        title = "Where a warm run's time goes: milliseconds"
        panels.append((title, _painter(_paint_phases, found["warm"]), len(found["warm"]) + 2))
    if "pull" in found:
        title = f"RocketMQ, one reader, {found['pull']['messages']:,} messages: seconds"
        rows = len(found["pull"]["samples"]) + 1
        panels.append((title, _painter(_paint_pull, found["pull"]), rows))
    if "memory" in found:
        title = "Peak memory of one worker by size of its slice: MiB"
        panels.append((title, _painter(_paint_memory, found["memory"]), 4))
    return panels


def _painter(paint: Callable[[Any, Any], None], part: Any) -> Callable[[Any], None]:
    return lambda axis: paint(axis, part)


def _paint_warm(axis: Any, part: Mapping[str, Any]) -> None:
    labels = {name: side.label for name, side in SIDES.items()}
    _paint_samples(axis, part["samples"], labels, first_of_group)


def _paint_shapes(axis: Any, part: Mapping[str, Any]) -> None:
    for row, found in enumerate(part.values()):
        times = ratio(found["samples"]["spark"], found["samples"]["rangeland"])
        whiskers = [[max(times.middle - times.low, 0)], [max(times.high - times.middle, 0)]]
        axis.barh(row, times.middle, color=OURS, xerr=whiskers, error_kw=WHISKER)
        _beside(axis, times.high, row, f"{times.middle:.1f}x")
    axis.set_yticks(range(len(part)), list(part), fontsize=8)


def _paint_pull(axis: Any, part: Mapping[str, Any]) -> None:
    _paint_samples(axis, part["samples"], LABELS, lambda name: OURS_PULLING)


def _paint_samples(
    axis: Any,
    samples: Mapping[str, Any],
    labels: Mapping[str, str],
    compared_with: Callable[[str], str],
) -> None:
    for row, (name, taken) in enumerate(samples.items()):
        middle = median(taken)
        whiskers = [[middle - min(taken)], [max(taken) - middle]]
        color = OURS if name in OUR_SIDES else THEIRS
        axis.barh(row, middle, color=color, xerr=whiskers, error_kw=WHISKER)
        ours = compared_with(name)
        times = "" if name == ours else f"   {ratio(taken, samples[ours]).middle:.1f}x"
        _beside(axis, max(taken), row, f"{middle:.2f} s{times}")
    axis.set_yticks(range(len(samples)), [labels[name] for name in samples], fontsize=8)


def _beside(axis: Any, right: float, row: int, text: str) -> None:
    axis.annotate(
        text, (right, row), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8
    )


def _paint_cold(axis: Any, part: Mapping[str, Any]) -> None:
    names = list(part["samples"])
    for row, name in enumerate(names):
        session, landing = median(part["session"][name]), median(part["samples"][name])
        color = OURS if name in OUR_SIDES else THEIRS
        axis.barh(row, session, color=LIGHT, label="session start" if row == 0 else None)
        axis.barh(row, landing, left=session, color=color)
        text = f"  {session:.1f} + {landing:.1f} s"
        axis.annotate(text, (session + landing, row), va="center", fontsize=8)
    axis.set_yticks(range(len(names)), [SIDES[name].label for name in names], fontsize=8)
    axis.legend(fontsize=8, loc="upper right", frameon=False)


def _paint_phases(axis: Any, warm: Mapping[str, Any]) -> None:
    for row, part in enumerate(warm.values()):
        left = 0.0
        taken = medians(part["phases"])
        for phase, color in zip(PHASES, PHASE_COLORS, strict=True):
            label = phase if row == 0 else None
            axis.barh(row, taken[phase], left=left, color=color, label=label)
            if taken[phase] > 0.06 * sum(taken.values()):
                place = (left + taken[phase] / 2, row)
                ink = "white" if color == OURS else "black"
                text = f"{taken[phase]:.0f}"
                axis.annotate(text, place, ha="center", va="center", fontsize=8, color=ink)
            left += taken[phase]
    axis.set_yticks(range(len(warm)), list(warm), fontsize=8)
    axis.legend(fontsize=8, ncols=len(PHASES), loc="lower right", frameon=False)
    axis.set_ylim(-0.6, len(warm) + 0.4)


def _paint_memory(axis: Any, part: Mapping[str, Any]) -> None:
    rows = part["peaks"]
    for row, found in enumerate(rows):
        peak = found["peak_bytes"] / MIB
        axis.barh(row, peak, color=OURS)
        axis.annotate(f"  {peak:.0f} MiB", (peak, row), va="center", fontsize=8)
    labels = [f"slice of {found['slice_bytes'] / MIB:.0f} MiB" for found in rows]
    axis.set_yticks(range(len(rows)), labels, fontsize=8)
    axis.axvline(512, color="#c0392b", linestyle="--", linewidth=1)
    axis.annotate("512", (512, -0.5), color="#c0392b", fontsize=8, ha="right")
