"""Kafka's side of the dialect interface: requests as messages, responses as values.

Pure. The special values of the protocol (-1 latest, -2 earliest, -1 nothing) are not visible
outside this module. A fetch uses topic ids if all requested partitions have one; otherwise its
version stays below those that need ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.cluster_values import (
    ClusterView,
    LeaderRequest,
    NoSeedAnswered,
    OffsetResult,
    RestartRequired,
    Search,
    TopicView,
)
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import (
    NO_DATA,
    FetchedPartition,
    FetchedRecords,
    FetchOptions,
    FetchResult,
    PartitionFetch,
)
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.error_codes import (
    REBOOTSTRAP_REQUIRED,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_code_of,
)
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import Unreachable
from rangeland.grouping import group_by
from rangeland.model import Address, AtTime, Earliest, Isolation, Latest, Leader, Partition

LAST_FETCH_BY_NAME = 12
INTERNAL = ("__consumer_offsets", "__transaction_state")
"""Kafka's own topics, which the oldest brokers do not mark as internal."""

MAGIC_AT = 16
"""The byte index of the format number, the same in all formats. Format 0 has no timestamps."""


def lacks_timestamp(records: memoryview) -> bool:
    """Whether the first entry has format 0, which brokers before 0.10 wrote."""
    return len(records) > MAGIC_AT and records[MAGIC_AT] == 0


CAPABILITIES = Capabilities(
    has_epochs=True,
    has_transactions=True,
    source_keys=frozenset({"tls", "sasl", "compacted", "rack"}),
    log_tool="kafka-dump-log",
    lacks_timestamp=lacks_timestamp,
)


def find_leaders(
    topics: Sequence[str] | None, seeds: Sequence[Address], named_brokers: Mapping[str, Address]
) -> Search:
    """Asks a broker for the leaders of topics. The first seed that answers is believed: any broker
    knows the whole cluster. Raises RestartRequired if the broker says that this client's knowledge
    of the cluster is out of date."""
    responses = yield LeaderRequest(tuple(seeds), (cluster_request(topics),))
    if isinstance(responses, NoSeedAnswered):
        raise responses.as_error()
    response: m.MetadataResponse = responses[0]
    code = error_code_of(response.error_code)
    if code.meaning is not ErrorMeaning.OK or not response.brokers:
        # A broker that has just started may know nothing about its cluster, not even about itself.
        kind = RestartRequired if code == REBOOTSTRAP_REQUIRED else Unreachable
        raise kind(
            "the broker does not describe its cluster",
            why=code.describe() if response.error_code else "its response lists no brokers",
            do="try again in a moment",
        )
    return _pick_topics(read_cluster(response), topics)


def cluster_request(topics: Sequence[str] | None) -> BrokerRequest:
    """Asks for the brokers and these topics; None: all topics."""
    names = None if topics is None else tuple(m.MetadataRequestTopic(name=t) for t in topics)
    return BrokerRequest(m.MetadataRequest(topics=names, allow_auto_topic_creation=False))


def _pick_topics(view: ClusterView, topics: Sequence[str] | None) -> ClusterView:
    """The view with only the requested topics. Older brokers are asked for all topics, and do not
    say which ones they do not know or do not show to this client."""
    if topics is None:
        return view
    code = UNKNOWN_TOPIC_OR_PARTITION
    unknown = TopicView("", code.meaning, code.name, is_unknown=True, may_be_hidden=True)
    views = {name: view.topics.get(name, replace(unknown, name=name)) for name in topics}
    return replace(view, topics=views)


def read_cluster(response: m.MetadataResponse) -> ClusterView:
    """The cluster in a metadata response, with all topics that have a name."""
    nodes = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
    topics = {}
    for topic in response.topics:
        if topic.name is None:
            continue
        code = error_code_of(topic.error_code)
        topics[topic.name] = TopicView(
            name=topic.name,
            meaning=code.meaning,
            code_name=code.name if code.meaning is not ErrorMeaning.OK else "",
            is_internal=topic.is_internal or topic.name in INTERNAL,
            leaders={
                Partition(topic.name, p.partition_index): _leader(p, topic.topic_id, nodes)
                for p in topic.partitions
            },
            is_unknown=code.is_unknown_topic,
        )
    return ClusterView(tuple(nodes.values()), topics, cluster_id=response.cluster_id or "")


def _leader(
    partition: m.MetadataPartition, topic_id: str | None, nodes: Mapping[int, Address]
) -> Leader:
    """A partition's leader. The partition's error code is ignored: the leader works even if a
    replica is down (9), and a missing leader is recognised by its number."""
    return Leader(
        address=nodes.get(partition.leader_id),
        epoch=partition.leader_epoch if partition.leader_epoch >= 0 else None,
        topic_id=topic_id,
        replicas=tuple(nodes[n] for n in partition.replica_nodes if n in nodes),
        replica_ids=tuple(n for n in partition.replica_nodes if n in nodes),
        copies=len(partition.replica_nodes),
    )


def offsets_requests(
    leaders: Mapping[Partition, Leader], when: Earliest | Latest | AtTime, isolation: Isolation
) -> list[BrokerRequest]:
    """One request for all partitions, whose leader must be the broker that is asked."""
    match when:
        case Earliest():
            timestamp = m.EARLIEST_TIMESTAMP
        case Latest():
            timestamp = m.LATEST_TIMESTAMP
        case AtTime(time_ms):
            timestamp = time_ms
    return _list_offsets_requests(leaders, timestamp, isolation)


def latest_timestamps_requests(
    leaders: Mapping[Partition, Leader], isolation: Isolation
) -> list[BrokerRequest]:
    """Asks for the records with the latest timestamps (KIP-734). Brokers before 3.0 do not know the
    request: they return the first record, or none if the segment that should contain it has no
    records."""
    return _list_offsets_requests(leaders, m.MAX_TIMESTAMP, isolation)


def _list_offsets_requests(
    leaders: Mapping[Partition, Leader], timestamp: int, isolation: Isolation
) -> list[BrokerRequest]:
    """One request for all partitions."""
    topics = tuple(
        m.ListOffsetsTopic(
            name=topic,
            partitions=tuple(
                m.ListOffsetsPartition(
                    partition_index=partition.number,
                    current_leader_epoch=or_unknown(leaders[partition].epoch),
                    timestamp=timestamp,
                )
                for partition in partitions
            ),
        )
        for topic, partitions in group_by(leaders, lambda p: p.topic).items()
    )
    return [BrokerRequest(m.ListOffsetsRequest(isolation_level=_level(isolation), topics=topics))]


def read_offsets(responses: Sequence[m.ListOffsetsResponse]) -> dict[Partition, OffsetResult]:
    return {
        Partition(topic.name, partition.partition_index): _offset_response(partition)
        for response in responses
        for topic in response.topics
        for partition in topic.partitions
    }


def _offset_response(response: m.ListOffsetsPartitionResponse) -> OffsetResult:
    """The offset in a partition's response. Version 0 returns the beginning of the last segment
    that was not written to after the requested time; if it returns nothing, only the log's
    beginning is certain. It is exact only for the end and the beginning of the log."""
    code = error_code_of(response.error_code)
    if code.meaning is not ErrorMeaning.OK:
        return OffsetResult(code.meaning, code.name, None)
    if response.old_style_offsets is not None:
        borders = tuple(sorted(response.old_style_offsets))
        latest = borders[-1] if borders else 0
        return OffsetResult(code.meaning, code.name, latest, is_exact=False, borders=borders)
    offset = response.offset if response.offset >= 0 else None
    time_ms = response.timestamp if response.timestamp >= 0 else None
    return OffsetResult(code.meaning, code.name, offset, time_ms=time_ms)


def sizes_requests(logs: Mapping[Partition, tuple[int, int]]) -> list[BrokerRequest]:
    topics = tuple(
        m.DescribableLogDirTopic(topic=topic, partitions=tuple(p.number for p in group))
        for topic, group in group_by(logs, lambda p: p.topic).items()
    )
    return [BrokerRequest(m.DescribeLogDirsRequest(topics=topics))]


def read_sizes(responses: Sequence[m.DescribeLogDirsResponse]) -> dict[Partition, int]:
    """The sizes in bytes on this broker's disks; empty if the broker does not say."""
    return {
        Partition(topic.name, partition.partition_index): partition.partition_size
        for response in responses
        for directory in response.results
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }


def records_requests(
    fetches: Sequence[PartitionFetch], options: FetchOptions
) -> list[BrokerRequest]:
    """A full fetch without a session. Brokers fill it in the order of ``fetches``."""
    topics = tuple(
        m.FetchTopic(
            topic=topic,
            topic_id=group[0].topic_id,
            partitions=tuple(
                m.FetchPartition(
                    partition=fetch.partition.number,
                    current_leader_epoch=or_unknown(fetch.epoch),
                    fetch_offset=fetch.offset,
                    partition_max_bytes=fetch.max_bytes,
                )
                for fetch in group
            ),
        )
        for topic, group in group_by(fetches, lambda fetch: fetch.partition.topic).items()
    )
    request = m.FetchRequest(
        max_wait_ms=options.max_wait_ms,
        min_bytes=options.min_bytes,
        max_bytes=options.max_bytes,
        isolation_level=_level(options.isolation),
        topics=topics,
        rack_id=options.rack,
    )
    with_ids = all(fetch.topic_id for fetch in fetches)
    return [BrokerRequest(request, None if with_ids else LAST_FETCH_BY_NAME)]


def read_records(
    responses: Sequence[m.FetchResponse], fetches: Sequence[PartitionFetch], isolation: Isolation
) -> FetchResult:
    """What was returned for each partition, in the order of the response. Topics that have only an
    id get their names."""
    (response,) = responses
    reads_committed = isolation is Isolation.READ_COMMITTED
    offsets = {fetch.partition: fetch.offset for fetch in fetches}
    names = {fetch.topic_id: fetch.partition.topic for fetch in fetches if fetch.topic_id}
    whole = error_code_of(response.error_code)
    nodes = {node.node_id: Address(node.host, node.port) for node in response.node_endpoints}
    partitions = []
    for topic in response.responses:
        name = topic.topic or names.get(topic.topic_id or "", "")
        for partition in topic.partitions:
            where = Partition(name, partition.partition_index)
            code = error_code_of(partition.error_code)
            stable = reads_committed and partition.last_stable_offset >= 0
            readable_end = partition.last_stable_offset if stable else partition.high_watermark
            partitions.append(
                FetchedPartition(
                    partition=where,
                    meaning=code.meaning,
                    code_name=code.name,
                    records=FetchedRecords(
                        partition.records if partition.records is not None else NO_DATA,
                        offsets.get(where, 0),
                        _aborted_in(partition) if reads_committed else (),
                    ),
                    readable_end=readable_end if readable_end >= 0 else None,
                    preferred=None
                    if partition.preferred_read_replica < 0
                    else partition.preferred_read_replica,
                    leader_hint=_leader_hint(partition.current_leader, nodes),
                )
            )
    return FetchResult(whole.meaning, whole.name, tuple(partitions), response.throttle_time_ms)


def _aborted_in(partition: m.FetchedPartitionData) -> tuple[tuple[int, int], ...]:
    transactions = partition.aborted_transactions or ()
    return tuple((aborted.producer_id, aborted.first_offset) for aborted in transactions)


def _leader_hint(leader: m.LeaderIdAndEpoch | None, nodes: Mapping[int, Address]) -> Leader | None:
    """The new leader that accompanies errors 6 and 74, if its address is included (KIP-951)."""
    if leader is None or leader.leader_epoch < 0 or leader.leader_id not in nodes:
        return None
    return Leader(nodes[leader.leader_id], leader.leader_epoch)


def or_unknown(epoch: int | None) -> int:
    """An epoch in the form that messages use."""
    return -1 if epoch is None else epoch


def _level(isolation: Isolation) -> int:
    return m.READ_COMMITTED if isolation is Isolation.READ_COMMITTED else m.READ_UNCOMMITTED
