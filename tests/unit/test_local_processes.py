"""Processes that tests and the demo start: they wait, they fail well, they never stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from rangeland.errors import Unreachable, UsageError
from rangeland.testing.ports import free_ports, is_free, is_listening, take
from rangeland.testing.processes import (
    PATIENCE_S,
    Process,
    remove_directory,
    temporary_directory,
)

SLEEPER = ["sleep", "300"]


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def eventually(happened: Callable[[], bool], timeout_s: float = 20) -> bool:
    deadline = time.monotonic() + timeout_s
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.05)
    return happened()


def python(text: str) -> list[str]:
    return [sys.executable, "-u", "-c", text]


def test_a_process_leads_a_group_of_its_own(tmp_path: Path) -> None:
    with Process("sleeper", SLEEPER, log=tmp_path / "log") as process:
        assert os.getpgid(process.pid) == process.pid != os.getpgid(0)
        assert os.getsid(process.pid) == process.pid
    assert not alive(process.pid)


def test_the_program_replaces_the_shell_that_waited(tmp_path: Path) -> None:
    with Process("sleeper", SLEEPER, log=tmp_path / "log") as process:
        running = psutil.Process(process.pid)
        assert eventually(lambda: running.cmdline() == SLEEPER)
        assert running.children() == []


def test_a_line_is_waited_for_and_returned(tmp_path: Path) -> None:
    command = python("import time; print('one'); time.sleep(.2); print('up at 7'); time.sleep(99)")
    with Process("talker", command, log=tmp_path / "log") as process:
        assert process.wait_for_line(r"up at \d", timeout_s=20) == "up at 7"


def test_a_line_counts_when_it_is_whole(tmp_path: Path) -> None:
    text = (
        "import sys, time\n"
        "for part in ('up at 7', '1', '\\n'):\n"
        "    sys.stdout.write(part); sys.stdout.flush(); time.sleep(.3)\n"
        "time.sleep(99)"
    )
    with Process("halting", python(text), log=tmp_path / "log") as process:
        assert process.wait_for_line(r"up at \d", timeout_s=20) == "up at 71"


def test_the_last_line_counts_without_its_end_once_the_process_has_ended(tmp_path: Path) -> None:
    text = "import sys; sys.stdout.write('up at 7')"
    with Process("brief", python(text), log=tmp_path / "log") as process:
        process.wait_for_end()
        assert process.wait_for_line("up at") == "up at 7"


def test_a_line_of_an_earlier_start_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("up at 6\n")
    with Process("silent", SLEEPER, log=tmp_path / "log") as process:
        with pytest.raises(Unreachable, match=r"waited 0\.2 s for a line like"):
            process.wait_for_line("up at", timeout_s=0.2)
        assert process.running


def test_a_port_is_waited_for(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    with Process("server", command, log=tmp_path / "log", directory=tmp_path) as process:
        process.wait_for_port(port, timeout_s=20)
        assert is_listening(port)
        assert not is_free(port)
    assert is_free(port)


def test_the_error_of_one_that_ended_shows_its_log_and_code(tmp_path: Path) -> None:
    text = (
        "print('ERROR the disk is gone')\nfor i in range(40): print('line', i)\nraise SystemExit(3)"
    )
    with Process("broken", python(text), log=tmp_path / "log") as process:
        with pytest.raises(Unreachable) as caught:
            process.wait_for_port(free_ports(1)[0], timeout_s=20)
        assert process.exit_code == 3
    shown = str(caught.value)
    assert "broken is not up: it ended with code 3 before port" in shown
    assert "line 39" in shown
    assert "line 3\n" not in shown, "only the last lines are shown"
    assert "ERROR the disk is gone" in shown, "and the telling ones before"


def test_a_program_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no-such-program is not a program"):
        Process("nobody", ["no-such-program"], log=tmp_path / "log")


def test_stop_asks_first(tmp_path: Path) -> None:
    text = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *a: (print('goodbye'), sys.exit(0)))\n"
        "print('up'); time.sleep(99)"
    )
    with Process("polite", python(text), log=tmp_path / "log") as process:
        process.wait_for_line("up")
        process.stop()
        assert process.exit_code == 0
        assert process.log_tail(1) == "goodbye"


def test_stop_kills_one_that_does_not_listen(tmp_path: Path) -> None:
    text = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(99)"
    )
    with Process("deaf", python(text), log=tmp_path / "log") as process:
        process.wait_for_line("up")
        process.stop(timeout_s=0.3)
        assert process.exit_code == -signal.SIGKILL


ORPHANS = {
    "an end by itself": ("sleep 300 & echo child $!; exit 3", 3),
    "a child that ignores SIGTERM": (
        "trap 'exit 4' TERM; (trap '' TERM; exec sleep 300) & echo child $!; wait",
        4,
    ),
}


@pytest.mark.parametrize("orphan", ORPHANS)
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_children_of_a_process_that_has_ended_are_not_left(
    tmp_path: Path, orphan: str, end: str
) -> None:
    text, code = ORPHANS[orphan]
    process = Process("parent", ["sh", "-c", text], log=tmp_path / "log")
    child = int(process.wait_for_line(r"child \d").split()[1])
    if code == 3:
        assert process.wait_for_end() == code
        assert alive(child), "its end alone kills nobody: they may have work to finish"
    if end == "stop":
        process.stop(timeout_s=0.5)
        assert process.exit_code == code
    else:
        process.kill()
    assert eventually(lambda: not alive(child))
    assert process.exit_code in (code, -signal.SIGKILL)
    process.stop()  # nothing is left, and that is no error


def test_children_are_not_left_by_a_process_that_ends_while_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "sleep 300 & echo child $!; read -r word; exit 3"
    process = Process("parent", ["sh", "-c", text], log=tmp_path / "log")
    child = int(process.wait_for_line(r"child \d").split()[1])
    waitid = os.waitid

    def answer_too_early(*arguments: int) -> None:
        """Still running, and then it has ended before anything else is asked."""
        waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    monkeypatch.setattr(os, "waitid", answer_too_early)
    assert process.running
    monkeypatch.undo()
    assert process.exit_code == 3
    process.stop(timeout_s=0.5)
    assert eventually(lambda: not alive(child))


def test_stop_lets_children_finish(tmp_path: Path) -> None:
    child = "trap 'sleep .5; echo finished; exit' TERM; echo up; while :; do sleep .05; done"
    text = f'trap "exit 0" TERM; sh -c "{child}" & wait'
    process = Process("parent", ["sh", "-c", text], log=tmp_path / "log")
    process.wait_for_line("up")
    process.stop()
    assert "finished" in process.log_tail()


def test_kill_takes_the_children_along(tmp_path: Path) -> None:
    text = "import subprocess as s; p = s.Popen(['sleep', '300']); print('child', p.pid); p.wait()"
    with Process("parent", python(text), log=tmp_path / "log") as process:
        child = int(process.wait_for_line("child").split()[1])
        process.kill()
    assert eventually(lambda: not alive(child))


def test_a_paused_process_can_be_resumed_or_stopped(tmp_path: Path) -> None:
    with Process("sleeper", SLEEPER, log=tmp_path / "log") as process:
        process.pause()
        status = psutil.Process(process.pid).status
        assert status() == psutil.STATUS_STOPPED
        assert process.running
        process.resume()
        assert eventually(lambda: status() == psutil.STATUS_SLEEPING)
        process.pause()
        process.stop()
        assert not process.running


def test_the_end_of_the_thread_that_started_it_is_not_its_end(tmp_path: Path) -> None:
    started: list[Process] = []
    thread = threading.Thread(
        target=lambda: started.append(Process("sleeper", SLEEPER, log=tmp_path / "log"))
    )
    thread.start()
    thread.join()
    with started[0] as process:
        assert not eventually(lambda: not process.running, timeout_s=0.5)


ORPHANING = """
import signal, sys, time
from pathlib import Path
from rangeland.testing.processes import Process, temporary_directory
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # who runs the tests may have it ignored
folder = temporary_directory("rangeland-test-")
(folder / "data").write_text("x")
process = Process("sleeper", ["sleep", "300"], log=folder / "log")
print(process.pid, folder, flush=True)
{then}
"""


def orphaning(then: str) -> tuple[subprocess.Popen[str], int, Path]:
    parent = subprocess.Popen(
        python(ORPHANING.format(then=then)),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert parent.stdout is not None
    pid, folder = parent.stdout.readline().split()
    parent.stdout.close()
    return parent, int(pid), Path(folder)


@pytest.mark.parametrize(
    "then",
    ["pass", "raise SystemExit(1)", "import os; os._exit(1)"],
    ids=["it-ends", "it-fails", "it-skips-its-exit-handlers"],
)
def test_nothing_is_left_when_python_ends(then: str) -> None:
    parent, pid, folder = orphaning(then)
    parent.wait(timeout=PATIENCE_S)
    assert eventually(lambda: not alive(pid))
    assert eventually(lambda: not folder.exists())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_when_python_is_killed(number: signal.Signals) -> None:
    parent, pid, folder = orphaning("time.sleep(300)")
    assert alive(pid)
    parent.send_signal(number)
    parent.wait(timeout=PATIENCE_S)
    assert eventually(lambda: not alive(pid))
    assert eventually(lambda: not folder.exists())


def test_nothing_is_left_when_python_is_killed_later() -> None:
    parent, pid, folder = orphaning("time.sleep(300)")
    assert not eventually(lambda: not alive(pid), timeout_s=1.2), "the guard is not too eager"
    parent.kill()
    parent.wait(timeout=PATIENCE_S)
    assert eventually(lambda: not alive(pid))
    assert eventually(lambda: not folder.exists())


def test_a_forked_child_that_outlives_python_does_not_hold_the_guard_back() -> None:
    fork = "import os\nif os.fork() == 0: os.close(1); time.sleep(8); os._exit(0)\ntime.sleep(300)"
    parent, pid, folder = orphaning(fork)
    parent.kill()
    parent.wait(timeout=PATIENCE_S)
    assert eventually(lambda: not alive(pid), timeout_s=6)
    assert eventually(lambda: not folder.exists(), timeout_s=6)


def test_a_removed_temporary_directory_is_gone_at_once() -> None:
    folder = temporary_directory("rangeland-test-")
    assert folder.is_dir()
    remove_directory(folder)
    assert not folder.exists()


def test_free_ports_are_distinct_and_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(is_free(port) and not is_listening(port) for port in ports)


def test_a_port_is_not_given_twice() -> None:
    assert not set(free_ports(20)) & set(free_ports(20))


def test_a_port_is_given_to_one_process_until_it_ends() -> None:
    text = "import sys; from rangeland.testing.ports import free_ports; print(free_ports(1)[0])"
    command = python(f"{text}; sys.stdin.read()")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        assert is_free(port)
        assert not take(port)
        other.communicate()
    assert take(port)
    assert not take(port)
