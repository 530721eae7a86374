"""Converts Spark's DDL for columns to Arrow types and back.

It reads texts such as ``id BIGINT NOT NULL, tags ARRAY<STRUCT<k: STRING, v: DECIMAL(10,2)>>, m
MAP<STRING, INT>``, with or without colons, with ``COMMENT 'text'``, names in back quotes, SQL
comments, and ``STRUCT<...>`` around all of it. Comments of fields are kept as metadata of the Arrow
fields. Elements of arrays and values of maps may be null, as in Spark.

TIMESTAMP is an instant (µs, UTC), TIMESTAMP_NTZ a local time. Names must be unique regardless of
case, because the columns of a table are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

import pyarrow as pa

from rangeland.decode.payload.payload_decoder import PayloadSchemaError

MAX_SCHEMA_DEPTH: Final = 32
MAX_SCHEMA_TEXT: Final = 1 << 20
MAX_DECIMAL_DIGITS: Final = 38
COMMENT: Final = b"comment"
"""The key of a field's comment in its metadata."""

INSTANT: Final = pa.timestamp("us", tz="UTC")
LOCAL_TIME: Final = pa.timestamp("us")

_NAMED_TYPES: Final[dict[str, pa.DataType]] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": INSTANT,
    "TIMESTAMP_NTZ": LOCAL_TIME,
}
_ALIASES: Final = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}
_DECIMALS: Final = ("DECIMAL", "DEC", "NUMERIC")
TYPE_NAMES: Final = {kind: name for name, kind in _NAMED_TYPES.items()}
"""The types that have no other types inside them, apart from decimals."""
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a"}
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<word>[A-Za-z0-9_]+)
    |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<sign>[<>(),:])""",
    re.VERBOSE | re.DOTALL,
)


def parse_ddl(text: str) -> pa.StructType:
    """The fields of a DDL text. Raises PayloadSchemaError with line and column."""
    if len(text) > MAX_SCHEMA_TEXT:
        raise PayloadSchemaError(
            f"the schema has {len(text):,} characters; {MAX_SCHEMA_TEXT:,} are allowed"
        )
    return _DdlParser(text).schema()


def print_ddl(schema: pa.StructType) -> str:
    """The DDL of fields on one line; ``parse_ddl`` can read it. Raises PayloadSchemaError for a
    type that Spark's DDL does not have."""
    return ", ".join(_print_field(field, " ") for field in schema)


# --- Reading ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    position: int

    @property
    def shown(self) -> str:
        return self.text if len(self.text) <= 40 else f"{self.text[:40]}…"


class _DdlParser:
    """A recursive-descent parser with one token of lookahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._read_tokens()
        self._next = next(self._tokens)

    def _read_tokens(self) -> Iterator[_Token]:
        position = 0
        while position < len(self._text):
            match = _TOKEN.match(self._text, position)
            if match is None:
                self._raise_for_character(position)
            if match.lastgroup != "space":
                yield _Token(str(match.lastgroup), match.group(), position)
            position = match.end()
        end = _Token("end", "the end", len(self._text))
        while True:
            yield end

    def _raise_for_character(self, position: int) -> NoReturn:
        char = self._text[position]
        unclosed = {"`": "this name has no closing back quote", "/": "this comment has no end"}
        unclosed |= dict.fromkeys("'\"", "this text has no closing quote")
        hint = "" if char.isascii() else "; put names with other characters in back quotes"
        self._fail(unclosed.get(char, f"{char!r} was not expected{hint}"), position)

    def _fail(self, what: str, position: int | None = None) -> NoReturn:
        at = self._next.position if position is None else position
        before = self._text[:at]
        line, column = before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1
        raise PayloadSchemaError(what, line=line, column=column)

    def _take(self) -> _Token:
        token = self._next
        self._next = next(self._tokens)
        return token

    def _is_sign(self, sign: str) -> bool:
        return self._next.kind == "sign" and self._next.text == sign

    def _skip_sign(self, sign: str) -> bool:
        if not self._is_sign(sign):
            return False
        self._take()
        return True

    def _expect_sign(self, sign: str) -> None:
        if not self._skip_sign(sign):
            self._fail(f"expected {sign!r}, found {self._next.shown}")

    def _skip_word(self, word: str) -> bool:
        if self._next.kind != "word" or self._next.text.upper() != word:
            return False
        self._take()
        return True

    def schema(self) -> pa.StructType:
        first = self._next
        if first.kind == "word" and first.text.upper() == "STRUCT":
            self._take()
            if self._is_sign("<"):
                kind = self._struct(1)
                self._expect_end()
                return kind
            self._tokens = self._read_tokens()  # a column may be named struct
            self._next = next(self._tokens)
        if first.kind == "end":
            self._fail("the schema has no fields")
        kind = self._fields(1)
        self._expect_end()
        return kind

    def _expect_end(self) -> None:
        if self._next.kind != "end":
            self._fail(f"expected a comma or the end, found {self._next.shown}")

    def _fields(self, depth: int) -> pa.StructType:
        fields: list[pa.Field] = []
        names: set[str] = set()
        while True:
            position = self._next.position
            field = self._field(depth)
            if field.name.lower() in names:
                self._fail(f"the field {field.name!r} occurs twice", position)
            names.add(field.name.lower())
            fields.append(field)
            if not self._skip_sign(","):
                return pa.struct(fields)

    def _field(self, depth: int) -> pa.Field:
        name = self._name()
        self._skip_sign(":")
        kind = self._type(depth)
        nullable = True
        if self._skip_word("NOT"):
            if not self._skip_word("NULL"):
                self._fail(f"expected NULL after NOT, found {self._next.shown}")
            nullable = False
        metadata = {COMMENT: self._comment()} if self._skip_word("COMMENT") else None
        return pa.field(name, kind, nullable, metadata)

    def _name(self) -> str:
        if self._next.kind == "quoted":
            name = self._next.text[1:-1].replace("``", "`")
            if not name:
                self._fail("a field's name is empty")
        elif self._next.kind == "word" and _PLAIN_NAME.fullmatch(self._next.text):
            name = self._next.text
        else:
            self._fail(f"expected a field's name, found {self._next.shown}")
        self._take()
        return name

    def _comment(self) -> bytes:
        if self._next.kind != "text":
            self._fail(f"expected a quoted text after COMMENT, found {self._next.shown}")
        text = self._take().text
        body = text[1:-1].replace(text[0] * 2, text[0])
        unescaped = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), body, flags=re.DOTALL)
        return unescaped.encode("utf-8", "replace")

    def _type(self, depth: int) -> pa.DataType:
        if depth > MAX_SCHEMA_DEPTH:
            self._fail(f"types are nested more than {MAX_SCHEMA_DEPTH} deep")
        if self._next.kind != "word":
            self._fail(f"expected a type, found {self._next.shown}")
        token = self._take()
        name = token.text.upper()
        name = _ALIASES.get(name, name)
        nested: dict[str, Callable[[int], pa.DataType]] = {
            "ARRAY": self._array,
            "MAP": self._map,
            "STRUCT": self._struct,
        }
        if name in nested:
            return nested[name](depth + 1)
        if name in _DECIMALS:
            return self._decimal()
        if name in _NAMED_TYPES:
            return _NAMED_TYPES[name]
        hint = "; use STRING" if name in ("CHAR", "CHARACTER", "VARCHAR", "TEXT", "VARIANT") else ""
        self._fail(f"{token.shown} is not a type that can be decoded{hint}", token.position)

    def _array(self, depth: int) -> pa.DataType:
        self._expect_sign("<")
        element = self._type(depth)
        self._expect_sign(">")
        return pa.list_(pa.field("element", element))

    def _map(self, depth: int) -> pa.DataType:
        self._expect_sign("<")
        key = self._type(depth)
        self._expect_sign(",")
        value = self._type(depth)
        self._expect_sign(">")
        return pa.map_(key, pa.field("value", value))

    def _struct(self, depth: int) -> pa.StructType:
        self._expect_sign("<")
        if self._is_sign(">"):
            self._fail("a STRUCT needs a field")
        kind = self._fields(depth)
        self._expect_sign(">")
        return kind

    def _decimal(self) -> pa.DataType:
        position = self._next.position
        precision, scale = 10, 0
        if self._skip_sign("("):
            precision = self._number()
            scale = self._number() if self._skip_sign(",") else 0
            self._expect_sign(")")
        if not (1 <= precision <= MAX_DECIMAL_DIGITS and scale <= precision):
            self._fail(
                f"a DECIMAL has 1 to {MAX_DECIMAL_DIGITS} digits, and no more than that after the "
                f"point; this one has {precision} and {scale}",
                position,
            )
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        if self._next.kind != "word" or not re.fullmatch("[0-9]{1,4}", self._next.text):
            self._fail(f"expected a number of digits, found {self._next.shown}")
        return int(self._take().text)


# --- Printing ---------------------------------------------------------------------------


def _print_field(field: pa.Field, separator: str) -> str:
    name = field.name
    if not _PLAIN_NAME.fullmatch(name):
        name = "`" + name.replace("`", "``") + "`"
    required = "" if field.nullable else " NOT NULL"
    comment = (field.metadata or {}).get(COMMENT)
    shown = f" COMMENT {_quote(comment.decode('utf-8', 'replace'))}" if comment is not None else ""
    return f"{name}{separator}{print_type(field.type)}{required}{shown}"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def print_type(kind: pa.DataType) -> str:
    """The DDL of one type, for example ``ARRAY<STRING>``."""
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(_print_field(field, ': ') for field in kind)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{print_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{print_type(kind.key_type)}, {print_type(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if kind not in TYPE_NAMES:
        raise PayloadSchemaError(f"Spark's DDL has no type for Arrow's {kind}")
    return TYPE_NAMES[kind]
