"""What a demo that does not come to its end says of what it leaves."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest

from rangeland.cli.command_output import CommandOutput
from rangeland.errors import Unreachable
from rangeland.testing import demo


class NoCluster:
    closed = False

    def close(self) -> None:
        self.closed = True


def show_until(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: BaseException, *, keep: bool
) -> CommandOutput:
    """A demo that ends with this once its folder has a file."""

    def begin(story: object, output: object, cluster: object, folder: Path, records: int) -> None:
        (folder / "orders.yaml").write_text("job: demo-orders\n")
        raise end

    cluster = NoCluster()
    for name in ("find_java", "library"):
        monkeypatch.setattr(demo, name, lambda: None)
    monkeypatch.setattr(demo, "KafkaCluster", lambda version: cluster)
    monkeypatch.setattr(demo, "_tell_story", begin)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    output = CommandOutput(["demo"], io.StringIO())
    with pytest.raises(type(end)):
        demo.show(output, 1_000, keep)
    assert cluster.closed
    return output


def kept_in(text: str) -> Path:
    (path,) = re.findall(r"\S*rangeland-demo-\w+", text)
    return Path(path)


def test_an_interrupted_demo_names_the_folder_that_it_keeps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    output = show_until(monkeypatch, tmp_path, KeyboardInterrupt(), keep=True)
    said: Any = output.when_interrupted
    assert "removed" not in said.message
    assert (kept_in(said.message) / "orders.yaml").exists()


def test_an_interrupted_demo_says_that_its_folder_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    output = show_until(monkeypatch, tmp_path, KeyboardInterrupt(), keep=False)
    said: Any = output.when_interrupted
    assert "its folder removed" in said.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keep", [False, True])
def test_a_demo_that_fails_names_the_folder_that_it_keeps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keep: bool
) -> None:
    output = show_until(monkeypatch, tmp_path, Unreachable("no broker"), keep=keep)
    text = "".join(output.stdout.getvalue().split("\n"))  # type: ignore[attr-defined]
    if keep:
        assert (kept_in(text) / "orders.yaml").exists()
    else:
        assert "kept" not in text
        assert list(tmp_path.iterdir()) == []
