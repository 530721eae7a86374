"""Where OpenLineage events go, and that a landing does not depend on them."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from openlineage.client.transport.http import HttpTransport

from rangeland import run
from rangeland.cli import command_line, landing_commands, repair_commands
from rangeland.delta.table_schema.arrow_schema import schema_json
from rangeland.errors import Bug, TableRefused, Unreachable, UsageError
from rangeland.fleet import fleet_run
from rangeland.fleet.fleet_run import Fleet, NoJobsProgress, run_all
from rangeland.fleet.table_job import TableJob
from rangeland.fleet.topic_jobs import FailedFile
from rangeland.job import Job, Sink
from rangeland.monitoring import lineage_client, lineage_reporter
from rangeland.monitoring.lineage_client import lineage_file, may_be_configured
from rangeland.monitoring.lineage_reporter import (
    LandingLineage,
    LineageReporter,
    report_landing,
)
from rangeland.progress_events import NoProgress
from rangeland.results import RedriveResult, RunResult
from rangeland.testing import demo
from tests import sample_results as made
from tests.lineage_schemas import check_event
from tests.lineage_settings import lineage_settings
from tests.servers.lineage_collector import collecting

SECRET = "hunter2"
JOB = Job.parse(
    "{job: orders, source: {servers: ['b1:9092'], topics: [orders]}, sink: {table: lake/orders}}"
)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A working directory and a home without configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with lineage_settings():
        yield


class Warned(NoProgress):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def warn(self, text: str) -> None:
        self.texts.append(text)


def snapshot_of(version: int, *columns: str) -> Any:
    """A table in this version, with these columns besides the offset."""
    schema = pa.schema([("offset", pa.int64()), *((name, pa.string()) for name in columns)])
    return SimpleNamespace(version=version, schema_json=schema_json(schema))


def opened_landing(snapshot: Any = None, newest: Any = None) -> Any:
    """A landing in a table of which this was read, and of which this is the newest version."""
    newest = newest or snapshot or snapshot_of(34)
    location = SimpleNamespace(path="file:/lake/orders", name="lake/orders", load=lambda: newest)
    target = SimpleNamespace(table=SimpleNamespace(location=location, snapshot=snapshot))
    spark = SimpleNamespace(version="4.2.0")
    columns = pa.schema([("offset", pa.int64())])
    return SimpleNamespace(job=JOB, target=target, spark=spark, row_schema=columns)


def land(landing: LandingLineage) -> RunResult:
    landing.note_opened(opened_landing())
    return made.a_result()


def fail(landing: LandingLineage) -> RunResult:
    raise Unreachable("no broker could be reached")


def interrupt(landing: LandingLineage) -> RunResult:
    raise KeyboardInterrupt


class WarnedOfMany(NoJobsProgress):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def warn(self, text: str) -> None:
        self.texts.append(text)


# --- where they go ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work", "states"),
    [
        (land, ["START", "COMPLETE"]),
        (fail, ["START", "FAIL"]),
        (interrupt, ["START", "ABORT"]),
    ],
)
def test_a_landing_has_a_start_and_one_end(
    work: Callable[[LandingLineage], RunResult], states: list[str]
) -> None:
    with collecting() as collector, lineage_settings(OPENLINEAGE_URL=collector.url):
        try:
            result = report_landing(JOB, NoProgress(), work)
        except (Unreachable, KeyboardInterrupt):
            pass
        else:
            assert result == made.a_result()
    assert collector.states == [(state, "orders") for state in states]
    assert len({event["run"]["runId"] for event in collector.events}) == 1
    assert collector.paths == ["/api/v1/lineage"] * 2
    for event in collector.events:
        check_event(event)


def columns_in(event: dict[str, Any]) -> list[str]:
    (output,) = event["outputs"]
    return [field["name"] for field in output["facets"].get("schema", {"fields": []})["fields"]]


@pytest.mark.parametrize(
    ("opened", "columns"),
    [
        (opened_landing(snapshot_of(34, "date")), ["offset", "date"]),
        (opened_landing(snapshot_of(33, "date"), snapshot_of(34, "date", "note")),
         ["offset", "date", "note"]),
        (opened_landing(None, snapshot_of(34, "date")), ["offset", "date"]),
    ],
)  # fmt: skip
def test_the_columns_of_a_landing_are_those_of_the_table(opened: Any, columns: list[str]) -> None:
    def land(landing: LandingLineage) -> RunResult:
        landing.note_opened(opened)
        return made.a_result()

    with collecting() as collector, lineage_settings(OPENLINEAGE_URL=collector.url):
        report_landing(JOB, NoProgress(), land)
    assert columns_in(collector.events[1]) == columns


def test_the_metastore_is_that_of_the_hadoop_configuration() -> None:
    job = JOB.model_copy(update={"sink": Sink(table="db.orders")})
    # Nothing in Spark's own settings, as with a hive-site.xml.
    hadoop = {"hive.metastore.uris": "thrift://meta:9083"}
    conf = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": "file:/warehouse",
    }
    context = opened_landing(snapshot_of(34))
    context.job = job
    context.target.table.location.name = "db.orders"
    context.spark = SimpleNamespace(
        version="4.2.0",
        conf=conf,
        catalog=SimpleNamespace(currentCatalog=lambda: "spark_catalog"),
        sparkContext=SimpleNamespace(_jsc=SimpleNamespace(hadoopConfiguration=lambda: hadoop)),
    )

    def land(landing: LandingLineage) -> RunResult:
        landing.note_opened(context)
        return made.a_result()

    with collecting() as collector, lineage_settings(OPENLINEAGE_URL=collector.url):
        report_landing(job, NoProgress(), land)
    (link,) = collector.events[1]["outputs"][0]["facets"]["symlinks"]["identifiers"]
    assert (link["namespace"], link["name"]) == ("hive://meta:9083", "db.orders")


def test_a_failure_and_a_table_that_does_not_exist_have_no_columns() -> None:
    def refuse(landing: LandingLineage) -> RunResult:
        landing.note_opened(opened_landing(snapshot_of(33, "date")))
        raise TableRefused("the table lacks the column headers")

    def find_nothing_to_land(landing: LandingLineage) -> RunResult:
        landing.note_opened(opened_landing(None))
        return replace(made.a_result([], state="nothing"), table_version=None)

    with collecting() as collector, lineage_settings(OPENLINEAGE_URL=collector.url):
        with pytest.raises(TableRefused):
            report_landing(JOB, NoProgress(), refuse)
        report_landing(JOB, NoProgress(), find_nothing_to_land)
    assert [state for state, _ in collector.states] == ["START", "FAIL", "START", "COMPLETE"]
    assert [columns_in(event) for event in collector.events[1::2]] == [[], []]


def test_an_error_that_an_interruption_caused_is_an_abort() -> None:
    def stop(landing: LandingLineage) -> RunResult:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise Unreachable("the job was cancelled") from None

    with (
        collecting() as collector,
        lineage_settings(OPENLINEAGE_URL=collector.url),
        pytest.raises(Unreachable),
    ):
        report_landing(JOB, NoProgress(), stop)
    assert collector.states[-1] == ("ABORT", "orders")


def test_the_file_gets_the_same_events_as_the_endpoint(tmp_path: Path) -> None:
    path = tmp_path / "lineage.jsonl"
    path.write_text("{}\n")
    with (
        collecting() as collector,
        lineage_settings(OPENLINEAGE_URL=collector.url),
        lineage_file(path),
    ):
        report_landing(JOB, NoProgress(), land)
    before, *lines = path.read_text().splitlines()
    assert before == "{}"
    assert [json.loads(line) for line in lines] == collector.events


def test_a_file_that_was_asked_for_is_written_though_the_client_is_disabled() -> None:
    with lineage_settings(OPENLINEAGE_DISABLED="true"), lineage_file(Path("lineage.jsonl")):
        report_landing(JOB, NoProgress(), land)
    assert len(Path("lineage.jsonl").read_text().splitlines()) == 2


def test_the_file_is_that_of_one_command() -> None:
    with lineage_file(Path("lineage.jsonl")):
        pass
    report_landing(JOB, NoProgress(), land)
    assert not Path("lineage.jsonl").exists()


def test_the_demo_sends_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell_story(*_: object) -> None:
        report_landing(JOB, NoProgress(), land)
        raise Bug("the story has ended")

    def nothing(*_: object) -> Any:
        return SimpleNamespace(close=lambda: None)

    for name in ("find_java", "library", "KafkaCluster"):
        monkeypatch.setattr(demo, name, nothing)
    monkeypatch.setattr(demo, "_tell_story", tell_story)
    output: Any = SimpleNamespace(quiet=True, json=False, stdout=sys.stdout)
    with collecting() as collector, lineage_settings(OPENLINEAGE_URL=collector.url):
        with pytest.raises(Bug):
            demo.show(output, 1_000, keep=False)
        assert collector.events == []
        report_landing(JOB, NoProgress(), land)
    assert len(collector.events) == 2


def test_the_client_s_own_file_names_the_endpoint() -> None:
    with collecting() as collector:
        text = f"transport:\n  type: http\n  url: {collector.url}\n  endpoint: here\n"
        Path("openlineage.yml").write_text(text)
        report_landing(JOB, NoProgress(), land)
    assert collector.paths == ["/here", "/here"]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"OPENLINEAGE_NAMESPACE": "prod"}, False),
        ({"OPENLINEAGE_URL": ""}, False),
        ({"OPENLINEAGE_URL": "http://h"}, True),
        ({"OPENLINEAGE_URL": "http://h", "OPENLINEAGE_DISABLED": " True "}, False),
        ({"OPENLINEAGE_URL": "http://h", "OPENLINEAGE_DISABLED": "1"}, True),
        ({"OPENLINEAGE__TRANSPORT__TYPE": "console"}, True),
        ({"OPENLINEAGE__transport__type": "console"}, True),
        ({"OPENLINEAGE__TRANSPORT": '{"type": "console"}'}, True),
        ({"OPENLINEAGE__FACETS__ENVIRONMENT_VARIABLES": '["A"]'}, False),
        ({"OPENLINEAGE_CONFIG": "there.yml"}, True),
        ({"OPENLINEAGE_CONFIG": "not-there.yml"}, False),
    ],
)
def test_whether_it_is_configured_is_known_without_the_client(
    variables: dict[str, str], expected: bool
) -> None:
    Path("there.yml").write_text("transport: {type: console}")
    assert may_be_configured(variables) is expected


def test_files_in_the_two_usual_places_are_found(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "home" / ".openlineage"):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "openlineage.yml"
        path.write_text("transport: {type: console}")
        assert may_be_configured({})
        path.unlink()
    assert not may_be_configured({})


UNWANTED = [
    {},
    {"OPENLINEAGE_CONFIG": "tags.yml"},
    {"OPENLINEAGE__TRANSPORT__TYPE": "noop"},
    {"OPENLINEAGE_URL": "http://127.0.0.1:1", "OPENLINEAGE_DISABLED": "true"},
]


@pytest.mark.parametrize("variables", UNWANTED)
def test_without_a_transport_nothing_is_sent_or_printed(
    variables: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    Path("tags.yml").write_text("tags: {job: {team: a}}")
    progress = Warned()
    with lineage_settings(**variables):
        assert report_landing(JOB, progress, land).warnings == ()
    assert progress.texts == []
    assert capfd.readouterr() == ("", "")


def test_without_configuration_the_client_is_not_imported() -> None:
    code = (
        "import sys\nfrom rangeland.monitoring.lineage_reporter import LineageReporter\n"
        "with LineageReporter(print) as reporter: reporter.report('orders', lambda landing: 1)\n"
        "assert not any(name.startswith('openlineage') for name in sys.modules)"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENLINEAGE")}
    library = str(Path(lineage_client.__file__).parents[2])
    environment["PYTHONPATH"] = library
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# --- what cannot be used ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("no/such/folder", "its folder does not exist"),
        (".", "that is a folder"),
        ("--json", "that is an option"),
    ],
)
def test_a_file_that_cannot_be_written_is_found_first(path: str, why: str) -> None:
    with pytest.raises(UsageError, match=why), lineage_file(Path(path)):
        pytest.fail("the work has begun")


def test_a_command_with_a_file_that_cannot_be_written_starts_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert command_line.main(["run", "not-there.yaml", "--lineage", "no/such"]) == 64
    assert command_line.main(["backfill", "not-there.yaml", "--lineage", "no/such"]) == 64
    assert "its folder does not exist" in capfd.readouterr().err


def test_a_dry_run_has_nothing_to_report(capfd: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["backfill", "a.yaml", "--dry-run", "--lineage", "l.jsonl"]) == 64
    assert "--dry-run and --lineage cannot be combined" in capfd.readouterr().err


def find_nothing(name: str) -> None:
    return None


def find_broken_package(name: str) -> None:
    raise RuntimeError("this package cannot be imported")


@pytest.mark.parametrize("find_spec", [find_nothing, find_broken_package])
def test_without_the_client_a_warning_says_how_to_install_it(
    find_spec: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage_client, "find_spec", find_spec)
    progress = Warned()
    with lineage_settings(OPENLINEAGE_URL="http://127.0.0.1:1"):
        result = report_landing(JOB, progress, land)
    assert len(progress.texts) == 1
    assert "pip install 'rangeland[lineage]'" in progress.texts[0]
    assert result.warnings == tuple(progress.texts)
    with pytest.raises(UsageError, match=r"pip install 'rangeland\[lineage\]'"):
        lineage_file(Path("l.jsonl")).__enter__()


@pytest.mark.parametrize(
    "variables",
    [
        {"OPENLINEAGE_URL": f"{SECRET}"},
        {"OPENLINEAGE__TRANSPORT__TYPE": "http", "OPENLINEAGE__TRANSPORT__AUTH": SECRET},
        {"OPENLINEAGE__TRANSPORT__TYPE": "no.such.Transport"},
    ],
)
def test_a_configuration_that_the_client_refuses_is_a_warning(variables: dict[str, str]) -> None:
    progress = Warned()
    with lineage_settings(**variables):
        assert report_landing(JOB, progress, land).landed == made.a_result().landed
    (text,) = progress.texts
    assert "the OpenLineage client refuses its configuration" in text
    assert SECRET not in text


@pytest.mark.parametrize("text", ["facets: {no_such: 1}", "[a, b]"])
def test_a_configuration_that_is_refused_does_not_keep_events_from_the_file(text: str) -> None:
    Path("openlineage.yml").write_text(text)
    progress = Warned()
    with lineage_file(Path("lineage.jsonl")):
        assert report_landing(JOB, progress, land).landed == made.a_result().landed
    (warning,) = progress.texts
    assert "refuses its configuration" in warning
    lines = Path("lineage.jsonl").read_text().splitlines()
    assert [json.loads(line)["eventType"] for line in lines] == ["START", "COMPLETE"]


def test_a_configuration_that_is_no_yaml_is_a_warning() -> None:
    Path("openlineage.yml").write_text(f"transport:\n  type: {SECRET}\n url: http://h:1\n")
    progress = Warned()
    report_landing(JOB, progress, land)
    (text,) = progress.texts
    assert "openlineage.yml cannot be read" in text
    assert "line 3" in text
    assert SECRET not in text


def test_a_configuration_that_is_no_yaml_leaves_what_variables_say() -> None:
    Path("openlineage.yml").write_text("transport: [")
    progress = Warned()
    with collecting() as collector, lineage_settings(OPENLINEAGE_URL=collector.url):
        report_landing(JOB, progress, land)
    assert [state for state, _ in collector.states] == ["START", "COMPLETE"]
    assert "openlineage.yml cannot be read" in progress.texts[0]


def test_a_configuration_that_is_named_but_not_there_is_a_warning() -> None:
    progress = Warned()
    with lineage_settings(OPENLINEAGE_CONFIG="not-there.yml"):
        report_landing(JOB, progress, land)
    (text,) = progress.texts
    assert "OPENLINEAGE_CONFIG" in text
    assert "not-there.yml" in text
    with lineage_settings(OPENLINEAGE_CONFIG="not-there.yml", OPENLINEAGE_DISABLED="true"):
        report_landing(JOB, progress, land)
    assert progress.texts == [text]


def test_a_configuration_without_a_transport_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    Path("openlineage.yml").write_text("tansport: {type: http, url: 'http://h:1'}")
    with caplog.at_level(logging.INFO, "rangeland"):
        report_landing(JOB, NoProgress(), land)
    assert "names no transport" in caplog.text


def test_a_client_without_what_events_need_does_not_fail_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "rangeland.monitoring.lineage_events", None)
    progress = Warned()
    with lineage_file(Path("lineage.jsonl")):
        assert report_landing(JOB, progress, land).landed == made.a_result().landed
    assert "could not be made" in progress.texts[0]


def test_a_parent_that_names_no_run_is_a_warning() -> None:
    progress = Warned()
    with (
        collecting() as collector,
        lineage_settings(OPENLINEAGE_URL=collector.url, OPENLINEAGE_PARENT_ID="dag"),
    ):
        report_landing(JOB, progress, land)
    assert "OPENLINEAGE_PARENT_ID" in progress.texts[0]
    assert [state for state, _ in collector.states] == ["START", "COMPLETE"]


# --- what does not work ----------------------------------------------------------------------


def test_an_endpoint_that_does_not_answer_does_not_stall_a_landing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lineage_reporter, "WAIT_S", 0.5)
    progress = Warned()
    with (
        collecting(status=None) as collector,
        lineage_settings(OPENLINEAGE_URL=f"http://me:{SECRET}@{collector.address}?k={SECRET}"),
        lineage_file(Path("lineage.jsonl")),
    ):
        began_at = time.monotonic()
        result = report_landing(JOB, progress, land)
        assert time.monotonic() - began_at < 5
    (text,) = progress.texts
    assert text == (
        f"2 OpenLineage events could not be sent to {collector.url}: it did not answer in time. "
        "What has landed is not affected"
    )
    assert result.warnings == (text,)
    assert len(Path("lineage.jsonl").read_text().splitlines()) == 2


def test_a_landing_keeps_its_result_if_the_wait_for_its_events_is_interrupted() -> None:
    def land_and_interrupt(landing: LandingLineage) -> RunResult:
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        return land(landing)

    progress = Warned()
    began_at = time.monotonic()
    with collecting(None) as collector, lineage_settings(OPENLINEAGE_URL=collector.url):
        result = report_landing(JOB, progress, land_and_interrupt)
        assert time.monotonic() - began_at < 5
    assert result.landed == made.a_result().landed
    (text,) = result.warnings
    assert progress.texts == [text]
    assert text.startswith("2 OpenLineage events could not be sent")


def test_an_interrupted_wait_after_an_error_is_an_interruption() -> None:
    def fail_and_interrupt(landing: LandingLineage) -> RunResult:
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        return fail(landing)

    with (
        collecting(None) as collector,
        lineage_settings(OPENLINEAGE_URL=collector.url),
        pytest.raises(KeyboardInterrupt),
    ):
        report_landing(JOB, NoProgress(), fail_and_interrupt)


NO_RETRY = {"OPENLINEAGE__TRANSPORT__RETRY": '{"total": 0}'}


@pytest.mark.parametrize(
    ("status", "why"),
    [(400, "it answered with status 400"), (503, "it kept answering with an error (status 5xx)")],
)
def test_an_endpoint_that_refuses_events_is_a_warning(
    status: int, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    progress = Warned()
    with collecting(status) as collector:
        url = f"http://me:{SECRET}@{collector.address}"
        http = {"OPENLINEAGE__TRANSPORT__TYPE": "http", "OPENLINEAGE__TRANSPORT__URL": url}
        with lineage_settings(**http, **NO_RETRY):
            report_landing(JOB, progress, land)
    (text,) = progress.texts
    assert f"2 OpenLineage events could not be sent to {collector.url}: {why}" in text
    assert SECRET not in text
    assert capfd.readouterr() == ("", "")


def test_the_event_after_a_failure_is_tried() -> None:
    with collecting(400) as collector, lineage_settings(OPENLINEAGE_URL=collector.url):

        def recover(landing: LandingLineage) -> RunResult:
            deadline_s = time.monotonic() + 20
            while not collector.events and time.monotonic() < deadline_s:
                time.sleep(0.01)
            collector.status = 201
            return land(landing)

        progress = Warned()
        report_landing(JOB, progress, recover)
    assert [state for state, _ in collector.states] == ["START", "COMPLETE"]
    assert progress.texts[0].startswith("1 OpenLineage event could not be sent")


PARTS = """
transport:
  type: composite
  transports:
    - {{type: http, url: "http://me:{secret}@127.0.0.1:1", retry: {{total: 0}}}}
    - {{type: file, log_file_path: events.jsonl, append: true}}
"""


def test_a_transport_of_several_of_which_one_fails_is_a_warning() -> None:
    Path("openlineage.yml").write_text(PARTS.format(secret=SECRET))
    progress = Warned()
    report_landing(JOB, progress, land)
    assert len(Path("events.jsonl").read_text().splitlines()) == 2
    (text,) = progress.texts
    assert text.startswith("OpenLineage events may not have been sent to the transport composite")
    assert SECRET not in text


def test_a_transport_that_only_replaces_another_is_no_warning() -> None:
    config = PARTS.format(secret=SECRET) + "  continue_on_success: false\n"
    Path("openlineage.yml").write_text(config)
    progress = Warned()
    report_landing(JOB, progress, land)
    assert len(Path("events.jsonl").read_text().splitlines()) == 2
    assert progress.texts == []


@pytest.mark.parametrize("status", [None, 400])
def test_what_a_transport_has_not_sent_in_the_background_is_a_warning(
    status: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage_reporter, "WAIT_S", 2.0)
    monkeypatch.setattr(lineage_client, "WAIT_S", 1.0)
    progress = Warned()
    with collecting(status) as collector:
        transport = {
            "OPENLINEAGE__TRANSPORT__TYPE": "async_http",
            "OPENLINEAGE__TRANSPORT__URL": collector.url,
        }
        with lineage_settings(**transport, **NO_RETRY):
            report_landing(JOB, progress, land)
    (text,) = progress.texts
    assert text.startswith(f"OpenLineage events may not have been sent to {collector.url}")
    assert "What has landed is not affected" in text


def test_the_client_s_log_has_one_handler_however_often_it_is_used() -> None:
    with collecting() as collector, lineage_settings(OPENLINEAGE_URL=collector.url):
        report_landing(JOB, NoProgress(), land)
        count = len(logging.getLogger("openlineage").handlers)
        report_landing(JOB, NoProgress(), land)
    assert len(logging.getLogger("openlineage").handlers) == count


def test_a_reason_that_is_not_known_does_not_point_to_a_log() -> None:
    assert lineage_client.failure_reason(ValueError(SECRET)) == "ValueError"


def test_an_event_that_cannot_be_made_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks_path(landing: LandingLineage) -> RunResult:
        landing.note_opened(SimpleNamespace())  # type: ignore[arg-type]
        return made.a_result()

    progress = Warned()
    with collecting() as collector, lineage_settings(OPENLINEAGE_URL=collector.url):
        assert report_landing(JOB, progress, lacks_path).landed == made.a_result().landed
    assert [state for state, _ in collector.states] == ["START", "COMPLETE"]
    assert "could not be made" in progress.texts[0]


def test_no_secret_reaches_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError(f"Invalid header value: 'Bearer {SECRET}'")

    monkeypatch.setattr(HttpTransport, "emit", refuse)
    progress = Warned()
    with lineage_settings(OPENLINEAGE_URL="http://h:1", OPENLINEAGE_API_KEY=SECRET):
        report_landing(JOB, progress, land)
    assert "ValueError" in progress.texts[0]
    assert SECRET not in progress.texts[0]


# --- many tables -----------------------------------------------------------------------------


def table_job(name: str) -> TableJob:
    source = "{servers: ['b1:9092'], topics: [orders]}"
    text: Any = None
    return TableJob(
        Job.parse(f"{{job: {name}, source: {source}, sink: {{table: t/{name}}}}}"), text
    )


def test_each_table_of_many_has_its_own_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_job(table_job: TableJob, *_: object) -> Any:
        if table_job.job.name == "bad":
            raise Unreachable("no broker could be reached")
        return fleet_run.OpenedJob(table_job, opened_landing(), *[None] * 3)  # type: ignore[arg-type]

    monkeypatch.setattr(fleet_run, "open_job", open_job)
    monkeypatch.setattr(fleet_run, "_announce_survey", lambda job: job)
    monkeypatch.setattr(fleet_run, "land_plans", lambda context: made.a_result())
    monkeypatch.setattr(fleet_run, "mirror_checkpoints", lambda results, *_: results)
    down = FailedFile("down.yaml", Unreachable("no broker could be reached"), "down")
    unknown = FailedFile("odd.yaml", Unreachable("it is not a job file"))
    fleet = Fleet((table_job("a"), table_job("bad"), table_job("b")), (down, unknown))
    spark: Any = None
    with collecting() as collector, lineage_settings(OPENLINEAGE_URL=collector.url):
        result = run_all(fleet, spark, NoJobsProgress(), parallel=1)
    assert [job.exit_code for job in result.jobs] == [75, 75, 0, 75, 0]
    states: dict[str, list[str]] = {}
    for state, name in collector.states:
        states.setdefault(name, []).append(state)
    assert states == {
        "down": ["START", "FAIL"],
        "a": ["START", "COMPLETE"],
        "bad": ["START", "FAIL"],
        "b": ["START", "COMPLETE"],
    }
    assert len({event["run"]["runId"] for event in collector.events}) == 4


def reviewed_job(name: str) -> TableJob:
    reviewed: Any = SimpleNamespace(plan=None, unplanned_losses=())
    return replace(table_job(name), reviewed=reviewed)


@pytest.mark.parametrize("command", ["apply", "redrive"])
def test_many_tables_wait_once_for_an_endpoint_that_does_not_answer(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def land_nothing(job: Job, *arguments: Any, **_: Any) -> Any:
        reporter: LineageReporter = arguments[-1]
        reporters.append(reporter)
        return reporter.report(job, lambda landing: made.a_result())

    reporters: list[LineageReporter] = []
    monkeypatch.setattr(lineage_reporter, "WAIT_S", 1.0)
    monkeypatch.setattr(run, command, land_nothing)
    commands = {"apply": landing_commands.apply_command, "redrive": repair_commands.redrive_command}
    work = commands[command]().work_for_many
    assert work is not None
    fleet = Fleet(tuple(map(reviewed_job, "abcdef")))
    progress = WarnedOfMany()
    with collecting(status=None) as collector, lineage_settings(OPENLINEAGE_URL=collector.url):
        began_at = time.monotonic()
        result = work(fleet, None, progress, 1)
        assert time.monotonic() - began_at < 4
    (text,) = progress.texts
    assert text.startswith("12 OpenLineage events could not be sent")
    assert [job.result.warnings for job in result.jobs if job.result] == [(text,)] * 6
    assert len(set(map(id, reporters))) == 1


def test_the_result_of_a_redrive_has_the_warning() -> None:
    def redrive(landing: LandingLineage) -> RedriveResult:
        return RedriveResult("orders", "lake/orders", (), 0.0, made.a_result())

    progress = Warned()
    with lineage_settings(OPENLINEAGE_URL=SECRET):
        done = report_landing(JOB, progress, redrive).done
    assert done is not None
    assert done.warnings == tuple(progress.texts) != ()


def test_offsets_are_mirrored_before_events_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def mirror(results: Any, *_: object) -> Any:
        assert time.monotonic() - began_at < 1.5
        return results

    def open_job(table_job: TableJob, *_: object) -> Any:
        return fleet_run.OpenedJob(table_job, opened_landing(), *[None] * 3)  # type: ignore[arg-type]

    monkeypatch.setattr(fleet_run, "open_job", open_job)
    monkeypatch.setattr(fleet_run, "_announce_survey", lambda job: job)
    monkeypatch.setattr(fleet_run, "land_plans", lambda context: made.a_result())
    monkeypatch.setattr(fleet_run, "mirror_checkpoints", mirror)
    monkeypatch.setattr(lineage_reporter, "WAIT_S", 2.0)
    spark: Any = None
    with collecting(status=None) as collector, lineage_settings(OPENLINEAGE_URL=collector.url):
        report_landing(JOB, NoProgress(), land)  # imports the client
        began_at = time.monotonic()
        result = run_all(Fleet((table_job("a"),)), spark, NoJobsProgress(), parallel=1)
    assert "could not be sent" in result.jobs[0].result.warnings[0]  # type: ignore[union-attr]


def test_tables_that_an_interruption_leaves_behind_are_aborted_once() -> None:
    stop, started = threading.Event(), threading.Event()

    def wait(landing: LandingLineage) -> RunResult:
        started.set()
        stop.wait(20)
        raise Unreachable("the JVM has ended")

    def work(reporter: LineageReporter) -> None:
        with pytest.raises(Unreachable):
            reporter.report(JOB, wait)

    def command() -> None:
        with LineageReporter(lambda text: None) as reporter:
            threads.append(threading.Thread(target=work, args=[reporter]))
            threads[0].start()
            started.wait(20)
            raise KeyboardInterrupt

    threads: list[threading.Thread] = []
    with collecting() as collector, lineage_settings(OPENLINEAGE_URL=collector.url):
        with pytest.raises(KeyboardInterrupt):
            command()
        stop.set()
        threads[0].join(20)
    assert [state for state, _ in collector.states] == ["START", "ABORT"]
