"""Job file text into plain values that remember where they stood.

YAML is read twice from one parse: once as values, once as line numbers, so that a mistake
can name file, line and field. Overrides (``--set a.b=c``) are laid over the values here.
Nothing here knows what a job means; ``job`` does.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rangeland.errors import JobFileError

Path_ = tuple[str | int, ...]

NOT_YAML = (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What the YAML library raises for text it cannot read: `0b_`, `!!bool maybe` and a node
that holds itself end in errors of Python and not of YAML."""


@dataclass(frozen=True, slots=True)
class JobText:
    """``values`` as YAML gave them; ``lines`` maps a field's path to its line, from 1.
    ``overridden`` holds the paths that ``--set`` or a flag has put there."""

    name: str
    values: dict[str, Any]
    lines: Mapping[Path_, int] = field(default_factory=dict)
    overridden: frozenset[Path_] = frozenset()

    def line_of(self, path: Path_) -> int | None:
        """The line of a field, or of the nearest thing around it that is in the file."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None

    def where(self, path: Path_) -> str:
        """``file:line`` for messages, or the flag where the value did not come from the file."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.overridden:
                return f"--set {dotted(path[:end])}"
        line = self.line_of(path)
        return self.name if line is None else f"{self.name}:{line}"


def read_job_text(path: Path) -> JobText:
    """Raises JobFileError when the file cannot be read or is not a YAML mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JobFileError(
            f"the job file {path} cannot be read", why=str(error), do="name a YAML file"
        ) from error
    return parse_job_text(text, str(path))


def parse_job_text(text: str, name: str) -> JobText:
    """See ``read_job_text``; ``name`` stands for the file in messages."""
    try:
        node = yaml.compose(text, Loader=_Loader)
        values = yaml.load(text, Loader=_Loader)
        lines: dict[Path_, int] = {}
        _note_lines(node, (), lines)
    except NOT_YAML as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise JobFileError(
            f"{name}{line} is not YAML", why=str(problem), do="correct the file"
        ) from None  # its traceback would quote the line, and there may be a secret in it
    if not isinstance(values, dict):
        raise JobFileError(f"{name} is not a job file", do="write fields such as `job: orders`")
    return JobText(name, values, lines)


class _Loader(yaml.SafeLoader):
    """Safe YAML in which a key that stands twice is an error and times stay text."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be a plain value", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", key_node.start_mark
                )
            seen.add(key)
        return dict(super().construct_mapping(node, deep=deep))


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _note_lines(node: yaml.Node | None, path: Path_, lines: dict[Path_, int]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            key = int(key_node.value) if key_node.value.isdecimal() else key_node.value
            lines[(*path, key)] = key_node.start_mark.line + 1
            _note_lines(value_node, (*path, key), lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*path, index)] = item.start_mark.line + 1
            _note_lines(item, (*path, index), lines)


def override(text: JobText, assignments: Sequence[str]) -> JobText:
    """The text with ``a.b=c`` laid over it; the value is read as YAML.

    Raises JobFileError for an assignment without ``=`` or through a value that is no mapping."""
    values = _copy(text.values)
    overridden = set(text.overridden)
    for assignment in assignments:
        dotted_path, equals, value = assignment.partition("=")
        if not equals or not dotted_path:
            raise JobFileError(
                f"--set {assignment} is not understood",
                do="write it as --set limits.max_records=1000",
            )
        path = tuple(dotted_path.split("."))
        try:
            parsed = yaml.load(value, Loader=_Loader)
        except NOT_YAML as error:
            raise JobFileError(
                f"--set {dotted_path}: the value is not YAML",
                why=str(getattr(error, "problem", None) or error),
                do="write it as --set limits.max_records=1000",
            ) from None
        _assign(values, path, parsed, assignment)
        overridden.add(path)
    return JobText(text.name, values, text.lines, frozenset(overridden))


def put(text: JobText, path: Path_, value: Any) -> JobText:
    """The text with one value in place, as ``override`` does for a parsed value."""
    values = _copy(text.values)
    _assign(values, path, value, dotted(path))
    return JobText(text.name, values, text.lines, text.overridden | {path})


def _assign(values: dict[str, Any], path: Path_, value: Any, assignment: str) -> None:
    place: Any = values
    for part in path[:-1]:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise JobFileError(
                f"--set {assignment}: {part} holds a value and no fields",
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
