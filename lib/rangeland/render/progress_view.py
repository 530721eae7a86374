"""The progress of a run: a spinner and bars on a terminal, otherwise plain lines or log records.

Showing progress must not slow the run down: a call updates numbers, and drawing happens at most a
few times a second. If stderr is not a terminal (as in a scheduler's log), there are lines without
control codes, few enough to be read later.

``plans`` lists the plans that were started, so that the message after an interruption can name
them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from rangeland.grouping import sum_by_key
from rangeland.model import Partition
from rangeland.planning.plan import Plan
from rangeland.progress_events import NoProgress
from rangeland.render.text_drawing import biggest, plain, safe_text
from rangeland.wording import capitalise, count_noun, duration, number, sentence

LINE_EVERY_S = 10.0

logger = logging.getLogger("rangeland.progress_events")


class LiveProgress:
    """A ``Progress`` for people. As a context manager, it ends the display on exit.

    Without a console, progress and warnings become log records. ``quiet`` shows only warnings.
    ``clock`` returns seconds.
    """

    def __init__(
        self,
        console: Console | None,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plans: list[Plan] = []
        self._quiet = quiet
        self._display = _display_on(console, clock)

    def __enter__(self) -> LiveProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.done()

    def step(self, text: str) -> None:
        if not self._quiet:
            self._display.step(plain(text))

    def planned(self, plan: Plan, recovered: bool) -> None:
        self.plans.append(plan)
        if not self._quiet:
            self._display.planned(plan, recovered)

    def read(self, read_widths: dict[Partition, int]) -> None:
        if not self._quiet:
            self._display.read(read_widths)

    def done(self) -> None:
        self._display.done()

    def warn(self, text: str) -> None:
        self._display.warn(text)


def _display_on(console: Console | None, clock: Callable[[], float]) -> _Bars | _Lines | _Records:
    if console is None:
        return _Records()
    return _Bars(console) if console.is_terminal else _Lines(console, clock)


def _print_warning(console: Console, text: str) -> None:
    console.print(Text("warning: ", "bold yellow").append_text(safe_text(text)))


def _headline(plan: Plan, recovered: bool) -> str:
    sizes = f"plan {plan.sequence}: {count_noun(plan.width, 'offset')}"
    partitions = count_noun(len({r.partition for r in plan.ranges}), "partition")
    origin = ", entered by an earlier run" if recovered else ""
    return f"reading {sizes} of {partitions}{origin}"


class _Records(NoProgress):
    """Shows progress to machines, as one log record per step. The progress of reading is not
    logged."""

    def step(self, text: str) -> None:
        logger.info(capitalise(text))

    def planned(self, plan: Plan, recovered: bool) -> None:
        sizes = {"sequence": plan.sequence, "offsets": plan.width, "slices": len(plan.slices)}
        logger.info(capitalise(_headline(plan, recovered)), extra=sizes)

    def warn(self, text: str) -> None:
        logger.warning(sentence(text))


class _Lines:
    """Shows progress in the logs of schedulers: one line per step, and one every ten seconds while
    reading."""

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console = console
        self._clock = clock
        self._total = 0
        self._began = self._last = 0.0

    def step(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)

    def planned(self, plan: Plan, recovered: bool) -> None:
        self._console.print(_headline(plan, recovered), soft_wrap=True)
        self._total = plan.width
        self._began = self._last = self._clock()

    def read(self, read_widths: dict[Partition, int]) -> None:
        now_s = self._clock()
        if now_s - self._last < LINE_EVERY_S or not self._total:
            return
        self._last = now_s
        offsets = sum(read_widths.values())
        rate = offsets / (now_s - self._began)
        line = f"read {number(offsets)} of {number(self._total)} ({offsets * 100 // self._total}%)"
        if rate > 0:
            remaining = duration((self._total - offsets) / rate)
            line += f", {number(round(rate))} offsets/s, about {remaining} left"
        self._console.print(line, soft_wrap=True)

    def done(self) -> None:
        self._total = 0

    def warn(self, text: str) -> None:
        _print_warning(self._console, text)


class _Rate(ProgressColumn):
    """Offsets per second, shown only on the line of the total."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        shown = f"{number(round(speed))}/s" if speed and task.fields.get("is_total") else ""
        return Text(shown, "dim")


class _Left(TimeRemainingColumn):
    """Time left, shown only on the line of the total."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.fields.get("is_total") else Text("")


class _Bars:
    """Shows progress on a terminal: a spinner for each step, and while reading a bar per partition
    and one for the total."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: Progress | None = None
        self._step: TaskID | None = None
        self._total: TaskID | None = None
        self._rest: TaskID | None = None
        self._tasks: dict[Partition, TaskID] = {}

    def step(self, text: str) -> None:
        if self._shown is not None and self._step is not None:
            self._shown.update(self._step, text=text)
            return
        self.done()
        columns = SpinnerColumn(), TextColumn("{task.fields[text]}", markup=False)
        self._shown = Progress(*columns, console=self._console, transient=True)
        self._step = self._shown.add_task("", total=None, text=text)
        self._shown.start()

    def planned(self, plan: Plan, recovered: bool) -> None:
        self.done()
        self._console.print(_headline(plan, recovered), style="dim")
        self._shown = Progress(
            TextColumn("{task.fields[text]}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f}%"),
            _Rate(),
            _Left(compact=True, elapsed_when_finished=True),
            console=self._console,
            transient=True,
            expand=True,
            refresh_per_second=4,
        )
        widths = sum_by_key((r.partition, r.width) for r in plan.ranges)
        shown, hidden = biggest(sorted(widths), lambda p: widths[p])
        add = self._shown.add_task
        alone = len(widths) == 1
        self._tasks = {p: add("", total=widths[p], text=plain(p), is_total=alone) for p in shown}
        if hidden:
            total = sum(widths[p] for p in hidden)
            self._rest = add("", total=total, text=f"{number(len(hidden))} more")
        if not alone:
            self._total = add("", total=plan.width, text="all", is_total=True)
        self._shown.start()

    def read(self, read_widths: dict[Partition, int]) -> None:
        if self._shown is None or not self._tasks:
            return
        for partition, task in self._tasks.items():
            self._shown.update(task, completed=read_widths.get(partition, 0))
        total = sum(read_widths.values())
        if self._rest is not None:
            others = sum(n for p, n in read_widths.items() if p not in self._tasks)
            self._shown.update(self._rest, completed=others)
        if self._total is not None:
            self._shown.update(self._total, completed=total)

    def done(self) -> None:
        if self._shown is not None:
            self._shown.stop()
        self._shown = self._step = self._total = self._rest = None
        self._tasks = {}

    def warn(self, text: str) -> None:
        _print_warning(self._console, text)
