"""The queues of each client, compared with *allocate averagely* of RocketMQ's own client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rangeland.groups.rocketmq.assignment import shares
from rangeland.model import Partition

LINES = [
    json.loads(line)
    for line in (Path(__file__).parent / "rocketmq" / "5.5.0" / "allocation.jsonl")
    .read_text()
    .splitlines()
]


def queues_of(listed: list[list[Any]]) -> set[Partition]:
    return {Partition("orders", number, broker) for broker, number in listed}


def test_one_to_eight_queues_and_one_to_four_clients_are_asked_for() -> None:
    sizes = {(len(line["queues"]), len(line["found"])) for line in LINES}
    assert sizes == {(queues, clients) for queues in range(1, 9) for clients in range(1, 5)}


@pytest.mark.parametrize(
    "line", LINES, ids=lambda line: f"{len(line['queues'])}-queues-{len(line['found'])}-clients"
)
def test_drivers_share_queues_as_rocketmq_s_own_client_does(line: dict[str, Any]) -> None:
    found = shares(queues_of(line["queues"]), line["found"])
    assert found == {client: queues_of(share) for client, share in line["found"].items()}
