"""What stands in ZooKeeper's nodes, and where a ZooKeeper is: read and written, no server."""

from __future__ import annotations

import json

import pytest

from rangeland.errors import JobFileError, RemoteProtocolError
from rangeland.groups.zookeeper.membership_view import ZooKeeperGroupView, group_in_use_error
from rangeland.groups.zookeeper.znode_layout import (
    ids_path,
    member_name,
    offset_path,
    owner_path,
    read_name,
    read_offset,
    read_owner,
    read_partition,
    read_topics,
    registration,
)
from rangeland.model import Address, Partition
from rangeland.zookeeper.broker_registry import (
    BrokerRegistry,
    parse_broker,
    parse_kafka_topic,
    parse_partition_count,
)
from rangeland.zookeeper.connect_string import ConnectString, read_ensemble

JAFKA = Partition("orders", 0, "1")
KAFKA = Partition("orders", 3)

# --- where ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("zk:2181", [("zk", 2181)], ""),
        ("zk", [("zk", 2181)], ""),
        ("zk:2181/", [("zk", 2181)], ""),
        (" a:1, b:2/jafka ", [("a", 1), ("b", 2)], "/jafka"),
        ("[::1]:2181,10.0.0.1/x/y/", [("::1", 2181), ("10.0.0.1", 2181)], "/x/y"),
    ],
)
def test_an_ensemble_is_servers_and_a_chroot(
    text: str, servers: list[tuple[str, int]], chroot: str
) -> None:
    ensemble = read_ensemble(text)
    assert ensemble == ConnectString(tuple(Address(h, p) for h, p in servers), chroot)
    assert read_ensemble(str(ensemble)) == ensemble


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/jafka",
        "zk:0",
        "zk:65536",
        "zk:port",
        "zk:1,",
        "zk:1//a",
        "zk:1/a/../b",
        "::1:2181",
        "zk:" + "9" * 5_000,
        "zk:\u0663",
    ],
)
def test_a_bad_address_is_the_job_files_fault(text: str) -> None:
    with pytest.raises(JobFileError, match=r"source\.zookeeper"):
        read_ensemble(text)


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(JobFileError) as caught:
        read_ensemble("me:secret@zk:2181")
    assert "secret" not in str(caught.value)


# --- brokers and topics -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "address"),
    [
        (b"127.0.0.1-1795233291428:127.0.0.1:21192:true", Address("127.0.0.1", 21192)),
        (b"host-1795233291428:host:9092:false", Address("host", 9092)),
        (b"host-1795233291428:host:9092", Address("host", 9092)),
        (b"0#0#0#1-17952:fe80##1:9092:true", Address("fe80::1", 9092)),
        (b"x:[##1]:9092:true", Address("::1", 9092)),
        (b'{"jmx_port":-1,"host":"b1","version":1,"port":9092}', Address("b1", 9092)),
        (
            b'{"host":null,"port":-1,"endpoints":["SSL://[::1]:9093"],"version":4}',
            Address("::1", 9093),
        ),
    ],
)
def test_a_brokers_node_gives_its_address(content: bytes, address: Address) -> None:
    assert parse_broker("1", content) == address


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"host:9092",
        b"a:b:c:d:e",
        b"x:host:port:true",
        b"x::9092:true",
        b"x:host:0:true",
        b"x:host:70000:true",
        b"\xff\xfe",
        b"{",
        b"{}",
        b'{"host":"h"}',
        b'{"host":"h","port":"9092"}',
        b'{"host":null,"port":-1,"endpoints":["SSL"]}',
    ],
)
def test_a_brokers_node_that_says_no_address_is_named(content: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="/brokers/ids/7"):
        parse_broker("7", content)


def test_partitions_are_counted_per_broker_or_for_the_cluster() -> None:
    assert parse_partition_count("orders", "1", b"2") == 2
    assert parse_kafka_topic("orders", b'{"version":1,"partitions":{"1":[1,2],"0":[2,1]}}') == 2


@pytest.mark.parametrize("content", [b"", b"two", b"-1", b"2.5", "²".encode(), b"\xff"])
def test_what_is_not_a_number_of_partitions_is_named(content: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="/brokers/topics/orders/1"):
        parse_partition_count("orders", "1", content)


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b"{}", b'{"partitions":[0]}', b'{"partitions":{"0":[],"2":[]}}']
)
def test_what_is_not_a_topic_of_kafkas_is_named(content: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="/brokers/topics/orders"):
        parse_kafka_topic("orders", content)


def test_a_registry_says_what_was_seen() -> None:
    seen = BrokerRegistry(
        {"1": Address("h", 1)}, {"orders": {"1": 2, "2": 1}, "all": {"": 2}}, "zk"
    )
    assert seen.partitions("orders") == (
        Partition("orders", 0, "1"),
        Partition("orders", 0, "2"),
        Partition("orders", 1, "1"),
    )
    assert seen.partitions("all") == (Partition("all", 0), Partition("all", 1))
    assert seen.partitions("none") == ()
    assert seen.absent == {"2"}
    assert str(seen) == "zk has brokers 1 at h:1, 2 topics; partitions of 2 without the broker"
    assert str(BrokerRegistry(source="zk")) == "zk has brokers none, 0 topics"


# --- groups -----------------------------------------------------------------------------


def test_paths_are_those_of_upstream() -> None:
    assert ids_path("g", "m") == "/consumers/g/ids/m"
    assert owner_path("g", JAFKA) == "/consumers/g/owners/orders/1-0"
    assert owner_path("g", KAFKA) == "/consumers/g/owners/orders/3"
    assert offset_path("g", JAFKA) == "/consumers/g/offsets/orders/1-0"


@pytest.mark.parametrize("group", ["", ".", "..", "a/b", "a\n"])
def test_a_group_that_is_not_a_node_is_refused(group: str) -> None:
    with pytest.raises(JobFileError):
        ids_path(group)


def test_partition_names_read_back() -> None:
    assert read_partition("orders", "1-0") == JAFKA
    assert read_partition("orders", "3") == KAFKA
    assert read_partition("orders", "1-x") is None


def test_a_driver_is_known_by_its_name_and_nobody_else_is() -> None:
    mine = member_name("g", "orders.hourly-2", "etl-7.local", 1795233329683, "c81507e9")
    assert mine == "g_rangeland.orders.hourly-2@etl-7.local-1795233329683-c81507e9"
    name = read_name("g", mine)
    assert (name.job, name.client_id, name.host) == ("orders.hourly-2", "rangeland", "etl-7.local")
    upstream = read_name("g", "g_etl-7.local-1795233329683-c81507e9")
    assert (upstream.job, upstream.client_id, upstream.host) == ("", "", "etl-7.local")
    assert read_name("g", "g_myself").host == ""
    assert read_name("g", "g_rangeland@h-1-c81507e9").job == ""


def test_an_owner_is_the_member_behind_the_thread() -> None:
    assert read_owner(b"g_host-1795233329683-c81507e9-0") == "g_host-1795233329683-c81507e9"
    assert read_owner(b"odd") == "odd"


def test_a_registration_is_what_upstream_reads() -> None:
    """Jafka maps it to a map of integers; Kafka takes pattern and subscription from it."""
    jafka = registration([JAFKA, Partition("a", 1, "2"), Partition("a", 0, "1")], 5)
    assert jafka == b'{"a":1,"orders":1}'
    kafka = json.loads(registration([KAFKA], 5))
    assert kafka["pattern"] == "static"
    assert kafka["subscription"] == {"orders": 1}
    assert read_topics(jafka) == {"a", "orders"}
    assert read_topics(json.dumps(kafka).encode()) == {"orders"}


@pytest.mark.parametrize(
    "content",
    [b"", b"*1*.*", b"[]", b'{"pattern":"white_list","subscription":{"o.*":1}}', b'{"a":"b"}'],
)
def test_topics_that_cannot_be_told_are_not_taken_for_none(content: bytes) -> None:
    assert read_topics(content) is None


def test_offsets_are_numbers() -> None:
    assert read_offset("/p", b"5040") == 5040
    for content in (b"", b"ten", b"1" * 20, b"\xff"):
        with pytest.raises(RemoteProtocolError, match="/p"):
            read_offset("/p", content)


# --- who is there -----------------------------------------------------------------------


def _driver(random: str, job: str = "j") -> str:
    return member_name("g", job, "h", 1, random)


def test_a_stranger_is_who_reads_the_same_topics_for_another_end() -> None:
    mine, other = _driver("00000001"), _driver("00000002", "another")
    topics = {
        mine: frozenset({"orders"}),
        other: frozenset({"orders"}),
        "g_reads-elsewhere": frozenset({"clicks"}),
        "g_reads-all": None,
    }
    view = ZooKeeperGroupView("g", "j", topics, {JAFKA: other})
    assert view.drivers() == (mine,)
    assert [h.member_id for h in view.others([JAFKA])] == sorted([other, "g_reads-all"])
    held = {h.member_id: h.partitions for h in view.others([JAFKA])}
    assert held == {other: {JAFKA}, "g_reads-all": frozenset()}


def test_who_stands_in_the_way_is_named_with_what_it_owns() -> None:
    owned = {Partition("orders", n, "1"): "g_c" for n in range(10)}
    view = ZooKeeperGroupView("g", "j", {"g_c": None}, owned)
    error = group_in_use_error("g", view.others([JAFKA]), "x")
    assert "g_c (owns orders/1-0, orders/1-1" in str(error)
    assert "and 2 more" in str(error)
    assert len(error.facts["partitions"]["g_c"]) == 10


@pytest.mark.parametrize(
    ("members", "owners", "state"),
    [
        ([], {}, "empty"),
        (["a"], {JAFKA: "a"}, "stable"),
        (["a"], {JAFKA: "gone"}, "rebalancing"),
        (["a", "b"], {JAFKA: "a"}, "stable"),
        (["a", "b"], {JAFKA: "a", Partition("orders", 1, "1"): "a"}, "rebalancing"),
    ],
)
def test_a_groups_state_is_judged_by_its_owners(
    members: list[str], owners: dict[Partition, str], state: str
) -> None:
    assert (
        ZooKeeperGroupView("g", "j", {m: frozenset({"orders"}) for m in members}, owners).state
        == state
    )


def test_others_in_the_group_do_not_keep_the_drivers_from_being_settled() -> None:
    """Upstream's consumers read by several threads, so their shares differ."""
    mine, elsewhere = _driver("00000001"), frozenset({"clicks"})
    topics = {mine: frozenset({"orders"}), "a": elsewhere, "b": elsewhere}
    owners = {JAFKA: mine, **{Partition("clicks", n): "a" for n in range(4)}}
    assert ZooKeeperGroupView("g", "j", topics, owners).state == "stable"
    assert (
        ZooKeeperGroupView("g", "j", topics, owners | {Partition("clicks", 4): "x"}).state
        == "stable"
    )
    assert ZooKeeperGroupView("g", "", topics, owners).state == "rebalancing"
