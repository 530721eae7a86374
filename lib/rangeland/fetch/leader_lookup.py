"""Questions to brokers besides the records of slices: who leads a partition, where its log starts
and ends, its cleanup policy, and records that a judgement needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.connection.failures import ConnectionLost
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import CleanupPolicy, ClusterView, NoSeedAnswered
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition, PartitionFetch
from rangeland.dialects.protocol_session import NoCommonVersion
from rangeland.fetch.slice_state import SliceRequest
from rangeland.model import Address, Earliest, Isolation, Latest, Leader, Partition
from rangeland.survey.broker_requests import request_offsets, request_records
from rangeland.survey.metadata_lookup import ask_metadata
from rangeland.survey.wanted_partitions import absent_brokers

MAX_WAIT_MS = 500
"""As in Kafka's consumers (``fetch.max.wait.ms``): it saves requests at the end of a log."""


@dataclass(frozen=True, slots=True)
class LeaderLookup:
    """The current leaders of partitions."""

    leaders: Mapping[Partition, Leader]
    unknown: frozenset[Partition]
    """Partitions that do not exist according to the cluster."""
    unreachable: Mapping[Partition, str]
    """Why the only broker that has a partition cannot be asked for it."""


def look_up_leaders(
    brokers: ConnectionPool, partitions: Sequence[Partition], replicas: tuple[Address, ...]
) -> LeaderLookup:
    """Asks for the leaders of these partitions. Raises Unreachable if no broker answers."""
    topics = tuple(sorted({p.topic for p in partitions}))
    # Replicas know their cluster, unless brokers only know their own partitions.
    first = () if brokers.dialect.capabilities.numbered_per_broker else replicas
    view = ask_metadata(brokers, topics, (*first, *brokers.settings.seeds))
    answered = (topic for topic in view.topics.values() if topic.meaning is ErrorMeaning.OK)
    leaders = {p: leader for topic in answered for p, leader in topic.leaders.items()}
    absent = absent_brokers(view, [name for name, _ in brokers.settings.named_brokers])
    unreachable = {p: why for p in partitions if (why := absent.why_unreachable(p))}
    unnamed = [p for p in partitions if p not in leaders and p not in unreachable]
    return LeaderLookup(leaders, frozenset(p for p in unnamed if _is_unknown(view, p)), unreachable)


def _is_unknown(view: ClusterView, partition: Partition) -> bool:
    """Whether the cluster reports that the topic, or the partition in it, does not exist."""
    topic = view.topics.get(partition.topic)
    return topic is None or topic.meaning is ErrorMeaning.OK or topic.is_unknown


def ask_cleanup_policy(
    cluster: ClusterSettings, topic: str, first: Sequence[Address]
) -> CleanupPolicy | NoSeedAnswered:
    """The cleanup policy of a topic, from any broker: each knows every topic's configuration. It is
    asked on new connections, since those of a fetch belong to the fetch thread."""
    silent: dict[Address, str] = {}
    with ConnectionPool(cluster) as brokers:
        questions = brokers.dialect.cleanup_requests(topic)
        if not questions:
            return brokers.dialect.read_cleanup([])
        for address in dict.fromkeys((*first, *cluster.seeds)):
            try:
                return brokers.dialect.read_cleanup(brokers.call_all(address, questions))
            except ConnectionLost as error:
                silent[address] = error.why or error.what
            except NoCommonVersion:
                return CleanupPolicy(None, f"{address} is too old to report its cleanup.policy")
    return NoSeedAnswered(silent)


@dataclass(frozen=True, slots=True)
class AskedBroker:
    """The broker at ``address`` to which ``request`` was sent, and further questions to it about
    that partition. Each of them raises ConnectionLost."""

    brokers: ConnectionPool
    address: Address
    request: SliceRequest

    def log_edge(
        self, when: Earliest | Latest, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> int:
        """The offset at which the log begins, or up to which it can be read. Raises ConnectionLost
        if the response has none, too."""
        partition = self.request.partition
        leaders = {partition: Leader(self.address, self.request.epoch)}
        result = request_offsets(self.brokers, self.address, leaders, when, isolation).get(
            partition
        )
        if result is None:
            raise ConnectionLost(f"{self.address} left {partition} out of its offsets response")
        if result.offset is None:
            raise ConnectionLost(f"{self.address} answered {result.code_name} to an offset request")
        return result.offset

    def log_end(self, leader: Leader, readable_end: int) -> int | None:
        """The end of the log, including records that are not readable yet: a leader's high
        watermark may lag for a while, the end of its epoch does not. None if the broker cannot
        report it; its high watermark is then believed only if there is no other replica. Raises
        ConnectionLost, also if the response leaves the partition out: it may have a new leader."""
        if not self.brokers.dialect.capabilities.has_epochs:
            return readable_end
        epoch_end = self._epoch_end(leader)
        # With a single replica the high watermark does not wait for others.
        return readable_end if epoch_end is None and leader.copies == 1 else epoch_end

    def _epoch_end(self, leader: Leader) -> int | None:
        """The end of the leader's epoch in its log; None if the broker cannot or may not report it.
        Raises ConnectionLost if it has to be asked again."""
        dialect = self.brokers.dialect
        partition = self.request.partition
        epoch = self.request.epoch
        if epoch is None:
            return None
        questions = dialect.epochs_requests({partition: leader}, {partition: epoch})
        try:
            responses = self.brokers.call_all(self.address, questions)
        except NoCommonVersion:  # the broker is too old for the request
            return None
        ends = dialect.read_epochs(responses)
        if partition not in ends:
            raise ConnectionLost(
                f"{self.address} did not report the end of epoch {epoch} of {partition}"
            )
        return ends[partition]

    def fetch_at(self, offset: int, max_bytes: int, max_wait_ms: int) -> FetchedPartition | None:
        """The broker's response to a fetch at an offset; None if it is an error."""
        request = self.request
        fetches = [
            PartitionFetch(request.partition, request.topic_id, request.epoch, offset, max_bytes)
        ]
        result = request_records(self.brokers, self.address, fetches, max_bytes, max_wait_ms)
        for fetched in result.partitions:
            if fetched.partition == request.partition and fetched.meaning is ErrorMeaning.OK:
                return fetched
        return None
