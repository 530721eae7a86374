"""Loads YAML within limits of size, depth and expansion.

The size is checked first, then the parser's events, before anything is built: the C library builds
nested nodes by unlimited recursion, and aliases may expand to more values than fit in memory.

An error names the problem and the line, but never repeats a value: an unquoted password may look
like a tag, an anchor or an alias.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import Any, Final

import yaml

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 50
MAX_VALUES: Final = 100_000
"""The most values in a text, with aliases expanded."""
MAX_NUMBER: Final = 100
"""The most characters in a number: parsing YAML's base 60 numbers takes quadratic time."""

_CAN_FAIL: Final = (
    yaml.YAMLError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
)
"""The errors that the YAML library raises for text that it cannot parse. For `0b_`, `!!bool maybe`
and a node that contains itself it raises Python's errors instead of its own."""

_BASE: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_WITH_NAMES: Final = (
    "undefined alias",
    "duplicate anchor",
    "constructor for the tag",
    "undefined tag",
)


_WORDS_FOR: Final[Mapping[str, str]] = {
    "mapping values are not allowed in this context": "a second ': ' is in the line; check the "
    "indentation, or quote a value that contains ': '",
}
"""Additions to the library's own words for a problem, where those leave something out."""
_UNQUOTED_BRACES: Final = re.compile(r"[^\s{\[,]\{|\}[^\s}\],]")
"""A brace that is part of a text, as in ``lake/{topic}`` and ``${env:NAME}``."""
_DECIMAL: Final = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_INT_TAG: Final = "tag:yaml.org,2002:int"
_FLOAT_TAG: Final = "tag:yaml.org,2002:float"

_INSIDE_ITSELF: Final = (-1, -1)
_TOO_LARGE: Final = "is too large"


class NotLoaded(ValueError):
    """The text is not loaded: it is not YAML, too large, or ambiguous. ``line`` counts from 1; None
    if unknown. The message repeats no values from the text."""

    def __init__(
        self,
        why: str,
        line: int | None = None,
        *,
        what: str = "is not YAML",
        do: str = "correct the file",
    ) -> None:
        self.line = line
        self.what = what
        self.do = do
        super().__init__(why)


class _Loader(_BASE):  # type: ignore[misc]
    """A loader for safe YAML in which duplicate keys are errors and times remain text."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise _node_error(key_node, "a key must be a plain value")
            if key in keys:
                raise NotLoaded(
                    f"{key!r} occurs twice",
                    _line(key_node),
                    what="has a field twice",
                    do="keep one",
                )
            keys.add(key)
        return dict(super().construct_mapping(node, deep=deep))

    def number(self, node: Any) -> Any:
        if len(node.value) > MAX_NUMBER:
            raise _node_error(node, f"a number has more than {MAX_NUMBER} characters")
        is_int = node.tag == _INT_TAG
        return self.construct_yaml_int(node) if is_int else self.construct_yaml_float(node)


def misread_number(node: yaml.ScalarNode) -> tuple[str, str] | None:
    """For a number that is not written in plain decimal: what YAML 1.1 takes it for, and what to
    write instead; None for any other value. Most people who write ``010`` do not mean 8, and those
    who write ``1:30`` mean a time, not 90."""
    base_60 = ":" in node.value
    if node.tag == _FLOAT_TAG and base_60:
        number: float = yaml.constructor.SafeConstructor().construct_yaml_float(node)
    elif node.tag == _INT_TAG and not _DECIMAL.fullmatch(node.value):
        number = yaml.constructor.SafeConstructor().construct_yaml_int(node)
    else:
        return None
    digits = node.value.lower().lstrip("+-").replace("_", "")
    if base_60:
        return f"a number of base 60, {number}", str(number)
    if digits.startswith(("0x", "0b")):
        base = "a hexadecimal" if digits.startswith("0x") else "a binary"
        return f"{base} number, {number}", str(number)
    decimal = int(node.value.replace("_", ""))
    meant = str(number) if decimal == number else f"{decimal} or {number}"
    return f"an octal number, {number}", meant


def _node_error(node: Any, problem: str) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


_Loader.add_constructor(_INT_TAG, _Loader.number)
_Loader.add_constructor(_FLOAT_TAG, _Loader.number)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load(text: str) -> tuple[Any, yaml.Node | None]:
    """The values of a text, and the nodes from which they were made. Raises NotLoaded."""
    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        raise NotLoaded(f"it is longer than {MAX_BYTES} bytes", what=_TOO_LARGE)
    try:
        _check_size_is_bounded(text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None, None
            _check_expansion_is_bounded(node)
            return loader.construct_document(node), node
        finally:
            loader.dispose()
    except NotLoaded:
        raise
    except _CAN_FAIL as error:
        cause = error  # Raised outside the handler, because its message may repeat the text.
    mark = getattr(cause, "problem_mark", None)
    line = mark.line + 1 if mark else None
    if getattr(cause, "problem", None) == "but found another document":
        raise NotLoaded("a line --- begins another", line, what="has two documents", do="keep one")
    raise NotLoaded(_problem(cause, text), line)


def _problem(error: BaseException, text: str) -> str:
    if not isinstance(error, yaml.YAMLError):
        return "a value does not fit its tag"
    problem = getattr(error, "problem", None) or "it contains a character that YAML does not allow"
    line = _line_at_mark(error, text)
    if "tab character" in problem or "\t" in line[: len(line) - len(line.lstrip())]:
        return "a tab begins the line; indent with spaces"
    if "flow mapping" in str(getattr(error, "context", "")) and _UNQUOTED_BRACES.search(line):
        return f'{problem}; quote values that contain braces: {{table: "lake/{{topic}}"}}'
    if any(words in problem for words in _WITH_NAMES):
        return _QUOTED.sub("...", problem)
    return _WORDS_FOR.get(problem, problem)


def _line_at_mark(error: yaml.YAMLError, text: str) -> str:
    mark = getattr(error, "problem_mark", None)
    lines = text.splitlines()
    return "" if mark is None or mark.line >= len(lines) else lines[mark.line]


def _check_size_is_bounded(text: str) -> None:
    """Raises NotLoaded, before anything is built, if there are too many values or they are nested
    too deeply."""
    depth = values = 0
    for event in yaml.parse(text, Loader=_BASE):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        values += isinstance(event, yaml.NodeEvent)
        if depth > MAX_DEPTH or values > MAX_VALUES:
            raise _too_much_error(event)


def _check_expansion_is_bounded(root: yaml.Node) -> None:
    """Raises NotLoaded if aliases expand to too many values, to values nested too deeply, or to
    something that contains them."""
    sizes: dict[int, tuple[int, int]] = {}

    def measure(node: yaml.Node, depth: int) -> tuple[int, int]:
        """The number of values, and how deeply they are nested."""
        if id(node) not in sizes:
            sizes[id(node)] = _INSIDE_ITSELF
            inner = [measure(child, depth + 1) for child in _inside(node)]
            size = 1 + sum(n for n, _ in inner)
            height = 1 + max((h for _, h in inner), default=0)
            sizes[id(node)] = size, height
        size, height = sizes[id(node)]
        if (size, height) == _INSIDE_ITSELF:
            raise NotLoaded("a value contains itself", _line(node))
        if size > MAX_VALUES or depth + height > MAX_DEPTH + 1:
            raise _too_much_error(node)
        return size, height

    measure(root, 0)


def _inside(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _too_much_error(node: yaml.Node | yaml.Event) -> NotLoaded:
    return NotLoaded(
        f"it has more than {MAX_VALUES} values with aliases expanded, or is nested more than "
        f"{MAX_DEPTH} levels deep",
        _line(node),
        what=_TOO_LARGE,
    )


def _line(of: yaml.Node | yaml.Event) -> int | None:
    return of.start_mark.line + 1 if of.start_mark else None
