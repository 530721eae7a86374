"""Waits for a log without a worker: checks it, and sleeps in between.

All its state is in its arguments, so a restarted triggerer continues to wait. A broker that is
down is logged and waited for, and so is a check that was killed; an error that a retry would not
fix ends the wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from .commands import judge_reached, read_answer
from .running import ask

CHECK_TIMEOUT_S = 300.0


class LogReachedTrigger(BaseTrigger):
    """Runs ``arguments`` (a ``rangeland reached`` command) until it says yes or fails.

    Its one event is ``{"state": "reached" or "failed", "text": ...}``."""

    def __init__(self, arguments: list[str], directory: str, poll_s: float = 30.0) -> None:
        super().__init__()
        self.arguments = arguments
        self.directory = directory
        self.poll_s = poll_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "rangeland_airflow.triggers.LogReachedTrigger", {
            "arguments": self.arguments,
            "directory": self.directory,
            "poll_s": self.poll_s,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        logged = ""
        while True:
            result = await self._check()
            if result["state"] != "waiting":
                yield TriggerEvent(result)
                return
            if result["text"] != logged:
                logged = result["text"]
                self.log.info("%s", logged)
            await asyncio.sleep(self.poll_s)

    async def _check(self) -> dict[str, str]:
        try:
            code, stdout, stderr = await ask(self.arguments, self.directory, CHECK_TIMEOUT_S)
        except TimeoutError:
            return {"state": "waiting", "text": f"no answer in {CHECK_TIMEOUT_S:.0f} s"}
        except OSError as error:
            text = f"{self.arguments[0]} could not be started: {error}"
            return {"state": "failed", "text": text}
        answer = read_answer(stdout)
        result = judge_reached(code, answer)
        if not answer:
            last = (stderr.strip().splitlines() or [""])[-1]
            result["text"] += f" {last}"
        return result
