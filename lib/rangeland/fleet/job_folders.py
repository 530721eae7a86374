"""Finds the job files that a command line names, one by one or as folders."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from rangeland.errors import UsageError

JOB_FILES = (".yaml", ".yml")


def job_files(paths: Iterable[Path]) -> list[Path]:
    """These job files; for a folder, all files directly inside it, sorted by name. Raises
    UsageError for a folder without any, and for a path that does not exist, so that a mistyped
    command line does nothing."""
    files: list[Path] = []
    for position, path in enumerate(paths, 1):
        if path.is_dir():
            files += files_in(path, JOB_FILES, "job files")
        elif path.exists():
            files.append(path)
        else:
            # With `--set source.security.sasl.password hunter2` it is a password.
            raise UsageError(
                f"argument {position}, not repeated here, is neither a file nor a folder",
                do="name job files, or folders of them; write --set as --set A.B=C",
            )
    return list(dict.fromkeys(files))


def files_in(folder: Path, suffixes: Collection[str], noun: str) -> list[Path]:
    """The files with one of these endings directly inside a folder. Raises UsageError if there are
    none."""
    inside = sorted(p for p in folder.iterdir() if p.suffix in suffixes and p.is_file())
    if not inside:
        endings = " or ".join(f"*{suffix}" for suffix in suffixes)
        raise UsageError(f"the folder {folder} has no {noun}", do=f"name a folder with {endings}")
    return inside
