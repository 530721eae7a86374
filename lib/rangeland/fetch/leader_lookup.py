"""Asks brokers for everything other than the records of slices: which broker leads a partition,
where its log starts and ends, its cleanup policy, and records that a judgement needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.failures import ConnectionLost
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import CleanupPolicy, NoSeedAnswered
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition, PartitionFetch
from rangeland.dialects.protocol_session import NoCommonVersion
from rangeland.fetch.fetch_steps import FindLeaders
from rangeland.fetch.leader_judgement import FoundLeaders, judge_metadata
from rangeland.fetch.slice_state import SliceRequest
from rangeland.model import Address, Earliest, Isolation, Latest, Leader
from rangeland.survey.broker_requests import ask_offsets, ask_records
from rangeland.survey.metadata_lookup import ask_metadata

MAX_WAIT_MS = 500
"""As in Kafka's consumers (``fetch.max.wait.ms``): it saves requests at the end of a log."""


def look_up_leaders(brokers: ConnectionPool, step: FindLeaders) -> FoundLeaders:
    """Asks for leaders. Raises Unreachable if no broker answers."""
    partitions = step.partitions
    topics = tuple(sorted({p.topic for p in partitions}))
    # Replicas know their cluster, unless brokers only know their own partitions.
    first = () if brokers.dialect.capabilities.numbered_per_broker else step.replicas
    addresses = sorted((*first, *brokers.settings.seeds), key=lambda one: one in step.last)
    view = ask_metadata(brokers, topics, addresses)
    return judge_metadata(view, partitions, [name for name, _ in brokers.settings.named_brokers])


def ask_cleanup_policy(
    cluster: ClusterSettings, topic: str, first: Sequence[Address]
) -> CleanupPolicy | NoSeedAnswered:
    """The cleanup policy of a topic, from any broker: each knows every topic's configuration. Uses
    new connections, since those of a fetch belong to the fetch thread."""
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
    """The broker at ``address`` that ``request`` was sent to. The methods ask it further questions
    about that partition, and raise ConnectionLost."""

    brokers: ConnectionPool
    address: Address
    request: SliceRequest

    def log_edge(
        self, when: Earliest | Latest, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> int:
        """The offset at which the log begins, or up to which it can be read. Also raises
        ConnectionLost if the response has no offset."""
        partition = self.request.partition
        leaders = {partition: Leader(self.address, self.request.epoch)}
        result = ask_offsets(self.brokers, self.address, leaders, when, isolation).get(partition)
        if result is None:
            raise ConnectionLost(f"{self.address} left {partition} out of its offsets response")
        if result.offset is None:
            raise ConnectionLost(f"{self.address} answered {result.code_name} to an offset request")
        return result.offset

    def epoch_end(self, leader: Leader) -> int | None:
        """The end of the leader's epoch in its log; None if the broker cannot or may not report it.
        Also raises ConnectionLost if the response leaves out the partition: it may have a new
        leader."""
        dialect = self.brokers.dialect
        partition = self.request.partition
        epoch = self.request.epoch
        if epoch is None or not dialect.capabilities.has_epochs:
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
        result = ask_records(self.brokers, self.address, fetches, max_bytes, max_wait_ms)
        for fetched in result.partitions:
            if fetched.partition == request.partition and fetched.meaning is ErrorMeaning.OK:
                return fetched
        return None
