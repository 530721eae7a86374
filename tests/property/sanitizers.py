"""Tests of the compiled kernel once more, with the sanitizers of the compiler looking on.

The library is built with the address and undefined-behaviour sanitizers and the tests of a
file run again in a process that has their runtimes; any report ends that process with an
error. Needs gcc.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from rangeland.decode.native import native_library

VARIABLE = "RANGELAND_SANITIZED_KERNEL"
FLAGS = "-std=c11 -O1 -g -fPIC -shared -fsanitize=address,undefined -fno-sanitize-recover=all"


def kernel_library() -> ctypes.CDLL:
    """The library under test: the package's, or the one built for this process."""
    path = os.environ.get(VARIABLE)
    return native_library._load(Path(path)) if path else native_library.load_library()


def run_under_sanitizers(file: str, folder: Path) -> None:
    """The tests of ``file`` that are not slow; ``folder`` takes the library."""
    source = Path(native_library.__file__).with_name("kernel.c")
    built = folder / "kernel-sanitized.so"
    subprocess.run(["gcc", *FLAGS.split(), "-o", str(built), str(source)], check=True)
    runtimes = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = os.environ | {
        VARIABLE: str(built),
        "LD_PRELOAD": " ".join(runtimes),
        "ASAN_OPTIONS": "detect_leaks=0",
        "ARROW_DEFAULT_MEMORY_POOL": "system",  # so that every buffer has its red zones
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-s", file, "-m", "not slow"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout
