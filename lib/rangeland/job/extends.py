"""Reads a job file together with the files that it ``extends``, and merges them field by field."""

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
"""The longest chain of files that extend one another."""


def read_job_text(path: Path) -> JobText:
    """The file, merged with everything that it extends. Raises JobFileError if one of the files
    cannot be read, is not a YAML mapping, or extends itself."""
    return _read(path, (), {})


def _read(
    path: Path,
    chain: tuple[Path, ...],
    texts: dict[Path, JobText],
    referrer: str = "the job file",
) -> JobText:
    """The text of a file merged with everything that it extends. ``chain`` lists the files that led
    here, each extending the next; ``referrer`` is the place where the last one names this file.
    ``texts`` holds the files read so far, so that a file that many others extend is read only
    once."""
    if (real := path.resolve()) not in texts:
        texts[real] = _read_file(path, chain, texts, referrer)
    return texts[real]


def _read_file(
    path: Path, chain: tuple[Path, ...], texts: dict[Path, JobText], referrer: str
) -> JobText:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise JobFileError(
            f"{referrer} {path} cannot be read", why=why or str(error), do="name a YAML file"
        ) from error
    own = parse_text(text, str(path))
    if EXTENDS not in own.values:
        return own
    chain = (*chain, path)
    if len(chain) > MAX_BASES:
        raise_bad_extends(own, f"a chain of at most {MAX_BASES} files")
    merged = JobText(own.name, {})
    for base in [path.parent / name for name in _names_of_bases(own)]:
        if any(base.resolve() == link.resolve() for link in chain):
            circle = " extends ".join(str(link) for link in (*chain, base))
            raise_bad_extends(
                own, f"files that do not extend one another in a circle, but {circle}"
            )
        merged = _overlay(merged, _read(base, chain, texts, f"{own.where((EXTENDS,))}: {EXTENDS}:"))
    return _overlay(merged, own)


def _names_of_bases(text: JobText) -> list[str]:
    value = text.values[EXTENDS]
    names: list[Any] = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise_bad_extends(text, "a file beside this one, or a list of them")
    return names


def _overlay(base: JobText, over: JobText) -> JobText:
    """Merges mappings; anything else in ``over`` replaces the value in ``base``."""
    values = separate_copy(base.values)
    overridden: list[FieldPath] = []
    own = {key: value for key, value in over.values.items() if key != EXTENDS}
    _merge_values(values, own, (), overridden)
    positions = {
        path: position
        for path, position in base.positions.items()
        if not any(path[: len(prefix)] == prefix for prefix in overridden)
    }
    new = {path: position for path, position in over.positions.items() if path[0] != EXTENDS}
    return JobText(over.name, values, positions | new)


def _merge_values(
    values: dict[Any, Any], over: Mapping[Any, Any], path: FieldPath, overridden: list[FieldPath]
) -> None:
    keys = {path_part(key): key for key in values}
    for key, value in over.items():
        inner = (*path, path_part(key))
        old = keys.get(path_part(key), key)
        if isinstance(value, dict) and isinstance(values.get(old), dict):
            _merge_values(values[old], value, inner, overridden)
            continue
        overridden.append(inner)
        values.pop(old, None)
        values[key] = separate_copy(value)
