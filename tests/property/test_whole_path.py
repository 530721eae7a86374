"""Kernel and reference through the whole reading path, for bytes whose checksums are right.

Whoever writes a log also writes its checksums, so damage that a checksum would show is not all
there is. Here bits are flipped and the checksum is repaired: whatever the bytes then say, both
decoders lead to the same rows and classes, or to the same error.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangeland import decode
from rangeland.dialects.rocketmq.queue_entries import fields_of
from rangeland.errors import RangelandError
from rangeland.loss import Action
from rangeland.planning.policy import Policy
from tests.examples import tried
from tests.fakes.logs import Log
from tests.property.test_flipped_bits import LOGS, outcome
from tests.reference.jafka_sets import JafkaReference
from tests.reference.kafka_records import KafkaReference
from tests.reference.rocketmq_messages import RocketmqReference

OWN = ("kafka v2", "kafka v0", "kafka v1", "jafka", "rocketmq", "rocketmq batches")
DECODERS = (decode.jafka_decoder, decode.rocketmq_decoder, decode.kafka_decoder)
REFERENCES = {
    "KafkaKernel": KafkaReference,
    "JafkaKernel": JafkaReference,
    "RocketmqKernel": RocketmqReference,
}
some = tried(6)


@contextmanager
def references() -> Iterator[None]:
    with ExitStack() as stack:
        for name, reference in REFERENCES.items():
            made = reference()
            stack.enter_context(mock.patch.object(decode, name, lambda _, made=made: made))
        for decoder in DECODERS:
            decoder.cache_clear()
            stack.callback(decoder.cache_clear)
        yield


def repaired(dialect: str, data: bytes) -> bytes:
    """With the checksum that these bytes should have, as far as it can be told where it is."""
    at, found = 0, 0
    if dialect == "jafka":
        at, found = 6, zlib.crc32(data[10:])
    elif dialect == "rocketmq":
        fields = fields_of(data)
        if fields is None:
            return data
        at, found = 8, zlib.crc32(data[fields.body : fields.body_end]) & 0x7FFFFFFF
    elif data[16] == 2 and len(data) >= 61:
        at, found = 17, crc32c.crc32c(data[21:])
    else:
        at, found = 12, zlib.crc32(data[16:])
    return data[:at] + found.to_bytes(4, "big") + data[at + 4 :]


def seen(dialect: str, log: Log, action: Action) -> Any:
    """What came of it, without the times that are in some errors."""
    found = outcome(dialect, log, log.begins, log.ends, policy=Policy(corrupt=action))
    if isinstance(found, RangelandError):
        return type(found).__name__, found.facts.get("base_offset"), found.facts.get("next_offset")
    return found.rows, found.receipt.counts, found.receipt.losses


@pytest.mark.parametrize("name", OWN)
@some
@given(data=st.data())
def test_both_decoders_lead_to_the_same(name: str, data: st.DataObject) -> None:
    dialect, log = LOGS[name]
    index = data.draw(st.integers(0, len(log.entries) - 1))
    size = len(log.entries[index][2])
    bad = log
    for _ in range(data.draw(st.integers(1, 3))):
        bad = bad.flipped(index, data.draw(st.integers(0, 8 * size - 1)))
    first, until, stored = bad.entries[index]
    entries = list(bad.entries)
    entries[index] = (first, until, repaired(dialect, stored))
    bad = Log(entries, log.joined)
    action = data.draw(st.sampled_from([Action.FAIL, Action.SKIP]))
    fast = seen(dialect, bad, action)
    with references():
        slow = seen(dialect, bad, action)
    assert fast == slow
