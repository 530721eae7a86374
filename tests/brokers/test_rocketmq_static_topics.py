"""Static topics, whose queues are numbered over several brokers and can move between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.routes import TopicRoute, read_route
from rangeland.errors import MissingRequirement
from rangeland.model import Counts
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.rocketmq_clients import RocketmqClient, produce
from tests.brokers.rocketmq import read, read_topic, run_admin, run_clients, settings_of
from tests.brokers.surveys import look, slices_of
from tests.record_values import values_of

pytestmark = [pytest.mark.brokers, pytest.mark.slow]

NOT_SUPPORTED = "the queues of a static topic are numbered over several brokers"


@pytest.fixture(scope="module")
def two() -> Iterator[RocketmqCluster]:
    with RocketmqCluster(brokers=2) as cluster:
        yield cluster


def route_of(cluster: RocketmqCluster, topic: str) -> TopicRoute:
    with RocketmqClient(cluster.servers[0]) as client:
        return read_route(client.ask(m.route(topic)).body)


def test_a_static_topic_over_two_brokers_is_refused_and_others_are_read(
    two: RocketmqCluster, topic: str
) -> None:
    ordinary = f"{topic}-ordinary"
    two.create_topic(ordinary, 1)
    for broker in two.masters:
        produce(two.address(broker), ordinary, values_of(broker, 10))
    run_admin(two, "updateStaticTopic", "-t", topic, "-qn", "4", "-b", ",".join(two.masters))
    numbers = route_of(two, topic).static_queues
    assert sorted(number for of_one in numbers.values() for number in of_one) == [0, 1, 2, 3]
    assert all(len(of_one) == 2 for of_one in numbers.values())
    run_clients("produce", two.servers[0], topic, "plain", "8")
    for topics in ((topic,), (ordinary, topic)):
        with pytest.raises(MissingRequirement, match=NOT_SUPPORTED) as refused:
            look(settings_of(two), topics=topics)
        assert refused.value.exit_code == 78
    assert read_topic(two, ordinary).values == values_of("broker-a", 10) + values_of("broker-b", 10)


def test_a_static_topic_of_one_broker_is_read_until_it_moves(
    two: RocketmqCluster, topic: str
) -> None:
    settings = settings_of(two)
    run_admin(two, "updateStaticTopic", "-t", topic, "-qn", "2", "-b", "broker-a")
    run_clients("produce", two.servers[0], topic, "plain", "8")
    slices = slices_of(look(settings, topics=(topic,)))
    first = read(slices, settings)
    assert sorted(first.values) == [f"plain-{n}".encode() for n in range(8)]
    assert first.counts == Counts(landed=8)

    run_admin(two, "remappingStaticTopic", "-t", topic, "-b", "broker-b")
    assert route_of(two, topic).static_queues["broker-b"] == {0, 1}
    with pytest.raises(MissingRequirement, match=NOT_SUPPORTED):
        look(settings, topics=(topic,))
    # Its old queues, which were planned before: their messages are neither lost nor skipped.
    with pytest.raises(MissingRequirement) as refused:
        read(slices, settings)
    assert NOT_SUPPORTED in refused.value.why
    # Back at the first broker, the topic has other queues there.
    run_admin(two, "remappingStaticTopic", "-t", topic, "-b", "broker-a")
    run_clients("produce", two.servers[0], topic, "plain", "8")
    with pytest.raises(MissingRequirement, match=NOT_SUPPORTED):
        look(settings, topics=(topic,))
    again = read(slices, settings)
    assert (again.values, again.counts) == (first.values, first.counts)
