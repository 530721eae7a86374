"""The job files that a command line names, one by one or as folders."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from rangeland.errors import UsageError

JOB_FILES = (".yaml", ".yml")


def job_files(paths: Iterable[Path]) -> list[Path]:
    """The job files among these; of a folder, all that it has itself, in the order of their names.
    Raises UsageError for a folder without any, and for what does not exist: a command line that
    is mistyped does nothing."""
    found: list[Path] = []
    for place, path in enumerate(paths, 1):
        if path.is_dir():
            found += files_in(path, JOB_FILES, "job files")
        elif path.exists():
            found.append(path)
        else:
            # `--set source.security.sasl.password hunter2` leaves a password over.
            raise UsageError(
                f"argument {place}, not repeated here, is neither a file nor a folder",
                do="name job files, or folders of them; write --set as --set A.B=C",
            )
    return list(dict.fromkeys(found))


def files_in(folder: Path, suffixes: Collection[str], what: str) -> list[Path]:
    """The files with one of these endings in a folder itself. Raises UsageError if it has none."""
    inside = sorted(p for p in folder.iterdir() if p.suffix in suffixes and p.is_file())
    if not inside:
        endings = " or ".join(f"*{suffix}" for suffix in suffixes)
        raise UsageError(f"the folder {folder} has no {what}", do=f"name a folder with {endings}")
    return inside
