"""A single server on this machine: one process, its port and a temporary folder.

A server can be stopped, killed, paused and started again on the same port and with what is left of
its data, and leaves nothing behind. All servers here are small JVMs.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Self

from rangeland.errors import UsageError
from rangeland.jvm.jar_sets import JarSet
from rangeland.jvm.jars import fetch_jars
from rangeland.testing.context_managers import Startable
from rangeland.testing.ports import free_ports, is_listening
from rangeland.testing.processes import Process, remove_directory, temporary_directory


class LocalServer(Startable):
    """``kind`` is a word for people."""

    kind = ""
    start_timeout_s = 120

    def __init__(self, jars: JarSet) -> None:
        self.port = 0
        self._jars = jars
        self._directory: Path | None = None
        self._process: Process | None = None

    def start(self) -> Self:
        """Starts it, the first time on a free port and without data, later on the same port
        and data; returns when it answers. Raises `Unreachable` if it does not come up."""
        if self._process is not None and self._process.running:
            raise UsageError(f"{self.kind} is already started", do="Stop or kill it first")
        is_first = self._directory is None
        if is_first:
            fetch_jars(self._jars)  # before anything is made: the first time takes a while
            self._directory = temporary_directory(f"rangeland-{self.kind.lower()}-")
            (self.port,) = free_ports(1)
        try:
            command = self._command(self.directory)
            log = self.directory / "server.log"
            self._process = Process(self.kind, command, log=log, directory=self.directory)
            self._process.wait_until(self._answers, "it to answer", self.start_timeout_s)
            if is_first:
                self._prepare()
        except BaseException:
            self.close()
            raise
        return self

    def restart(self) -> None:
        """Kills it if it runs, and starts it again."""
        self.kill()
        self.start()

    def stop(self) -> None:
        """SIGTERM."""
        self.process.stop()

    def kill(self) -> None:
        """SIGKILL: a crash. Port and data are kept for `start`. No error if it has not started."""
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered."""
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    def close(self) -> None:
        """Ends it at once and removes its data."""
        self.kill()
        if self._directory is not None:
            remove_directory(self._directory)
        self._process, self._directory = None, None

    @property
    def process(self) -> Process:
        if self._process is None:
            raise UsageError(f"{self.kind} is not started", do="Call start() or use `with`")
        return self._process

    @property
    def directory(self) -> Path:
        """Where configuration, log and data of a started server are."""
        if self._directory is None:
            raise UsageError(f"{self.kind} is not started", do="Call start() or use `with`")
        return self._directory

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @abstractmethod
    def _command(self, folder: Path) -> list[str]:
        """Writes the configuration, and returns the command that starts the server."""

    def _answers(self) -> bool:
        return is_listening(self.port)

    def _prepare(self) -> None:
        """What is done when it answers for the first time."""
