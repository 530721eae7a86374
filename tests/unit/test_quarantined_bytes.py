"""The bytes that cannot be decoded, cut out of what was fetched, in each dialect."""

from __future__ import annotations

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.dialects.dialect import load_dialect
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.slice_chunks import LostChunk
from rangeland.fetch.slice_reading import read_slices
from rangeland.loss import Action, DamagedBytes
from rangeland.model import Partition, Slice
from rangeland.planning.policy import Policy
from tests.fetched_records import fetched_at
from tests.jafka_entries import entry
from tests.record_batches import Batch, Record, encode
from tests.rocketmq_messages import messages, stored

THREE = [encode(Batch(base, [Record(b"k", b"v" * base)] * 4)) for base in (4, 8, 12)]


@pytest.mark.parametrize(
    ("from_offset", "until_offset", "expected"),
    [(8, 12, THREE[1]), (9, 10, THREE[1]), (4, 8, THREE[0]), (12, 16, THREE[2]), (16, 20, b"")],
)
def test_a_batch_of_kafka_is_cut_out_whole(
    from_offset: int, until_offset: int, expected: bytes
) -> None:
    records = memoryview(b"".join(THREE) + THREE[0][:30])
    cut = load_dialect("kafka").cut_out(fetched_at(records, 4), from_offset, until_offset)
    assert bytes(cut) == expected


def test_an_entry_of_jafka_is_cut_out_by_its_position() -> None:
    one, bad, three = entry(b"a"), entry(b"bb", crc=1), entry(b"ccc")
    first = 100 + len(one)
    records = memoryview(one + bad + three)
    cut = load_dialect("jafka").cut_out(fetched_at(records, 100), first, first + len(bad))
    assert bytes(cut) == bad


@pytest.mark.parametrize("position", [0, 1, 2])
def test_the_bytes_kept_are_those_that_cannot_be_decoded(position: int) -> None:
    bad = entry(b"bb", crc=1)
    entries = [entry(b"aaaa"), entry(b"ccc")]
    entries.insert(position, bad)
    stored = b"".join(entries)
    settings = ReadSettings(
        ClusterSettings("jafka", ()),
        policy=Policy(corrupt=Action.QUARANTINE),
        quarantined_bytes={0: DamagedBytes(stored, (), "")},
    )
    found = list(read_slices([Slice(0, Partition("t", 0, "1"), 0, len(stored))], settings))
    (kept,) = [chunk for chunk in found if isinstance(chunk, LostChunk)]
    assert isinstance(kept.quarantined_bytes, DamagedBytes)
    assert kept.quarantined_bytes.records == bad
    assert stored[kept.from_offset : kept.until_offset] == bad
    assert sum(chunk.counts.landed for chunk in found) == 2


def test_a_message_of_rocketmq_is_cut_out_by_its_offset() -> None:
    bad = stored(b"bad", 7, crc=1)
    records = memoryview(messages([b"a", b"b"], 5) + bad + messages([b"c"], 8) + bad[:20])
    cut_out = load_dialect("rocketmq").cut_out
    assert bytes(cut_out(fetched_at(records, 5), 7, 8)) == bad
    assert bytes(cut_out(fetched_at(records, 5), 5, 7)) == messages([b"a", b"b"], 5)
    assert bytes(cut_out(fetched_at(records, 5), 9, 10)) == b""
