"""The text of a job file as plain values, each with its position in a file.

One parse of the YAML gives both values and positions, so that an error can name file, line and
field. A file with ``extends`` is merged over the files it names, field by field; each value keeps
the position it came from. Overrides (``--set a.b=c``) are applied last. What the fields mean is
left to ``job_file``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from rangeland.errors import JobFileError, UsageError
from rangeland.job.yaml_loader import MAX_BYTES, NotYaml, TooLarge, load

FieldPath = tuple[str | int, ...]

EXTENDS = "extends"
MAX_BASES = 20
"""The longest chain of files that extend each other."""
SECRETS = ("password", "key_password", "client_secret", "secret_key", "registry.token")
"""The fields that refer to secrets, by the ends of their paths. What was written there by mistake
is not repeated."""

_FIELD = re.compile(r"[\w-]+")
_FIELDS = re.compile(r"(?:[\w-]+(?:\.[\w-]+)*)?")


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Where a value was written: the file as it was named, and the line, from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class JobText:
    """``values`` as parsed from the file and all that it extends; ``positions`` maps the path of a
    field to where it was written. ``overridden`` holds the paths that ``--set`` or a flag set."""

    name: str
    values: dict[str, Any]
    positions: Mapping[FieldPath, SourcePosition] = field(default_factory=dict)
    overridden: frozenset[FieldPath] = frozenset()

    def position_of(self, path: FieldPath) -> SourcePosition | None:
        """The position of a field, or of the innermost section around it that is in a file."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.positions:
                return self.positions[path[:end]]
        return None

    def line_of(self, path: FieldPath) -> int | None:
        place = self.position_of(path)
        return None if place is None else place.line

    def file_of(self, path: FieldPath) -> str:
        """The file of a field; the job file itself if the field is in none."""
        place = self.position_of(path)
        return self.name if place is None else place.file

    def where(self, path: FieldPath) -> str:
        """``file:line`` for messages, or the flag if the value did not come from a file."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.overridden:
                return f"--set {display_path(path[:end])}"
        if path not in self.positions:
            for inner in sorted(self.overridden):
                if path and inner[: len(path)] == path:
                    return f"--set {display_path(inner)}"
        return str(self.position_of(path) or self.name)


def read_job_text(path: Path) -> JobText:
    """The file with all that it extends. Raises JobFileError when one of them cannot be read,
    is not a YAML mapping, or extends itself."""
    return _read(path, (), {})


def parse_job_text(text: str, name: str) -> JobText:
    """Text that is not in a file; messages call it ``name``."""
    found = _parse(text, name)
    if EXTENDS in found.values:
        _raise_bad_extends(found, "a whole job, since text that is not in a file cannot extend one")
    return found


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
    own = _parse(text, str(path))
    if EXTENDS not in own.values:
        return own
    chain = (*chain, path)
    if len(chain) > MAX_BASES:
        _raise_bad_extends(own, f"{MAX_BASES} files that extend each other at most")
    found = JobText(own.name, {})
    for base in [path.parent / name for name in _extended(own)]:
        if any(base.resolve() == one.resolve() for one in chain):
            circle = " extends ".join(str(one) for one in (*chain, base))
            _raise_bad_extends(own, f"no circle of files, but {circle}")
        found = _merged(found, _read(base, chain, known, f"{own.where((EXTENDS,))}: {EXTENDS}:"))
    return _merged(found, own)


def _extended(text: JobText) -> list[str]:
    given = text.values[EXTENDS]
    names: list[Any] = given if isinstance(given, list) else [given]
    if not names or not all(isinstance(name, str) and name for name in names):
        _raise_bad_extends(text, "a file beside this one, or a list of them")
    return names


def _raise_bad_extends(text: JobText, expected: str) -> NoReturn:
    raise JobFileError(
        f"{text.where((EXTENDS,))}: {EXTENDS}: expected {expected}",
        do="correct the job file",
        file=text.name,
        line=text.line_of((EXTENDS,)),
        field=EXTENDS,
    )


def _merged(base: JobText, over: JobText) -> JobText:
    """Mappings are merged; everything else is replaced by what ``over`` has."""
    values = _copy(base.values)
    replaced: list[FieldPath] = []
    own = {key: value for key, value in over.values.items() if key != EXTENDS}
    _merge(values, own, (), replaced)
    kept = {
        path: place
        for path, place in base.positions.items()
        if not any(path[: len(gone)] == gone for gone in replaced)
    }
    new = {path: place for path, place in over.positions.items() if path[0] != EXTENDS}
    return JobText(over.name, values, kept | new)


def _merge(
    values: dict[Any, Any], over: Mapping[Any, Any], path: FieldPath, replaced: list[FieldPath]
) -> None:
    same = {_path_part(key): key for key in values}
    for key, value in over.items():
        here = (*path, _path_part(key))
        old = same.get(_path_part(key), key)
        if isinstance(value, dict) and isinstance(values.get(old), dict):
            _merge(values[old], value, here, replaced)
            continue
        replaced.append(here)
        values.pop(old, None)
        values[key] = _copy(value)


def _path_part(key: Any) -> Any:
    """A key as part of a path: partition 0 is the same whether it is quoted or not."""
    return int(key) if isinstance(key, str) and key.isdecimal() else key


def _parse(text: str, name: str) -> JobText:
    try:
        values, node = load(text)
    except NotYaml as error:
        line = f":{error.line}" if error.line else ""
        raise JobFileError(
            f"{name}{line} is {'too large' if isinstance(error, TooLarge) else 'not YAML'}",
            why=str(error),
            do="correct the file",
        ) from None
    positions: dict[FieldPath, SourcePosition] = {}
    _note_positions(node, (), name, positions)
    if not isinstance(values, dict):
        raise JobFileError(f"{name} is not a job file", do="write fields such as `job: orders`")
    return JobText(name, values, positions)


def _note_positions(
    node: yaml.Node | None, path: FieldPath, file: str, positions: dict[FieldPath, SourcePosition]
) -> None:
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            here = (*path, _path_part(key_node.value))
            positions[here] = SourcePosition(file, key_node.start_mark.line + 1)
            _note_positions(value_node, here, file, positions)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            positions[(*path, index)] = SourcePosition(file, item.start_mark.line + 1)
            _note_positions(item, (*path, index), file, positions)


def override(text: JobText, assignments: Sequence[str]) -> JobText:
    """The text with each ``a.b=c`` applied; the value is read as YAML.

    Raises UsageError for malformed assignments, JobFileError for a path through a value that is
    not a mapping. Whether such a field exists is not checked here."""
    values = _copy(text.values)
    overridden = set(text.overridden)
    for assignment in assignments:
        path, value = read_assignment(assignment)
        _assign(values, path, value)
        overridden.add(path)
    return JobText(text.name, values, text.positions, frozenset(overridden))


def read_assignment(given: str) -> tuple[FieldPath, Any]:
    """The path and the value of one ``a.b=c``. Raises UsageError, which does not repeat a value."""
    form = "Write it as --set limits.max_records=1000"
    dotted_path, equals, value = given.partition("=")
    path = tuple(dotted_path.split("."))
    if not equals or not all(path):
        begins = tuple(_FIELD.findall(_FIELDS.match(given)[0]))  # type: ignore[index]
        raise UsageError(
            f"--set {display_path((*begins, ''))} is not understood",
            why="expected a field, '=' and its value",
            do=form,
        )
    if path[0] == EXTENDS:
        raise UsageError(
            f"--set {EXTENDS}: only a file can say what it extends",
            do="Write it into the job file",
        )
    try:
        return path, load(value)[0]
    except NotYaml:
        pass  # Neither this error nor the value is repeated: it may be a secret.
    raise UsageError(
        f"--set {display_path(path)}: the value is not YAML",
        do=f"{form}, in quotes within quotes if it contains brackets, '!', '*', '&' or ': '",
    )


def with_value(text: JobText, path: FieldPath, value: Any) -> JobText:
    """The text with one value set, as ``override`` does with a value that is parsed already."""
    values = _copy(text.values)
    _assign(values, path, value)
    return JobText(text.name, values, text.positions, text.overridden | {path})


def _assign(values: dict[str, Any], path: FieldPath, value: Any) -> None:
    place: Any = values
    for end, part in enumerate(path[:-1], 1):
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise JobFileError(
                f"--set {display_path(path)}: {display_path(path[:end])} holds a value, not fields",
                do="name a field of the job file",
            )
    place[path[-1]] = value


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def display_path(path: FieldPath) -> str:
    """``range.from``, for messages. What follows the name of a secret may be that secret, so it
    is left out."""
    parts: list[str] = []
    for part in map(str, path):
        name = _secret_begun(parts, part)
        if not part or (name and (part != name or len(parts) + 1 < len(path))):
            return ".".join([*parts, *filter(None, [name]), "..."])
        parts.append(part)
    return ".".join(parts)


def _secret_begun(section: list[str], part: str) -> str:
    """The name of a secret with which a part of a path begins; empty if there is none."""
    for secret in SECRETS:
        inside, _, name = secret.rpartition(".")
        if part.startswith(name) and (not inside or section[-1:] == [inside]):
            return name
    return ""
