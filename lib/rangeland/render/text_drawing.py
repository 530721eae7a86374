"""Building blocks for output: safe text, a log as a bar, tables.

Every string from outside goes through ``plain`` into a ``Text``, so that neither markup nor control
codes in a topic's name or a broker's message can reach the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from rangeland.wording import number

T = TypeVar("T")

MAX_ROWS = 12
MAX_LINES = 5
MAX_NAME = 29
MAX_WIDTH = 1_000
WIDTH_WITHOUT_TERMINAL = 100
# kind -> (sign, ASCII sign, style, text for the legend); later kinds cover earlier ones.
KINDS: dict[str, tuple[str, str, str, str]] = {
    "before": ("·", ".", "dim", "before the range"),
    "later": ("░", "-", "dim", "left for later"),
    "waiting": ("▫", "~", "yellow", "behind an open transaction"),
    "already": ("▒", "=", "cyan", "landed already"),
    "land": ("█", "#", "green", "to land"),
    "skipped": ("-", "_", "yellow", "passed over"),
    "unproved": ("?", "?", "yellow", "cannot be proved"),
    "twice": ("▓", "2", "bold yellow", "more than once"),
    "lost": ("x", "x", "bold red", "lost"),
}
FLEXIBLE = {"log": 8, "why": 24}
"""The columns that may be narrower than their contents, and their smallest width."""


def console_for(stream: IO[str]) -> Console:
    """A console that ignores markup; 100 columns wide if the stream is not a terminal."""
    width = None if stream.isatty() else WIDTH_WITHOUT_TERMINAL
    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False)


# --- text ------------------------------------------------------------------


def plain(text: object) -> str:
    """The text with control characters escaped; line breaks and printable characters are kept."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode()
        for c in str(text)
    )


def safe_text(text: object, style: str = "") -> Text:
    """Any string as a ``Text``, without markup or control codes."""
    return Text(plain(text), style=style)


def title_of(job: str, text: str, style: str = "") -> Text:
    """A title: the job, and a text about it."""
    return safe_text(job, "bold").append(": ").append_text(safe_text(text, style))


def shorten_name(item: object) -> Text:
    """The name of a partition or a group member; if it is too long for a column, its middle is left
    out."""
    name = plain(item)
    half = (MAX_NAME - 3) // 2
    return Text(name if len(name) <= MAX_NAME else f"{name[:half]}...{name[-half:]}")


def number_or_dash(value: int | None) -> str:
    return "-" if value is None else number(value)


# --- a log as a bar ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogBar:
    """A log from ``first`` to ``last``, in as many cells as fit.

    ``intervals`` are ``(from_offset, until_offset, kind)``. If several share a cell, the kind that
    comes last in ``KINDS`` is drawn, so that a small range in a large log stays visible.
    """

    first: int
    last: int
    intervals: tuple[tuple[int, int, str], ...]

    @property
    def kinds(self) -> set[str]:
        """The kinds that are drawn in the bar."""
        intervals = [interval for interval in self.intervals if interval[0] < interval[1]]
        bare = self.first < min((start for start, _, _ in intervals), default=self.last)
        return {kind for _, _, kind in intervals} | ({"before"} if bare else set())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.draw(min(options.max_width, 32), ascii_only=options.ascii_only)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(8, options.max_width), min(32, options.max_width))

    def draw(self, width: int, ascii_only: bool = False) -> Text:
        if self.last <= self.first:
            return Text("empty", style="dim")
        text = Text()
        for kind, start, end in self.runs(width):
            sign, ascii_sign, style, _ = KINDS[kind]
            text.append((ascii_sign if ascii_only else sign) * (end - start), style=style)
        return text

    def runs(self, cells: int) -> list[tuple[str, int, int]]:
        """The bar in this many cells, as runs of one kind: ``(kind, first cell, cell after the
        last)``."""
        span = self.last - self.first
        runs: list[tuple[str, int, int]] = []
        for cell in range(cells if span > 0 else 0):
            low = self.first + span * cell // cells
            high = self.first + span * (cell + 1) // cells
            kind = self._kind(low, max(high, low + 1))
            start = runs.pop()[1] if runs and runs[-1][0] == kind else cell
            runs.append((kind, start, cell + 1))
        return runs

    def _kind(self, low: int, high: int) -> str:
        kinds = [kind for start, end, kind in self.intervals if start < high and low < end]
        return max(kinds, key=list(KINDS).index, default="before")


@dataclass(frozen=True, slots=True)
class Legend:
    """One line that explains the signs of the bars, as ``(kind, text)``."""

    words: tuple[tuple[str, str], ...]

    @staticmethod
    def of(bars: Iterable[LogBar], words: Mapping[str, str]) -> Legend:
        """A legend for only those kinds that are drawn."""
        kinds = set().union(*(bar.kinds for bar in bars))
        return Legend(tuple((kind, word) for kind, word in words.items() if kind in kinds))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = Text()
        for kind, word in self.words:
            sign, ascii_sign, style, _ = KINDS[kind]
            text.append((ascii_sign if options.ascii_only else sign) * 2, style=style)
            text.append(f" {word}   ", style="dim")
        yield text


# --- tables and lists -------------------------------------------------------------------


def facts(pairs: Iterable[tuple[str, object]]) -> Table:
    """A table of names and their values."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(name, safe_text(value))
    return grid


def list_lines(heading: str, lines: Iterable[object], style: str) -> list[RenderableType]:
    """A heading with the first few lines indented below it, or with a single line next to it;
    nothing if there are no lines."""
    items = [safe_text(line) for line in lines]
    title = Text(f"{heading}:", style=style)
    if len(items) < 2:
        return [title.append(" ").append(item.plain, style="default") for item in items]
    shown = items[:MAX_LINES]
    if len(items) > MAX_LINES:
        shown.append(Text(f"and {number(len(items) - MAX_LINES)} more", "dim"))
    return [title, *(Padding(item, (0, 0, 0, 2), expand=False) for item in shown)]


def biggest(things: Sequence[T], weight: Callable[[T], int]) -> tuple[list[T], list[T]]:
    """The heaviest things, in their own order, and the others. The last row stands for the others,
    so it never hides just a single thing."""
    if len(things) <= MAX_ROWS:
        return list(things), []
    order = sorted(range(len(things)), key=lambda index: (-weight(things[index]), index))
    shown = set(order[: MAX_ROWS - 1])
    return (
        [thing for index, thing in enumerate(things) if index in shown],
        [thing for index, thing in enumerate(things) if index not in shown],
    )


def rest_name(hidden: Sequence[object]) -> Text:
    """The first cell of the row that stands for everything that ``biggest`` hides."""
    return Text(f"+ {number(len(hidden))} more", "dim")


class _UncutTable(Table):
    """A table whose numbers are never cut off: if no column can shrink further, it is wider than
    the console."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        minimum = self.__rich_measure__(console, options.update(max_width=MAX_WIDTH)).minimum
        room = options.update(max_width=max(options.max_width, minimum))
        yield from super().__rich_console__(console, room)


def table_of(*names: str, is_cut: bool = False) -> Table:
    """An empty table with these columns; ``>name`` is a column of numbers. If space is short, the
    ``FLEXIBLE`` columns shrink, and with ``is_cut`` all columns are cut off."""
    columns = [
        Column(
            header=Text(name.lstrip(">"), "dim"),
            justify="right" if name.startswith(">") else "left",
            no_wrap=name not in FLEXIBLE,
            min_width=FLEXIBLE.get(name),
            overflow="fold",
        )
        for name in names
    ]
    kind = Table if is_cut else _UncutTable
    return kind(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
