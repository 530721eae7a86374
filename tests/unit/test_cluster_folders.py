"""The folders of clusters that tests start: whose data they hold, and when they are removed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rangeland.testing import clusters, processes
from rangeland.testing.clusters import LocalCluster
from rangeland.testing.processes import Process, remove_directory, temporary_directory
from tests.unit.test_local_processes import eventually

HOLDER = """
import sys, time
from pathlib import Path
from tests.unit.test_cluster_folders import OneFile
cluster = OneFile(Path(sys.argv[1])).start()
print("up", flush=True)
time.sleep(300)
"""


class OneFile(LocalCluster[str]):
    """A cluster whose only process writes nothing; its data is a file for each start."""

    kind = "File"
    versions = ("1",)
    _jars = None  # type: ignore[assignment]

    def __init__(self, directory: Path) -> None:
        super().__init__("1", ["a"], "a", directory)

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def start(self) -> OneFile:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(clusters, "fetch_jars", lambda jars: None)
            return super().start()

    def _start_all(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        self.found = sorted(path.name for path in self.data.iterdir())
        (self.data / "log").write_text("records")
        self._start_together(["a"])

    def _start_one(self, name: str) -> Process:
        return self._run(name, ["sleep", "300"])

    def _wait_for(self, name: str) -> None: ...


def test_a_cluster_begins_without_the_data_of_an_earlier_one(tmp_path: Path) -> None:
    """Whoever started that was killed, perhaps with the whole machine."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "old log").write_text("records")
    (tmp_path / "notes.txt").write_text("of the user")
    with OneFile(tmp_path) as cluster:
        assert cluster.found == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["logs", "notes.txt"]


def test_the_data_in_a_given_folder_is_removed_after_a_kill(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{root / 'lib'}{os.pathsep}{root}"},
        cwd=root,
    )
    assert holder.stdout is not None
    with holder, holder.stdout as printed:
        assert printed.readline() == b"up\n"
        assert (tmp_path / "data" / "log").exists()
        holder.send_signal(signal.SIGKILL)
    assert eventually(lambda: not (tmp_path / "data").exists())
    assert (tmp_path / "logs").exists()


def test_a_folder_that_could_not_be_removed_is_removed_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = temporary_directory("rangeland-busy-")
    with monkeypatch.context() as busy:
        busy.setattr(shutil, "rmtree", lambda path, ignore_errors: None)
        remove_directory(path)
    assert (os.getpid(), path) in processes._directories
    remove_directory(path)
    assert (os.getpid(), path) not in processes._directories
    assert not path.exists()
