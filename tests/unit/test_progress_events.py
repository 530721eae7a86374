"""Progress never mixes with the result, is readable in a log, and costs little."""

from __future__ import annotations

import io

from rich.console import Console

from rangeland.model import Partition
from rangeland.render.progress_view import LiveProgress
from tests import sample_results as made


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def in_a_log(quiet: bool = False) -> tuple[LiveProgress, io.StringIO, Clock]:
    stream, clock = io.StringIO(), Clock()
    return LiveProgress(Console(file=stream, width=100, markup=False), quiet, clock), stream, clock


def on_a_terminal() -> tuple[LiveProgress, io.StringIO]:
    stream = io.StringIO()
    console = Console(file=stream, width=100, force_terminal=True, markup=False)
    return LiveProgress(console), stream


def test_a_log_gets_plain_lines_and_few_of_them() -> None:
    progress, stream, clock = in_a_log()
    progress.step("asking [red]3[/red] brokers")
    progress.planned(made.a_plan([made.a_range(0, 0, 1_000)]), False)
    for read in range(0, 1_000, 10):
        clock.now += 0.25
        progress.read({Partition("orders", 0): read})
    progress.done()
    lines = stream.getvalue().splitlines()
    assert lines[:2] == [
        "asking [red]3[/red] brokers",
        "reading plan 12: 1,000 offsets of 1 partition",
    ]
    assert lines[2:] == [
        "read 390 of 1,000 (39%), 39 offsets/s, about 15.6 s left",
        "read 790 of 1,000 (79%), 40 offsets/s, about 5.3 s left",
    ]


def test_quiet_leaves_warnings_only() -> None:
    progress, stream, _ = in_a_log(quiet=True)
    progress.step("a step")
    progress.planned(made.a_plan([made.a_range(0, 0, 10)]), True)
    progress.read({Partition("orders", 0): 10})
    progress.warn("the group could not be told")
    progress.done()
    assert stream.getvalue() == "warning: the group could not be told\n"


def test_an_interruption_can_tell_which_plan_was_begun() -> None:
    progress, _, _ = in_a_log(quiet=True)
    plan = made.a_plan([made.a_range(0, 0, 10)])
    progress.planned(plan, False)
    assert progress.plans == [plan]


def test_a_terminal_gets_at_most_a_dozen_bars_and_a_total() -> None:
    progress, stream = on_a_terminal()
    ranges = [made.a_range(n, 0, 100 + n) for n in range(1_000)]
    with progress:
        progress.step("asking")
        progress.planned(made.a_plan(ranges), False)
        progress.read({r.partition: r.width for r in ranges})
    text = stream.getvalue()
    assert "orders/999" in text
    assert "989 more" in text
    assert "orders/500" not in text
    assert "all" in text
    assert "100%" in text


def test_a_terminal_shows_warnings_while_bars_are_up() -> None:
    progress, stream = on_a_terminal()
    with progress:
        progress.planned(made.a_plan([made.a_range(0, 0, 100)]), True)
        progress.warn("[red]slow[/red]")
    assert "[red]slow[/red]" in stream.getvalue()
    assert "entered by an earlier run" in stream.getvalue()


def test_steps_follow_bars_and_bars_follow_steps() -> None:
    progress, stream = on_a_terminal()
    with progress:
        for _ in range(2):
            progress.step("entering the plan")
            progress.planned(made.a_plan([made.a_range(0, 0, 100)]), False)
            progress.read({Partition("orders", 0): 50})
            progress.done()
            progress.step("committing")
    assert "committing" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[?25h") or "\x1b[?25h" in stream.getvalue()
