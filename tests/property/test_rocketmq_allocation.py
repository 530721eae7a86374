"""What every sharing of queues must be, and that it is upstream's, by hand and by its words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangeland.errors import LocalProtocolError
from rangeland.groups.range_assignment import cut_into_runs
from rangeland.groups.rocketmq.assignment import in_order, shares
from rangeland.model import Partition
from tests.examples import tried

quick = tried(25)
EVERY_SIZE = pytest.mark.parametrize(
    ("queues", "clients"), [(q, c) for q in range(1, 9) for c in range(1, 7)]
)
PARTITIONS = st.frozensets(
    st.builds(
        Partition,
        st.sampled_from(["clicks", "orders"]),
        st.integers(0, 11),
        st.sampled_from(["broker-a", "broker-b", "broker-c"]),
    )
)
CLIENTS = st.frozensets(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=6)


def upstream(queues: list[int], clients: list[str], client: str) -> list[int]:
    """Its own steps: an index, a remainder, a size, a start, and what fits."""
    index, mod = clients.index(client), len(queues) % len(clients)
    longer = mod > 0 and index < mod
    size = len(queues) // len(clients) + (1 if longer else 0)
    if len(queues) <= len(clients):
        size = 1
    start = index * size if longer else index * size + mod
    return [queues[start + i] for i in range(min(size, len(queues) - start))]


def names(count: int) -> list[str]:
    return [f"10.0.0.{n}@7#1" for n in range(count)]


@EVERY_SIZE
def test_each_queue_is_one_client_s(queues: int, clients: int) -> None:
    ids, all_queues = names(clients), list(range(queues))
    given_out = [queue for run in cut_into_runs(all_queues, ids).values() for queue in run]
    assert given_out == all_queues


@EVERY_SIZE
def test_shares_are_those_of_upstream_s_steps(queues: int, clients: int) -> None:
    ids, all_queues = names(clients), list(range(queues))
    by_upstream = {client: upstream(all_queues, ids, client) for client in ids}
    assert cut_into_runs(all_queues, ids) == by_upstream


@pytest.mark.parametrize(
    ("queues", "clients", "runs"),
    [
        (8, 3, ["012", "345", "67"]),
        (7, 3, ["012", "34", "56"]),
        (6, 3, ["01", "23", "45"]),
        (4, 4, ["0", "1", "2", "3"]),
        (3, 4, ["0", "1", "2", ""]),
        (1, 3, ["0", "", ""]),
        (5, 1, ["01234"]),
    ],
)
def test_shares_are_those_counted_by_hand(queues: int, clients: int, runs: list[str]) -> None:
    found = cut_into_runs(range(queues), names(clients))
    assert ["".join(map(str, run)) for run in found.values()] == runs


def test_nobody_to_share_with_is_an_error() -> None:
    with pytest.raises(LocalProtocolError, match="cannot be assigned"):
        shares([Partition("orders", 0, "broker-a")], [])


@quick
@given(PARTITIONS, CLIENTS)
def test_topics_are_shared_each_by_itself_and_evenly(
    partitions: frozenset[Partition], clients: frozenset[str]
) -> None:
    found = shares(partitions, clients)
    assert set(found) == clients
    assert sorted(p for share in found.values() for p in share) == sorted(partitions)
    for topic in {partition.topic for partition in partitions}:
        sizes = [sum(p.topic == topic for p in found[client]) for client in in_order(clients)]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)


def test_runs_follow_brokers_and_numbers() -> None:
    queues = [Partition("orders", n, b) for n in (10, 9, 2) for b in ("broker-b", "broker-a")]
    found = shares(queues, ["b", "a", "a"])
    assert [(p.broker, p.number) for p in sorted(found["a"], key=lambda p: p.number)] == [
        ("broker-a", 2),
        ("broker-a", 9),
        ("broker-a", 10),
    ]


def test_ids_are_ordered_as_java_orders_them() -> None:
    last, beyond = "￿", "\U0001f404"  # by code point the other way around
    assert in_order([last, beyond, "b", "B", "b"]) == ["B", "b", beyond, last]
