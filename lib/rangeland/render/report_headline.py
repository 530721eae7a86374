"""What a report says first: whether everything is landed, and what needs attention. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from rangeland.loss import Action, LossKind
from rangeland.planning.intervals import width
from rangeland.render.loss_view import SUSPICIONS
from rangeland.report_results import JobReport
from rangeland.wording import count_noun, number


class Severity(IntEnum):
    """How much a point of the headline matters; the most severe come first."""

    GOOD = 0
    BEHIND = 1
    ATTENTION = 2
    PROBLEM = 3


@dataclass(frozen=True, slots=True)
class HeadlinePoint:
    """One sentence about the job."""

    severity: Severity
    text: str

    @property
    def word(self) -> str:
        """The severity in a word, so that it does not depend on colour."""
        words = {
            Severity.GOOD: "good",
            Severity.BEHIND: "behind",
            Severity.ATTENTION: "attention",
            Severity.PROBLEM: "problem",
        }
        return words[self.severity]


def headline(report: JobReport) -> list[HeadlinePoint]:
    """What there is to say, the most severe first. There is always something."""
    points = [*_row_points(report), *_loss_points(report)]
    points += [*_suspicion_points(report), *_open_points(report), *_lag_points(report)]
    return sorted(points, key=lambda point: -point.severity)


def _row_points(report: JobReport) -> Iterator[HeadlinePoint]:
    verification = report.verification
    if verification is None:
        return
    audit = verification.audit
    problem = Severity.PROBLEM
    if audit.holes:
        missing = count_noun(sum(r.width for r in audit.holes), f"landed {report.unit}")
        yield HeadlinePoint(problem, f"The table lacks the rows of {missing}.")
    if audit.duplicates:
        twice = count_noun(sum(r.width for r in audit.duplicates), report.unit)
        yield HeadlinePoint(problem, f"The table has too many rows of {twice}.")
    if verification.gone_files:
        gone = count_noun(len(verification.gone_files), "file")
        yield HeadlinePoint(problem, f"{gone} of the table gone from its store.")
    if audit.unknown_rows:
        yield HeadlinePoint(Severity.ATTENTION, "The table has rows that no landing wrote.")
    if audit.unproved:
        yield HeadlinePoint(Severity.ATTENTION, "Some landed ranges cannot be proved.")
    elif verification.is_well and verification.landings:
        records = sum(landed_range.landed or 0 for landed_range in verification.landed_ranges)
        text = f"{count_noun(records, 'landed record')}, each in the table exactly once (verified)."
        yield HeadlinePoint(Severity.GOOD, text)


def _loss_points(report: JobReport) -> Iterator[HeadlinePoint]:
    if ending := [loss.event.loss for loss in report.losses if loss.ends_runs]:
        text = f"A run has ended, and nothing has been decided since: {_names(ending)}."
        yield HeadlinePoint(Severity.PROBLEM, text)
    if report.lost:
        text = f"{count_noun(report.lost, report.unit)} lost, as the job's policy allows."
        yield HeadlinePoint(Severity.PROBLEM, text)
    if lost := [x for x in report.losses if x.is_whole_log and x.event.loss.action is Action.SKIP]:
        names = [
            f"{x.event.loss.partition} from offset {number(x.event.loss.from_offset)} on"
            for x in lost
        ]
        text = (
            f"{count_noun(report.lost_logs, 'old log')} lost, as the job's policy allows, and how "
            f"much of it is unknown: {_names(names)}."
        )
        yield HeadlinePoint(Severity.PROBLEM, text)
    if report.quarantined:
        text = f"{count_noun(report.quarantined, report.unit)} in quarantine."
        yield HeadlinePoint(Severity.ATTENTION, text)
    now = [p.partition for p in report.held if p.log is not None]
    before = [p.partition for p in report.held if p.log is None]
    for held, when in ((now, ""), (before, " when last landed")):
        if held:
            partitions = count_noun(len(held), "partition")
            text = f"{partitions} held at the checkpoint{when}: {_names(held)}."
            yield HeadlinePoint(Severity.ATTENTION, text)


def _suspicion_points(report: JobReport) -> Iterator[HeadlinePoint]:
    """What the logs suggest that a run would find. They were asked only once."""
    for kind, words in SUSPICIONS.items():
        found = [p for p in report.partitions if p.suspected_loss is kind]
        if found:
            gone = sum(width(p.log.gone) for p in found if p.log)
            severity = Severity.ATTENTION if kind is LossKind.TRUNCATED else Severity.PROBLEM
            said = words.format(gone=count_noun(gone, report.unit))
            names = _names([p.partition for p in found])
            yield HeadlinePoint(severity, f"The log of {names} {said}.")


def _open_points(report: JobReport) -> Iterator[HeadlinePoint]:
    def attention(text: str) -> HeadlinePoint:
        return HeadlinePoint(Severity.ATTENTION, text)

    if report.warnings:
        yield attention(f"{count_noun(len(report.warnings), 'warning')} about the table.")
    if report.unfinished_plans:
        plans = count_noun(len(report.unfinished_plans), "plan")
        yield attention(f"{plans} entered but not landed yet.")
    if absent := [p.partition for p in report.partitions if p.absent]:
        text = f"{count_noun(len(absent), 'partition')} without a log: {_names(absent)}."
        yield attention(text)
    if over := sum(p.passed_over for p in report.partitions):
        yield attention(f"{count_noun(over, report.unit)} passed over: no run lands them.")
    if waiting := sum(p.log.held_back for p in report.partitions if p.log):
        yield attention(f"{count_noun(waiting, report.unit)} behind an open transaction.")


def _lag_points(report: JobReport) -> Iterator[HeadlinePoint]:
    if report.log_error:
        text = "The logs could not be asked, so it is unknown how far behind the job is."
        yield HeadlinePoint(Severity.ATTENTION, text)
    elif not report.partitions:
        text = "The cluster has none of the job's partitions, and none was landed."
        yield HeadlinePoint(Severity.ATTENTION, text)
    elif lag := sum(p.lag or 0 for p in report.partitions):
        begun = "" if report.landings else "Nothing has landed yet: "
        left = count_noun(lag, report.unit)
        yield HeadlinePoint(Severity.BEHIND, f"{begun}{left} not landed yet.")
    elif report.may_have_losses:
        return  # The job may have to land more than the logs show, or something else.
    elif report.logs_are_known:
        text = "Nothing is left to land: the job has reached the end of every log."
        yield HeadlinePoint(Severity.GOOD, text)
    else:
        text = "The job has reached the end of every log that is there."
        yield HeadlinePoint(Severity.GOOD, text)


def _names(items: Sequence[object], most: int = 3) -> str:
    """The first few, and how many more there are."""
    names = ", ".join(map(str, items[:most]))
    return names if len(items) <= most else f"{names} and {number(len(items) - most)} more"
