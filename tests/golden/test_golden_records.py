"""Record batches of real brokers and clients, byte for byte: both decoders give the rows
that were written. See ``capture_records.py``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rangeland.decode.kafka.kernel import KafkaKernel
from rangeland.decode.native import native_library
from rangeland.dialects.fetch_values import DecodedChunk
from rangeland.dialects.kafka import chunk_builder
from rangeland.dialects.kafka.log_entries import entries
from rangeland.errors import BadRecord
from rangeland.model import Counts
from tests.fetched_records import fetched_at
from tests.golden.capture_records import hex_of
from tests.kafka_chunks import decode_chunk
from tests.reference.kafka_records import KafkaReference

HOME = Path(__file__).parent / "records"
CODEC_NUMBERS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@dataclass(frozen=True)
class Stored:
    """One log. ``said`` is what ``rows.json`` has about it."""

    path: Path
    said: dict[str, Any]

    @property
    def data(self) -> bytes:
        return self.path.read_bytes()

    def decode(self, start: int = 0, data: bytes | None = None) -> DecodedChunk:
        return decode_chunk(
            memoryview(self.data if data is None else data),
            start,
            self.said["until_offset"],
            [(pair[0], pair[1]) for pair in self.said["aborted"]],
        )


@cache
def said_of(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / "rows.json").read_text(encoding="utf-8"))
    return found


ALL = [Stored(path, said_of(path.parent)[path.stem]) for path in sorted(HOME.glob("*/*.records"))]


def label(stored: Stored) -> str:
    return f"{stored.path.parent.name}-{stored.path.stem}"


every_log = pytest.mark.parametrize("stored", ALL, ids=label)


@pytest.fixture(params=["reference", "kernel"], autouse=True)
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    is_kernel = request.param == "kernel"
    chosen = KafkaKernel(native_library.load_library()) if is_kernel else KafkaReference()
    monkeypatch.setattr(chunk_builder, "kafka_decoder", lambda: chosen)


def rows_of(batch: pa.RecordBatch | None) -> list[dict[str, Any]]:
    if batch is None:
        return []
    times = batch.column("timestamp").cast(pa.int64()).to_pylist()
    return [
        {
            "offset": row["offset"],
            "key": hex_of(row["key"]),
            "value": hex_of(row["value"]),
            "timestamp_ms": time // 1000,
            "headers": row["headers"] and [[h["key"], hex_of(h["value"])] for h in row["headers"]],
        }
        for row, time in zip(batch.drop_columns(["timestamp"]).to_pylist(), times, strict=True)
    ]


def test_there_are_logs_of_an_old_and_a_new_broker_with_all_their_codecs() -> None:
    names = {(stored.path.parent.name, stored.path.stem) for stored in ALL}
    for version, codecs in {"0.11.0.3": "gzip snappy lz4", "4.1.0": "gzip snappy lz4 zstd"}.items():
        for case in ("client-none", "transactions"):
            assert (version, case) in names
        for codec in codecs.split():
            assert {(version, f"client-{codec}"), (version, f"broker-{codec}")} <= names


@every_log
def test_a_log_becomes_the_rows_that_were_written(stored: Stored) -> None:
    found = stored.decode()
    assert found.next_offset == stored.said["until_offset"]
    assert found.counts == Counts(**stored.said["counts"])
    assert rows_of(found.batch) == stored.said["rows"]


@every_log
def test_a_log_read_from_the_middle_becomes_the_rest(stored: Stored) -> None:
    for start in range(stored.said["until_offset"]):
        found = stored.decode(start)
        assert found.counts.total == stored.said["until_offset"] - start
        assert rows_of(found.batch) == [r for r in stored.said["rows"] if r["offset"] >= start]


@pytest.mark.parametrize("stored", [s for s in ALL if s.path.stem != "transactions"], ids=label)
def test_a_log_is_packed_as_its_name_says(stored: Stored) -> None:
    codec = stored.path.stem.partition("-")[2]
    found = entries(fetched_at(stored.data))
    flags = [entry.header.attributes & 7 for entry in found]  # type: ignore[union-attr]
    assert set(flags) == {CODEC_NUMBERS[codec]}


@every_log
def test_any_flipped_bit_of_a_batch_is_found_out(stored: Stored) -> None:
    """From the checksum on; what stands before it is not covered by it."""
    step = max(1, len(stored.data) // 40)
    for position in range(17, len(stored.data), step):
        damaged = bytearray(stored.data)
        damaged[position] ^= 0x10
        batches = whole_batches(stored.data)
        inside = next(position - start for start, end in batches if start <= position < end)
        if inside < 17:
            continue
        with pytest.raises(BadRecord):
            stored.decode(data=bytes(damaged))


def whole_batches(data: bytes) -> list[tuple[int, int]]:
    found, at = [], 0
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        found.append((at, end))
        at = end
    return found


@pytest.mark.parametrize("home", sorted(HOME.iterdir()), ids=lambda home: home.name)
def test_the_readme_lists_every_log(home: Path) -> None:
    text = (home / "README.md").read_text(encoding="utf-8")
    listed = {line.split("|")[1].strip() for line in text.splitlines() if ".records |" in line}
    assert (
        listed
        == {path.name for path in home.glob("*.records")}
        == {f"{case}.records" for case in said_of(home)}
    )
