"""Compiles the decode kernel when the package is built: hatch's custom build hook.

One C file becomes one shared library beside its loader, named for its platform, so that
folders and zips can carry several. It uses ``$CC`` or ``cc`` if that can link a shared
library; otherwise it asks the installer for the ``ziglang`` package, which brings a whole
compiler, and uses that. No ``-march=native``: executors may have other processors.

Rules: nothing of the package is imported, and the package never imports this. Run as a
script it builds the library in place, for a checkout that is not installed.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("lib/rangeland/decode/native")
FLAGS = ["-std=c11", "-O3", "-fvisibility=hidden", "-Wall", "-Wextra", "-shared"]


class KernelBuildHook(BuildHookInterface[Any]):
    """Puts the library beside its source, and that one file into the wheel."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        return [] if system_compiler() else ["ziglang>=0.13"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root) / FOLDER
        library = folder / library_name()
        compile_kernel(folder / "kernel.c", library)
        build_data["artifacts"].append(f"/{(FOLDER / library.name).as_posix()}")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag()}"


def library_name() -> str:
    """As ``native_library`` looks for it, e.g. ``_kernel-linux-x86_64.so``."""
    suffix = {"win32": "dll", "darwin": "dylib"}.get(sys.platform, "so")
    return f"_kernel-{sys.platform}-{platform.machine().lower()}.{suffix}"


def platform_tag() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def compile_kernel(source: Path, target: Path) -> None:
    """Compiles to a new file and moves it into place, so that a process that has the old
    library loaded keeps it."""
    compiler = system_compiler() or zig_compiler()
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".kernel-") as folder:
        built = Path(folder) / target.name
        _run([*compiler, *FLAGS, *_link_flags(), "-o", str(built), str(source)])
        os.replace(built, target)


@cache
def system_compiler() -> tuple[str, ...]:
    """``$CC`` or ``cc`` as a command, or nothing if it cannot link a shared library."""
    command = tuple(shlex.split(os.environ.get("CC", ""))) or ("cc",)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text("#include <stdint.h>\nint32_t probe(void) { return 1; }\n")
        target = str(Path(folder) / "probe.out")
        try:
            _run([*command, *FLAGS, *_link_flags(), "-o", target, str(source)])
        except RuntimeError:
            return ()
    return command


def zig_compiler() -> tuple[str, ...]:
    if importlib.util.find_spec("ziglang") is None:
        raise RuntimeError(
            "The decode kernel needs a C compiler: install cc, set CC, or pip install ziglang."
        )
    return (sys.executable, "-m", "ziglang", "cc")


def _link_flags() -> list[str]:
    """On Linux the library names no libc: what it needs (memcpy) is in every process."""
    return ["-fPIC", "-nostdlib", "-s"] if sys.platform == "linux" else []


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise RuntimeError(f"{shlex.join(command)}: {error}") from error
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)} failed:\n{done.stderr}")


if __name__ == "__main__":
    here = Path(__file__).resolve().parent.parent / FOLDER
    compile_kernel(here / "kernel.c", here / library_name())
    print(here / library_name())
