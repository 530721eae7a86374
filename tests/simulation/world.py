"""Virtual time, processes that take turns, and faults between any two steps.

Everything that the product does to the outside passes ``World.point``: there time moves on, a
planned fault strikes, and another driver may get its turn. Only one thread runs at any time, so a
history depends on nothing but its scenario.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

EPOCH_MS = 1_800_000_000_000
MOST_STEPS = 20_000
NEVER_MS = 1 << 62


class Crash(BaseException):
    """The driver's process ends here. No code of it has any effect from then on."""


class ExecutorLost(BaseException):
    """The process of a task ends here."""


class Violation(AssertionError):
    """An invariant does not hold. ``rule`` is the short name of the invariant."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


@dataclass(frozen=True)
class Fault:
    """Strikes at the ``nth`` point with this tag in one run of a driver."""

    tag: str
    nth: int
    kind: str
    arg: int = 0

    def __str__(self) -> str:
        return f"{self.kind}({self.arg}) at {self.tag} {self.nth}"


def _closed() -> threading.Lock:
    """Whoever acquires it waits until another thread has released it."""
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass
class Process:
    """A driver, with the executors of its Spark application."""

    name: str
    faults: list[Fault] = field(default_factory=list)
    skew_ms: int = 0
    is_dead: bool = False
    in_task: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    turn: threading.Lock = field(default_factory=_closed)
    resume_at_ms: int = 0
    is_over: bool = False
    background: Callable[[], None] | None = None
    """What else the process does at each of its steps."""


class World:
    """One history. ``act`` carries out a named change of the cluster or the store."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now_ms = 0
        self.steps = 0
        self.outside = Process("outside")
        self.current = self.outside
        self.running: list[Process] = []
        self.struck: list[tuple[str, Fault]] = []
        self.act: Callable[[str, int], None] = lambda kind, arg: None
        self.trace: list[str] = []
        self.is_traced = False

    # --- time -----------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        self._wait_until(self.now_ms + max(1, round(seconds * 1000)))

    def clock_ms(self) -> int:
        """What the clock on the wall shows to the present process."""
        return EPOCH_MS + self.now_ms + self.current.skew_ms

    def new_id(self) -> uuid.UUID:
        return uuid.UUID(int=self.random.getrandbits(128), version=4)

    def log(self, text: str) -> None:
        if self.is_traced:
            self.trace.append(f"{self.now_ms:>9} {self.current.name}: {text}")

    def wait_for_lock(self) -> None:
        """Until ``lock_released`` is called. Only for a process beside others."""
        self._wait_until(NEVER_MS)

    def lock_released(self) -> None:
        for process in self.running:
            if process.resume_at_ms == NEVER_MS:
                process.resume_at_ms = self.now_ms

    # --- points ---------------------------------------------------------------------------

    def point(self, tag: str) -> str | None:
        """A step of the present process. Returns the kind of fault that the caller has to carry
        out, if one is due. Raises Crash for a process that has ended."""
        process = self.current
        if process.is_dead:
            raise Crash
        self.now_ms += 1
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Violation("ends", f"no end after {MOST_STEPS} steps")
        process.counts[tag] += 1
        found = None
        if process.faults:
            found = self._strike(process, tag)
        if len(self.running) > 1:
            self._yield()
        if process.background is not None:
            process.background()
        return found

    def _strike(self, process: Process, tag: str) -> str | None:
        number, found = process.counts[tag], None
        for fault in [f for f in process.faults if f.tag == tag and f.nth == number]:
            process.faults.remove(fault)
            self.struck.append((process.name, fault))
            self.log(f"fault: {fault}")
            if fault.kind == "crash":
                process.is_dead = True
                raise Crash
            if fault.kind == "executor-lost":
                if process.in_task:
                    raise ExecutorLost
            elif fault.kind == "pause":
                self._wait_until(self.now_ms + fault.arg)
            elif fault.kind.startswith("act:"):
                self.act(fault.kind[4:], fault.arg)
            else:
                found = fault.kind
        return found

    # --- turns ----------------------------------------------------------------------------

    def _wait_until(self, at_ms: int) -> None:
        process = self.current
        if process.is_dead:
            raise Crash
        if len(self.running) <= 1:
            self.now_ms = max(self.now_ms, at_ms)
            return
        process.resume_at_ms = at_ms
        self._yield()

    def _yield(self) -> None:
        """Gives the turn to a process that is chosen at random among those that are ready."""
        process = self.current
        chosen = self._next()
        if chosen is not process:
            self._switch(chosen)
            process.turn.acquire()

    def _next(self) -> Process:
        waiting = [p for p in self.running if not p.is_over]
        ready = [p for p in waiting if p.resume_at_ms <= self.now_ms]
        if not ready:
            first = min(waiting, key=lambda p: p.resume_at_ms)
            if first.resume_at_ms == NEVER_MS:
                raise Violation("ends", "every driver waits for a lock")
            self.now_ms = max(self.now_ms, first.resume_at_ms)
            return first
        if self.current in ready and self.random.random() < 0.9:
            return self.current
        return self.random.choice(ready)

    def _switch(self, to: Process) -> None:
        self.current = to
        to.turn.release()

    def run(self, work: Sequence[tuple[Process, Callable[[], Any]]]) -> list[Any]:
        """Runs the processes side by side to their ends. Returns their results or exceptions."""
        self.running = [process for process, _ in work]
        results: list[Any] = [None] * len(work)
        before = self.current
        try:
            if len(work) == 1:
                self.current = work[0][0]
                results[0] = _outcome(work[0][1])
            else:
                self._run_together(work, results)
        finally:
            self.running = []
            self.current = before
        return results

    def _run_together(
        self, work: Sequence[tuple[Process, Callable[[], Any]]], results: list[Any]
    ) -> None:
        done = _closed()

        def body(index: int, process: Process, act: Callable[[], Any]) -> None:
            process.turn.acquire()
            results[index] = _outcome(act)
            process.is_over = True
            if all(p.is_over for p in self.running):
                done.release()
            else:
                self._switch(self._next())

        threads = [
            threading.Thread(target=body, args=(i, process, act), daemon=True)
            for i, (process, act) in enumerate(work)
        ]
        for thread in threads:
            thread.start()
        self._switch(self.random.choice(self.running))
        done.acquire()
        for thread in threads:
            thread.join()


def _outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except BaseException as error:
        return error
