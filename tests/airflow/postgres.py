"""A PostgreSQL of the tests' own, with a database for each Airflow.

Airflow's processes write at the same time, and SQLite refuses some of that as locked. The
programs come from a set of jars, and everything is in a temporary folder. PostgreSQL does not
run as root: where the tests do, it runs as nobody.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from rangeland.jvm.jars import jar_files
from rangeland.testing.ports import free_ports
from rangeland.testing.processes import PATIENCE_S, Process
from tests.jar_sets import TEST_JARS

JARS = TEST_JARS["postgres-17.5.0"]
USER = "airflow"
AS_NOBODY = (
    "import os, pwd, sys; nobody = pwd.getpwnam('nobody'); os.setgroups([]);"
    " os.setgid(nobody.pw_gid); os.setuid(nobody.pw_uid); os.execv(sys.argv[1], sys.argv[1:])"
)
# Nothing in it has to outlive the tests.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
}


class PostgresServer:
    """Use it as a context."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._folder = Path(tempfile.mkdtemp(prefix="rangeland-postgres-"))
        try:
            _unpack(self._folder)
            if os.geteuid() == 0:
                nobody = pwd.getpwnam("nobody")
                os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
            self._initialise()
            (self.port,) = free_ports(1)
            self._process = self._start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        shutil.rmtree(self._folder)

    def create_database(self) -> str:
        """The name of a new, empty database."""
        name = f"airflow_{next(self._numbers)}"
        with self._connect("postgres") as connection:
            connection.execute(f"create database {name}")
        return name

    def url(self, database: str) -> str:
        """For SQLAlchemy."""
        return f"postgresql+psycopg2://{USER}@127.0.0.1:{self.port}/{database}"

    def rows(self, database: str, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._connect(database) as connection:
            return connection.execute(query, values).fetchall()

    def _connect(self, database: str) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=USER, dbname=database, autocommit=True
        )

    def _initialise(self) -> None:
        flags = ["-U", USER, "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
        done = subprocess.run(
            [*self._command("initdb"), *flags],
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _start(self) -> Process:
        settings = [f"-c{name}={value}" for name, value in SETTINGS.items()]
        process = Process(
            "postgres",
            [*self._command("postgres"), *settings, "-p", str(self.port)],
            log=self._folder / "log",
            directory=self._folder,
        )
        # It listens before it lets anybody in.
        process.wait_until(self._lets_in, "logins to be accepted")
        return process

    def _lets_in(self) -> bool:
        try:
            self._connect("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def _command(self, program: str) -> list[str]:
        prefix = [sys.executable, "-c", AS_NOBODY] if os.geteuid() == 0 else []
        return [*prefix, str(self._folder / "bin" / program), "-D", str(self._folder / "data")]


def _unpack(folder: Path) -> None:
    """The jar holds one archive, which holds ``bin``, ``lib`` and ``share``."""
    (jar,) = jar_files(JARS)
    with zipfile.ZipFile(jar) as outer:
        (name,) = (name for name in outer.namelist() if name.endswith(".txz"))
        with outer.open(name) as packed, tarfile.open(fileobj=packed, mode="r:xz") as inner:
            inner.extractall(folder, filter="data")
