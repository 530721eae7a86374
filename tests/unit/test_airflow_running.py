"""The command as a process: its lines come live, and it never outlives who started it."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from airflow_dags.rangeland_airflow import running
from airflow_dags.rangeland_airflow.running import Command, ask
from rangeland.testing.processes import PATIENCE_S

PARENT = """\
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, file=sys.stderr, flush=True)
time.sleep(60)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_stderr_is_passed_on_line_by_line_while_it_runs(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, time\n"
        "print('first', file=sys.stderr, flush=True)\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.01)\n"
        "print('last', file=sys.stderr)\nprint('answer')\nsys.exit(3)"
    )
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        (tmp_path / "go").touch()  # It goes on only once its first line was told.

    assert Command(python(code), str(tmp_path)).follow(tell) == (3, "answer\n")
    assert told == ["first", "last"]


def test_variables_are_added_to_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEPT", "1")
    code = "import os; print(os.environ['KEPT'], os.environ['ADDED'])"
    command = Command(python(code), str(tmp_path), {"ADDED": "2"})
    assert command.follow(lambda line: None) == (0, "1 2\n")


def test_a_program_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no-such-program"):
        Command(["no-such-program"], str(tmp_path))


def test_stopping_ends_it_and_its_children(tmp_path: Path) -> None:
    command = Command(python(PARENT), str(tmp_path))
    children: list[int] = []

    def tell(line: str) -> None:
        children.append(int(line))
        threading.Thread(target=command.stop).start()

    started = time.monotonic()
    code, _ = command.follow(tell)
    assert (code, command.stopped) == (-15, True)
    assert time.monotonic() - started < 40
    wait_until_gone(children[0])


def test_one_that_does_not_listen_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "GRACE_S", 0.2)
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + PARENT
    command = Command(python(deaf), str(tmp_path))
    children: list[int] = []

    def tell(line: str) -> None:
        children.append(int(line))
        command.stop()

    assert command.follow(tell)[0] == -9
    wait_until_gone(children[0])


def test_leaving_early_leaves_nothing_behind(tmp_path: Path) -> None:
    children: list[int] = []

    def tell(line: str) -> None:
        children.append(int(line))
        raise RuntimeError("the task has timed out")

    with pytest.raises(RuntimeError, match="timed out"):
        Command(python(PARENT), str(tmp_path)).follow(tell)
    wait_until_gone(children[0])


def test_asking_does_not_hold_up_the_event_loop(tmp_path: Path) -> None:
    async def scene() -> tuple[tuple[int, str, str], int]:
        turns = 0
        asked = asyncio.create_task(
            ask(python("import time; time.sleep(0.5); print('yes')"), str(tmp_path), 20)
        )
        while not asked.done():
            turns += 1
            await asyncio.sleep(0.02)
        return asked.result(), turns

    answer, turns = asyncio.run(scene())
    assert answer == (0, "yes\n", "")
    assert turns > 5


@pytest.mark.parametrize("how", ["late", "cancelled"])
def test_a_look_that_is_given_up_leaves_nothing_behind(tmp_path: Path, how: str) -> None:
    code = f"import os; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n" + PARENT

    async def scene() -> None:
        asked = asyncio.create_task(ask(python(code), str(tmp_path), 1.5 if how == "late" else 60))
        while how == "cancelled" and not asked.done():
            if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
                asked.cancel()
            await asyncio.sleep(0.02)
        await asked

    with pytest.raises(TimeoutError if how == "late" else asyncio.CancelledError):
        asyncio.run(scene())
    wait_until_gone(int((tmp_path / "pid").read_text()))
    gc.collect()  # What asyncio still held would be warned of now, and fail this test.


def test_a_child_that_outlives_a_look_holds_nothing_up(tmp_path: Path) -> None:
    leaves = PARENT.replace("time.sleep(60)\n", "print('yes')\n")
    code, stdout, stderr = asyncio.run(ask(python(leaves), str(tmp_path), 20))
    gc.collect()
    psutil.Process(int(stderr)).kill()
    assert (code, stdout) == (0, "yes\n")


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.NoSuchProcess:
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} is still there")
