"""The demo keeps what it promises, on a real broker, with a real table."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rangeland.testing.processes import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.brokers, pytest.mark.slow]


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rangeland", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def left_behind() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("rangeland-*"))


def test_the_demo_keeps_its_promises_and_leaves_nothing_behind() -> None:
    before = left_behind()
    done = demo("--records", "5000", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    summary = json.loads(done.stdout)
    assert summary["ok"] is True
    assert len(summary["promises"]) >= 20
    assert all(promise["held"] for promise in summary["promises"])
    assert "landed 5,000 records" in done.stderr
    assert any("get_json_object" in promise["claim"] for promise in summary["promises"])
    assert not {path for path in left_behind() - before if "demo" in path.name}


def test_what_is_kept_can_be_looked_at() -> None:
    done = demo("--records", "1000", "--keep", "--json")
    assert done.returncode == 0, done.stderr
    folder = Path(json.loads(done.stdout)["folder"])
    try:
        assert "demo-orders" in (folder / "orders.yaml").read_text()
        for table in ("orders", "orders_typed"):
            assert list((folder / "lake" / table / "_delta_log").glob("*.json"))
        assert "user STRING" in (folder / "orders.ddl").read_text()
    finally:
        # Its JVM may still be removing files of its own there.
        shutil.rmtree(folder, ignore_errors=True)
