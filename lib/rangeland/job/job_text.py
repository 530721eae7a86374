"""The text of a job file as plain values, each with its position in a file.

One parse of the YAML gives both values and positions, so that an error can name file, line and
field. ``extends`` merges the text of several files; each value keeps the position it came from.
Overrides (``--set a.b=c``) are applied last. The meaning of the fields is left to ``job_file``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from rangeland.errors import JobFileError, UsageError
from rangeland.job.yaml_loader import NotYaml, TooLarge, load

FieldPath = tuple[str | int, ...]

EXTENDS = "extends"
SECRETS = ("password", "key_password", "client_secret", "secret_key", "registry.token")
"""The fields that refer to secrets, by the ends of their paths. A value written there by mistake
is not repeated."""

_FIELD = re.compile(r"[\w-]+")
_FIELDS = re.compile(r"(?:[\w-]+(?:\.[\w-]+)*)?")


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """The place of a value: the file, by the name that was given, and the line, counted from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class JobText:
    """A job file as plain values. ``values`` are parsed from the file and all that it extends;
    ``positions`` maps the path of a field to where it was written. ``overridden`` holds the paths
    that ``--set`` or a flag set."""

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
        position = self.position_of(path)
        return None if position is None else position.line

    def file_of(self, path: FieldPath) -> str:
        """The file of a field; the job file itself if the field is in none."""
        position = self.position_of(path)
        return self.name if position is None else position.file

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


def parse_job_text(text: str, name: str) -> JobText:
    """Text that is not in a file; messages call it ``name``."""
    parsed = parse_text(text, name)
    if EXTENDS in parsed.values:
        raise_bad_extends(parsed, "a whole job: text that is not in a file cannot extend one")
    return parsed


def raise_bad_extends(text: JobText, expected: str) -> NoReturn:
    raise JobFileError(
        f"{text.where((EXTENDS,))}: {EXTENDS}: expected {expected}",
        do="correct the job file",
        file=text.name,
        line=text.line_of((EXTENDS,)),
        field=EXTENDS,
    )


def path_part(key: Any) -> Any:
    """A key as part of a path: partition 0 is the same whether it is quoted or not."""
    return int(key) if isinstance(key, str) and key.isdecimal() else key


def parse_text(text: str, name: str) -> JobText:
    """One text, without the files it extends; messages call it ``name``. Raises JobFileError."""
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
    return JobText(name, separate_copy(values), positions)


def _note_positions(
    node: yaml.Node | None, path: FieldPath, file: str, positions: dict[FieldPath, SourcePosition]
) -> None:
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            inner = (*path, path_part(key_node.value))
            positions[inner] = SourcePosition(file, key_node.start_mark.line + 1)
            _note_positions(value_node, inner, file, positions)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            positions[(*path, index)] = SourcePosition(file, item.start_mark.line + 1)
            _note_positions(item, (*path, index), file, positions)


def override(text: JobText, assignments: Sequence[str]) -> JobText:
    """The text with each ``a.b=c`` applied; the value is read as YAML.

    Raises UsageError for malformed assignments, JobFileError for a path through a value that is
    not a mapping. Whether such a field exists is not checked here."""
    for assignment in assignments:
        text = with_value(text, *read_assignment(assignment))
    return text


def read_assignment(assignment: str) -> tuple[FieldPath, Any]:
    """The path and the value of one ``a.b=c``. Raises UsageError, which does not repeat a value."""
    form = "write it as --set limits.max_records=1000"
    dotted_path, equals, value = assignment.partition("=")
    path = tuple(dotted_path.split("."))
    if not equals or not all(path):
        begins = tuple(_FIELD.findall(_FIELDS.match(assignment)[0]))  # type: ignore[index]
        raise UsageError(
            f"--set {display_path((*begins, ''))} is not understood",
            why="expected a field, '=' and its value",
            do=form,
        )
    if path[0] == EXTENDS:
        raise UsageError(
            f"--set {EXTENDS}: only a file can extend others",
            do="write it in the job file",
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
    values = separate_copy(text.values)
    _assign(values, path, value)
    return JobText(text.name, values, text.positions, text.overridden | {path})


def _assign(values: dict[str, Any], path: FieldPath, value: Any) -> None:
    section: Any = values
    for end, part in enumerate(path[:-1], 1):
        section = section.setdefault(part, {})
        if not isinstance(section, dict):
            raise JobFileError(
                f"--set {display_path(path)}: {display_path(path[:end])} holds a value, not fields",
                do="name a field of the job file",
            )
    section[path[-1]] = value


def separate_copy(value: Any) -> Any:
    """A deep copy in which values that YAML's aliases shared are separate."""
    if isinstance(value, dict):
        return {key: separate_copy(item) for key, item in value.items()}
    return [separate_copy(item) for item in value] if isinstance(value, list) else value


def display_path(path: FieldPath) -> str:
    """``range.from``, for messages. Anything after the name of a secret may be that secret, so it
    is left out."""
    parts: list[str] = []
    for part in map(str, path):
        name = _secret_begun(parts, part)
        if not part or (name and (part != name or len(parts) + 1 < len(path))):
            return ".".join([*parts, *filter(None, [name]), "..."])
        parts.append(part)
    return ".".join(parts)


def _secret_begun(section: list[str], part: str) -> str:
    """The name of the secret field with which this part of a path begins; empty if there is
    none."""
    for secret in SECRETS:
        inside, _, name = secret.rpartition(".")
        if part.startswith(name) and (not inside or section[-1:] == [inside]):
            return name
    return ""
