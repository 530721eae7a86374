"""What ``report`` prints: where its page is, and what the page says first."""

from __future__ import annotations

from rich.console import Group, RenderableType

from rangeland.render.report_headline import Severity, headline
from rangeland.render.text_drawing import safe_text, title_of
from rangeland.report_results import JobReport, ReportResult
from rangeland.wording import size

_STYLES = {
    Severity.GOOD: "green",
    Severity.BEHIND: "yellow",
    Severity.ATTENTION: "yellow",
    Severity.PROBLEM: "bold red",
}


def render_written(report: JobReport, result: ReportResult) -> RenderableType:
    """The file, and the points of the page's headline."""
    title = title_of(result.job, f"written to {result.out} ({size(result.size_bytes)})")
    points = [safe_text(f"  {p.text}", _STYLES[p.severity]) for p in headline(report)]
    return Group(title, *points)
