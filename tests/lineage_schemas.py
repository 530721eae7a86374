"""OpenLineage events against the schemas of the specification, and our facet against our own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from rangeland.monitoring import lineage_events

SPECIFICATION = Path(__file__).parent / "golden" / "openlineage"
OURS = Path(lineage_events.__file__).with_name("offset_ranges_facet.json")
EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"

_DOCUMENTS = [json.loads(path.read_text()) for path in (*SPECIFICATION.glob("*.json"), OURS)]
_REGISTRY: Registry[Any] = Registry().with_resources(
    (document["$id"], Resource.from_contents(document)) for document in _DOCUMENTS
)


def check_event(event: dict[str, Any]) -> None:
    """Raises ValidationError for what the specification does not allow, and Unresolvable for a
    facet without a schema."""
    assert event["schemaURL"] == EVENT
    _check(event, EVENT)
    for facet in facets_of(event):
        _check(facet, facet["_schemaURL"])


def _check(document: dict[str, Any], url: str) -> None:
    checker = Draft202012Validator.FORMAT_CHECKER
    Draft202012Validator({"$ref": url}, registry=_REGISTRY, format_checker=checker).validate(
        document
    )


def facets_of(event: dict[str, Any]) -> Iterator[dict[str, Any]]:
    datasets = (*event["inputs"], *event["outputs"])
    for owner in (event["run"], event["job"], *datasets):
        for name in ("facets", "inputFacets", "outputFacets"):
            yield from owner.get(name, {}).values()
