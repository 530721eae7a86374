"""Windows is refused at once, with a clear word."""

from __future__ import annotations

import subprocess
import sys


def test_windows_is_refused_at_once_with_a_clear_word() -> None:
    code = "import sys; sys.platform = 'win32'; import rangeland"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Rangeland does not run on Windows" in done.stderr
    assert "WSL" in done.stderr
