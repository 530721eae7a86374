"""The page of a report: every section, hostile names, sizes, and what its pictures say."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from rangeland.dialects.cluster_values import GroupMember
from rangeland.loss import Action, LossKind
from rangeland.model import Counts, Partition, Range
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.table_audit import Audit, LandedRange
from rangeland.query_results import GroupStatus, PartitionStatus, VerifyResult
from rangeland.render.report_headline import Severity, headline
from rangeland.render.report_page import (
    MAX_LANDINGS,
    MAX_LOSSES,
    MAX_PARTITIONS,
    render_report,
)
from rangeland.render.report_pictures import kind_paths, landing_chart, mark_place
from rangeland.render.report_summary import render_written
from rangeland.render.text_drawing import LogBar
from rangeland.report_results import JobReport, ReportedLoss, ReportedPartition, result_of
from tests import sample_results as made
from tests.unit.test_render import rendered

VOID = {"meta", "path", "rect", "line"}
HOSTILE = "<script>alert('1')</script>\"&\u202e\x1b[31m"


class Page(HTMLParser):
    """A page, whose elements must be closed in the order in which they were opened."""

    def __init__(self, report: JobReport) -> None:
        super().__init__()
        self.html = render_report(report)
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self._open: list[str] = []
        self.feed(self.html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag
        else:
            assert self._open[-1] == "svg"

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        """What a reader sees, on one line."""
        return " ".join(" ".join(self.texts).split())

    def section(self, name: str) -> str:
        """The text of a section, from its heading on."""
        whole = self.html.partition(f'<h2 id="{name}">')[2].partition("</section>")[0]
        return " ".join(re.sub(r"<[^>]*>", " ", whole).split())


def points_of(report: JobReport) -> list[tuple[Severity, str]]:
    return [(point.severity, point.text) for point in headline(report)]


def verified(audit: Audit, *gone_files: str) -> VerifyResult:
    ranges = (LandedRange(Range(Partition("orders", 0), 0, 40), 40, ()),)
    return VerifyResult("orders", "lake/orders", 34, 12, ranges, audit, gone_files, 1.0)


def many_partitions(count: int, **changed: Any) -> tuple[ReportedPartition, ...]:
    """Each has a larger lag than the one before; number 7 has the largest, and number 3 is held. Of
    the last hundred, only every second offset is landed."""
    partitions = []
    for number in range(count):
        partition = Partition("orders" + "-long" * 20, number)
        step = 2 if number >= count - 100 else 400
        landed = tuple((at, at + step // 2) for at in range(0, 400, step))
        end = 10_000 if number == 7 else 500 + number
        log = PartitionStatus(partition, 400, 0, end, None, "b1:9092", landed)
        held = made.a_loss_event(Action.HOLD) if number == 3 else None
        partitions.append(ReportedPartition(partition, 400, landed, log, held, **changed))
    return tuple(partitions)


# --- what it says first ------------------------------------------------------------------------


def test_a_job_at_the_end_of_its_logs_is_good() -> None:
    whole = made.a_report(partitions=made.a_report().partitions[1:])
    assert points_of(whole) == [
        (Severity.GOOD, "Nothing is left to land: the job has reached the end of every log.")
    ]
    assert "good Nothing is left to land" in Page(whole).text


def test_a_lag_is_counted_and_is_no_alarm() -> None:
    assert points_of(made.a_report()) == [(Severity.BEHIND, "14,000 offsets not landed yet.")]
    assert "2 h 05 min" in Page(made.a_report()).section("partitions")


def test_what_backfills_have_landed_is_not_left_to_land() -> None:
    partition = Partition("orders", 0)
    log = PartitionStatus(partition, None, 0, 30, landed=((0, 30),), lag_ms=25_500)
    whole = made.a_report(partitions=(ReportedPartition(partition, None, log.landed, log),))
    assert whole.lag == 0
    assert points_of(whole)[0][1].startswith("Nothing is left to land")
    page = Page(whole)
    assert "oldest record not landed" not in page.text
    assert "30 0 none" in page.section("partitions")
    part = replace(log, landed=((0, 10), (20, 30)))
    behind = ReportedPartition(partition, None, part.landed, part)
    assert (behind.lag, behind.lag_ms) == (10, None)  # only the age of a landed record is known
    assert log.to_json()["lag"] == 30


def test_an_open_transaction_after_a_backfill_is_as_old_as_its_first_record() -> None:
    partition = Partition("orders", 0)
    log = PartitionStatus(
        partition, None, 0, 30, landed=((0, 30),), lag_ms=9, high_watermark=40, open_for_ms=7
    )
    waiting = ReportedPartition(partition, None, log.landed, log)
    assert (waiting.lag, waiting.lag_ms) == (10, 7)


def one_log(checkpoint: int | None, start: int, end: int, **more: Any) -> JobReport:
    """A report of one partition, which has landed up to its checkpoint."""
    held = more.pop("held", None)
    landed = more.pop("landed", ((0, checkpoint or 0),))
    partition = Partition("orders", 0)
    log = PartitionStatus(partition, checkpoint, start, end, landed=landed, held=held, **more)
    return made.a_report(partitions=(ReportedPartition(partition, checkpoint, landed, log, held),))


RECREATED = one_log(None, 0, 0, landed=(), is_recreated=True)
TRUNCATED = one_log(100, 0, 50)
EXPIRED = one_log(10, 500, 500)


@pytest.mark.parametrize(
    ("report", "severity", "text"),
    [
        (
            RECREATED,
            Severity.PROBLEM,
            "The log of orders/0 is not the one that was landed: its topic seems to be a new one.",
        ),
        (
            TRUNCATED,
            Severity.ATTENTION,
            "The log of orders/0 ends before the checkpoint: it was truncated, or its leader lags.",
        ),
        (
            EXPIRED,
            Severity.PROBLEM,
            "The log of orders/0 begins after the checkpoint: 490 offsets left it before they "
            "were landed.",
        ),
    ],
)
def test_a_log_on_which_no_run_can_continue_is_never_called_landed(
    report: JobReport, severity: Severity, text: str
) -> None:
    assert points_of(report) == [(severity, text)]
    page = Page(report)
    assert "fact good" not in page.html
    assert "Nothing is left to land" not in page.text
    assert report.lag == 0


@pytest.mark.parametrize(
    "report",
    [
        one_log(10, 500, 600, landed=((0, 510),)),  # a backfill has landed what has left the log
        one_log(100, 0, 50, high_watermark=100),  # the rest is behind an open transaction
    ],
)
def test_a_log_that_lacks_nothing_is_not_suspected(report: JobReport) -> None:
    assert all("the checkpoint" not in text for _, text in points_of(report))


def test_a_hold_for_what_a_log_shows_says_it_once() -> None:
    held = replace(
        made.a_loss_event(Action.HOLD), loss=made.a_loss(0, 10, 500).with_action(Action.HOLD)
    )
    assert [severity for severity, _ in points_of(one_log(10, 500, 500, held=held))] == [
        Severity.ATTENTION
    ]
    other = replace(held, loss=replace(held.loss, kind=LossKind.CORRUPT))
    assert len(points_of(one_log(10, 500, 500, held=other))) == 2


def test_the_most_severe_comes_first() -> None:
    report = made.a_report(
        losses=(
            made.a_reported_loss(Action.SKIP),
            made.a_reported_loss(Action.FAIL, ends_runs=True),
            made.a_reported_loss(Action.QUARANTINE),
        ),
        unfinished_plans=made.a_status().unfinished_plans,
        warnings=("a warning",),
    )
    assert points_of(report) == [
        (
            Severity.PROBLEM,
            "A run has ended, and nothing has been decided since: orders/0 [10, 15) is expired.",
        ),
        (Severity.PROBLEM, "5 offsets lost, as the job's policy allows."),
        (Severity.ATTENTION, "5 offsets in quarantine."),
        (Severity.ATTENTION, "1 warning about the table."),
        (Severity.ATTENTION, "1 plan entered but not landed yet."),
        (Severity.BEHIND, "14,000 offsets not landed yet."),
    ]


def test_what_a_later_landing_includes_is_no_longer_lost() -> None:
    report = made.a_report(losses=(made.a_reported_loss(Action.SKIP, remaining=()),))
    assert report.lost == 0
    assert "in a later landing" in Page(report).section("losses")
    assert all(severity < Severity.PROBLEM for severity, _ in points_of(report))


def test_offsets_that_were_lost_twice_count_once() -> None:
    loss = made.a_reported_loss(Action.SKIP)
    part = replace(loss, remaining=(Range(Partition("orders", 0), 12, 20, None),))
    assert made.a_report(losses=(loss, part)).lost == 10


def test_without_logs_the_lag_is_unknown_and_not_zero() -> None:
    partitions = tuple(replace(p, log=None) for p in made.a_report().partitions)
    report = made.a_report(partitions=partitions, log_error="no broker at b1:9092 answers")
    assert report.lag is None
    assert points_of(report)[0][0] is Severity.ATTENTION
    page = Page(report)
    assert "Why the logs could not be asked: no broker at b1:9092 answers" in page.text
    assert "<dd>unknown <small>the logs could not be asked" in page.html
    row = re.search(r"<bdi>orders/0</bdi>.*?</tr>", page.html, re.DOTALL)
    assert row is not None
    assert row[0].count(">unknown<") == 4  # start, end, and both lags
    assert "26,000" in row[0]
    assert "k-later" not in row[0]


def test_offsets_that_are_bytes_are_called_bytes() -> None:
    report = made.a_report(
        offsets_are_bytes=True,
        losses=(made.a_reported_loss(Action.SKIP), made.a_reported_loss(Action.QUARANTINE)),
    )
    texts = [text for _, text in points_of(report)]
    assert "14,000 bytes not landed yet." in texts
    assert "5 bytes lost, as the job's policy allows." in texts
    assert "5 bytes in quarantine." in texts
    page = Page(report)
    assert "lag, bytes" in page.section("partitions")
    assert "<dd>14,000 <small>bytes</small>" in page.html
    assert "78,000 bytes of the logs: 78,000 landed" in page.section("landings")
    expired = replace(EXPIRED, offsets_are_bytes=True)
    assert "490 bytes left it" in points_of(expired)[0][1]
    assert "490 bytes left it" in Page(expired).section("partitions")


def test_a_hold_is_in_the_past_if_its_log_is_not_known() -> None:
    first, second = made.a_report().partitions
    held = made.a_loss_event(Action.HOLD)
    now = made.a_report(partitions=(replace(first, held=held), second))
    assert (Severity.ATTENTION, "1 partition held at the checkpoint: orders/0.") in points_of(now)
    before = made.a_report(
        partitions=(replace(first, held=held, log=None), replace(second, log=None)),
        log_error="no broker answers",
    )
    said = "1 partition held at the checkpoint when last landed: orders/0."
    assert (Severity.ATTENTION, said) in points_of(before)
    assert "<dd>1 partition <small>when last landed</small>" in Page(before).html
    assert "<dd>1 partition</dd>" in Page(now).html


def test_the_oldest_record_may_be_older_if_an_age_is_unknown() -> None:
    first, second = made.a_report().partitions
    assert "<dd>2 h 05 min <small>" in Page(made.a_report()).html
    unknown = replace(second, log=PartitionStatus(second.partition, 9_000, 0, 9_500))
    for other in (unknown, replace(second, log=None)):
        assert "<dd>at least 2 h 05 min" in Page(made.a_report(partitions=(first, other))).html


def test_a_partition_without_a_log_is_not_taken_for_landed() -> None:
    gone = ReportedPartition(Partition("orders", 2), 7, ((0, 7),), absent="vanished: no such topic")
    report = made.a_report(partitions=(*made.a_report().partitions[1:], gone))
    assert report.lag is None
    assert points_of(report)[0] == (
        Severity.ATTENTION,
        "1 partition without a log: orders/2.",
    )
    assert "every log that is there" in points_of(report)[1][1]
    assert "no log: vanished: no such topic" in Page(report).section("partitions")


def test_a_job_that_has_landed_nothing_has_a_page() -> None:
    status = PartitionStatus(Partition("orders", 0), None, 0, 9)
    report = JobReport(
        "orders", "orders.yaml", "lake/orders", made.NOW_MS,
        partitions=(ReportedPartition(status.partition, log=status),),
    )  # fmt: skip
    assert points_of(report) == [
        (Severity.BEHIND, "Nothing has landed yet: 9 offsets not landed yet.")
    ]
    page = Page(report)
    assert "which does not exist yet" in page.text
    assert page.section("landings") == "Landings Nothing has landed yet."
    assert "none yet" in page.section("partitions")
    bare = Page(replace(report, partitions=(), log_error="refused"))
    assert "The job has no partitions yet." in bare.text


# --- the rows of the table -----------------------------------------------------------------------


def test_a_page_that_was_not_verified_says_so() -> None:
    text = Page(made.a_report()).text
    assert "This page shows what the ledger says" in text
    assert "exactly once (verified)" not in text
    assert result_of(made.a_report(), "o.html", 1, 0.0).to_json().keys().isdisjoint({"ok"})


def test_a_table_that_was_verified_is_said_to_be_whole() -> None:
    report = made.a_report(verification=verified(Audit()))
    good = "40 landed records, each in the table exactly once (verified)."
    assert (Severity.GOOD, good) in points_of(report)
    text = Page(report).text
    assert "The rows of the table were compared with the ledger: 12 landings" in text
    assert "This page shows what the ledger says" not in text
    result = result_of(report, "o.html", 1, 0.0)
    assert (result.to_json()["ok"], result.exit_code) == (True, 0)


def test_holes_and_duplicates_come_first_and_are_listed_and_fail() -> None:
    p0 = Partition("orders", 0)
    audit = Audit((Range(p0, 3, 5),), (Range(p0, 9, 10),), (Range(p0, 50, 51),))
    report = made.a_report(verification=verified(audit, "a.parquet"))
    assert points_of(report)[:3] == [
        (Severity.PROBLEM, "The table lacks the rows of 2 landed offsets."),
        (Severity.PROBLEM, "The table has too many rows of 1 offset."),
        (Severity.PROBLEM, "1 file of the table gone from its store."),
    ]
    text = Page(report).text
    for expected in ("missing from the table orders/0 [3, 5)", "orders/0 [9, 10)", "a.parquet"):
        assert expected in text
    result = result_of(report, "o.html", 1, 0.0)
    assert (result.to_json()["ok"], result.exit_code) == (False, 66)


# --- its sections --------------------------------------------------------------------------------


def test_landings_are_listed_the_newest_first_with_their_evidence() -> None:
    landings = (
        made.a_landing(1, 1_000),
        made.a_landing(
            1, 500, kind=PlanKind.REPLACE, counts=Counts(landed=500, lost=3), table_version=8
        ),
    )
    report = made.a_report(landings=landings)
    assert (report.landed, report.landed_again) == (1_500, 500)
    text = Page(report).section("landings")
    assert re.search(r"1 replace .*? 500 3 0 2 48\.8 KiB 8 0f2c0f2c0f2c 1 run ", text)
    assert "1 run 2023-11-14 11:12:20 UTC (11 h 01 min ago) 1,000 0 0 2 97.7 KiB unknown" in text
    assert "1,500 offsets = 1,500 landed + 3 lost" in text


def test_losses_are_listed_with_what_was_seen_and_the_open_ones_first() -> None:
    settled = replace(
        made.a_reported_loss(Action.FAIL, remaining=()),
        event=replace(made.a_loss_event(Action.FAIL), seen_at_ms=made.NOW_MS + 1, plan_hash=""),
    )
    report = made.a_report(losses=(settled, made.a_reported_loss(Action.QUARANTINE)))
    text = Page(report).section("losses")
    assert "orders/0 10 15 expired in quarantine 2023-11-14 22:13:20 UTC" in text
    assert "3 unchanged the log begins at 15 orders/0 10 15 expired ended a run" in text


def test_a_loss_that_ended_something_is_told_from_one_that_still_ends_runs() -> None:
    event = made.a_loss_event(Action.FAIL)
    replaced = replace(event, application=PlanKind.REPLACE.application("orders", "0f2c"))
    losses = (
        made.a_reported_loss(Action.FAIL),
        replace(made.a_reported_loss(Action.FAIL), event=replaced),
    )
    report = made.a_report(losses=losses)
    text = Page(report).section("losses")
    assert re.search("expired ended a run .* 3 not landed since the log begins at 15", text)
    assert re.search("expired ended its plan, a replace .* 3 not landed since", text)
    assert all(severity < Severity.PROBLEM for severity, _ in points_of(report))


@pytest.mark.parametrize("kind", [LossKind.RECREATED, LossKind.VANISHED])
def test_how_much_of_a_whole_log_is_lost_is_unknown(kind: LossKind) -> None:
    event = made.a_loss_event(Action.SKIP, made.a_loss(0, 30, 30, kind))
    report = made.a_report(losses=(ReportedLoss(event),))
    assert (report.lost, report.lost_logs) == (0, 1)
    assert points_of(report)[0] == (
        Severity.PROBLEM,
        "1 old log lost, as the job's policy allows, and how much of it is unknown: orders/0 from "
        "offset 30 on.",
    )
    page = Page(report)
    text = page.section("losses")
    assert f"orders/0 30 unknown {kind} lost, as the policy allows" in text
    assert "how much is unknown" in text
    assert "in a later landing" not in text
    assert "<dd>0 <small>offsets, and the rest of 1 old log</small>" in page.html
    answer = result_of(report, "o.html", 1, 0.0).to_json()
    assert (answer["lost"], answer["lost_logs"]) == (0, 1)


def test_an_unfinished_plan_is_listed_with_who_finishes_it() -> None:
    report = made.a_report(unfinished_plans=made.a_status().unfinished_plans)
    text = Page(report).section("unfinished")
    assert "plan 12 of rangeland/orders, 1,000 offsets: the next run finishes it" in text


@pytest.mark.parametrize(
    ("group", "said"),
    [
        (GroupStatus("g", why="refused"), "g : unknown; refused"),
        (
            GroupStatus("g", "ZooKeeper", "stable", (GroupMember("m-1", host="h", is_ours=True),)),
            "g : stable, 1 member, kept by ZooKeeper Its members",
        ),
    ],
)
def test_the_group_is_shown_if_the_job_has_one(group: GroupStatus, said: str) -> None:
    assert said in Page(made.a_report(group=group)).section("group")
    assert 'id="group"' not in Page(made.a_report()).html


def test_a_held_partition_is_marked_at_its_checkpoint() -> None:
    first, second = made.a_report().partitions
    held = replace(first, held=made.a_loss_event(Action.HOLD))
    html = Page(made.a_report(partitions=(held, second))).html
    assert html.count('class="k-held" x="77.5"') == 1
    assert html.count('class="k-mark"') == 1
    assert "held: expired, the log begins at 15" in html


# --- what it may never do ------------------------------------------------------------------------


def hostile_report() -> JobReport:
    """Everything that comes from outside is hostile."""
    partition = Partition(HOSTILE, 0)
    loss = replace(made.a_loss(0, 1, 5, LossKind.CORRUPT), partition=partition, evidence=HOSTILE)
    event = made.a_loss_event(Action.HOLD, loss)
    log = PartitionStatus(partition, 1, 0, 9, 3, HOSTILE, ((0, 1),))
    plan = replace(made.a_plan([made.a_range(0, 1, 2)]), application=HOSTILE)
    (unfinished,) = made.a_status().unfinished_plans
    return JobReport(
        job=HOSTILE,
        job_file=HOSTILE,
        table=HOSTILE,
        made_at_ms=made.NOW_MS,
        table_uri=HOSTILE,
        table_version=1,
        partitions=(
            ReportedPartition(partition, 1, ((0, 1),), log, event),
            ReportedPartition(Partition(HOSTILE, 1), absent=HOSTILE),
        ),
        log_error=HOSTILE,
        landings=(replace(made.a_landing(1, 5), hash=HOSTILE),),
        losses=(replace(made.a_reported_loss(Action.SKIP), event=event),),
        unfinished_plans=(replace(unfinished, plan=plan),),
        group=GroupStatus(HOSTILE, HOSTILE, HOSTILE, (GroupMember(HOSTILE, host=HOSTILE),)),
        warnings=(HOSTILE,),
        settings={HOSTILE: HOSTILE},
        verification=verified(Audit((Range(partition, 1, 2),)), HOSTILE),
    )


def test_hostile_names_are_text_everywhere() -> None:
    page = Page(hostile_report())
    assert "script" not in page.tags
    assert page.html.count("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&#34;&amp;") > 15
    assert "\x1b" not in page.html
    assert "\u202e" not in page.html
    assert all(not name.startswith("on") and name != "style" for name, _ in page.attributes)
    failed = replace(hostile_report(), group=GroupStatus(HOSTILE, why=HOSTILE))
    assert "script" not in Page(failed).tags


@pytest.mark.parametrize("report", [made.a_report(), hostile_report()])
def test_a_page_needs_nothing_from_elsewhere_and_allows_nothing_else(report: JobReport) -> None:
    page = Page(report)
    assert {"script", "link", "img", "iframe", "a"}.isdisjoint(page.tags)
    assert {"src", "href", "xlink:href"}.isdisjoint(name for name, _ in page.attributes)
    assert "url(" not in page.html
    style = page.html.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}';" in page.html


def test_on_paper_a_table_wraps_rather_than_run_over_the_edge() -> None:
    style = Page(made.a_report()).html.partition("@media print")[2].partition("</style>")[0]
    assert "thead th, .n { white-space: normal; }" in style
    assert "tbody th, td.text { min-width: 4.5rem; }" in style


def test_every_table_and_picture_says_what_it_is() -> None:
    page = Page(hostile_report())
    assert page.tags.count("table") == page.tags.count("caption") == 4
    pictures = re.findall(r"<svg[^>]*>(?:<title|<rect)", page.html)
    assert pictures
    for picture in pictures:
        assert 'role="img"' in picture if "<title" in picture else 'aria-hidden="true"' in picture
    assert page.html.count("<h1>") == 1


def test_the_same_report_gives_the_same_page() -> None:
    assert render_report(made.a_report()) == render_report(made.a_report())


def test_thousands_of_everything_make_a_page_of_bounded_size() -> None:
    long_text = "x" * 5_000
    loss = made.a_reported_loss(Action.SKIP)
    event = replace(loss.event, loss=replace(loss.event.loss, evidence=long_text))
    (unfinished,) = made.a_status().unfinished_plans
    report = made.a_report(
        partitions=many_partitions(2_000),
        landings=tuple(made.a_landing(n, n) for n in range(1, 3_001)),
        losses=(replace(loss, event=event),) * 2_000,
        unfinished_plans=(unfinished,) * 2_000,
        warnings=(long_text,) * 2_000,
        settings={"topics": [long_text] * 50},
        verification=verified(Audit((Range(Partition("o", 1), 1, 2),) * 2_000)),
        group=GroupStatus("g", "k", "stable", (GroupMember(long_text),) * 2_000),
    )
    page = Page(report)
    assert len(page.html) < 500_000
    partitions = page.section("partitions")
    assert f"{2_000 - MAX_PARTITIONS:,} more not drawn" in partitions
    assert partitions.count("orders-long") == 2 * MAX_PARTITIONS  # its name, and its picture
    assert "-long/3 " in partitions  # held
    assert "-long/7 " in partitions  # the largest lag
    assert "-long/1999 " in partitions
    assert "-long/8 " not in partitions
    lag = sum((10_000 if n == 7 else 500 + n) - 400 for n in range(2_000))
    assert report.lag == lag
    assert f"{lag:,} offsets not landed yet" in page.text
    assert page.html.count('class="landing"') == MAX_LANDINGS
    earlier = sum(range(1, 3_001 - MAX_LANDINGS))
    assert f"{3_000 - MAX_LANDINGS:,} earlier" in page.text
    assert f"{earlier:,}" in page.section("landings")
    assert f"{2_000 - MAX_LOSSES:,} more not listed" in page.section("losses")


# --- its pictures --------------------------------------------------------------------------------


def test_a_bar_has_the_shares_of_its_log() -> None:
    bar = LogBar(0, 1_200, ((0, 600, "land"), (600, 1_200, "later"), (0, 300, "lost")))
    assert [(p.kind, p.d) for p in kind_paths(bar)] == [
        ("lost", "M0 0h30v10h-30z"),
        ("land", "M30 0h30v10h-30z"),
        ("later", "M60 0h60v10h-60z"),
    ]
    assert (mark_place(bar, 600), mark_place(bar, 0), mark_place(bar, 1_200)) == (60, 0.5, 119.5)
    assert (mark_place(bar, None), mark_place(bar, 1_201)) == (None, None)
    assert kind_paths(LogBar(5, 5, ())) == []
    assert mark_place(LogBar(5, 5, ()), 5) is None


def test_the_smallest_loss_in_a_large_log_is_still_drawn() -> None:
    bar = LogBar(0, 10**12, ((0, 10**12, "land"), (5, 6, "lost")))
    assert [p.kind for p in kind_paths(bar)] == ["lost", "land"]


def test_bars_of_landings_stand_at_their_times_and_are_as_high_as_their_records() -> None:
    chart = landing_chart([(0, 100, "a"), (3_600_000, 0, "b"), (14_400_000, 200, "c")])
    assert [tick.label for tick in chart.records] == ["0", "50", "100", "150", "200"]
    assert [bar.title for bar in chart.bars] == ["a", "b", "c"]
    first, none, last = chart.bars
    assert (first.height, none.height, last.height) == (70.0, 1.0, 140.0)
    assert all(round(bar.y + bar.height, 1) == 150 for bar in chart.bars)
    assert round((none.x - first.x) / (last.x - first.x), 2) == 0.25
    assert [tick.label for tick in chart.times] == [f"01-01 0{hour}:00" for hour in range(5)]
    assert all(72 <= bar.x <= bar.x + bar.width <= 700 for bar in chart.bars)


@pytest.mark.parametrize(
    ("span_ms", "labels"),
    [
        (0, ["1970-01-01 00:00:05"]),
        (4_000, [f"00:00:0{second}" for second in range(5, 10)]),
        (3 * 86_400_000, ["1970-01-02", "1970-01-03", "1970-01-04"]),
        (20 * 365 * 86_400_000, None),
    ],
)
def test_a_time_axis_has_few_round_times(span_ms: int, labels: list[str] | None) -> None:
    chart = landing_chart([(5_000, 1, ""), (5_000 + span_ms, 7, "")])
    seen = [tick.label for tick in chart.times]
    assert 1 <= len(seen) <= 6
    assert labels is None or seen == labels


def test_the_command_prints_the_file_and_the_headline() -> None:
    result = result_of(made.a_report(), "orders.html", 20_480, 2.0)
    text = rendered(render_written(made.a_report(), result))
    assert "orders: written to orders.html (20.0 KiB)" in text
    assert "14,000 offsets not landed yet." in text
