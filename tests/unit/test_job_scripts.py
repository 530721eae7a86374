"""The scripts in ``jobs/`` refuse what their commands refuse, in the same words."""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import rangeland
from rangeland.cli import command_line
from rangeland.submit import entry_point
from tests import sample_results as made

SCRIPT = Path(__file__).parents[2] / "jobs" / "backfill_range.py"


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "orders.yaml"
    path.write_text(made.JOB_YAML)
    return str(path)


def run_script(words: list[str]) -> int:
    script = runpy.run_path(str(SCRIPT))
    return entry_point.main(script["backfill"], "", arguments=words, flags=script["FLAGS"])


def answer_of(capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(capfd.readouterr().out.splitlines()[-1])
    return answer


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--from", "2026-01-30"],
        ["--until", "2026-01-31"],
        ["--from", "checkpoint", "--until", "latest"],
        ["--missing", "--replace"],
        ["--missing", "--from", "2026-01-30"],
        ["--missing", "--until", "2026-01-31"],
        ["--missing", "--set", "range.from=2026-01-30"],
        ["--missing", "--set", "range={from: 2026-01-30, until: latest}"],
        ["--missing", "--replace", "--from", "2026-01-30", "--until", "2026-01-31"],
    ],
)
def test_a_backfill_by_script_is_refused_as_by_command(
    job: str,
    options: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(entry_point.ScriptEntry, "spark", lambda entry: None)
    monkeypatch.setattr(rangeland, "backfill", lambda *_, **__: made.a_result())
    assert command_line.main(["backfill", job, *options, "--json"]) == 64
    refused = answer_of(capfd)
    assert run_script([job, *options, "--json"]) == 64
    assert answer_of(capfd) == refused


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (["--missing"], {"missing": True, "replace": False}),
        (
            ["--replace", "--from", "2026-01-30", "--until", "2026-01-31"],
            {"missing": False, "replace": True},
        ),
    ],
)
def test_a_script_backfills_as_its_options_say(
    job: str, options: list[str], asked: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, bool]] = []

    def backfill(*_: object, **choices: bool) -> object:
        calls.append(choices)
        return made.a_result()

    monkeypatch.setattr(entry_point.ScriptEntry, "spark", lambda entry: None)
    monkeypatch.setattr(rangeland, "backfill", backfill)
    assert run_script([job, *options]) == 0
    assert calls == [asked]


SECRET = "source.security.sasl.password"


@pytest.mark.parametrize(
    "words",
    [
        ["JOB", "--set", SECRET, "hunter2"],
        ["--set", SECRET, "hunter2"],
        ["JOB", "--set", SECRET, "=", "hunter2"],
        ["JOB", f"{SECRET}=hunter2"],
        [f"{SECRET}=hunter2"],
        ["JOB", f"--{SECRET}=hunter2"],
        ["JOB", "--missing=hunter2"],
        ["JOB", "--log=hunter2"],
        ["JOB", "--set", f"{SECRET}:hunter2"],
    ],
    ids=" ".join,
)
def test_a_mistyped_script_call_does_not_repeat_a_password(
    job: str, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_script([*(job if word == "JOB" else word for word in words), "--json"]) == 64
    out, err = capfd.readouterr()
    assert "hunter2" not in out + err


def test_a_mistyped_script_call_is_told_what_is_wrong(
    job: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for words, told in [
        ([job, "more"], "Unrecognized arguments, not repeated here."),
        ([job, "--missing=yes"], "Argument --missing: ignored explicit argument, not repeated"),
        ([job, "--log=x"], "Ambiguous option: --log could match --log-level, --log-format."),
        ([job, "--set"], "Argument --set: expected one argument."),
        ([], "The following arguments are required: JOB.yaml."),
        ([f"{SECRET}=x"], f"{SECRET} is given without --set: a file is expected there."),
        ([job, "--set", SECRET], f"--set {SECRET} has no value."),
    ]:
        assert run_script([*words, "--json"]) == 64
        assert answer_of(capfd)["message"].startswith(told)


def test_a_script_whose_result_nobody_reads_ends_like_sigpipe(
    job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_point.ScriptEntry, "spark", lambda entry: None)
    monkeypatch.setattr(rangeland, "backfill", lambda *_, **__: made.a_result())
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as unread:
        monkeypatch.setattr(sys, "stdout", unread)
        assert run_script([job, "--missing"]) == 128 + signal.SIGPIPE
