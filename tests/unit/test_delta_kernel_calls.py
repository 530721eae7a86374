"""What a call into Delta Kernel leaves behind if it is interrupted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rangeland.delta.java_bridge.java_folder import folder_for_java

PREFIX = "rangeland-test-"

INTERRUPTED = f"""
import pathlib
from rangeland.delta.java_bridge.java_folder import folder_for_java
try:
    with folder_for_java("{PREFIX}") as folder:
        raise KeyboardInterrupt
except KeyboardInterrupt:
    pass
assert not pathlib.Path(folder).exists()
pathlib.Path(folder).mkdir()
pathlib.Path(folder, "files.parquet").touch()
print(folder)
"""


def test_a_folder_is_removed_with_what_is_in_it() -> None:
    with folder_for_java(PREFIX) as folder:
        Path(folder, "files.parquet").touch()
    assert not Path(folder).exists()


def test_a_folder_is_removed_whatever_is_raised() -> None:
    with pytest.raises(RuntimeError), folder_for_java(PREFIX) as folder:
        raise RuntimeError
    assert not Path(folder).exists()


def test_a_folder_that_java_makes_again_after_an_interruption_is_removed_at_the_end() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], check=True, capture_output=True, text=True
    )
    assert PREFIX in ended.stdout
    assert not Path(ended.stdout.strip()).exists()
