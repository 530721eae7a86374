"""An Airflow that runs by itself: scheduler, dag processor, triggerer, and the server they need.

Each is a process of its own on free ports, and can be killed and started again by its name.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from rangeland.testing.ports import free_ports
from rangeland.testing.processes import PATIENCE_S, Process
from tests.airflow.deployment import Airflow
from tests.airflow.postgres import PostgresServer

COMMANDS = {
    "api-server": ["--host", "127.0.0.1", "--workers", "1"],
    "scheduler": ["--skip-serve-logs"],
    "dag-processor": [],
    "triggerer": ["--skip-serve-logs"],
}


class LiveAirflow(Airflow):
    """Use it as a context. Whoever asks the server is an administrator."""

    def __init__(self, home: Path, postgres: PostgresServer, **environment: str) -> None:
        super().__init__(home, postgres)
        (self.port,) = free_ports(1)
        url = f"http://127.0.0.1:{self.port}"
        self.environment |= {
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
            "AIRFLOW__API__BASE_URL": url,
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "8",
            **environment,
        }
        self._processes: dict[str, Process] = {}

    def __enter__(self) -> Self:
        try:
            self.start("api-server")
            self._processes["api-server"].wait_for_port(self.port, PATIENCE_S)
            for name in COMMANDS:
                if name not in self._processes:
                    self.start(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self, name: str) -> None:
        port = ["--port", str(self.port)] if name == "api-server" else []
        self._processes[name] = Process(
            name,
            [str(self.programs / "airflow"), name, *COMMANDS[name], *port],
            log=self.home / f"{name}.log",
            environment=self.environment,
            directory=self.home,
        )

    def kill(self, name: str) -> None:
        """SIGKILL, as a machine that is gone."""
        self._processes.pop(name).kill()

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
        self._processes.clear()

    def wait_until(self, happened: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not happened():
            if time.monotonic() > deadline:
                tails = "\n".join(p.log_tail() for p in self._processes.values())
                raise AssertionError(f"waited {PATIENCE_S} s for {what}; {self.logs()}\n{tails}")
            time.sleep(0.5)

    def logs(self) -> str:
        """What all tasks and triggers have logged."""
        files = sorted((self.home / "logs").rglob("*.log*"))
        return "\n".join(path.read_text(errors="replace") for path in files if path.is_file())
