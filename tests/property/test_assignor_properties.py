"""What holds for every assignment, whoever the members are; any bytes are an assignment or an
error.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangeland.dialects.kafka import messages as m
from rangeland.errors import JobFileError
from rangeland.groups.kafka.assignment import STRATEGIES, Assignment, SubscribedMember, assign
from rangeland.groups.kafka.subscriptions import (
    assignment_bytes,
    read_assignment,
    read_owner,
    read_subscription,
    subscription_bytes,
)
from rangeland.model import Partition
from rangeland.wire.declarations import spec_of
from rangeland.wire.encoding import decode, decode_from, encode
from tests.contract.readers import read_anything, read_three_ways
from tests.examples import tried
from tests.property.message_strategies import values_of

TOPICS = ["clicks", "orders", "refunds"]
PARTITIONS = st.builds(Partition, st.sampled_from(TOPICS), st.integers(0, 6))
NAMES = st.text("abc", min_size=1, max_size=3)


def member(topics: st.SearchStrategy[frozenset[str]]) -> st.SearchStrategy[SubscribedMember]:
    return st.builds(
        SubscribedMember,
        topics,
        st.frozensets(PARTITIONS, max_size=12),
        st.integers(-1, 2),
        st.none() | NAMES,
    )


def groups(
    topics: st.SearchStrategy[frozenset[str]],
) -> st.SearchStrategy[dict[str, SubscribedMember]]:
    return st.dictionaries(NAMES, member(topics), min_size=1, max_size=5)


ANY_TOPICS = st.frozensets(st.sampled_from(TOPICS))
ALIKE = groups(st.just(frozenset(TOPICS)))
LOGS = st.frozensets(PARTITIONS).map(sorted)
EVERY_STRATEGY = pytest.mark.parametrize("strategy", sorted(STRATEGIES))
quick = tried(25)


@EVERY_STRATEGY
@given(logs=LOGS, members=groups(ANY_TOPICS))
@quick
def test_every_partition_has_one_owner_who_subscribes_to_it(
    strategy: str, logs: list[Partition], members: dict[str, SubscribedMember]
) -> None:
    found = assign(strategy, logs, members)
    assert set(found) == set(members)
    owners = [(p, name) for name, share in found.items() for p in share]
    wanted = {topic for said in members.values() for topic in said.topics}
    assert sorted(p for p, _ in owners) == [p for p in logs if p.topic in wanted]
    assert all(p.topic in members[name].topics for p, name in owners)


@EVERY_STRATEGY
@given(logs=LOGS, members=groups(ANY_TOPICS), data=st.data())
@quick
def test_the_order_of_what_is_given_does_not_matter(
    strategy: str, logs: list[Partition], members: dict[str, SubscribedMember], data: st.DataObject
) -> None:
    shuffled = dict(data.draw(st.permutations(list(members.items()))))
    again = assign(strategy, data.draw(st.permutations(logs)), shuffled)
    assert again == assign(strategy, logs, members)


@given(logs=LOGS, members=ALIKE)
@quick
def test_who_says_the_same_gets_as_much_as_the_others(
    logs: list[Partition], members: dict[str, SubscribedMember]
) -> None:
    for strategy in ("roundrobin", "sticky"):
        sizes = [len(share) for share in assign(strategy, logs, members).values()]
        assert max(sizes) - min(sizes) <= 1
    shares = assign("range", logs, members).values()
    for topic in TOPICS:
        sizes = [sum(p.topic == topic for p in share) for share in shares]
        assert max(sizes) - min(sizes) <= 1


def ordered(members: dict[str, SubscribedMember]) -> list[str]:
    fixed = sorted(
        (x.instance_id, name) for name, x in members.items() if x.instance_id is not None
    )
    return [name for _, name in fixed] + sorted(
        n for n, x in members.items() if x.instance_id is None
    )


@given(logs=LOGS, members=groups(ANY_TOPICS))
@quick
def test_range_is_what_one_counts_out_by_hand(
    logs: list[Partition], members: dict[str, SubscribedMember]
) -> None:
    slow: Assignment = {name: [] for name in members}
    for topic in TOPICS:
        takers = [name for name in ordered(members) if topic in members[name].topics]
        left = [p for p in logs if p.topic == topic]
        while takers:
            # The first of those who are left gets its part, rounded up.
            count = -(-len(left) // len(takers))
            slow[takers.pop(0)] += left[:count]
            left = left[count:]
    assert assign("range", logs, members) == slow


@given(logs=LOGS, members=groups(ANY_TOPICS))
@quick
def test_round_robin_is_what_one_deals_out_by_hand(
    logs: list[Partition], members: dict[str, SubscribedMember]
) -> None:
    slow: Assignment = {name: [] for name in members}
    line = ordered(members)
    for partition in logs:
        taker = next((name for name in line if partition.topic in members[name].topics), None)
        if taker is not None:
            slow[taker].append(partition)
            at = line.index(taker) + 1
            line = line[at:] + line[:at]
    assert assign("roundrobin", logs, members) == slow


@given(logs=LOGS, members=groups(ANY_TOPICS))
@quick
def test_no_single_move_would_even_out_a_sticky_assignment(
    logs: list[Partition], members: dict[str, SubscribedMember]
) -> None:
    found = assign("sticky", logs, members)
    for share in found.values():
        for partition in share:
            for other, said in members.items():
                if partition.topic in said.topics:
                    assert len(share) <= len(found[other]) + 1


@given(logs=LOGS, members=ALIKE, data=st.data())
@quick
def test_sticky_keeps_as_much_as_balance_allows(
    logs: list[Partition], members: dict[str, SubscribedMember], data: st.DataObject
) -> None:
    holders = {p: data.draw(st.sampled_from([None, *sorted(members)])) for p in logs}
    told = {
        name: SubscribedMember(x.topics, frozenset(p for p, h in holders.items() if h == name), 3)
        for name, x in members.items()
    }
    found = assign("sticky", logs, told)
    size, extra = divmod(len(logs), len(told))
    held = sorted((len(x.held) for x in told.values()), reverse=True)
    places = [size + 1] * extra + [size] * (len(told) - extra)
    most = sum(min(pair) for pair in zip(held, places, strict=True))
    assert sum(len(told[name].held & set(share)) for name, share in found.items()) == most


@given(logs=LOGS, members=ALIKE)
@quick
def test_an_assignment_that_was_is_kept_whole(
    logs: list[Partition], members: dict[str, SubscribedMember]
) -> None:
    first = assign("sticky", logs, members)
    told = {n: SubscribedMember(x.topics, frozenset(first[n]), 5) for n, x in members.items()}
    assert assign("sticky", logs, told) == first


def test_the_later_generation_is_believed_and_a_tie_is_not() -> None:
    topics, logs = frozenset({"orders"}), [Partition("orders", n) for n in range(2)]
    old, new = (SubscribedMember(topics, frozenset(logs[:1]), generation) for generation in (1, 2))
    assert assign("sticky", logs, {"a": old, "b": new}) == {"a": [logs[1]], "b": [logs[0]]}
    assert assign("sticky", logs, {"a": new, "b": new}) == {"a": [logs[0]], "b": [logs[1]]}


def test_a_strategy_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(JobFileError, match=r"no assignment fair.*range, roundrobin, sticky"):
        assign("fair", [], {"a": SubscribedMember(frozenset())})


# --- bytes --------------------------------------------------------------------------------

EVERY_VERSION = [
    pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
    for cls in (
        m.ConsumerProtocolHeader,
        m.ConsumerProtocolSubscription,
        m.ConsumerProtocolAssignment,
        m.StickyUserData,
    )
    for version in range(spec_of(cls).versions[1] + 1)
]


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION)
@given(data=st.data())
@tried(6)
def test_what_members_say_is_read_again_and_passes_the_three_ways(
    cls: type[object], version: int, data: st.DataObject
) -> None:
    value = data.draw(values_of(cls, version))
    encoded = encode(value, version)
    assert decode(cls, version, encoded) == value
    read_three_ways(lambda buffer, at: decode_from(cls, version, buffer, at), encoded)


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION)
@given(data=st.binary(max_size=60))
@tried(6)
def test_any_bytes_are_what_a_member_says_or_refused(
    cls: type[object], version: int, data: bytes
) -> None:
    read_anything(lambda buffer, at: decode_from(cls, version, buffer, at), data)


@given(
    topics=st.frozensets(st.sampled_from(TOPICS)),
    held=st.frozensets(PARTITIONS),
    generation=st.integers(-1, 2**31 - 1),
    job=NAMES,
)
@quick
def test_what_a_driver_says_is_what_the_leader_hears(
    topics: frozenset[str], held: frozenset[Partition], generation: int, job: str
) -> None:
    data = subscription_bytes(topics, held, generation, f"rangeland/{job}")
    assert read_subscription(data, "sticky", "i") == SubscribedMember(topics, held, generation, "i")
    assert read_subscription(data, "range") == SubscribedMember(topics, held)
    assert read_owner(data) == f"rangeland/{job}"
    assert read_assignment(assignment_bytes(held)) == held


@given(st.binary(max_size=60), st.sampled_from([b"", b"\0\0", b"\0\1", b"\0\3", b"\0\x09"]))
@quick
def test_any_bytes_of_another_client_mean_something_or_nothing(data: bytes, head: bytes) -> None:
    for strategy in STRATEGIES:
        assert isinstance(read_subscription(head + data, strategy), SubscribedMember)
    assert isinstance(read_assignment(head + data), frozenset)
    assert read_owner(head + data) == ""
