"""The tables for the terminal. Every number of the JSON that a person asks for first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.competitors import SIDES
from tests.bench.measuring import medians, ratio, spread
from tests.bench.phases import PHASES
from tests.bench.pulling import LABELS, OURS

MIB = 1 << 20


def show(found: Mapping[str, Any], console: Console) -> None:
    """All parts that were measured."""
    options, machine = found["options"], found["machine"]
    console.print(
        f"{options['records']:,} records, {options['partitions']} partitions, "
        f"{options['rounds']} rounds, {machine['cpus']} CPUs, load average "
        f"{machine['load_average_at_start']} at the start. Seconds: median (min-max)."
    )
    shown = {
        "warm": _show_warm,
        "shapes": _show_shapes,
        "typed": _show_typed,
        "cold": _show_cold,
        "cores": _show_cores,
        "memory": _show_memory,
        "fixed": _show_fixed,
        "survey": _show_survey,
        "pull": _show_pull,
    }
    for part, shower in shown.items():
        if found.get(part):
            shower(found[part], console)


def _show_pull(found: Mapping[str, Any], console: Console) -> None:
    columns = ("side", "s", "times ours", "messages/s", "CPU s", "times ours")
    title = f"RocketMQ, one reader, {found['messages']:,} messages"
    table = _table(title, found["load"], *columns)
    for name, taken in found["samples"].items():
        times = "1" if name == OURS else str(ratio(taken, found["samples"][OURS]))
        used = found["cpu"][name]
        cpu_times = "1" if name == OURS else str(ratio(used, found["cpu"][OURS]))
        speed = f"{found['messages'] / median(taken):,.0f}"
        table.add_row(LABELS[name], spread(taken), times, speed, spread(used), cpu_times)
    console.print(table)


def first_of_group(name: str) -> str:
    """The side that others of its group are compared with."""
    return next(side.name for side in SIDES.values() if side.group == SIDES[name].group)


def _table(title: str, load: list[float], *columns: str) -> Table:
    table = Table(title=f"{title} (load average {load[0]} -> {load[-1]})", title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    return table


def _show_warm(part: Mapping[str, Any], console: Console) -> None:
    labels = {name: side.label for name, side in SIDES.items()}
    for codec, found in part.items():
        _show_landings(f"Warm, codec {codec}", found, labels, first_of_group, console)


def _show_shapes(part: Mapping[str, Any], console: Console) -> None:
    """A row for each shape; sizes beside seconds, since one can be bought with the other."""
    loads = [found["load"] for found in part.values()]
    columns = ("log", "s", "Spark's source, s", "times ours", "CPU times ours", "MB", "Spark's MB")
    table = _table("Logs of other shapes", [loads[0][0], loads[-1][-1]], *columns)
    for label, found in part.items():
        samples, cpu = found["samples"], found["cpu"]
        cells = [spread(samples["rangeland"]), spread(samples["spark"])]
        cells += [str(ratio(taken["spark"], taken["rangeland"])) for taken in (samples, cpu)]
        cells += [f"{found['bytes'][name] / 1e6:.0f}" for name in ("rangeland", "spark")]
        table.add_row(label, *cells)
    console.print(table)


def _show_typed(part: Mapping[str, Any], console: Console) -> None:
    for name, found in part.items():
        ours = next(iter(found["samples"]))
        _show_landings(f"Typed, {name}", found, found["label"], lambda _, ours=ours: ours, console)


def _show_landings(
    title: str,
    found: Mapping[str, Any],
    labels: Mapping[str, str],
    compared_with: Callable[[str], str],
    console: Console,
) -> None:
    columns = ("side", "s", "times ours", "CPU s", "times ours", "MB written")
    table = _table(title, found["load"], *columns)
    for name in found["samples"]:
        ours, cells = compared_with(name), [labels[name]]
        for kind in ("samples", "cpu"):
            taken = found[kind]
            times = "1" if name == ours else str(ratio(taken[name], taken[ours]))
            cells += [spread(taken[name]), times]
        written = found["bytes"][name] / 1e6
        table.add_row(*cells, f"{written:.0f}" if written else "-")
    console.print(table)
    _show_phases(f"Where the time goes: {title}", found, console)


def _show_phases(title: str, found: Mapping[str, Any], console: Console) -> None:
    taken = medians(found["phases"])
    table = _table(title, found["load"], "", *PHASES, "peak of a worker")
    peak = max(found["peaks"]) / MIB
    table.add_row("ms", *(f"{taken[phase]:.0f}" for phase in PHASES), f"{peak:.0f} MiB")
    console.print(table)


def _show_cold(part: Mapping[str, Any], console: Console) -> None:
    for codec, found in part.items():
        columns = ("side", "session s", "landing s", "both s")
        table = _table(f"Cold, codec {codec}", found["load"], *columns)
        kinds = ("session", "samples", "total")
        for name in found["samples"]:
            table.add_row(SIDES[name].label, *(spread(found[kind][name]) for kind in kinds))
        times = [str(ratio(found[kind]["spark"], found[kind]["rangeland"])) for kind in kinds]
        table.add_row("times ours", *times)
        console.print(table)


def _show_cores(found: Mapping[str, Any], console: Console) -> None:
    table = _table("One partition", found["load"], "", "s", "times two cores")
    for name, taken in found["samples"].items():
        table.add_row(name, spread(taken), str(ratio(taken, found["samples"]["two cores"])))
    console.print(table)


def _show_memory(found: Mapping[str, Any], console: Console) -> None:
    columns = ("slices asked for", "largest slice", "peak of a worker")
    table = _table("Memory of a task", found["load"], *columns)
    for row in found["peaks"]:
        names = ("target_bytes", "slice_bytes", "peak_bytes")
        table.add_row(*(f"{row[name] / MIB:.0f} MiB" for name in names))
    console.print(table)


def _show_fixed(found: Mapping[str, Any], console: Console) -> None:
    table = _table("Fixed cost of a run, ms", found["load"], "", *PHASES, "total")
    for kind in ("first", "one record", "nothing"):
        taken = medians(found[kind])
        table.add_row(kind, *(f"{taken[name]:.0f}" for name in (*PHASES, "total")))
    console.print(table)


def _show_survey(found: Mapping[str, Any], console: Console) -> None:
    table = _table("Survey", found["load"], "partitions", "requests", "first ms", "ms")
    table.add_row(
        f"{found['partitions']:,}",
        str(found["requests"]),
        f"{found['first_ms']:.0f}",
        f"{median(found['ms']):.0f}",
    )
    console.print(table)
