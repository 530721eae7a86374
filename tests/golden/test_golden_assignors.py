"""Our assignments and group bytes beside those of Kafka's own client.

*range* and *roundrobin* must be the same; *sticky* must be as balanced and keep as much.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rangeland.dialects.kafka import messages as m
from rangeland.groups.kafka.assignment import SubscribedMember, assign
from rangeland.groups.kafka.subscriptions import (
    assignment_bytes,
    read_assignment,
    read_owner,
    read_subscription,
    subscription_bytes,
)
from rangeland.model import Partition
from rangeland.wire.encoding import decode, encode

LINES = [
    json.loads(line)
    for line in (Path(__file__).parent / "groups" / "4.1.0.jsonl").read_text().splitlines()
]
HELD = frozenset({Partition("orders", 0), Partition("orders", 2)})


def of(*kinds: str) -> pytest.MarkDecorator:
    chosen = [line for line in LINES if line["kind"] in kinds]
    assert chosen
    return pytest.mark.parametrize("line", chosen, ids=range(len(chosen)))


def places(listed: list[list[Any]]) -> list[Partition]:
    return [Partition(topic, number) for topic, number in listed]


def partitions(line: dict[str, Any]) -> list[Partition]:
    return [Partition(t, number) for t, count in line["counts"].items() for number in range(count)]


def members(line: dict[str, Any]) -> dict[str, SubscribedMember]:
    held = line["held"] or {}
    return {
        member: SubscribedMember(
            frozenset(topics),
            frozenset(places(held.get(member, []))),
            generation=4 if held else -1,
            instance_id=line["instances"].get(member),
        )
        for member, topics in line["topics"].items()
    }


def kept(found: dict[str, list[Partition]], line: dict[str, Any]) -> int:
    return sum(len(member.held & set(found[name])) for name, member in members(line).items())


@of("range", "roundrobin")
def test_the_assignment_is_kafka_s(line: dict[str, Any]) -> None:
    found = assign(line["kind"], partitions(line), members(line))
    assert found == {member: places(share) for member, share in line["found"].items()}


@of("sticky")
def test_a_sticky_assignment_is_as_good_as_kafka_s(line: dict[str, Any]) -> None:
    found = assign("sticky", partitions(line), members(line))
    theirs = {member: places(share) for member, share in line["found"].items()}
    assert sorted(map(len, found.values())) == sorted(map(len, theirs.values()))
    assert kept(found, line) == kept(theirs, line)


@of("subscription")
def test_a_subscription_of_kafka_s_client_is_understood(line: dict[str, Any]) -> None:
    data, version = bytes.fromhex(line["hex"]), line["version"]
    said = decode(m.ConsumerProtocolSubscription, version, data, 2)
    assert data == encode(m.ConsumerProtocolHeader(version=version), 0) + encode(said, version)
    assert (said.rack_id, read_owner(data)) == ("rack-1" if version >= 3 else None, "")
    topics = frozenset({"clicks", "orders"})
    assert read_subscription(data, "sticky") == SubscribedMember(topics, HELD, 7)
    owned = HELD if version >= 1 else frozenset()
    generation = 7 if version >= 2 else -1
    assert read_subscription(data, "range") == SubscribedMember(topics, owned, generation)


@of("assignment")
def test_an_assignment_of_kafka_s_client_is_understood(line: dict[str, Any]) -> None:
    data = bytes.fromhex(line["hex"])
    assert read_assignment(data) == HELD
    if line["version"] == 1:
        assert assignment_bytes(HELD) == data


def test_what_we_say_is_what_kafka_s_client_says_and_whose_driver_it_is() -> None:
    (theirs,) = [
        bytes.fromhex(line["hex"])
        for line in LINES
        if line["kind"] == "subscription" and line["version"] == 1
    ]
    ours = subscription_bytes(["orders", "clicks"], HELD, 7, "rangeland/nightly")
    owner = b"\0\x11rangeland/nightly"
    at = theirs.index(b"\0\0\0\x07") + 4
    length = (0x1C).to_bytes(4, "big"), (0x1C + len(owner)).to_bytes(4, "big")
    assert ours == theirs[:at].replace(*length) + owner + theirs[at:]
    assert read_owner(ours) == "rangeland/nightly"
