"""Logging: levels and formats on stderr, what travels to tasks, and the progress display."""

from __future__ import annotations

import io
import json
import logging
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from rangeland.cli import command_line
from rangeland.logging_setup import (
    LogFormat,
    LogLevel,
    LogSettings,
    configure,
    current_settings,
    partition_fields,
    reset,
)
from rangeland.model import Partition
from rangeland.render.progress_view import LiveProgress
from rangeland.spark.task_context import with_task_logging
from tests import sample_results as made

LOGGER = logging.getLogger("rangeland.fetch.fetch_loop")


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    reset()
    yield
    reset()


def fail_over() -> None:
    LOGGER.debug("fetched")
    LOGGER.warning("leader moved", extra={"topic": "orders", "partition": 3, "offset": 41})


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def test_text_has_time_level_logger_message_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings())
    fail_over()
    (line,) = lines(capsys)
    time, rest = line.split(" ", 1)
    assert (time[10], time[-1]) == ("T", "Z")
    assert rest == (
        "WARNING rangeland.fetch.fetch_loop: leader moved topic=orders partition=3 offset=41"
    )


def test_json_is_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings(LogLevel.DEBUG, LogFormat.JSON), task="3.0.1")
    fail_over()
    fetched, moved = map(json.loads, lines(capsys))
    assert fetched["level"] == "debug"
    assert moved.pop("ts").endswith("Z")
    assert moved == {
        "level": "warning",
        "logger": "rangeland.fetch.fetch_loop",
        "message": "leader moved",
        "task": "3.0.1",
        "topic": "orders",
        "partition": 3,
        "offset": 41,
    }


@pytest.mark.parametrize("form", LogFormat)
def test_a_name_from_outside_cannot_forge_a_line(
    form: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(LogSettings(format=form))
    LOGGER.warning("no topic %s", "a\nb\x1b[31m", extra={"broker": "b1\r\n"})
    (line,) = lines(capsys)
    assert line.isprintable()


@pytest.mark.parametrize("form", LogFormat)
def test_an_exception_is_logged_with_its_traceback(
    form: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(LogSettings(format=form))
    try:
        raise ValueError("odd")
    except ValueError:
        LOGGER.exception("unexpected")
    err = lines(capsys)
    assert "ValueError: odd" in err[-1]
    assert len(err) == 1 or form is LogFormat.TEXT


def test_tasks_log_as_the_driver_does(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings(LogLevel.DEBUG, LogFormat.JSON))
    assert pickle.loads(pickle.dumps(current_settings())) == current_settings()

    def work(items: Iterator[int]) -> Iterator[int]:
        fail_over()
        return items

    task = with_task_logging(work)
    reset()  # A worker has been told nothing.
    assert list(task(iter([1, 2]))) == [1, 2]
    assert [json.loads(line)["level"] for line in lines(capsys)] == ["debug", "warning"]


def test_tasks_have_the_level_of_a_driver_that_configures_logging_itself() -> None:
    logger = logging.getLogger("rangeland")
    assert current_settings() == LogSettings(LogLevel.WARNING)
    logger.setLevel(logging.INFO)
    try:
        assert current_settings() == LogSettings(LogLevel.INFO)
    finally:
        logger.setLevel(logging.NOTSET)


def test_records_appear_above_a_live_display(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    progress = LiveProgress(Console(file=stream, force_terminal=True, width=120))
    configure(LogSettings())
    with progress:
        progress.planned(made.a_preview().draft.plan, False)
        fail_over()
    # Printed by the display, which erases its bars first and draws them again below.
    assert "leader moved topic=orders partition=3 offset=41\n" in stream.getvalue()
    assert sys.stderr is stream


def test_progress_without_a_console_is_log_records(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings(LogLevel.INFO, LogFormat.JSON))
    with LiveProgress(None) as progress:
        progress.step("asking 3 brokers")
        progress.planned(made.a_preview().draft.plan, False)
        progress.warn("the checkpoint is not mirrored")
    found = [json.loads(line) for line in lines(capsys)]
    assert [record["level"] for record in found] == ["info", "info", "warning"]
    assert found[0]["message"] == "Asking 3 brokers"
    assert found[1]["offsets"] == 34_000
    assert found[2]["message"] == "The checkpoint is not mirrored."


def test_errors_of_a_command_are_log_records_with_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["status", str(tmp_path / "none.yaml"), "--log-format", "json"]
    assert command_line.main(arguments) == 78
    (line,) = lines(capsys)
    found = json.loads(line)
    assert (found["level"], found["error"], found["exit"]) == ("error", "JobFileError", 78)


def test_with_json_the_traceback_of_an_error_is_in_its_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.yaml").write_text("job: [\n")
    arguments = ["status", str(tmp_path / "bad.yaml"), "--log-format", "json", "--debug"]
    assert command_line.main(arguments) == 78
    (line,) = lines(capsys)
    found = json.loads(line)
    assert found["exception"].startswith("Traceback")
    assert "JobFileError" in found["exception"]


def test_a_message_of_many_lines_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings(format=LogFormat.JSON))
    text = "one\ntwo\r\n\u2028\x85%s"
    record = LOGGER.makeRecord(LOGGER.name, logging.WARNING, "", 0, text, ("\udcff",), None)
    # Not by way of the logger: pytest would keep the message, and cannot pass it between processes.
    *_, handler = logging.getLogger("rangeland").handlers
    handler.handle(record)
    out = capsys.readouterr().err
    assert out.count("\n") == len(out.splitlines()) == 1
    assert json.loads(out)["message"] == "one\ntwo\r\n\u2028\x85\udcff"


def test_a_line_about_a_partition_has_its_fields() -> None:
    assert partition_fields(Partition("orders", 3), 41) == {
        "topic": "orders",
        "partition": 3,
        "offset": 41,
    }
    assert partition_fields(Partition("orders", 0, "a")) == {
        "topic": "orders",
        "partition": 0,
        "broker": "a",
    }


def test_an_unknown_level_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["status", "orders.yaml", "--log-level", "loud"]) == 64
    assert "--log-level" in capsys.readouterr().err


def test_a_command_leaves_logging_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("rangeland")
    before = (list(logger.handlers), logger.level)
    command_line.main(["status", "none.yaml", "--log-level", "debug"])
    capsys.readouterr()
    assert (logger.handlers, logger.level) == before
