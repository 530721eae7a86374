"""RocketMQ before 5.1.1, whose brokers name the message whose time is the closest: each message is
in exactly one of several intervals that meet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.pulls_in_flight import number_of
from rangeland.model import Partition
from rangeland.testing.rocketmq_clients import RocketmqClient, produce
from tests.brokers.rocketmq import read, read_topic, settings_of
from tests.brokers.surveys import look, slice_of
from tests.record_values import values_of
from tests.servers.old_rocketmq import OldRocketmqCluster

pytestmark = [pytest.mark.brokers, pytest.mark.slow]

GROUPS, EACH, GAP_S = 6, 5, 0.3


@pytest.fixture(scope="module")
def old() -> Iterator[OldRocketmqCluster]:
    with OldRocketmqCluster() as cluster:
        yield cluster


def fill(cluster: OldRocketmqCluster, topic: str) -> list[int]:
    """Writes groups of messages with gaps between their times; the times in milliseconds."""
    cluster.create_topic(topic, 1)
    for group in range(GROUPS):
        produce(cluster.address(), topic, values_of(f"group-{group}", EACH))
        time.sleep(GAP_S)
    times = [round(row["timestamp"].timestamp() * 1_000) for row in read_topic(cluster, topic).rows]
    assert len(times) == GROUPS * EACH
    assert times == sorted(times)
    return times


def test_each_message_is_in_exactly_one_of_two_intervals_that_meet(
    old: OldRocketmqCluster, topic: str
) -> None:
    times = fill(old, topic)
    firsts = [times[group * EACH] for group in range(GROUPS)]
    gap_ms = int(GAP_S * 1_000)
    between = (-1, 0, 1, gap_ms // 3, gap_ms // 2, gap_ms * 2 // 3)
    bounds = sorted({first + later for first in (*firsts, times[-1]) for later in between})
    bounds = [times[0] - 60_000, *bounds, times[-1] + 60_000]
    settings = settings_of(old)
    queue = Partition(topic, 0, "broker-a")
    survey = look(settings, topics=(topic,), times_ms=tuple(bounds))
    log = survey.logs[queue]
    found = [survey.lookups.for_times[queue, bound] for bound in bounds]
    expected = [sum(stored < bound for stored in times) for bound in bounds]
    assert found == expected
    # Without a second look, several intervals would begin at the wrong message.
    with RocketmqClient(old.address()) as client:
        named = [number_of(client.ask(m.search_offset(queue, bound)), "offset") for bound in bounds]
    assert sum(a != b for a, b in zip(named, expected, strict=True)) > GROUPS

    landed: list[int] = []
    for (start, end), (from_ms, until_ms) in zip(pairwise(expected), pairwise(bounds), strict=True):
        rows = read([slice_of(log, start, end)], settings).rows if start < end else []
        landed += [row["offset"] for row in rows]
        stored = [round(row["timestamp"].timestamp() * 1_000) for row in rows]
        assert all(from_ms <= at < until_ms for at in stored)
    assert landed == list(range(GROUPS * EACH))


def test_an_interval_after_all_messages_has_none_until_one_comes(
    old: OldRocketmqCluster, topic: str
) -> None:
    """The broker names the last message of the interval before."""
    times = fill(old, topic)
    later_ms = times[-1] + 1
    queue = Partition(topic, 0, "broker-a")

    def end_by_time() -> int | None:
        survey = look(settings_of(old), topics=(topic,), times_ms=(later_ms,))
        return survey.lookups.for_times[queue, later_ms]

    assert end_by_time() == len(times)
    produce(old.address(), topic, [b"late"] * 2)
    assert end_by_time() == len(times)
    assert read_topic(old, topic).values[len(times) :] == [b"late"] * 2
