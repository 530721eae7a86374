"""Histories of a topic whose records name schemas in a registry, on the models: schemas change, a
copy of the registry lags, some records are no payloads, and policies differ from run to run. In the
end each record has one row with its value, or is in quarantine or lost for a reason.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import fastavro
import pytest

from rangeland.cluster_access import registry_lookup
from rangeland.decode.payload.schema_ids.schema_catalogue import SchemaFormat, SubjectVersion
from rangeland.errors import RangelandError, UndecodablePayload, Unreachable
from rangeland.job import Job
from rangeland.progress_events import NoProgress
from rangeland.queries.verify_and_find import verify
from rangeland.run import redrive
from rangeland.schema_registry import executor_schemas
from rangeland.schema_registry.missing_ids import LATE_MS
from rangeland.schema_registry.registry_client import Absence, RegistryClient
from rangeland.schema_registry.registry_responses import SchemaResponse, VersionResponse
from tests.simulation.replaced import Stage, simulated
from tests.simulation.typed_lake import Place, TypedLake, place_of

SUBJECT = "orders-value"
FIELDS = ("note", "city", "size", "kind", "mark")
FIRST_ID = 101
STEPS = 12
SEEDS = range(20)
POLICIES = ("fail", "skip", "quarantine")
FORGED = struct.pack(">bi", 0, 2**31 - 1) + b"\2"
NO_PAYLOADS = (FORGED, b"no magic byte", b"\0\0\0", b"")


@dataclass
class Registry:
    """Each version adds a nullable field. Clients see the first ``visible`` ones."""

    versions: list[dict[str, Any]] = field(default_factory=list)
    visible: int = 0

    def register(self, *, is_late: bool) -> None:
        added = [
            {"name": name, "type": ["null", "string"], "default": None}
            for name in FIELDS[: len(self.versions)]
        ]
        fields = [{"name": "id", "type": "long"}, *added]
        self.versions.append({"type": "record", "name": "Order", "fields": fields})
        if not is_late:
            self.catch_up()

    def catch_up(self) -> None:
        self.visible = len(self.versions)

    def client(self, *about: object, **more: object) -> RegistryClient:
        return CopyClient(self)

    def answer(self, version: int) -> VersionResponse | None:
        if not 0 < version <= self.visible:
            return None
        text = json.dumps(self.versions[version - 1])
        schema = SchemaResponse(SchemaFormat.AVRO, text, ())
        return VersionResponse(FIRST_ID + version - 1, SubjectVersion(SUBJECT, version), schema)

    def framed(self, version: int, value: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self.versions[version - 1], value)
        return struct.pack(">bi", 0, FIRST_ID + version - 1) + out.getvalue()


class CopyClient(RegistryClient):
    """Asks what a copy of the registry has."""

    def __init__(self, registry: Registry) -> None:
        self._copy = registry

    def schema(self, schema_id: int) -> SchemaResponse | None:
        found = self._copy.answer(schema_id - FIRST_ID + 1)
        return None if found is None else found.schema

    def versions(
        self, schema_id: int, absence: Absence = Absence.CONTRADICTED
    ) -> tuple[SubjectVersion, ...]:
        found = self._copy.answer(schema_id - FIRST_ID + 1)
        return () if found is None else (found.at,)

    def latest(
        self, subject: str, absence: Absence = Absence.BELIEVED_ONCE_CONFIRMED
    ) -> VersionResponse | None:
        return self._copy.answer(self._copy.visible) if subject == SUBJECT else None


class History:
    """``values``: what a record holds; None for those that are no payloads."""

    def __init__(self, stage: Stage, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.lake, self.random = TypedLake(stage, seed), Random(seed)
        self.registry = Registry()
        self.registry.register(is_late=False)
        self.values: dict[Place, dict[str, Any] | None] = {}
        self.skipped: dict[Place, str] = {}
        self.ended: list[str] = []
        for module in (registry_lookup, executor_schemas):
            patch.setattr(module, "RegistryClient", self.registry.client)
        patch.setattr(executor_schemas, "_of_runs", {})
        self.produce()

    def step(self) -> None:
        often = (self.produce, self.land)
        self.random.choice([*often, *often, self.register, self.wait, self.redrive])()

    def produce(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            if self.random.random() < 0.2:
                value, payload = None, self.random.choice(NO_PAYLOADS)
            else:
                version = self.random.randint(1, len(self.registry.versions))
                names = FIELDS[: version - 1]
                value = {"id": len(self.values), **{n: f"{n} {version}" for n in names}}
                payload = self.registry.framed(version, value)
            (place,) = self.lake.produce("orders", [payload])
            self.values[place] = value

    def register(self) -> None:
        if len(self.registry.versions) <= len(FIELDS):
            self.registry.register(is_late=self.random.random() < 0.5)

    def wait(self) -> None:
        if self.random.random() < 0.5:
            self.registry.catch_up()
        else:
            self.lake.world.sleep(LATE_MS / 1000)

    def land(self, policy: str = "") -> Any:
        policy = policy or self.random.choice(POLICIES)
        (found,) = self.lake.land(self.job(policy))
        self.ended.append(type(found).__name__)
        if isinstance(found, RangelandError):
            assert isinstance(found, UndecodablePayload | Unreachable), found
            return found
        for one in found.losses:
            for offset in range(one.loss.from_offset, one.loss.until_offset):
                if one.loss.action.value == "skip":
                    self.skipped["orders", offset, 0] = one.loss.evidence
        return found

    def redrive(self) -> None:
        self.lake.alone(lambda spark: redrive(self.job("quarantine"), spark, NoProgress()))

    def job(self, policy: str) -> Job:
        decode = {"value": {"format": "avro"}, "registry": {"url": "http://registry"}}
        return self.lake.job("", decode=decode, policy={"undecodable": policy})

    def finish(self) -> None:
        """With an up-to-date registry all can be decided."""
        self.registry.catch_up()
        self.land("quarantine")
        self.redrive()
        assert self.land("quarantine").state == "nothing"

    def check(self) -> None:
        for version in self.lake.versions:
            found = [place_of(row) for row in self.lake.rows(version)]
            assert len(found) == len(set(found))
        rows = {(row["topic"], row["offset"], 0): row["value"] for row in self.lake.rows()}
        left = self.lake.alone(
            lambda spark: redrive(self.job("quarantine"), spark, NoProgress(), dry_run=True)
        ).still_quarantined
        kept = {
            ("orders", offset, 0): one.why
            for one in left
            for offset in range(one.batch.range.from_offset, one.batch.range.until_offset)
        }
        assert not kept.keys() & rows.keys()
        assert not self.skipped.keys() & (kept.keys() | rows.keys())
        assert self.values.keys() == rows.keys() | kept.keys() | self.skipped.keys()
        assert all(kept.values())
        for place, value in self.values.items():
            if value is None:
                assert place not in rows
            elif place in rows:
                assert {n: v for n, v in rows[place].items() if v is not None} == value
            else:  # it was skipped an hour after its schema had not arrived
                assert "an hour after a record that names it" in self.skipped[place]
        job = self.job("quarantine")
        audit = self.lake.alone(lambda spark: verify(job, spark, NoProgress())).audit
        assert [*audit.holes, *audit.duplicates, *audit.unknown_rows] == []


@pytest.fixture
def stage() -> Iterator[Stage]:
    with simulated() as stage:
        yield stage


def test_each_record_lands_once_or_is_kept_or_lost_for_a_reason(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: set[str] = set()
    for seed in SEEDS:
        history = History(stage, seed, monkeypatch)
        for _ in range(STEPS):
            history.step()
        history.finish()
        history.check()
        ended |= set(history.ended)
    assert ended == {"RunResult", "UndecodablePayload", "Unreachable"}
