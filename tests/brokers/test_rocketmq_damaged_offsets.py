"""One bit flipped in a broker's own file, in the offset that is stored with a message: no checksum
covers it, and the broker sends the message as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rangeland.decode.rocketmq.layout import MAGIC_1, MAGIC_2
from rangeland.errors import BadRecord
from rangeland.loss import Action
from rangeland.model import Counts
from rangeland.planning.policy import Policy
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.rocketmq_clients import produce
from tests.brokers.rocketmq import read, settings_of
from tests.brokers.surveys import look, slices_of

pytestmark = pytest.mark.brokers

MESSAGES, BAD = 200, 40
MAGICS = [magic.to_bytes(4, "big") for magic in (MAGIC_1, MAGIC_2)]
OFFSET_AT = 20


@pytest.fixture(scope="module")
def rocketmq() -> Iterator[RocketmqCluster]:
    with RocketmqCluster() as cluster:
        yield cluster


@contextmanager
def flipped(cluster: RocketmqCluster, value: bytes, bit: int) -> Iterator[None]:
    """A bit of the stored offset of the message with this value, for a while."""
    # A broker makes the next file of its log before it needs it.
    (log,) = (path for path in cluster.store().glob("commitlog/*") if value in path.read_bytes())
    body = log.read_bytes().index(value)
    hosts = (88, 100, 112)  # from a message's beginning to its body, by the length of addresses
    with log.open("r+b") as file:
        for width in hosts:
            file.seek(body - width + 4)
            if file.read(4) in MAGICS:
                break
        else:
            raise AssertionError("there is no message around the value")
        at = body - width + OFFSET_AT + bit // 8
        file.seek(at)
        before = file.read(1)
        file.seek(at)
        file.write(bytes([before[0] ^ 0x80 >> bit % 8]))
        file.flush()
        yield
        file.seek(at)
        file.write(before)


@pytest.mark.slow
def test_a_flipped_bit_in_a_stored_offset_is_damage_of_one_message(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    rocketmq.create_topic(topic, 1)
    values = [b"%s-%04d" % (topic.encode(), n) for n in range(MESSAGES)]
    produce(rocketmq.address(), topic, values, properties={"TAGS": "A"})
    settings = settings_of(rocketmq, no_progress_ms=4_000)
    slices = slices_of(look(settings, topics=(topic,)))
    assert read(slices, settings).values == values
    for bit in (0, 30, 56, 57, 58, 61, 63):
        with flipped(rocketmq, values[BAD], bit):
            with pytest.raises(BadRecord, match=f"offset {BAD} cannot be decoded"):
                read(slices, settings)
            found = read(slices, settings, policy=Policy(corrupt=Action.SKIP))
            assert found.values == [*values[:BAD], *values[BAD + 1 :]]
            assert found.counts == Counts(landed=MESSAGES - 1, lost=1)
    with flipped(rocketmq, values[BAD], 30), pytest.raises(BadRecord):
        read(slices, settings, tags=("A",))
    assert read(slices, settings).values == values
