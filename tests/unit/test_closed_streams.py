"""What reads stdout or stderr may go away, or never have been there: a run goes on, and ends with
its own exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rangeland.testing.processes import PATIENCE_S
from tests import sample_results as made

PROGRAM = """\
import logging, os, pathlib, signal, sys, types
from rangeland import errors, run as commands
from rangeland.cli import command_line
from tests import sample_results as made

signal.signal(signal.SIGINT, signal.default_int_handler)

def run(job, spark, progress):
    for number in range(3):
        progress.step(f"step {number}")
        progress.warn(f"warning {number}")
        logging.getLogger("rangeland").warning("Retried %s", number)
        print("a transform says hello", file=sys.stderr)
    pathlib.Path(sys.argv[1]).touch()
    exec(sys.argv[2])
    return made.a_result()

commands.run = run
reachable = types.SimpleNamespace(check_brokers_answer=lambda job: None)
sys.modules["rangeland.cluster_access.broker_check"] = reachable
fake = types.SimpleNamespace(open_deferred=lambda name, **_: name)
sys.modules["rangeland.spark.spark_session"] = fake
sys.exit(command_line.main(sys.argv[3:]))
"""
LOST = "raise errors.RangeLost('orders/0 [3, 5) is gone', do='Look')"
STOPPED = "os.kill(os.getpid(), signal.SIGTERM)"
# What happens after the progress, and the exit code of the run.
ENDS = [("pass", 0), (LOST, 66), (STOPPED, 143)]


class Scene:
    """One run of a job in a process of its own, whose Spark and brokers are not there."""

    def __init__(self, folder: Path) -> None:
        self.done = folder / "done"
        self.job = folder / "orders.yaml"
        self.job.write_text(made.JOB_YAML)

    def run(
        self, end: str, *options: str, unread: int | None = None, closed: int | None = None
    ) -> tuple[int, str, str]:
        """Exit code, stdout and stderr. The descriptor ``unread`` is a pipe that nobody reads; the
        descriptor ``closed`` is not open."""
        program = [sys.executable, "-c", PROGRAM, str(self.done), end]
        command = [*program, "run", str(self.job), *options]
        if closed is not None:
            command = ["/bin/sh", "-c", f'exec "$@" {closed}>&-', "sh", *command]
        reader, writer = os.pipe()
        os.close(reader)
        try:
            with subprocess.Popen(
                command,
                stdout=writer if unread == 1 else subprocess.PIPE,
                stderr=writer if unread == 2 else subprocess.PIPE,
                text=True,
            ) as child:
                out, err = child.communicate(timeout=PATIENCE_S)
        finally:
            os.close(writer)
        assert self.done.exists()  # It was not ended on the way.
        return child.returncode, out or "", err or ""


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.mark.parametrize(
    ("how", "end", "code", "options"),
    [
        ("unread", "pass", 0, ()),
        ("unread", "pass", 0, ("--log-format", "json")),
        ("unread", LOST, 66, ("--debug",)),
        ("unread", STOPPED, 143, ()),
        ("closed", "pass", 0, ()),
        ("closed", LOST, 66, ()),
    ],
)
def test_nobody_has_to_read_stderr(
    scene: Scene, how: str, end: str, code: int, options: tuple[str, ...]
) -> None:
    ended, out, _ = scene.run(end, "--json", *options, **{how: 2})
    assert (ended, out.count("\n")) == (code, 1)
    assert json.loads(out)["exit" if code else "state"] == (code or "landed")


def test_without_json_nobody_has_to_read_stderr_either(scene: Scene) -> None:
    ended, out, _ = scene.run("pass", unread=2)
    assert ended == 0
    assert "33,985 landed" in out
    assert "step" not in out


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize(("end", "code"), ENDS)
def test_a_result_that_nobody_reads_ends_like_sigpipe_and_a_failure_as_ever(
    scene: Scene, end: str, code: int, options: tuple[str, ...]
) -> None:
    ended, _, err = scene.run(end, *options, unread=1)
    assert ended == (code or 128 + signal.SIGPIPE)
    assert "Traceback" not in err
    assert "BrokenPipe" not in err


@pytest.mark.parametrize(("end", "code", "options"), [("pass", 0, ()), (LOST, 66, ("--json",))])
def test_a_process_without_stdout_ends_with_the_code_of_its_run(
    scene: Scene, end: str, code: int, options: tuple[str, ...]
) -> None:
    ended, _, err = scene.run(end, *options, closed=1)
    assert ended == code
    assert "Traceback" not in err


def test_a_pipe_that_breaks_elsewhere_is_an_error(scene: Scene) -> None:
    ended, out, _ = scene.run("raise BrokenPipeError(32, 'Broken pipe')", "--json")
    assert ended == 70
    assert "BrokenPipeError" in json.loads(out)["message"]


@pytest.mark.parametrize("words", [("schema",), ("run", "--help")])
def test_text_that_nobody_reads_ends_like_sigpipe(words: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "rangeland", *words]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")
