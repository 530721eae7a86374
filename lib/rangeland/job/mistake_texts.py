"""What to say about a field whose value pydantic refuses: what was expected, in the words of a job
file, with an example that fits the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rangeland.job.job_text import FieldPath
from rangeland.job.section import MisplacedKey
from rangeland.job.text_patterns import EXPECTED
from rangeland.job.value_parsers import size_text

_ANY: Final = "*"
"""Stands for the name of a topic in the path of a field."""
_LOGIN: Final = '{username: me, password: "${env:PASSWORD}"}'

EXAMPLES: Final[Mapping[str, str]] = {
    "source": "{servers: [broker-1:9092], topics: [orders]}",
    "source.servers": "[broker-1:9092]",
    "source.topics": "[orders]",
    "source.partitions": "{orders: [0, 1]}",
    "source.partitions.*": "[0, 1]",
    "source.compacted": "[accounts]",
    "source.tags": "[A, B]",
    "source.timeouts": "{request_ms: 30000}",
    "source.security": "{tls: true}",
    "source.security.sasl": _LOGIN,
    "source.security.sasl.token": "{file: /run/token}",
    "source.security.sasl.token.command": "[/opt/bin/kafka-token, --audience, kafka]",
    "source.security.sasl.extensions": "{logicalCluster: lkc-1}",
    "source.security.sasl.kerberos": "{service_name: kafka}",
    "source.security.acl": '{access_key: me, secret_key: "${env:SECRET_KEY}"}',
    "source.security.zookeeper": "{tls: true}",
    "source.security.zookeeper.login": _LOGIN,
    "range": "{from: earliest}",
    "limits": "{max_records: 1000000}",
    "slices": "{target_bytes: 128MiB}",
    "decode": "{value: {format: string}}",
    "decode.value": "{format: string}",
    "decode.key": "{format: string}",
    "decode.registry": '{url: "http://registry:8081"}',
    "policy": "{expired: skip}",
    "policy.topics": "{orders: {expired: skip}}",
    "policy.topics.*": "{expired: skip}",
    "sink": "{table: lake/orders}",
    "sink.partition_by": "[date(timestamp)]",
    "group": "{id: orders-hourly}",
}
"""An example value for each section and each list, by its path."""

KAFKA_NAMES: Final[Mapping[str, FieldPath]] = {
    "bootstrap.servers": ("source", "servers"),
    "bootstrap_servers": ("source", "servers"),
    "brokers": ("source", "servers"),
    "client.id": ("source", "client_id"),
    "isolation.level": ("source", "isolation"),
    "security.protocol": ("source", "security"),
    "security_protocol": ("source", "security"),
    "sasl.mechanism": ("source", "security", "sasl", "mechanism"),
    "auto.offset.reset": ("range", "first_run"),
    "auto_offset_reset": ("range", "first_run"),
    "group.id": ("group", "id"),
    "group_id": ("group", "id"),
}
"""Fields, by the names that Kafka's own clients use for them."""

_NOT_EMPTY: Final[Mapping[str, str]] = {
    "id": "a name",
    "table": "a path, a URI or the name of a table",
    "schema": "a schema, or a file with one",
}
_SIZE: Final = "a size such as 128MiB or a number of bytes"
_WHOLE_NUMBERS: Final[Mapping[str, str]] = {
    "_ms": "whole milliseconds, such as 5000",
    "_bytes": _SIZE,
    "_per_second": _SIZE,
}
"""What a number stands for, by the end of its field's name."""
_BOOLEAN_WORDS: Final = {False: "no and off as false", True: "yes and on as true"}
_TLS: Final = "true, false, or a section such as {ca: /etc/ca.pem}"
_NOT_TLS: Final = ("model_type", "bool_type", "bool_parsing")


def expectation(path: FieldPath, problem: Mapping[str, Any]) -> str:
    """What was expected instead of the value with which pydantic found a problem."""
    context = problem.get("ctx", {})
    match problem["type"]:
        case "extra_forbidden":
            return "there is no such field"
        case "missing":
            return "this field is required"
        case "value_error":
            cause = context["error"]
            return f"{cause.lead if isinstance(cause, MisplacedKey) else 'expected '}{cause}"
        case "too_short":
            return "expected at least one; omit the field for all"
        case kind:
            return f"expected {_expected_value(path, kind, context, problem)}"


def _expected_value(
    path: FieldPath, kind: str, context: Mapping[str, Any], problem: Mapping[str, Any]
) -> str:
    name = str(path[-1]) if path else ""
    if name == "tls" and kind in _NOT_TLS:
        return _TLS
    match kind:
        case "tuple_type":
            return f"a list, such as {example(path)}"
        case "model_type" | "dict_type":
            return f"fields, such as {example(path)}"
        case "string_type":
            return _expected_text(problem.get("input"))
        case "string_too_short":
            return f"{_NOT_EMPTY.get(name, 'text')}, not an empty string"
        case "string_pattern_mismatch":
            return EXPECTED[context["pattern"]]
        case "bool_type" | "bool_parsing":
            return "true or false"
        case "int_type" | "int_parsing" | "int_from_float":
            ends = (text for end, text in _WHOLE_NUMBERS.items() if name.endswith(end))
            return next(ends, "a whole number")
        case "greater_than":
            return f"a number above {context['gt']}"
        case "greater_than_equal":
            return f"at least {_quantity(name, context['ge'])}"
        case "less_than_equal":
            return f"at most {_quantity(name, context['le'])}"
        case _:
            return str(problem["msg"]).removeprefix("Input should be ")


def example(path: FieldPath) -> str:
    """An example value for a section or a list."""
    dotted = ".".join(map(str, path))
    below_any = ".".join(map(str, (*path[:-1], _ANY)))
    return EXAMPLES.get(dotted) or EXAMPLES.get(below_any) or "{name: value}"


def _expected_text(value: object) -> str:
    """What was expected instead of a value that is not text. The value is not repeated: it may be a
    secret."""
    if isinstance(value, bool):
        return f"text; YAML reads {_BOOLEAN_WORDS[value]}, unless they are in quotes"
    return "text; write the number in quotes" if isinstance(value, int | float) else "text"


def _quantity(name: str, number: int) -> str:
    if name.endswith("_bytes"):
        return size_text(number)
    return f"{number} milliseconds" if name.endswith("_ms") else str(number)
