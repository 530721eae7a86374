"""The text of ``.proto`` files becomes descriptors, or an error that names the line."""

from __future__ import annotations

import importlib.util
from typing import Any

import pyarrow as pa
import pytest

from rangeland.decode.payload.payload_decoder import PayloadSchemaError
from rangeland.decode.payload.protobuf.protobuf_format import ProtobufFormat
from rangeland.errors import MissingRequirement
from rangeland.schema_registry.proto_compiler import compile_proto

MAIN = """syntax = "proto3"; package p;
import "common/money.proto"; import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; Money price = 2; google.protobuf.Timestamp at = 3; }
"""
MONEY = 'syntax = "proto3"; package p; message Money { uint64 cents = 1; }'


def test_imports_and_well_known_types_are_included() -> None:
    found = compile_proto(
        "orders/main.proto", {"orders/main.proto": MAIN, "common/money.proto": MONEY}
    )
    form = ProtobufFormat(found)
    assert form.arrow_type == pa.struct(
        [
            ("id", pa.int64()),
            ("price", pa.struct([("cents", pa.decimal128(20, 0))])),
            ("at", pa.timestamp("us", "UTC")),
        ]
    )


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a.proto": "syntax = 'proto3'; message M { int32 x }"}, "a.proto:1:40: Missing field"),
        ({"a.proto": MAIN}, "common/money.proto: File not found"),
        ({"a.proto": "", "../b.proto": ""}, "not a path that an import can name"),
        ({"a.proto": "", "/etc/b.proto": ""}, "not a path that an import can name"),
        ({"a.proto": "", "--plugin=b.proto": ""}, "not a path that an import can name"),
        ({"a.proto": "x" * (9 << 20)}, "larger than"),
    ],
)
def test_texts_that_cannot_be_compiled_are_refused(files: dict[str, str], words: str) -> None:
    with pytest.raises(PayloadSchemaError, match=words):
        compile_proto("a.proto", files)


def test_without_the_compiler_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str, *_: Any) -> None:
        assert name == "grpc_tools"

    monkeypatch.setattr(importlib.util, "find_spec", find)
    with pytest.raises(MissingRequirement) as raised:
        compile_proto("a.proto", {"a.proto": MONEY})
    assert "rangeland[typed]" in raised.value.do
    assert raised.value.exit_code == 78
