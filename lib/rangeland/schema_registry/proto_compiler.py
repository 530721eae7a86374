"""Compiles the text of ``.proto`` files to a descriptor set, with Google's compiler in a separate
process.

Only the driver needs it, and only for schemas given as text; tasks get the descriptors. The
compiler comes with the package ``grpcio-tools`` (the extra ``typed``). It reads copies in a
temporary folder, so that an import cannot name anything else on this machine.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from rangeland.decode.payload.payload_decoder import PayloadSchemaError
from rangeland.errors import MissingRequirement

TIMEOUT_S: Final = 60
MAX_TEXT_BYTES: Final = 8 << 20
_OUTPUT = "descriptors"
_MISTAKE = re.compile(r"[^:]+\.proto:(?!.*\bwarning: )")


def compile_proto(main: str, files: Mapping[str, str]) -> bytes:
    """The descriptor set of a file and all its imports, for ``ProtobufFormat``.

    ``files``: texts, by the path that an import uses; ``main``: the path of the main file. Google's
    own well-known types may be left out. Raises PayloadSchemaError for texts that cannot be
    compiled, and MissingRequirement if there is no compiler.
    """
    if importlib.util.find_spec("grpc_tools") is None:
        raise MissingRequirement(
            f"{main} cannot be compiled",
            why="the package grpcio-tools is not installed on the driver",
            do="install rangeland[typed], or name a descriptor set (protoc --include_imports "
            "--descriptor_set_out=FILE.desc) as the schema",
            package="grpcio-tools",
        )
    if sum(len(text) for text in files.values()) > MAX_TEXT_BYTES:
        raise PayloadSchemaError(f"its files are larger than {MAX_TEXT_BYTES} bytes together")
    with tempfile.TemporaryDirectory(prefix="rangeland-proto-") as folder:
        root = Path(folder) / "files"
        for name, text in files.items():
            path = root / _require_safe_path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        output = Path(folder) / _OUTPUT
        _run(root, _require_safe_path(main), output)
        return output.read_bytes()


def _require_safe_path(name: str) -> PurePosixPath:
    """A path, provided that it stays within the folder."""
    path = PurePosixPath(name)
    leads_out = path.is_absolute() or ".." in path.parts or not path.parts
    if leads_out or name.startswith("-") or any(sign in name for sign in "\0\\:"):
        raise PayloadSchemaError(f"{name!r} is not a path that an import can name")
    return path


def _run(root: Path, main: PurePosixPath, output: Path) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", "--include_imports"]
    command += [f"--descriptor_set_out={output}", str(main)]
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=root
        )
    except subprocess.TimeoutExpired:
        raise PayloadSchemaError(f"compiling it took longer than {TIMEOUT_S} seconds") from None
    if process.returncode == 0:
        return
    lines = [line for line in process.stderr.splitlines() if _MISTAKE.match(line)]
    first = lines[0] if lines else f"the compiler ended with {process.returncode}"
    raise PayloadSchemaError(first.replace(f"{root}/", ""))
