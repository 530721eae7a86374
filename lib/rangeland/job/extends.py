"""Reads a job file with the files that it ``extends``, and merges them field by field."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rangeland.errors import JobFileError
from rangeland.job.job_text import (
    EXTENDS,
    FieldPath,
    JobText,
    parse_text,
    path_part,
    raise_bad_extends,
    separate_copy,
)
from rangeland.job.yaml_loader import MAX_BYTES

MAX_BASES = 20
"""The longest chain of files that extend each other."""


def read_job_text(path: Path) -> JobText:
    """The file with all that it extends. Raises JobFileError when one of them cannot be read,
    is not a YAML mapping, or extends itself."""
    return _read(path, (), {})


def _read(
    path: Path,
    chain: tuple[Path, ...],
    known: dict[Path, JobText],
    asked: str = "the job file",
) -> JobText:
    """``chain`` are the files that led here, each extending the next; ``asked`` says where the
    last of them did. ``known`` are the files read so far: one that many extend is read once."""
    if (real := path.resolve()) not in known:
        known[real] = _read_file(path, chain, known, asked)
    return known[real]


def _read_file(
    path: Path, chain: tuple[Path, ...], known: dict[Path, JobText], asked: str
) -> JobText:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise JobFileError(
            f"{asked} {path} cannot be read", why=why or str(error), do="name a YAML file"
        ) from error
    own = parse_text(text, str(path))
    if EXTENDS not in own.values:
        return own
    chain = (*chain, path)
    if len(chain) > MAX_BASES:
        raise_bad_extends(own, f"{MAX_BASES} files that extend each other at most")
    found = JobText(own.name, {})
    for base in [path.parent / name for name in _names_of_bases(own)]:
        if any(base.resolve() == one.resolve() for one in chain):
            circle = " extends ".join(str(one) for one in (*chain, base))
            raise_bad_extends(own, f"no circle of files, but {circle}")
        found = _overlay(found, _read(base, chain, known, f"{own.where((EXTENDS,))}: {EXTENDS}:"))
    return _overlay(found, own)


def _names_of_bases(text: JobText) -> list[str]:
    given = text.values[EXTENDS]
    names: list[Any] = given if isinstance(given, list) else [given]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise_bad_extends(text, "a file beside this one, or a list of them")
    return names


def _overlay(base: JobText, over: JobText) -> JobText:
    """Mappings are merged; everything else is replaced by what ``over`` has."""
    values = separate_copy(base.values)
    replaced: list[FieldPath] = []
    own = {key: value for key, value in over.values.items() if key != EXTENDS}
    _merge_values(values, own, (), replaced)
    kept = {
        path: place
        for path, place in base.positions.items()
        if not any(path[: len(gone)] == gone for gone in replaced)
    }
    new = {path: place for path, place in over.positions.items() if path[0] != EXTENDS}
    return JobText(over.name, values, kept | new)


def _merge_values(
    values: dict[Any, Any], over: Mapping[Any, Any], path: FieldPath, replaced: list[FieldPath]
) -> None:
    same = {path_part(key): key for key in values}
    for key, value in over.items():
        here = (*path, path_part(key))
        old = same.get(path_part(key), key)
        if isinstance(value, dict) and isinstance(values.get(old), dict):
            _merge_values(values[old], value, here, replaced)
            continue
        replaced.append(here)
        values.pop(old, None)
        values[key] = separate_copy(value)
