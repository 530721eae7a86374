"""Which message of a ``.proto`` text the message indexes of a payload mean.

An index counts messages: at the top of the file, then inside the message found there, and so on.
Serializers differ in what they count. A map field has a message for its entries, and a group one
for its fields: both are among the ``nested_type`` of a descriptor, and a file does not declare
them as messages.

- confluent-kafka-python (``_create_index_array``), confluent-kafka-go (``toMessageIndexArray``) and
  .NET (``CreateIndexArray``) count them. Google's compiler has each where its field is.
- Java (``ProtobufSchema.toMessageIndexes``) counts the messages of its schema as text. A text made
  from a descriptor declares map entries, which then count unless schemas are normalized; others do
  not have them, and none has groups.
- confluent-kafka-javascript does not count map entries, as ``nestedMessages`` lacks them.
- franz-go, and other clients whose users give the indexes, may follow any of these.

The text from the registry does not show what stood before a message: Confluent's registry prints
fields first and nested messages after them (``ProtobufSchemaUtils.toString``), wherever a producer
has them. It keeps the order of messages, which is therefore all that is certain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rangeland.decode.payload.protobuf.protobuf_descriptors import name_inside

_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[A-Za-z_][\w.]*|[{};=<]""",
    re.DOTALL,
)


@dataclass(eq=False)
class _Scope:
    """A file, or a message in it."""

    name: str
    path: tuple[int, ...] = ()
    """Its indexes if nothing but declared messages counts."""
    latest_path: tuple[int, ...] = ()
    """Its indexes if everything counts, and all of it stands before the messages."""
    messages: list[_Scope] = field(default_factory=list)
    """The messages that are declared in it. Map entries are not among them, even if a text declares
    them: neither these nor groups are ever a record by themselves."""
    uncertain: int = 0
    """The number of map entries and groups in it, which may count or not."""
    is_map_entry: bool = False


class ProtoText:
    """The messages of a ``.proto`` text."""

    def __init__(self, text: str) -> None:
        self._file = _read(text)
        self._by_name: dict[str, _Scope] = {}
        _find_paths(self._file, self._by_name)

    def likely_indexes(self, name: str) -> set[tuple[int, ...]]:
        """The indexes that most payloads have which hold this message; empty if the text does not
        declare it. They may mean others as well."""
        found = self._by_name.get(name)
        return set() if found is None else {found.path, found.latest_path}

    def meanings(self, indexes: Sequence[int]) -> list[str]:
        """The full names of all messages that these indexes may mean: of each, whatever number of
        map entries and groups stands before it, and whether they count or not."""
        found = [self._file]
        for index in indexes:
            found = [
                message
                for scope in found
                for message in scope.messages[max(0, index - scope.uncertain) : index + 1]
            ]
        return [message.name for message in found]


def _find_paths(scope: _Scope, by_name: dict[str, _Scope]) -> None:
    for index, message in enumerate(scope.messages):
        message.path = (*scope.path, index)
        message.latest_path = (*scope.latest_path, index + scope.uncertain)
        by_name[message.name] = message
        _find_paths(message, by_name)


def _read(text: str) -> _Scope:
    tokens = [one for one in _TOKEN.findall(text) if one[0] not in "/\"'"]
    file = _Scope("")
    open_: list[_Scope | None] = [file]  # None: neither a message nor a group
    group: _Scope | None = None  # whose fields begin with the next brace
    at = 0
    while at < len(tokens):
        scope = open_[-1]
        step = 1
        match tokens[at : at + 4]:
            case ["package", name, ";", *_] if scope is file:
                file.name, step = name, 3
            case ["message", name, "{", *_] if scope:
                scope.messages.append(_Scope(name_inside(scope.name, name)))
                open_.append(scope.messages[-1])
                step = 3
            case ["map", "<", *_] if scope:
                scope.uncertain += 1
            case ["group", name, "=", *_]:  # also in a oneof, or where a message is extended
                _innermost(open_).uncertain += 1
                group, step = _Scope(name), 3
            case ["option", "map_entry", "=", "true"] if scope:
                scope.is_map_entry = True
            case ["{", *_]:
                open_.append(group)
                group = None
            case ["}", *_] if len(open_) > 1:
                open_.pop()
                if scope and scope.is_map_entry:
                    _drop_map_entry(_innermost(open_), scope)
        at += step
    return file


def _innermost(open_: Sequence[_Scope | None]) -> _Scope:
    return next(scope for scope in reversed(open_) if scope)


def _drop_map_entry(outer: _Scope, entry: _Scope) -> None:
    if entry in outer.messages:
        outer.messages.remove(entry)
        outer.uncertain += 1
