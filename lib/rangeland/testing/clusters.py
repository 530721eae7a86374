"""The base of all clusters of brokers on this machine: processes, a folder, and cleanup.

Each process of a cluster has a name, or a number if its brokers have numbers. By that name it can
be killed, stopped, paused and restarted, on the same port and with the same data. Subclasses define
how processes are started and when they are ready.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Generic, Self, TypeVar

from rangeland.errors import UsageError
from rangeland.jvm.jar_sets import JarSet
from rangeland.jvm.jars import fetch_jars
from rangeland.testing.broker_jars import BROKER_JARS
from rangeland.testing.context_managers import Startable
from rangeland.testing.ports import free_ports
from rangeland.testing.processes import (
    Process,
    remove_at_end,
    remove_directory,
    temporary_directory,
)

Name = TypeVar("Name", int, str)


class LocalCluster(Startable, Generic[Name]):
    """The base of all clusters. ``kind`` is a word for people; ``names`` are the names of the
    processes, in the order in which they start, and ``usual`` is the default one.

    A temporary directory is made and removed unless ``directory`` is given; a given one keeps
    configuration and logs, and loses its folder ``data`` at the end, and before the start."""

    kind = ""
    versions: Sequence[str] = ()

    def __init__(
        self, version: str, names: Sequence[Name], usual: Name, directory: Path | None
    ) -> None:
        if version not in self.versions:
            versions = ", ".join(self.versions)
            raise UsageError(
                f"{self.kind} {version} is not available", do=f"use one of: {versions}"
            )
        self.version = version
        self.names: list[Name] = list(names)
        """The names of all processes."""
        self.ports: dict[Name, int] = {}
        self._usual: Name = usual
        self._given_directory = None if directory is None else directory.absolute()
        self._directory: Path | None = None
        self._nodes: dict[Name, Process] = {}

    # --- life --------------------------------------------------------------------------

    def start(self) -> Self:
        """Starts all processes and returns when they are ready. If one does not come up, raises
        `Unreachable` with the last lines of its log."""
        if self._directory is not None:
            raise UsageError("The cluster is already started", do="use restart for one broker")
        fetch_jars(self._jars)  # before anything is created: the first time takes a while
        prefix = f"rangeland-{self.kind.lower()}-"
        self._directory = self._given_directory or temporary_directory(prefix)
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._given_directory is not None:
            data = self._directory / "data"
            remove_directory(data)  # of a cluster whose end nobody has seen
            remove_at_end(data)
        try:
            self._start_all()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Ends all processes at once and removes their data; a given directory keeps the logs."""
        for process in self._processes():
            process.kill()
        self._nodes.clear()
        if self._directory is not None and self._given_directory is None:
            remove_directory(self._directory)
        elif self._directory is not None:
            remove_directory(self._directory / "data")
        self._directory = None

    # --- for tests ---------------------------------------------------------------------

    @property
    def running(self) -> list[Name]:
        """The names of running processes, including paused ones."""
        return [name for name, process in self._nodes.items() if process.running]

    @property
    def brokers(self) -> list[Name]:
        """The names of the processes that are brokers, up or not."""
        return self.names

    def address(self, name: Name | None = None) -> str:
        """``127.0.0.1:port``, whether the process is up or not."""
        return f"127.0.0.1:{self.ports[self._name_or_usual(name)]}"

    def process(self, name: Name | None = None) -> Process:
        """One process, for its pid, log and memory."""
        key = self._name_or_usual(name)
        if key not in self._nodes:
            names = ", ".join(map(str, self._nodes)) or "none, it is not started"
            raise UsageError(f"There is no {key} in the cluster", do=f"there are: {names}")
        return self._nodes[key]

    def kill(self, name: Name | None = None) -> None:
        """SIGKILL: a crash. Port and data are kept for `restart`."""
        self.process(name).kill()

    def stop(self, name: Name | None = None) -> None:
        """SIGTERM: the process flushes its data and leaves the cluster."""
        self.process(name).stop()

    def pause(self, name: Name | None = None) -> None:
        """SIGSTOP: connections stay open but get no responses, as in a long garbage collection."""
        self.process(name).pause()

    def resume(self, name: Name | None = None) -> None:
        self.process(name).resume()

    def restart(self, name: Name | None = None, *, wait: bool = True) -> None:
        """Starts a process again with the same port and data, after stopping it if it is running.
        With ``wait``, returns when the process is ready."""
        key = self._name_or_usual(name)
        self.process(key).stop()
        self._nodes[key] = self._start_one(key)
        if wait:
            self._wait_for(key)

    # --- implementation ----------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """The folder of a started cluster, with its configuration, ``logs`` and ``data``."""
        if self._directory is None:
            raise UsageError("The cluster is not started", do="call start() or use `with`")
        return self._directory

    @property
    def _jars(self) -> JarSet:
        return BROKER_JARS[f"{self.kind.lower()}-{self.version}"]

    def _name_or_usual(self, name: Name | None) -> Name:
        return self._usual if name is None else name

    def _processes(self) -> list[Process]:
        return list(self._nodes.values())

    def _run(self, name: str, command: Sequence[str]) -> Process:
        """Starts a program with a log of its own in the folder ``logs``."""
        logs = self.directory / "logs"
        logs.mkdir(exist_ok=True)
        return Process(name, command, log=logs / f"{name}.log", directory=self.directory)

    def _start_together(self, names: Sequence[Name]) -> None:
        """Starts these processes, then waits for each of them."""
        for name in names:
            self._nodes[name] = self._start_one(name)
        for name in names:
            self._wait_for(name)

    @abstractmethod
    def _start_all(self) -> None:
        """Chooses ports, writes configuration and starts all processes; the directory exists
        already."""

    @abstractmethod
    def _start_one(self, name: Name) -> Process:
        """Starts one process, which may have run before."""

    @abstractmethod
    def _wait_for(self, name: Name) -> None:
        """Waits until one process is ready."""


class NumberedCluster(LocalCluster[int]):
    """Brokers with the ids 1, 2, ..., each with a settings file and a data folder. ``properties``
    apply to every broker and take precedence over the settings here."""

    def __init__(
        self,
        version: str,
        brokers: int,
        heap_mb: int,
        properties: Mapping[str, object] | None,
        directory: Path | None,
    ) -> None:
        if brokers < 1:
            raise UsageError(f"a cluster cannot have {brokers} brokers", do="ask for at least one")
        super().__init__(version, range(1, brokers + 1), 1, directory)
        self.heap_mb = heap_mb
        self.properties = dict(properties or {})

    @property
    def ids(self) -> list[int]:
        return self.names

    def _config(self, broker: int) -> Path:
        return self.directory / f"{self.kind.lower()}-{broker}.properties"

    def data_directory(self, broker: int) -> Path:
        """The folder with a broker's data."""
        return self.directory / "data" / f"{self.kind.lower()}-{broker}"

    def _start_all(self) -> None:
        self.ports = dict(zip(self.ids, free_ports(len(self.ids)), strict=True))
        self._prepare()
        self._start_together(self.ids)

    @abstractmethod
    def _prepare(self) -> None:
        """Writes everything that a broker needs before it starts; the directory and the ports exist
        already."""
