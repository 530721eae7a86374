"""Cleans up after a Python process that was killed; runs as a separate process.

A process cannot clean up after SIGKILL, and the kernel's parent-death signal is sent when the
*thread* that started the child ends, which is too early. So each Python process has one guard at
the other end of a pipe: when the pipe closes, or when the guard's parent changes, it kills the
process groups and removes the directories that it knows.

Its commands are lines: ``watch PGID``, ``forget PGID``, ``remove PATH``, ``keep PATH``. It is run
by path with ``python -I -S``, so it imports nothing from Rangeland.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time

LOOK_EVERY_S = 0.5


def main(parent: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups, paths = _listen(parent)
    for group in groups:
        _kill_group(group)
    for path in paths:
        _remove(path)


def _listen(parent: int) -> tuple[set[int], set[str]]:
    """Reads commands until the parent is gone; returns the groups and paths that it has left
    behind."""
    groups: set[int] = set()
    paths: set[str] = set()
    partial = b""
    while True:
        # The pipe alone is not enough, because a forked child of the parent may hold it open. And
        # anything that the parent wrote before it died must still be read.
        is_orphaned = os.getppid() != parent
        if not select.select([0], [], [], 0 if is_orphaned else LOOK_EVERY_S)[0]:
            if is_orphaned:
                break
            continue
        block = os.read(0, 65536)
        if not block:
            break
        *lines, partial = (partial + block).split(b"\n")
        for line in lines:
            _obey(os.fsdecode(line), groups, paths)
    return groups, paths


def _obey(line: str, groups: set[int], paths: set[str]) -> None:
    verb, _, argument = line.partition(" ")
    if verb == "watch":
        groups.add(int(argument))
    elif verb == "forget":
        groups.discard(int(argument))
    elif verb == "remove":
        paths.add(argument)
    elif verb == "keep":
        paths.discard(argument)


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # It has ended by itself, or its id now belongs to another process.


def _remove(path: str) -> None:
    """Tries several times, because a process that is being killed may still be writing."""
    for _ in range(20):
        shutil.rmtree(path, ignore_errors=True)
        if not os.path.exists(path):
            return
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
