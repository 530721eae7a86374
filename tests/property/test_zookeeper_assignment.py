"""Range assignment in ZooKeeper's groups: everybody's share, and upstream's rule."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangeland.groups.zookeeper.assignment import rank, shares
from rangeland.model import Partition

MEMBERS = [f"g_h-1795233329683-{n:08x}" for n in range(5)]
EACH = list(itertools.product(range(1, 9), range(1, 6)))


@pytest.mark.parametrize(("partitions", "members"), EACH)
def test_each_partition_has_exactly_one_owner(partitions: int, members: int) -> None:
    wanted = {Partition("orders", n, str(n % 2)) for n in range(partitions)}
    found = shares(wanted, MEMBERS[:members])
    assert sorted(p for share in found.values() for p in share) == sorted(wanted)
    assert found.keys() == set(MEMBERS[:members])


@pytest.mark.parametrize(("partitions", "members"), EACH)
def test_shares_are_upstreams(partitions: int, members: int) -> None:
    """Its loop in other words: walk the partitions, the first few members take one more."""
    ordered = [Partition("orders", n, "1") for n in range(partitions)]
    counts = [
        partitions // members + (1 if i < partitions % members else 0) for i in range(members)
    ]
    walk = iter(ordered)
    expected = {m: set(itertools.islice(walk, c)) for m, c in zip(MEMBERS, counts, strict=False)}
    assert shares(ordered, MEMBERS[:members]) == expected


def test_partitions_are_in_upstreams_order() -> None:
    """Jafka sorts names as text, Kafka sorts numbers."""
    jafka = [Partition("t", n, b) for b, n in [("10", 0), ("2", 0), ("1", 2), ("1", 10)]]
    assert [f"{p.broker}-{p.number}" for p in sorted(jafka, key=rank)] == [
        "1-10",
        "1-2",
        "10-0",
        "2-0",
    ]
    assert [p.number for p in sorted([Partition("t", n) for n in (10, 2, 1)], key=rank)] == [
        1,
        2,
        10,
    ]


@given(
    st.sets(
        st.builds(
            Partition,
            st.sampled_from(["a", "b"]),
            st.integers(0, 20),
            st.sampled_from(["1", "2", "10"]),
        ),
        max_size=30,
    ),
    st.lists(st.sampled_from(MEMBERS), min_size=1, unique=True),
)
def test_shares_do_not_depend_on_the_order_of_what_is_said(
    partitions: set[Partition], members: list[str]
) -> None:
    found = shares(partitions, members)
    assert shares(sorted(partitions, reverse=True), reversed(members)) == found
    for topic in ("a", "b"):
        sizes = [sum(p.topic == topic for p in share) for share in found.values()]
        assert max(sizes) - min(sizes) <= 1
