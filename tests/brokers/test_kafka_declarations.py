"""Every declared message against the definitions that Kafka ships inside its own client jar.

Both sides are flattened to the same shape, version by version: names, order, types, arrays,
nulls and tags. Versions that the newer jar has dropped are compared with the older one.
"""

from __future__ import annotations

import dataclasses
import json
import re
import zipfile
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from rangeland.dialects.kafka.messages import REQUESTS
from rangeland.jvm.jars import jar_files
from rangeland.testing.broker_jars import BROKER_JARS
from rangeland.wire.declarations import field_spec, spec_of
from rangeland.wire.primitives import WireType
from tests.kafka_produce import ProduceRequest

pytestmark = pytest.mark.brokers

Shape = tuple[list[Any], dict[int, Any]]
CASES = [
    pytest.param(cls, spec_of(cls).name + kind, id=cls.__name__)
    for request in (*REQUESTS, ProduceRequest)
    for cls, kind in ((request, "Request"), (spec_of(request).response, "Response"))
    if cls is not None
]


def definition(jars: str, name: str) -> dict[str, Any]:
    """One ``common/message/*.json``, which has comments that JSON has not."""
    (jar,) = [path for path in jar_files(BROKER_JARS[jars]) if "kafka-clients-" in str(path)]
    with zipfile.ZipFile(jar) as opened:
        text = opened.read(f"common/message/{name}.json").decode()
    found: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return found


def holds(written: str | None, version: int) -> bool:
    """Whether "3", "3-7", "3+", "none" or nothing takes in ``version``."""
    if written is None or written == "none":
        return False
    low, _, high = written.rstrip("+").partition("-")
    top = version if written.endswith("+") else int(high or low)
    return int(low) <= version <= top


def theirs(fields: list[dict[str, Any]], version: int, common: dict[str, Any]) -> Shape:
    plain, tags = [], {}
    for field in fields:
        if not holds(field["versions"], version):
            continue
        base = field["type"].removeprefix("[]")
        kind: Any = base
        if base[0].isupper():
            kind = theirs(field.get("fields") or common[base], version, common)
        nullable = base == "uuid" or holds(field.get("nullableVersions"), version)
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", field["name"]).lower()
        entry = (name, field["type"].startswith("[]"), nullable, kind)
        if holds(field.get("taggedVersions"), version):
            tags[field["tag"]] = entry
        else:
            plain.append(entry)
    return plain, tags


def ours(cls: type[Any], version: int) -> Shape:
    plain, tags = [], {}
    hints = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        spec = field_spec(field)
        if not spec.has(version):
            continue
        hint, nullable = hints[field.name], False
        if type(None) in get_args(hint) and not isinstance(get_args(hint)[-1], WireType):
            hint, nullable = get_args(hint)[0], version >= spec.nullable_from
        is_array = get_origin(hint) is tuple
        hint = get_args(hint)[0] if is_array else hint
        wire = get_args(hint)[1] if get_args(hint) else None
        kind = wire.name if wire else ours(hint, version)
        # A tagged struct is None where it is absent; it has no null of its own.
        absent = spec.tag is not None and wire is None and not is_array
        nullable = (nullable and not absent) or kind == "uuid"
        entry = (field.name, is_array, nullable, kind)
        if spec.tag is None:
            plain.append(entry)
        else:
            tags[spec.tag] = entry
    return plain, tags


@pytest.mark.parametrize("jars", ["kafka-4.1.0", "kafka-3.9.1"])
@pytest.mark.parametrize(("cls", "name"), CASES)
def test_a_declaration_is_that_of_the_broker_in_every_version(
    jars: str, cls: type[Any], name: str
) -> None:
    spec, upstream = spec_of(cls), definition(jars, name)
    common = {part["name"]: part["fields"] for part in upstream.get("commonStructs", [])}
    assert upstream["apiKey"] == spec.key
    compared = 0
    for version in range(spec.versions[0], spec.versions[1] + 1):
        if holds(upstream["validVersions"], version):
            assert spec.flexible(version) == holds(upstream["flexibleVersions"], version)
            assert ours(cls, version) == theirs(upstream["fields"], version, common)
            compared += 1
    assert compared > 0
