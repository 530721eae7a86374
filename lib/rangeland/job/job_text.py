"""The text of a job file as plain values, each with its position in a file.

One parse of the YAML gives both values and positions, so that an error can name the file, line and
field. ``extends`` merges the text of several files; each value keeps the position that it came
from. Overrides (``--set a.b=c``) are applied last. The meaning of the fields is left to
``job_file``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import yaml

from rangeland.errors import JobFileError, UsageError
from rangeland.job.yaml_loader import NotLoaded, load, misread_number

FieldPath = tuple[str | int, ...]

EXTENDS = "extends"
SECRETS = ("password", "key_password", "client_secret", "secret_key", "registry.token")
"""The fields that refer to secrets, by the ends of their paths. A value written there by mistake is
never repeated."""
SECTIONS_WITH_SECRETS = (("source", "security"), ("decode", "registry"))
NOT_SHOWN = "(not shown)"

_FIELD = re.compile(r"[\w-]+")
_FIELDS = re.compile(r"(?:[\w-]+(?:\.[\w-]+)*)?")


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """The origin of a value: the file, under the name that was given, and the line, counted from
    1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class JobText:
    """A job file as plain values. ``values`` are parsed from the file and everything that it
    extends; ``positions`` maps the path of each field to where it was written. ``overridden`` maps
    each path that an option has set to that option. ``topic``: the topic that the job was made for,
    if the file has a table for each topic."""

    name: str
    values: dict[str, Any]
    positions: Mapping[FieldPath, SourcePosition] = field(default_factory=dict)
    overridden: Mapping[FieldPath, str] = field(default_factory=dict)
    topic: str = ""

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
        """The file of a field; the job file itself if no file contains the field."""
        position = self.position_of(path)
        return self.name if position is None else position.file

    def where(self, path: FieldPath) -> str:
        """``file:line`` for messages, or the option if the value did not come from a file."""
        return self.option_of(path) or str(self.position_of(path) or self.name)

    def option_of(self, path: FieldPath) -> str:
        """The option that gave the value of a field, or a part of the value that is in no file;
        empty if no option did."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.overridden:
                return self.overridden[path[:end]]
        if path and path not in self.positions:
            for inner in sorted(self.overridden):
                if inner[: len(path)] == path:
                    return self.overridden[inner]
        return ""


def parse_job_text(text: str, name: str) -> JobText:
    """Parses text that is not in a file; messages call it ``name``."""
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
    """Parses a single text, without the files that it extends; messages call it ``name``. Raises
    JobFileError."""
    try:
        values, node = load(text)
    except NotLoaded as error:
        line = f":{error.line}" if error.line else ""
        raise JobFileError(f"{name}{line} {error.what}", why=str(error), do=error.do) from None
    if misread := _misread_number_in(node, ()):
        raise JobFileError(
            f"{name}:{misread.line}: {display_path(misread.path)}: {misread.problem}",
            do=misread.do,
            file=name,
            line=misread.line,
            field=display_path(misread.path),
        )
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


@dataclass(frozen=True, slots=True)
class _MisreadNumber:
    path: FieldPath
    line: int
    problem: str
    do: str


def _misread_number_in(node: yaml.Node | None, path: FieldPath) -> _MisreadNumber | None:
    """The first number in a text that YAML reads differently from most people. Numbers that may be
    secrets are left out, because the result is repeated in messages."""
    for inner, scalar in _scalars(node, path):
        misread = None if _may_be_secret(inner) else misread_number(scalar)
        if misread is not None:
            kind, meant = misread
            return _MisreadNumber(
                inner,
                scalar.start_mark.line + 1,
                f"{scalar.value}: YAML reads this as {kind}",
                f"write {meant}, or put it in quotes if it is text",
            )
    return None


def _scalars(
    node: yaml.Node | None, path: FieldPath
) -> Iterator[tuple[FieldPath, yaml.ScalarNode]]:
    """All plain keys and values below a node, each with the path of its field."""
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            inner = (*path, path_part(key_node.value))
            yield inner, key_node
            yield from _scalars(value_node, inner)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _scalars(item, (*path, index))
    elif isinstance(node, yaml.ScalarNode):
        yield path, node


def _may_be_secret(path: FieldPath) -> bool:
    parts = [str(part) for part in path]
    return tuple(parts[:2]) in SECTIONS_WITH_SECRETS or any(
        _secret_begun(parts[:index], part) for index, part in enumerate(parts)
    )


def values_without_secrets(text: JobText) -> dict[str, Any]:
    """The values for people who may not read the job file: ``NOT_SHOWN`` stands for the sections
    with logins, and for every other field that may refer to a secret."""
    shown: dict[str, Any] = _without_secrets(text.values, ())
    return shown


def _without_secrets(value: Any, path: FieldPath) -> Any:
    if _may_be_secret(path):
        return NOT_SHOWN
    if isinstance(value, dict):
        return {key: _without_secrets(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_secrets(item, (*path, at)) for at, item in enumerate(value)]
    return value


def override(text: JobText, assignments: Sequence[str]) -> JobText:
    """The text with each ``a.b=c`` applied; the value is read as YAML.

    Raises UsageError for malformed assignments, JobFileError for a path through a value that is
    not a mapping. Whether such a field exists is not checked here."""
    for assignment in assignments:
        text = with_value(text, *read_assignment(assignment))
    return text


def read_assignment(assignment: str) -> tuple[FieldPath, Any]:
    """The path and the value in one ``a.b=c``. Raises UsageError, which does not repeat a value."""
    form = "write it as --set limits.max_records=1000"
    dotted_path, equals, value = assignment.partition("=")
    path = tuple(dotted_path.split("."))
    if not equals or not all(path):
        written: str = _FIELDS.match(assignment)[0]  # type: ignore[index]
        begins = tuple(_FIELD.findall(written))
        if written == assignment:
            raise UsageError(f"--set {display_path(begins)} has no value", do=form)
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
    loaded = _load_or_none(value)
    if loaded is None:
        raise UsageError(
            f"--set {display_path(path)}: the value is not YAML",
            do=f"{form}, in quotes within quotes if it contains brackets, '!', '*', '&' or ': '",
        )
    values, node = loaded
    if misread := _misread_number_in(node, path):
        raise UsageError(f"--set {display_path(misread.path)}: {misread.problem}", do=misread.do)
    return path, values


def check_settings_are_well_formed(settings: Sequence[str], paths: Iterable[Path]) -> None:
    """Raises UsageError for a malformed --set, and for a setting where a file is expected: an error
    about a missing file would repeat its value, which may be a secret."""
    for setting in settings:
        read_assignment(setting)
    for path in paths:
        field = re.match(r"[\w-]+(\.[\w-]+)+(?==)", str(path))
        if field is not None and not path.exists():
            raise UsageError(
                f"{field[0]} is given without --set",
                why="a file is expected there",
                do=f"write it as --set {field[0]}=..., after the job file",
            )


def _load_or_none(value: str) -> tuple[Any, yaml.Node | None] | None:
    try:
        return load(value)
    except NotLoaded:
        return None  # Neither this error nor the value is repeated: it may be a secret.


def with_value(text: JobText, path: FieldPath, value: Any, option: str = "") -> JobText:
    """The text with one value set: the same as ``override``, for a value that is already parsed.
    ``option``: what set it, for messages; the default is ``--set``."""
    values = separate_copy(text.values)
    _assign(values, path, value)
    overridden = {**text.overridden, path: option or f"--set {display_path(path)}"}
    return replace(text, values=values, overridden=overridden)


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
    """A deep copy in which values that were shared through YAML aliases are separate."""
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
