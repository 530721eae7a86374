"""Job file text into plain values that remember where they stood.

YAML is read twice from one parse: once as values, once as places, so that a mistake can
name file, line and field. A file that says ``extends`` is laid over the files it names,
field by field, each value keeping the place it came from. Overrides (``--set a.b=c``) are
laid over all of them. Nothing here knows what a job means; ``job`` does.
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

Path_ = tuple[str | int, ...]

EXTENDS = "extends"
MAX_BASES = 20
"""Files that extend each other in a row."""
SECRETS = frozenset(("password", "key_password", "client_secret", "secret_key"))
"""The fields that refer to secrets. What is written there by mistake is not repeated."""

_FIELD = re.compile(r"[\w-]+")
_FIELDS = re.compile(r"(?:[\w-]+(?:\.[\w-]+)*)?")


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Where a value stands: the file as it was named, and the line, from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class JobText:
    """``values`` as YAML gave them, with all that the file extends; ``places`` maps a field's
    path to where it stands. ``overridden`` holds the paths that ``--set`` or a flag put there."""

    name: str
    values: dict[str, Any]
    places: Mapping[Path_, SourcePosition] = field(default_factory=dict)
    overridden: frozenset[Path_] = frozenset()

    def place_of(self, path: Path_) -> SourcePosition | None:
        """The place of a field, or of the nearest thing around it that is in a file."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.places:
                return self.places[path[:end]]
        return None

    def line_of(self, path: Path_) -> int | None:
        place = self.place_of(path)
        return None if place is None else place.line

    def file_of(self, path: Path_) -> str:
        """The file of a field; the one that was asked for where the field is in none."""
        place = self.place_of(path)
        return self.name if place is None else place.file

    def where(self, path: Path_) -> str:
        """``file:line`` for messages, or the flag where the value did not come from a file."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.overridden:
                return f"--set {shown(path[:end])}"
        if path not in self.places:
            for inner in sorted(self.overridden):
                if path and inner[: len(path)] == path:
                    return f"--set {shown(inner)}"
        return str(self.place_of(path) or self.name)


def read_job_text(path: Path) -> JobText:
    """The file with all that it extends. Raises JobFileError when one of them cannot be read,
    is not a YAML mapping, or extends itself."""
    return _read(path, (), {})


def parse_job_text(text: str, name: str) -> JobText:
    """A text that is in no file; ``name`` stands for one in messages."""
    found = _parse(text, name)
    if EXTENDS in found.values:
        _refuse_extends(found, "a text that is in no file cannot extend one")
    return found


def _read(
    path: Path,
    chain: tuple[Path, ...],
    known: dict[Path, JobText],
    asked: str = "the job file",
) -> JobText:
    """``chain`` are the files that have led here, each extending the next; ``asked`` says
    where the last of them did. ``known`` are those that were read already: a file that many
    extend is read once."""
    if (real := path.resolve()) not in known:
        known[real] = _read_anew(path, chain, known, asked)
    return known[real]


def _read_anew(
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
        _refuse_extends(own, f"{MAX_BASES} files that extend each other at most")
    found = JobText(own.name, {})
    for base in [path.parent / name for name in _extended(own)]:
        if any(base.resolve() == one.resolve() for one in chain):
            circle = " extends ".join(str(one) for one in (*chain, base))
            _refuse_extends(own, f"no circle of files, but {circle}")
        found = _laid_over(found, _read(base, chain, known, f"{own.where((EXTENDS,))}: {EXTENDS}:"))
    return _laid_over(found, own)


def _extended(text: JobText) -> list[str]:
    given = text.values[EXTENDS]
    names: list[Any] = given if isinstance(given, list) else [given]
    if not names or not all(isinstance(name, str) and name for name in names):
        _refuse_extends(text, "a file beside this one, or a list of them")
    return names


def _refuse_extends(text: JobText, expected: str) -> NoReturn:
    raise JobFileError(
        f"{text.where((EXTENDS,))}: {EXTENDS}: expected {expected}",
        do="correct the job file",
        file=text.name,
        line=text.line_of((EXTENDS,)),
        field=EXTENDS,
    )


def _laid_over(base: JobText, over: JobText) -> JobText:
    """Mappings are merged, all else is replaced by what ``over`` has."""
    values = _copy(base.values)
    replaced: list[Path_] = []
    own = {key: value for key, value in over.values.items() if key != EXTENDS}
    _merge(values, own, (), replaced)
    kept = {
        path: place
        for path, place in base.places.items()
        if not any(path[: len(gone)] == gone for gone in replaced)
    }
    new = {path: place for path, place in over.places.items() if path[0] != EXTENDS}
    return JobText(over.name, values, kept | new)


def _merge(
    values: dict[Any, Any], over: Mapping[Any, Any], path: Path_, replaced: list[Path_]
) -> None:
    same = {_step(key): key for key in values}
    for key, value in over.items():
        here = (*path, _step(key))
        old = same.get(_step(key), key)
        if isinstance(value, dict) and isinstance(values.get(old), dict):
            _merge(values[old], value, here, replaced)
            continue
        replaced.append(here)
        values.pop(old, None)
        values[key] = _copy(value)


def _step(key: Any) -> Any:
    """A key as a path has it: partition 0 is the same whether it is quoted or not."""
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
    places: dict[Path_, SourcePosition] = {}
    _note_places(node, (), name, places)
    if not isinstance(values, dict):
        raise JobFileError(f"{name} is not a job file", do="write fields such as `job: orders`")
    return JobText(name, values, places)


def _note_places(
    node: yaml.Node | None, path: Path_, file: str, places: dict[Path_, SourcePosition]
) -> None:
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            here = (*path, _step(key_node.value))
            places[here] = SourcePosition(file, key_node.start_mark.line + 1)
            _note_places(value_node, here, file, places)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            places[(*path, index)] = SourcePosition(file, item.start_mark.line + 1)
            _note_places(item, (*path, index), file, places)


def override(text: JobText, assignments: Sequence[str]) -> JobText:
    """The text with ``a.b=c`` laid over it; the value is read as YAML.

    Raises UsageError for what is no such assignment, JobFileError for one through a value that
    is no mapping. Whether there is such a field is not known here."""
    values = _copy(text.values)
    overridden = set(text.overridden)
    for assignment in assignments:
        path, value = _assignment(assignment)
        _assign(values, path, value)
        overridden.add(path)
    return JobText(text.name, values, text.places, frozenset(overridden))


def _assignment(given: str) -> tuple[Path_, Any]:
    form = "Write it as --set limits.max_records=1000"
    dotted_path, equals, value = given.partition("=")
    path = tuple(dotted_path.split("."))
    if not equals or not all(path):
        begins = tuple(_FIELD.findall(_FIELDS.match(given)[0]))  # type: ignore[index]
        raise UsageError(
            f"--set {shown((*begins, ''))} is not understood",
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
        pass  # not repeated, as the value is not: it may be a secret
    raise UsageError(
        f"--set {shown(path)}: the value is not YAML",
        do=f"{form}, in quotes within quotes where it holds brackets, '!', '*', '&' or ': '",
    )


def put(text: JobText, path: Path_, value: Any) -> JobText:
    """The text with one value in place, as ``override`` does for a parsed value."""
    values = _copy(text.values)
    _assign(values, path, value)
    return JobText(text.name, values, text.places, text.overridden | {path})


def _assign(values: dict[str, Any], path: Path_, value: Any) -> None:
    place: Any = values
    for end, part in enumerate(path[:-1], 1):
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise JobFileError(
                f"--set {shown(path)}: {shown(path[:end])} holds a value and no fields",
                do="name a field of the job file",
            )
    place[path[-1]] = value


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def dotted(path: Path_) -> str:
    """``('range', 'from')`` as ``range.from``."""
    return ".".join(str(part) for part in path)


def shown(path: Path_) -> str:
    """As ``dotted``, for errors: what stands after the name of a secret may be that secret."""
    parts: list[str] = []
    for part in map(str, path):
        name = next((name for name in SECRETS if part.startswith(name)), "")
        if not part or (name and (part != name or len(parts) + 1 < len(path))):
            return ".".join([*parts, *filter(None, [name]), "..."])
        parts.append(part)
    return ".".join(parts)
