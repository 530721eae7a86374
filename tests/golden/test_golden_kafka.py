"""Responses of real brokers, byte for byte: read, compared with what the log held, written again.

What the log held was put there by another client and is in ``expected.json`` beside the
responses; see ``capture.py``. Every response also goes through the three ways.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.error_codes import error_code_of
from rangeland.wire.declarations import spec_of
from rangeland.wire.encoding import decode, decode_from, encode
from tests.contract.readers import read_three_ways
from tests.kafka_produce import ProduceRequest

HOME = Path(__file__).parent / "kafka"
REQUEST_OF = {spec_of(request).name: request for request in (*m.REQUESTS, ProduceRequest)}


@dataclass(frozen=True)
class Golden:
    """One captured response."""

    path: Path
    name: str
    version: int
    case: str

    @property
    def data(self) -> bytes:
        return self.path.read_bytes()

    @property
    def request(self) -> type[Any]:
        return REQUEST_OF[self.name]

    @property
    def response(self) -> type[Any]:
        response = spec_of(self.request).response
        assert response is not None
        return response

    @property
    def header_version(self) -> int:
        return m.response_header_version(self.request, self.version)

    @property
    def expected(self) -> dict[str, Any]:
        return expected_of(self.path.parent)

    def read(self) -> Any:
        _, start = decode_from(m.ResponseHeader, self.header_version, self.data)
        return decode(self.response, self.version, self.data, start)


@cache
def expected_of(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / "expected.json").read_text(encoding="utf-8"))
    return found


def golden(path: Path) -> Golden:
    name, version, case, _ = path.name.split(".")
    return Golden(path, name, int(version[1:]), case)


ALL = sorted((golden(path) for path in HOME.glob("*/*.bin")), key=lambda g: str(g.path))


def of(name: str, *cases: str) -> pytest.MarkDecorator:
    """Parametrises with the responses of one kind, and with these cases if any are named."""
    chosen = [g for g in ALL if g.name == name and (not cases or g.case in cases)]
    assert chosen, f"no response of {name} {cases} is stored"
    return pytest.mark.parametrize("stored", chosen, ids=label)


def label(stored: Golden) -> str:
    return f"{stored.path.parent.name}-{stored.path.stem}"


@pytest.mark.parametrize("stored", ALL, ids=label)
def test_a_response_is_written_again_byte_for_byte(stored: Golden) -> None:
    header, _ = decode_from(m.ResponseHeader, stored.header_version, stored.data)
    again = encode(header, stored.header_version) + encode(stored.read(), stored.version)
    assert again == stored.data


@pytest.mark.parametrize("stored", ALL, ids=label)
def test_a_response_passes_the_three_ways(stored: Golden) -> None:
    _, start = decode_from(m.ResponseHeader, stored.header_version, stored.data)
    found = read_three_ways(
        lambda buffer, offset: decode_from(stored.response, stored.version, buffer, offset),
        stored.data[start:],
    )
    assert found == stored.read()


@pytest.mark.parametrize(
    "home", sorted({stored.path.parent for stored in ALL}), ids=lambda h: h.name
)
def test_the_readme_lists_every_response(home: Path) -> None:
    text = (home / "README.md").read_text(encoding="utf-8")
    listed = {line.split("|")[1].strip() for line in text.splitlines() if ".bin |" in line}
    assert listed == {path.name for path in home.glob("*.bin")}
    assert f"Kafka {expected_of(home)['broker']}" in text


# --- what the responses say --------------------------------------------------------------


@of("ApiVersions", "plain")
def test_a_broker_lists_the_versions_that_were_captured(stored: Golden) -> None:
    response = stored.read()
    listed = {key.api_key: range(key.min_version, key.max_version + 1) for key in response.api_keys}
    assert response.error_code == 0
    for other in ALL:
        if other.path.parent == stored.path.parent and other.case != "too-new":
            assert other.version in listed[spec_of(other.request).key]


@of("ApiVersions", "too-new")
def test_a_version_too_new_is_refused_in_version_0(stored: Golden) -> None:
    response = stored.read()
    assert error_code_of(response.error_code).name == "UNSUPPORTED_VERSION"
    # From 2.4 on the broker says what it takes instead; before, nothing.
    keys = [key.api_key for key in response.api_keys]
    assert keys == ([] if stored.expected["broker"].startswith("0.") else [18])


@of("Metadata")
def test_metadata_names_the_broker_and_leaders(stored: Golden) -> None:
    response, expected = stored.read(), stored.expected
    (broker,) = response.brokers
    assert (broker.host, broker.port) == (expected["host"], expected["port"])
    (topic,) = [topic for topic in response.topics if topic.name == expected["topic"]]
    found = {part.partition_index: part for part in topic.partitions}
    assert sorted(found) == expected["partitions"]
    for part in found.values():
        assert (part.error_code, part.leader_id) == (0, broker.node_id)
        assert part.replica_nodes == part.isr_nodes == (broker.node_id,)
        assert part.leader_epoch == (0 if stored.version >= 7 else -1)
    assert (topic.topic_id is not None) == (stored.version >= 10)


@of("Metadata", "by-name")
def test_a_topic_that_is_not_there_has_its_own_error(stored: Golden) -> None:
    (missing,) = [topic for topic in stored.read().topics if topic.name == "no-such-topic"]
    assert error_code_of(missing.error_code).name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert (missing.partitions, missing.topic_id) == ((), None)


@of("ListOffsets")
def test_offsets_are_those_that_were_written(stored: Golden) -> None:
    expected = stored.expected
    (topic,) = stored.read().topics
    assert topic.name == expected["topic"]
    found = {part.partition_index: part for part in topic.partitions}
    assert error_code_of(found[9].error_code).name == "UNKNOWN_TOPIC_OR_PARTITION"
    end = expected["until_offset"]
    if stored.version == 0:
        # Segment starts: a time inside the only segment finds nothing before it.
        starts = {"latest": (end,), "earliest": (0,), "time": ()}
        assert found[0].old_style_offsets == starts[stored.case]
        return
    offsets = {"latest": end, "earliest": 0, "time": expected["offset_at_second_time"]}
    assert found[0].offset == offsets[stored.case]
    assert found[1].offset == (-1 if stored.case == "time" else 0)
    if stored.case == "time":
        assert found[0].timestamp == expected["second_time_ms"]


@of("Fetch", "data")
def test_records_are_those_that_were_written(stored: Golden) -> None:
    expected = stored.expected
    response = stored.read()
    (topic,) = response.responses
    assert topic.topic == (expected["topic"] if stored.version < 13 else "")
    assert (topic.topic_id is not None) == (stored.version >= 13)
    first, second = topic.partitions
    assert (first.error_code, first.high_watermark) == (0, expected["until_offset"])
    assert (second.high_watermark, bytes(second.records)) == (0, b"")
    assert b"value-0" in bytes(first.records)
    if stored.version >= 4:
        assert base_offsets(first.records) == expected["batch_offsets"]
        (aborted,) = first.aborted_transactions
        assert aborted.first_offset == expected["aborted_first_offset"]
        assert first.last_stable_offset == expected["until_offset"]
    if stored.version >= 5:
        assert first.log_start_offset == 0


def base_offsets(records: memoryview) -> list[int]:
    """First offsets of the batches, by the two numbers every batch begins with."""
    offsets, at = [], 0
    while at < len(records):
        offsets.append(int.from_bytes(records[at : at + 8], "big"))
        at += 12 + int.from_bytes(records[at + 8 : at + 12], "big")
    return offsets


@of("Fetch", "data")
def test_records_are_a_slice_of_the_frame(stored: Golden) -> None:
    frame = memoryview(stored.data)
    _, start = decode_from(m.ResponseHeader, stored.header_version, frame)
    response = decode(m.FetchResponse, stored.version, frame, start)
    records = response.responses[0].partitions[0].records
    assert records is not None
    assert records.obj is frame.obj


@of("Fetch", "out-of-range")
def test_an_offset_that_is_not_in_the_log_is_an_error_of_its_partition(stored: Golden) -> None:
    first, second = stored.read().responses[0].partitions
    assert error_code_of(first.error_code).name == "OFFSET_OUT_OF_RANGE"
    assert (first.high_watermark, second.error_code, second.high_watermark) == (-1, 0, 0)


@of("FindCoordinator")
def test_the_coordinator_is_the_only_broker(stored: Golden) -> None:
    response, expected = stored.read(), stored.expected
    where = (response.error_code, response.host, response.port)
    assert where == (0, expected["host"], expected["port"])


@of("OffsetFetch")
def test_a_group_stands_where_it_committed(stored: Golden) -> None:
    response, expected = stored.read(), stored.expected
    (topic,) = response.topics
    found = {part.partition_index: part for part in topic.partitions}
    if stored.version == 0:
        # ZooKeeper is asked, and this group has committed nothing there.
        assert {part.committed_offset for part in found.values()} == {-1}
        return
    assert (found[0].committed_offset, found[0].metadata) == (
        expected["group_offset"],
        expected["group_note"],
    )
    assert found[1].committed_offset == -1


@of("DescribeLogDirs")
def test_log_dirs_have_sizes(stored: Golden) -> None:
    (log_dir,) = stored.read().results
    (topic,) = log_dir.topics
    sizes = {part.partition_index: part.partition_size for part in topic.partitions}
    assert topic.name == stored.expected["topic"]
    assert sizes[0] > 0
    assert sizes[1] == 0
    assert (log_dir.total_bytes > log_dir.usable_bytes > 0) == (stored.version >= 4)


@of("Produce")
def test_each_batch_is_appended_after_the_last(stored: Golden) -> None:
    (topic,) = stored.read().responses
    (part,) = topic.partition_responses
    assert part.error_code == 0
    first_version = min(g.version for g in ALL if g.name == "Produce")
    assert part.base_offset == 3 * (stored.version - first_version)


@of("SaslHandshake")
def test_a_listener_without_sasl_says_so(stored: Golden) -> None:
    assert error_code_of(stored.read().error_code).name == "ILLEGAL_SASL_STATE"
