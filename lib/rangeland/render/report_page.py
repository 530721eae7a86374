"""A report about a job as one HTML page, without scripts and without anything from elsewhere.

``report_page.html`` is its template. Every value in it is escaped, and control characters in names
and messages are shown as escapes. The page has the largest or newest of everything one by one, and
the rest as sums, so its size is bounded.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from rangeland import __version__
from rangeland.delta.ledger.events import LossEvent
from rangeland.loss import Action
from rangeland.model import COUNT_NAMES
from rangeland.planning.passed_over_ranges import passed_over_intervals
from rangeland.planning.plan_kind import PlanKind
from rangeland.query_results import VerifyResult
from rangeland.render.loss_view import ACTIONS, action_of, suspicion
from rangeland.render.report_headline import headline
from rangeland.render.report_pictures import (
    CELLS,
    DAY_S,
    KindPath,
    LandingChart,
    kind_paths,
    landing_chart,
    mark_place,
)
from rangeland.render.status_view import BAR_WORDS, status_bar
from rangeland.render.text_drawing import LogBar, plain
from rangeland.render.unfinished_view import unfinished_line
from rangeland.report_results import (
    JobReport,
    ReportedLanding,
    ReportedLoss,
    ReportedPartition,
)
from rangeland.wording import count_noun, duration, number, size, utc_time

MAX_PARTITIONS = 50
MAX_LANDINGS = 60
MAX_LOSSES = 100
MAX_LINES = 50
MAX_TEXT = 600
"""The longest text from outside, in characters, of which there may be many."""
MAX_SETTINGS = 20_000


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition as one row of the page. ``mark`` is where its checkpoint is in the bar."""

    of: ReportedPartition
    bar: LogBar
    paths: Sequence[KindPath]
    mark: float | None
    title: str


def render_report(report: JobReport) -> str:
    """The page as HTML. The same report always gives the same page."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def since(time_ms: int) -> str:
        return _age(report.made_at_ms - time_ms)

    filters = {
        "number": number,
        "known": lambda value: "unknown" if value is None else number(value),
        "noun": count_noun,
        "size": size,
        "utc": utc_time,
        "minute": lambda ms: utc_time(ms // 1000 * 1000).replace("T", " ").replace("Z", " UTC"),
        "since": since,
        "age": _age,
        "short": _shorten,
        "digest": _digest,
        "suspicion": suspicion,
    }
    environment.filters.update(filters)
    template = resources.files("rangeland.render").joinpath("report_page.html")
    page = environment.from_string(template.read_text(encoding="utf-8"))
    return page.render(report=report, version=__version__, cells=CELLS, **_contents(report)) + "\n"


def _contents(report: JobReport) -> dict[str, Any]:
    """What the template needs besides the report itself, as values that it only has to place."""
    shown, hidden = _largest(report.partitions)
    rows = [_partition_row(p) for p in shown]
    landings = report.landings[-MAX_LANDINGS:]
    losses = sorted(report.losses, key=_loss_order)
    ages_ms = [p.lag_ms for p in report.partitions if p.lag_ms is not None]
    kinds = {path.kind for row in rows for path in row.paths}
    return {
        "headline": headline(report),
        "known_lag": sum(p.lag or 0 for p in report.partitions),
        "oldest_ms": max(ages_ms, default=None),
        "classes": [(n, c) for n in COUNT_NAMES if (c := getattr(report.counts, n))],
        "units": f"{report.unit}s",
        "ages_are_known": all(p.lag == 0 or p.lag_ms is not None for p in report.partitions),
        "rows": rows,
        "hidden": hidden,
        "hidden_lag": sum(p.lag or 0 for p in hidden),
        "hidden_unknown": sum(p.lag is None for p in hidden),
        "hidden_held": sum(p.held is not None for p in hidden),
        "hidden_passed_over": sum(p.passed_over for p in hidden),
        "has_groups": any(p.log and p.log.group_offset is not None for p in shown),
        "legend": [(kind, words) for kind, words in BAR_WORDS.items() if kind in kinds],
        "landings": landings[::-1],
        "earlier": report.landings[: len(report.landings) - len(landings)],
        "chart": _chart(landings),
        "losses": [(loss, _action_words(loss.event)) for loss in losses[:MAX_LOSSES]],
        "more_losses": losses[MAX_LOSSES:],
        "unfinished": [unfinished_line(plan) for plan in report.unfinished_plans[:MAX_LINES]],
        "warnings": report.warnings[:MAX_LINES],
        "members": report.group.members[:MAX_LINES] if report.group else (),
        "wrong_rows": _wrong_rows(report.verification),
        "settings": _settings_text(report),
        "max_lines": MAX_LINES,
    }


# --- partitions --------------------------------------------------------------------------------


def _largest(
    partitions: Sequence[ReportedPartition],
) -> tuple[list[ReportedPartition], list[ReportedPartition]]:
    """The partitions that are shown one by one, by name, and the others. Those that need attention
    come first, then those with the largest lag, then the longest."""

    def order(p: ReportedPartition) -> tuple[bool, int, int]:
        needs_attention = p.held is not None or bool(p.absent or p.suspected_loss)
        return needs_attention, p.lag or 0, sum(end - start for start, end in p.landed)

    by_weight = sorted(partitions, key=order, reverse=True)
    shown, hidden = by_weight[:MAX_PARTITIONS], by_weight[MAX_PARTITIONS:]
    return sorted(shown, key=lambda p: p.partition), hidden


def _partition_row(p: ReportedPartition) -> PartitionRow:
    bar = _landed_bar(p) if p.log is None else status_bar(p.log)
    words = [f"{p.partition}: offsets {number(bar.first)} to {number(bar.last)}"]
    words += [f"{kind_words}" for kind, kind_words in BAR_WORDS.items() if kind in bar.kinds]
    if p.checkpoint is not None:
        words.append(f"checkpoint at {number(p.checkpoint)}")
    if p.held is not None:
        words.append("held there")
    return PartitionRow(p, bar, kind_paths(bar), mark_place(bar, p.checkpoint), "; ".join(words))


def _landed_bar(p: ReportedPartition) -> LogBar:
    """What has landed of a partition whose log is not known, which is therefore not drawn."""
    over = passed_over_intervals(p.landed, p.checkpoint)
    intervals = [
        *((start, end, "land") for start, end in p.landed),
        *((start, end, "skipped") for start, end in over),
    ]
    first = min((start for start, _, _ in intervals), default=0)
    last = max((end for _, end, _ in intervals), default=0)
    return LogBar(first, last, tuple(intervals))


# --- landings, losses, rows -------------------------------------------------------------


def _chart(landings: Sequence[ReportedLanding]) -> LandingChart | None:
    if not landings:
        return None
    return landing_chart([(x.at_ms, x.counts.landed, _landing_title(x)) for x in landings])


def _landing_title(landing: ReportedLanding) -> str:
    """``run 12, 2026-01-31T06:00:00Z: 33,985 records in 4 files``."""
    sizes = f"{count_noun(landing.counts.landed, 'record')} in {count_noun(landing.files, 'file')}"
    return f"{landing.kind} {number(landing.sequence)}, {utc_time(landing.at_ms)}: {sizes}"


def _loss_order(loss: ReportedLoss) -> tuple[bool, int]:
    """What is still open first, then the newest."""
    return not loss.is_open, -loss.event.seen_at_ms


def _action_words(event: LossEvent) -> str:
    """What was done about a loss. Only a run ends; any other plan is given up."""
    kind = PlanKind.of_application(event.job, event.application)
    if event.loss.action is Action.FAIL and kind is not PlanKind.RUN:
        return f"ended its plan, a {kind}"
    return ACTIONS[action_of(event)][0]


def _wrong_rows(verification: VerifyResult | None) -> list[tuple[str, Sequence[object]]]:
    """What is wrong with the rows of the table, or in doubt, under a heading each."""
    if verification is None:
        return []
    audit = verification.audit
    findings: list[tuple[str, Sequence[object]]] = [
        ("landed, but missing from the table", audit.holes),
        ("more rows than were landed", audit.duplicates),
        ("rows that no landing wrote", audit.unknown_rows),
        ("cannot be proved: the ledger does not know which offsets had rows", audit.unproved),
        ("files that are gone from the store", verification.gone_files),
    ]
    return [(words, found) for words, found in findings if found]


def _settings_text(report: JobReport) -> str:
    import yaml

    if not report.settings:
        return ""
    text: str = yaml.safe_dump(
        dict(report.settings), sort_keys=False, allow_unicode=True, default_flow_style=None
    )
    return _shorten(text, MAX_SETTINGS)


# --- text -------------------------------------------------------------------------------


def _printable(value: object) -> object:
    """Anything as text without control characters. Markup, which only the template makes, stays as
    it is."""
    return value if hasattr(value, "__html__") else plain(value)


def _shorten(text: object, most: int = MAX_TEXT) -> str:
    shown = str(text)
    return shown if len(shown) <= most else f"{shown[:most]}..."


def _digest(text: str) -> str:
    """A text's hash as a content security policy has it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _age(age_ms: int) -> str:
    """``12.0 s``, ``5 min 03 s``, ``3 h 20 min``, ``12 days``."""
    seconds = max(0, age_ms) / 1000
    return duration(seconds) if seconds < 2 * DAY_S else f"{seconds / DAY_S:,.0f} days"
