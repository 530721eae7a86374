"""What a report finds in table, ledger and logs, and what the command does with its file."""

from __future__ import annotations

import itertools
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rangeland import errors
from rangeland.cli import command_line
from rangeland.delta.ledger.events import LossEvent, OutcomeEvent, PlanEvent
from rangeland.job.job_text import parse_job_text
from rangeland.landing.audit.verification import Landings
from rangeland.loss import Action, LossKind
from rangeland.model import Address, Counts, Leader, LogState, Range, Survey
from rangeland.planning.incarnation import LogMark
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.slice_receipt import RangeResult
from rangeland.progress_events import NoProgress
from rangeland.queries import job_report, job_status
from rangeland.queries.job_report import reported_losses
from rangeland.report_results import JobReport, ReportedLoss
from tests import sample_results as made
from tests.unit import test_landing_target
from tests.unit.test_job_status import landed_until_30
from tests.unit.test_landing_target import P0, Drivers, plan

drivers, lake = test_landing_target.drivers, test_landing_target.lake

# --- what it finds ----------------------------------------------------------------------


def report(drivers: Drivers) -> JobReport:
    source = {"servers": ["b:1"], "topics": ["orders"]}
    document = {"job": "orders", "source": source, "sink": {"table": drivers.path}}
    text = parse_job_text(json.dumps(document), "jobs/orders.yaml")
    return job_report.report(drivers.job, text, None, NoProgress())


def test_table_and_ledger_are_reported_without_brokers(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = landed_until_30(drivers, monkeypatch)
    target.ledger.refresh()
    assert target.writer.enter(plan(2, 30, 40), [])

    def refuse(*about: object, **more: object) -> Survey:
        raise errors.Unreachable("b:1 does not answer", do="start it")

    monkeypatch.setattr(job_status, "survey_of", refuse)
    found = report(drivers)
    assert found.log_error == "b:1 does not answer. Start it."
    (partition,) = found.partitions
    assert (partition.checkpoint, partition.landed, partition.log) == (30, ((0, 30),), None)
    assert partition.held is not None
    assert partition.held.loss.evidence == "its checksum is wrong"
    assert (found.lag, found.landed, found.offsets) == (None, 30, 30)
    assert [x.table_version for x in found.landings] == [found.table_version]
    assert [p.plan.sequence for p in found.unfinished_plans] == [2]
    assert not found.offsets_are_bytes
    assert (found.job_file, found.table_uri) == ("orders.yaml", drivers.path)


def test_the_logs_show_what_is_left(drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> None:
    landed_until_30(drivers, monkeypatch)
    log = LogState(P0, Leader(Address("b", 1), 7, "id"), 0, 100)
    monkeypatch.setattr(job_status, "survey_of", lambda *about, **more: Survey(0, {P0: log}))
    monkeypatch.setattr(job_status, "log_ends", lambda *about: {})
    monkeypatch.setattr(job_status, "first_times", lambda *about: {})
    found = report(drivers)
    assert (found.lag, found.log_error, len(found.held)) == (70, "", 1)
    monkeypatch.setattr(job_status, "survey_of", lambda *about, **more: Survey(0, {}))
    gone = report(drivers)
    assert (gone.lag, gone.logs_are_known) == (None, False)
    assert gone.partitions[0].absent.startswith("vanished: ")


@pytest.mark.parametrize(
    ("topic_id", "start", "end", "suspected"),
    [("new", 0, 0, "recreated"), ("id", 0, 20, "truncated"), ("id", 50, 50, "expired")],
)
def test_what_a_run_would_find_is_suspected(
    drivers: Drivers,
    monkeypatch: pytest.MonkeyPatch,
    topic_id: str,
    start: int,
    end: int,
    suspected: str,
) -> None:
    landed_until_30(drivers, monkeypatch)
    log = LogState(P0, Leader(Address("b", 1), 7, topic_id), start, end)
    monkeypatch.setattr(job_status, "survey_of", lambda *about, **more: Survey(0, {P0: log}))
    monkeypatch.setattr(job_status, "log_ends", lambda *about: {})
    monkeypatch.setattr(job_status, "first_times", lambda *about: {})
    (partition,) = report(drivers).partitions
    assert partition.log is not None
    assert partition.log.suspected_loss == suspected


def test_a_job_without_a_ledger_has_no_landings(
    drivers: Drivers, lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.tables.clear()
    monkeypatch.setattr(job_status, "survey_of", lambda *about, **more: Survey(0, {}))
    monkeypatch.setattr(job_status, "log_ends", lambda *about: {})
    found = report(drivers)
    assert (found.landings, found.losses, found.table_version) == ((), (), None)


# --- what became of losses --------------------------------------------------------------


def landing(
    sequence: int, start: int, end: int, topic_id: str | None = "t1", **more: Any
) -> tuple[PlanEvent, OutcomeEvent]:
    where = Range(made.a_range(0, 0, 1).partition, start, end, topic_id)
    names = ("rangeland/orders", "orders", sequence, "0f2c")
    outcome = OutcomeEvent(
        *names, (RangeResult(where, Counts(landed=end - start)),), (), more.pop("at_ms", 1)
    )
    return PlanEvent(*names, (where,), "", 0), outcome


def loss_of(action: Action, start: int, end: int, sequence: int, **more: Any) -> LossEvent:
    lost = replace(made.a_loss(0, start, end, LossKind.EXPIRED), topic_id="t1")
    return replace(made.a_loss_event(action, lost, sequence), **more)


LANDINGS = (landing(1, 0, 20), landing(2, 20, 30), landing(3, 12, 14, at_ms=made.NOW_MS + 1))


P = made.a_range(0, 0, 1).partition


def found_of(
    losses: Sequence[LossEvent],
    landings: Landings = LANDINGS,
    mark: LogMark | None = None,
    *,
    reads: bool = True,
) -> tuple[ReportedLoss, ...]:
    marks = {} if mark is None else {P: mark}
    return reported_losses(losses, landings, marks, lambda partition: reads)


@pytest.mark.parametrize(("sequence", "remaining"), [(1, [(10, 12), (14, 15)]), (3, [(10, 15)])])
def test_what_later_landings_include_no_longer_remains(
    sequence: int, remaining: list[tuple[int, int]]
) -> None:
    (found,) = found_of([loss_of(Action.SKIP, 10, 15, sequence)])
    assert [r.interval for r in found.remaining] == remaining


def test_ten_thousand_losses_are_compared_with_ten_thousand_landings_at_once() -> None:
    landings = [landing(n, 10 * n, 10 * n + 10, at_ms=n) for n in range(1, 10_001)]
    losses = [loss_of(Action.SKIP, 10 * n, 10 * n + 3, n) for n in range(1, 10_001)]
    began_at = time.process_time()
    found = found_of(losses, landings)
    assert time.process_time() - began_at < 10  # losses times landings took a minute
    assert all(x.remaining == (x.event.loss.range,) for x in found)


def test_another_incarnation_of_a_topic_has_other_offsets() -> None:
    landings = [landing(1, 0, 20), landing(2, 0, 20, "t2")]
    (found,) = found_of([loss_of(Action.SKIP, 10, 15, 1)], landings)
    assert [r.interval for r in found.remaining] == [(10, 15)]


def test_an_unknown_incarnation_may_be_any() -> None:
    unknown = loss_of(Action.SKIP, 10, 15, 1)
    unknown = replace(unknown, loss=replace(unknown.loss, topic_id=None))
    landings = [landing(1, 0, 20), landing(2, 11, 12, "t2"), landing(3, 13, 14, None)]
    (found,) = found_of([unknown], landings)
    assert [r.interval for r in found.remaining] == [(10, 11), (12, 13), (14, 15)]
    (known,) = found_of([loss_of(Action.SKIP, 10, 15, 1)], landings)
    assert [r.interval for r in known.remaining] == [(10, 13), (14, 15)]


@pytest.mark.parametrize(
    ("checkpoint", "ends_runs"), [(None, True), (10, True), (11, False), (40, False)]
)
def test_a_loss_ends_runs_until_the_checkpoint_is_past_it(
    checkpoint: int | None, ends_runs: bool
) -> None:
    mark = None if checkpoint is None else LogMark(checkpoint, "t1")
    event = failed(10, 15)
    (found,) = found_of([event], LANDINGS[:2], mark)
    assert found.ends_runs is ends_runs
    assert [r.interval for r in found.remaining] == [(10, 15)]
    (held,) = found_of([loss_of(Action.HOLD, 10, 15, 4)], [])
    assert not held.ends_runs


def failed(start: int, end: int, kind: LossKind = LossKind.EXPIRED, **more: Any) -> LossEvent:
    """A loss that has ended a run, seen after the first two landings."""
    event = loss_of(Action.FAIL, start, end, 4, plan_hash="", written_at_ms=10)
    topic_id = more.pop("topic_id", "t1")
    return replace(event, loss=replace(event.loss, kind=kind, topic_id=topic_id), **more)


def decided(action: Action, failure: LossEvent, **more: Any) -> LossEvent:
    """The same loss, of which a policy has decided later."""
    loss = replace(failure.loss, action=action)
    return replace(failure, loss=loss, written_at_ms=20, **more)


@pytest.mark.parametrize("action", [Action.SKIP, Action.HOLD])
def test_a_loss_ends_no_more_runs_once_a_policy_has_decided(action: Action) -> None:
    failure = failed(10, 15)
    assert found_of([failure], LANDINGS[:1], LogMark(10, "t1"))[0].ends_runs
    losses = found_of([failure, decided(action, failure)], LANDINGS[:1], LogMark(10, "t1"))
    assert [loss.ends_runs for loss in losses] == [False, False]
    before = found_of([decided(action, failure), failure], LANDINGS[:1], LogMark(10, "t1"))
    assert before[1].ends_runs  # the policy was changed back


def test_what_another_command_decided_decides_nothing_about_runs() -> None:
    failure = failed(10, 15)
    application = PlanKind.REREAD.application("orders", "0f2c0f2c0f2c")
    reread = decided(Action.HOLD, failure, application=application)
    assert found_of([failure, reread], LANDINGS[:1], LogMark(10, "t1"))[0].ends_runs


def test_a_recreated_log_ends_runs_until_a_run_continues_in_the_new_one() -> None:
    failure = failed(30, 30, LossKind.RECREATED, topic_id="t2")
    old, new = LogMark(30, "t1"), LogMark(5, "t2")
    assert found_of([failure], LANDINGS[:2], old)[0].ends_runs
    after = [*LANDINGS[:2], landing(3, 0, 5, "t2", at_ms=20)]
    skipped = decided(Action.SKIP, failure)
    assert not any(x.ends_runs for x in found_of([failure, skipped], after, new))
    assert not found_of([failure], after, new)[0].ends_runs
    assert not found_of([failure], LANDINGS[:2], new)[0].ends_runs


@pytest.mark.parametrize("width", [0, 10])
@pytest.mark.parametrize("kind", [LossKind.RECREATED, LossKind.VANISHED])
def test_offsets_of_a_lost_log_are_neither_counted_nor_landed_later(
    kind: LossKind, width: int
) -> None:
    skipped = decided(Action.SKIP, failed(30, 30 + width, kind, topic_id="t2"))
    landings = [*LANDINGS[:2], landing(3, 0, 5, "t2", at_ms=20), landing(4, 5, 50, "t2", at_ms=30)]
    for upto in (2, 3, 4):
        (found,) = found_of([skipped], landings[:upto], LogMark(5, "t2"))
        assert (found.remaining, found.is_open) == ((), True)


def test_a_later_run_that_lands_the_partition_has_got_past_the_loss() -> None:
    failure = failed(30, 40)
    later = landing(3, 50, 60, at_ms=20)
    assert not found_of([failure], [*LANDINGS[:2], later], LogMark(30, "t1"))[0].ends_runs
    backfill = PlanKind.BACKFILL.application("orders", "0f2c0f2c0f2c")
    of_backfill = tuple(replace(event, application=backfill) for event in later)
    landings = [*LANDINGS[:2], of_backfill]
    assert found_of([failure], landings, LogMark(30, "t1"))[0].ends_runs  # type: ignore[arg-type]


def test_a_topic_that_was_taken_out_of_the_job_ends_no_runs() -> None:
    failure = failed(30, 30, LossKind.VANISHED, topic_id=None)
    assert found_of([failure], LANDINGS[:2], LogMark(30, "t1"))[0].ends_runs
    assert not found_of([failure], LANDINGS[:2], LogMark(30, "t1"), reads=False)[0].ends_runs


def test_a_replacement_that_was_given_up_has_ended_no_run() -> None:
    application = PlanKind.REPLACE.application("orders", "0f2c0f2c0f2c")
    given_up = loss_of(Action.FAIL, 0, 10, 2, application=application)
    assert not found_of([given_up], LANDINGS[:1])[0].ends_runs
    assert not found_of([loss_of(Action.FAIL, 0, 10, 2)], LANDINGS[:1])[0].ends_runs


def test_a_loss_without_a_plan_is_settled_by_what_landed_after_it() -> None:
    event = loss_of(Action.FAIL, 12, 12, 4, plan_hash="")
    (found,) = found_of([event])
    assert found.remaining == ()
    (before,) = found_of([event], LANDINGS[:2])
    assert [r.interval for r in before.remaining] == [(12, 13)]


def test_records_that_were_landed_again_are_told_apart() -> None:
    landings = [made.a_landing(1, 7, kind=kind) for kind in PlanKind]
    found = made.a_report(landings=tuple(landings))
    assert (found.landed, found.landed_again) == (42, 14)  # by a repair, and by a replacement


# --- the command ------------------------------------------------------------------------

Called = Callable[..., tuple[int, str, str]]


@pytest.fixture
def made_report(monkeypatch: pytest.MonkeyPatch) -> list[JobReport]:
    """The report that the command gets. Without one, nothing may be asked or started."""
    reports: list[JobReport] = []

    def answer(job: Any, text: Any, spark: object, progress: Any, *, verifies: bool) -> JobReport:
        return reports.pop()

    def open_deferred(*about: object, **more: object) -> object:
        assert reports, "Spark was started"
        return object()

    modules = {
        "rangeland.queries.job_report": SimpleNamespace(report=answer),
        "rangeland.spark.spark_session": SimpleNamespace(open_deferred=open_deferred),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    return reports


@pytest.fixture
def called(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Called:
    job = tmp_path / "orders.yaml"
    job.write_text(made.JOB_YAML)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = command_line.main(("report", str(job), *arguments))
        sys.stdout.flush()
        return code, *capfd.readouterr()

    return call


def test_the_command_writes_the_page_and_prints_its_headline(
    made_report: list[JobReport], called: Called, tmp_path: Path
) -> None:
    out = tmp_path / "orders.html"
    out.write_text("<!DOCTYPE html>\nan earlier page")
    made_report.append(made.a_report())
    code, printed, _ = called("--out", str(out))
    assert code == 0
    assert "14,000 offsets not landed yet." in printed
    assert out.read_text().startswith("<!DOCTYPE html>")
    assert {path.name for path in tmp_path.iterdir()} == {"orders.html", "orders.yaml"}


def test_the_json_has_the_numbers_of_the_headline(
    made_report: list[JobReport], called: Called, tmp_path: Path
) -> None:
    out = tmp_path / "orders.html"
    made_report.append(made.a_report(log_error="no broker answers"))
    code, printed, err = called("--out", str(out), "--json")
    answer = json.loads(printed)
    assert code == 0
    assert (answer["job"], answer["table"], answer["out"]) == ("orders", "lake/orders", str(out))
    assert answer["bytes"] == out.stat().st_size
    assert (answer["landings"], answer["landed"], answer["lag"]) == (12, 78_000, None)
    assert answer["log_error"] == "no broker answers"
    assert "the logs could not be asked: no broker answers" in err


@pytest.mark.parametrize("name", ["", "a/folder/that/is/not/there/o.html", "--verify", "/dev/null"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_starts(
    made_report: list[JobReport], called: Called, tmp_path: Path, name: str
) -> None:
    where = name if name.startswith(("-", "/")) else str(tmp_path / name)
    code, _, err = called("--out", where)
    assert code == 64
    assert "--out" in err


@pytest.mark.parametrize("name", ["orders.yaml", "a-link.html", "notes.txt", "binary"])
def test_a_file_that_is_no_page_is_never_replaced(
    made_report: list[JobReport], called: Called, tmp_path: Path, name: str
) -> None:
    (tmp_path / "a-link.html").symlink_to(tmp_path / "orders.yaml")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "binary").write_bytes(b"\xff\xfe<!DOCTYPE html>")
    before = (tmp_path / name).read_bytes()
    code, _, err = called("--out", str(tmp_path / name))
    assert code == 64
    assert f"--out {tmp_path / name}" in "".join(err.split("\n"))
    assert (tmp_path / name).read_bytes() == before


def test_a_job_file_is_not_replaced_even_if_it_looks_like_a_page(
    made_report: list[JobReport],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text("<!DOCTYPE html>")
    assert command_line.main(("report", "orders.yaml", "--out", "./orders.yaml")) == 64
    assert "--out orders.yaml: it is the job file" in capfd.readouterr().err


def test_an_empty_file_may_become_the_page(
    made_report: list[JobReport], called: Called, tmp_path: Path
) -> None:
    out = tmp_path / "o.html"
    out.touch()
    made_report.append(made.a_report())
    assert called("--out", str(out))[0] == 0
    assert out.read_text().startswith("<!DOCTYPE html>")


def test_the_file_is_required(made_report: list[JobReport], called: Called) -> None:
    code, _, err = called()
    assert code == 64
    assert "--out" in err


@pytest.mark.parametrize("source", ["topics: [orders]", "topic_pattern: 'orders.*'"])
def test_a_table_for_each_topic_has_to_be_named_as_the_error_says(
    made_report: list[JobReport], called: Called, tmp_path: Path, source: str
) -> None:
    text = made.JOB_YAML.replace("lake/orders", "'lake/{topic}'")
    text = text.replace("topics: [orders]", source)
    (tmp_path / "orders.yaml").write_text(text)
    out = str(tmp_path / "o.html")
    code, _, err = called("--out", out)
    said = " ".join(err.replace("│", " ").split())
    assert code == 64
    assert "a report is about one table" in said
    advice = re.findall(r"--set \S+", said)
    assert len(advice) >= 2
    settings = [x.rstrip(",.").replace("[TOPIC]", "[orders]").split() for x in advice]
    made_report.append(made.a_report())
    assert called("--out", out, *itertools.chain(*settings))[0] == 0
