"""Jobs side by side: at most so many at a time, and none of them outlives an interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import rangeland
from rangeland.fleet.job_threads import results_of

LIBRARY = Path(rangeland.__file__).parents[1]
WAIT_S = 60
"""Many times what a process needs to end."""
INTERRUPTED = f"""
import threading
from rangeland.cli.command_output import command_output
from rangeland.fleet import fleet_run
from rangeland.fleet.fleet_run import Fleet, NoJobsProgress, for_each
from rangeland.fleet.table_job import TableJob
from rangeland.job import Job

job = Job.parse("{{job: a, source: {{servers: [k:9092], topics: [t]}}, sink: {{table: lake/a}}}}")

def wait_for_a_lock(*_):
    print("waiting", flush=True)
    threading.Event().wait({10 * WAIT_S})

fleet_run.open_job = wait_for_a_lock
works = {{
    "open": lambda fleet: fleet_run.run_all(fleet, None, NoJobsProgress(), 2),
    "work": lambda fleet: for_each(fleet, wait_for_a_lock, NoJobsProgress(), 2),
}}

def main(name):
    with command_output(["run"]) as output:
        try:
            works[name](Fleet((TableJob(job, None),)))
        except KeyboardInterrupt:
            return output.report_interruption()
"""


@pytest.mark.parametrize("name", ["open", "work"])
def test_after_a_signal_the_process_ends_although_a_table_waits(name: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", f"{INTERRUPTED}\nimport sys\nsys.exit(main({name!r}))"],
        env={**os.environ, "PYTHONPATH": str(LIBRARY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.communicate()


def test_works_begin_in_their_order_and_only_so_many_at_a_time() -> None:
    lock = threading.Lock()
    begun: list[int] = []
    running: set[int] = set()
    most = 0

    def work(number: int) -> Callable[[], int]:
        def act() -> int:
            nonlocal most
            with lock:
                begun.append(number)
                running.add(number)
                most = max(most, len(running))
            threading.Event().wait(0.01)
            with lock:
                running.discard(number)
            return number * number

        return act

    with results_of([work(number) for number in range(9)], 3) as results:
        found = dict(results)
    assert found == {number: number * number for number in range(9)}
    assert sorted(begun) == list(range(9))
    assert begun[0] < 3
    assert most <= 3


def test_one_at_a_time_is_one_after_the_other() -> None:
    with results_of([lambda: "a", lambda: "b", lambda: "c"], 1) as results:
        assert list(results) == [(0, "a"), (1, "b"), (2, "c")]


def test_what_a_work_raises_is_raised_and_nothing_more_begins() -> None:
    begun: list[str] = []
    is_over = threading.Event()

    def fail() -> None:
        raise KeyError("odd")

    def wait() -> None:
        begun.append("second")
        is_over.wait(WAIT_S)

    works = [fail, wait, lambda: begun.append("third")]
    with pytest.raises(KeyError, match="odd"), results_of(works, 1) as results:
        list(results)
    is_over.set()
    assert "third" not in begun


def test_without_work_there_is_no_result() -> None:
    with results_of([], 4) as results:
        assert list(results) == []
