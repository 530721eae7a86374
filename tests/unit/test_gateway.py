"""The JVM as a process: what it says is passed on, until it is ended with all it has started.

Shells stand in for it here; ``spark/test_session_start.py`` has the real one.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import socketserver
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from rangeland.spark import gateway
from rangeland.spark.gateway import DriverJvm, JvmStart, without_startup_lines
from rangeland.testing.processes import PATIENCE_S

WITH_A_CHILD = "sleep 60 & echo $! >&2; wait"


def shell(text: str) -> DriverJvm:
    return DriverJvm(["/bin/sh", "-c", text], dict(os.environ))


def is_gone(pid: int) -> bool:
    """A process closes its files a moment before it has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


def read_until(capfd: pytest.CaptureFixture[str], words: str) -> str:
    seen = ""
    deadline = time.monotonic() + PATIENCE_S
    while words not in seen:
        assert time.monotonic() < deadline, seen
        seen += capfd.readouterr().err
        time.sleep(0.01)
    return seen


def test_what_it_says_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    jvm = shell("echo one >&2; echo two >&2")
    deadline = time.monotonic() + PATIENCE_S
    while jvm.running and time.monotonic() < deadline:
        time.sleep(0.01)
    jvm.wait_for_output()
    jvm.end()
    assert capfd.readouterr().err == "one\ntwo\n"


def test_ending_it_waits_for_what_it_has_started_and_is_silent(
    capfd: pytest.CaptureFixture[str],
) -> None:
    jvm = shell("trap 'kill $!; echo trace >&2; exit 143' TERM; " + WITH_A_CHILD)
    child = int(read_until(capfd, "\n"))
    jvm.end()
    assert is_gone(child)
    assert capfd.readouterr().err == ""


def test_one_that_does_not_end_is_killed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "GRACE_S", 0.2)
    jvm = shell("trap '' TERM; echo ready >&2; while true; do sleep 0.1; done")
    read_until(capfd, "ready")
    jvm.end()
    assert jvm._popen.returncode == -signal.SIGKILL


def test_one_that_would_write_an_archive_first_is_not_waited_for(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "ARCHIVING_GRACE_S", 0.2)
    text = "trap '' TERM; echo ready >&2; while true; do sleep 0.1; done"
    jvm = gateway.DriverJvm(["/bin/sh", "-c", text], os.environ, archives=True)
    read_until(capfd, "ready")
    jvm.end()
    assert jvm._popen.returncode == -signal.SIGKILL


def test_it_does_not_notice_ctrl_c(capfd: pytest.CaptureFixture[str]) -> None:
    jvm = shell("echo ready >&2; sleep 0.3; echo done >&2")
    read_until(capfd, "ready")
    os.kill(jvm._popen.pid, signal.SIGINT)
    read_until(capfd, "done")
    jvm.end()


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """Of a Spark whose spark-submit is the shell text in ``tmp_path / "text"``."""
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\n. {tmp_path / 'text'}\n")
    submit.chmod(0o755)
    return tmp_path


def starting(spark_home: Path, text: str, meanwhile: Sequence[str] = ()) -> subprocess.Popen[str]:
    (spark_home / "text").write_text(text)
    program = (
        "import os, signal, time; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from rangeland.spark.gateway import JvmStart\n"
        "with JvmStart() as start:\n"
        "    start.launch({}, os.environ['SPARK_HOME'])\n"
        + "".join(f"    {line}\n" for line in meanwhile)
        + "    start.connect()\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "SPARK_HOME": str(spark_home)},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_jvm_that_ends_at_once_is_an_error_after_its_words(spark_home: Path) -> None:
    with starting(spark_home, "echo no memory >&2; exit 1") as process:
        _, told = process.communicate(timeout=PATIENCE_S)
    assert told.startswith("no memory\n")
    assert "JvmExited" in told.splitlines()[-1]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_a_signal_is_delivered_once_the_jvm_is_gone(
    spark_home: Path, number: int, code: int
) -> None:
    """By its own handler: Python's for Ctrl-C, none for the other."""
    pid = spark_home / "pid"
    with starting(spark_home, f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 60") as process:
        deadline = time.monotonic() + PATIENCE_S
        while not pid.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(number)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert is_gone(int(pid.read_text()))


@pytest.mark.parametrize(
    ("meanwhile", "last"),
    [
        ("raise ValueError('no broker answers')", "ValueError: no broker answers"),
        ("signal.raise_signal(signal.SIGINT)", "KeyboardInterrupt"),
    ],
)
def test_what_fails_while_it_starts_ends_it(spark_home: Path, meanwhile: str, last: str) -> None:
    """The JVM is gone before the error is reported."""
    pid = spark_home / "pid"
    work = (
        f"while not os.path.exists({str(pid)!r}): time.sleep(0.01)",
        meanwhile,
    )
    text = f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 60"
    with starting(spark_home, text, work) as process:
        _, told = process.communicate(timeout=PATIENCE_S)
    assert told.splitlines()[-1] == last
    assert is_gone(int(pid.read_text()))


def test_what_py4j_logs_of_a_jvm_that_is_being_ended_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def log(path: str) -> int:
        before = len(caplog.records)
        record = logging.LogRecord("root", logging.ERROR, path, 1, "no response", (), None)
        logging.getLogger().handle(record)
        return len(caplog.records) - before

    with JvmStart() as start:
        assert log("site-packages/py4j/java_gateway.py") == 1
        start._received.append(signal.SIGTERM)
        assert log("site-packages/py4j/java_gateway.py") == 0
        assert log("rangeland/run.py") == 1
        start._received.clear()
    assert log("site-packages/py4j/java_gateway.py") == 1


def test_an_update_of_accumulators_that_the_end_cuts_short_leaves_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from pyspark import SparkContext

    class CutShort(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            raise EOFError

    def send_update() -> str:
        with socket.create_connection(server.server_address):
            server.handle_request()
        return capfd.readouterr().err

    with socketserver.TCPServer(("127.0.0.1", 0), CutShort) as server:
        context = SimpleNamespace(_accumulatorServer=server)
        monkeypatch.setattr(SparkContext, "_active_spark_context", context)
        assert "EOFError" in send_update()
        gateway.quiet_jvm()
        assert send_update() == ""


def test_a_jvm_s_usual_words_are_left_out_and_all_others_kept() -> None:
    said = (
        b"WARNING: Using incubator modules: jdk.incubator.vector\n"
        b'Setting default log level to "WARN".\n'
        b'Exception in thread "main"\n\tat x\nError: half a li'
    )
    assert without_startup_lines(said) == (
        b'Exception in thread "main"\n\tat x\nError: half a li',
        b"",
    )
    assert without_startup_lines(b"a\r\n\nb") == (b"a\r\n\nb", b"")


@pytest.mark.parametrize("at", [1, 9, 36, 37])
def test_usual_words_that_come_in_parts_are_left_out_as_well(at: int) -> None:
    said = b'Setting default log level to "WARN".\n'
    passed, begun = without_startup_lines(said[:at])
    assert passed == b""
    assert without_startup_lines(begun + said[at:] + b"Setup failed") == (b"Setup failed", b"")
