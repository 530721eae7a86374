"""A model of a Kafka cluster, which answers bytes with the bytes of the product's own messages."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.messages.headers import RequestHeader, ResponseHeader
from rangeland.dialects.kafka.messages.headers import request_header_version as header_of_request
from rangeland.dialects.kafka.messages.headers import response_header_version as header_of_response
from rangeland.wire.declarations import spec_of
from rangeland.wire.encoding import decode, decode_from, encode
from tests.simulation.clusters import BROKERS, SimulatedCluster
from tests.simulation.logs import Entry, Log
from tests.simulation.world import EPOCH_MS, World

PORT = 9092
MOST = 10_000
NONE, OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, UNSUPPORTED = 0, 1, 3, 6, 35
FENCED_EPOCH, UNKNOWN_EPOCH, NOT_AVAILABLE, UNKNOWN_ID = 74, 75, 78, 100
BY_KEY = {spec_of(request).key: request for request in m.REQUESTS}
READ = (1, 2, 3, 18, 23, 32, 35)
EPOCH_ENDS = spec_of(m.OffsetForLeaderEpochRequest).key
API_VERSIONS = spec_of(m.ApiVersionsRequest).key
AGES: dict[str, Mapping[int, int]] = {
    "4": {key: spec_of(BY_KEY[key]).versions[1] for key in READ},
    "2.4": {1: 11, 2: 5, 3: 9, 18: 3, 23: 3, 32: 2, 35: 1},
    "1.1": {1: 7, 2: 2, 3: 5, 18: 1, 23: 0, 32: 1, 35: 0},
}
"""The highest version of each request, by the brokers' own version."""


class Cluster(SimulatedCluster):
    """Brokers 1 to 3 of one age."""

    dialect = "kafka"
    servers = "b1:9092, b2:9092"
    has_segments = cleans_records = True
    shows_rewriting = True

    def __init__(self, world: World, age: str, *, per_response: int) -> None:
        super().__init__(world, per_response=per_response)
        self.age = age
        self.versions = AGES[age]
        # Without ids a topic that was recreated and has grown cannot be told from the old one.
        metadata = self.versions[spec_of(m.MetadataRequest).key]
        self.has_topic_ids, self.has_epochs = metadata >= 10, metadata >= 7
        self.is_old = self.forgets_producers = self.versions[EPOCH_ENDS] == 0
        self.reports_lag = self.versions[spec_of(m.ListOffsetsRequest).key] >= 5

    # --- what happens to it -------------------------------------------------------------

    def elect(self, log: Log, rng: random.Random, *, clean: bool = True) -> None:
        """Another broker leads; its high watermark may lag, and some brokers may not know it."""
        before = self.leaders()
        log.leader = 1 + (log.leader % BROKERS)
        log.epoch += 1
        if not self.is_old:
            log.begin_epoch(log.epoch)
        now = self.world.now_ms
        if clean and log.entries and rng.random() < 0.5:
            behind = rng.choice(log.entries).base
            log.lags = (max(behind, log.start), now + rng.choice((50, 500, 3000)))
        if rng.random() < 0.5:
            unaware = rng.randint(1, BROKERS)
            self.stale[unaware] = (now + rng.choice((100, 1000, 8000)), before)

    def lag(self, log: Log, rng: random.Random) -> None:
        """Of brokers that report an end that lags, the product believes it after ten seconds."""
        self.elect(log, rng)
        if log.entries:
            behind = max(rng.choice(log.entries).base, log.start)
            longest = rng.choice((20_000, 120_000)) if self.reports_lag else 8_000
            log.lags = (behind, self.world.now_ms + longest)

    def leaders(self) -> dict[tuple[str, int], tuple[int, int]]:
        return {
            (log.topic, log.number): (log.leader, log.epoch)
            for topic in self.topics.values()
            for log in topic.logs
        }

    # --- responses ----------------------------------------------------------------------

    def answers(self, node: int, data: bytes) -> list[bytes]:
        return [self.answer(node, data)]

    def answer(self, node: int, data: bytes) -> bytes:
        """The response to one request, with its frame and headers."""
        correlation_id, frame = data[8:12], data[4:8] + bytes(4) + data[12:]
        key = int.from_bytes(data[4:6], "big")
        if key == API_VERSIONS:
            return _framed(correlation_id, _versions_response(self.age, frame))
        request, version, asked = _asked(frame)
        made = _RESPONSES[request](self, node, asked)
        return _framed(correlation_id, _headed(request, version, made))

    def on_metadata(self, node: int, asked: m.MetadataRequest) -> m.MetadataResponse:
        brokers = tuple(
            m.MetadataBroker(node_id=n, host=f"b{n}", port=PORT) for n in range(1, BROKERS + 1)
        )
        names = list(self.topics) if asked.topics is None else [t.name for t in asked.topics]
        until_ms, earlier = self.stale.get(node, (0, {}))
        known = {**self.leaders(), **(earlier if until_ms > self.world.now_ms else {})}
        return m.MetadataResponse(
            brokers=brokers,
            cluster_id="simulated",
            controller_id=1,
            topics=tuple(self._described(name or "", known) for name in names),
        )

    def _described(
        self, name: str, known: Mapping[tuple[str, int], tuple[int, int]]
    ) -> m.MetadataTopic:
        topic = self.topics.get(name)
        if topic is None:
            return m.MetadataTopic(error_code=UNKNOWN_TOPIC, name=name, partitions=())
        parts = []
        for log in topic.logs:
            leader, epoch = known[name, log.number]
            parts.append(
                m.MetadataPartition(
                    error_code=NONE,
                    partition_index=log.number,
                    leader_id=-1 if self.is_down(leader) else leader,
                    leader_epoch=epoch,
                    replica_nodes=(1, 2, 3),
                    isr_nodes=(1, 2, 3),
                )
            )
        return m.MetadataTopic(
            error_code=NONE, name=name, topic_id=topic.topic_id, partitions=tuple(parts)
        )

    def _led(self, node: int, topic: str, number: int, epoch: int) -> Log | int:
        """The log, or the error code for a broker that cannot answer about it."""
        found = self.topics.get(topic)
        if found is None or number >= len(found.logs):
            return UNKNOWN_TOPIC
        log = found.logs[number]
        if log.leader != node:
            return NOT_LEADER
        if epoch >= 0 and epoch != log.epoch:
            return FENCED_EPOCH if epoch < log.epoch else UNKNOWN_EPOCH
        if log.opened:
            log.time_out(self.world.now_ms)
        return log

    def on_offsets(self, node: int, asked: m.ListOffsetsRequest) -> m.ListOffsetsResponse:
        topics = []
        for topic in asked.topics:
            parts = []
            for part in topic.partitions:
                log = self._led(node, topic.name, part.partition_index, part.current_leader_epoch)
                code, offset = (
                    (log, -1)
                    if isinstance(log, int)
                    else self._at(log, part, self._end_of(log, asked.isolation_level))
                )
                parts.append(
                    m.ListOffsetsPartitionResponse(
                        partition_index=part.partition_index, error_code=code, offset=offset
                    )
                )
            topics.append(m.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(parts)))
        return m.ListOffsetsResponse(topics=tuple(topics))

    def _end_of(self, log: Log, isolation: int) -> int:
        return self._last_stable(log) if isolation else log.high_watermark(self.world.now_ms)

    def _last_stable(self, log: Log) -> int:
        found = log.last_stable(self.world.now_ms, is_old=self.is_old)
        log.stable = max(log.stable, found)
        return found

    def _at(self, log: Log, part: m.ListOffsetsPartition, end: int) -> tuple[int, int]:
        """An error code and an offset. While the high watermark of a new leader lags, newer
        brokers report no end (KIP-207)."""
        if part.timestamp == m.EARLIEST_TIMESTAMP:
            return NONE, log.start
        found = end
        if part.timestamp != m.LATEST_TIMESTAMP:
            times = (
                (EPOCH_MS + e.time_ms, first)
                for e in log.entries
                if not e.is_empty and (first := _first_from(log.start, e)) is not None
            )
            found = next((first for time_ms, first in times if time_ms >= part.timestamp), end)
        lags = log.high_watermark(self.world.now_ms) < log.end
        if lags and self.reports_lag and found >= end:
            return NOT_AVAILABLE, -1
        return NONE, found if found < end or part.timestamp == m.LATEST_TIMESTAMP else -1

    def on_fetch(self, node: int, asked: m.FetchRequest) -> m.FetchResponse:
        """As much as the request allows, but the first entry whole, however large (KIP-74)."""
        names = {topic.topic_id: topic.name for topic in self.topics.values()}
        topics, left, is_first = [], asked.max_bytes, True
        for topic in asked.topics:
            name, by_id = topic.topic or names.get(topic.topic_id or "", ""), bool(topic.topic_id)
            parts = []
            for part in topic.partitions:
                fetched = self._fetched(node, name, part, by_id, asked.isolation_level)
                size = min(part.partition_max_bytes, left)
                if fetched.records:
                    records = _limited(fetched.records, size, is_first)
                    left -= min(len(records), left)
                    is_first &= not records
                    fetched = replace(fetched, records=records)
                parts.append(fetched)
            topics.append(
                m.FetchedTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=tuple(parts))
            )
        return m.FetchResponse(responses=tuple(topics))

    def _fetched(
        self, node: int, name: str, part: m.FetchPartition, by_id: bool, isolation: int
    ) -> m.FetchedPartitionData:
        log = self._led(node, name, part.partition, part.current_leader_epoch)
        if isinstance(log, int):
            code = UNKNOWN_ID if by_id and not name else log
            return _failed(part.partition, code)
        if not log.start <= part.fetch_offset <= log.end:
            return _failed(part.partition, OUT_OF_RANGE)
        end = self._end_of(log, isolation)
        found = [e for e in log.entries if part.fetch_offset < e.until <= end]
        if found:
            last = log.segment_end(found[0].base)
            found = [e for e in found if e.base < last]
        if log.is_slow_until_ms > self.world.now_ms:
            found = []
        taken = found[: self.per_response]
        data = b"".join(entry.data for entry in taken)
        if len(found) > len(taken):
            data += found[len(taken)].data[:40]
        aborted = _aborted(log, part.fetch_offset, taken[-1].until) if taken else ()
        return m.FetchedPartitionData(
            partition_index=part.partition,
            error_code=NONE,
            high_watermark=log.high_watermark(self.world.now_ms),
            last_stable_offset=self._last_stable(log),
            log_start_offset=log.start,
            aborted_transactions=aborted if isolation else None,
            records=memoryview(data),
        )

    def on_epochs(
        self, node: int, asked: m.OffsetForLeaderEpochRequest
    ) -> m.OffsetForLeaderEpochResponse:
        topics = []
        for topic in asked.topics:
            parts = []
            for part in topic.partitions:
                log = self._led(node, topic.topic, part.partition, part.current_leader_epoch)
                code, epoch, end = (
                    (log, -1, -1)
                    if isinstance(log, int)
                    else (0, *self._epoch_end(log, part.leader_epoch))
                )
                parts.append(
                    m.EpochEnd(
                        partition=part.partition,
                        error_code=code,
                        leader_epoch=epoch,
                        end_offset=end,
                    )
                )
            topics.append(m.EpochEndTopic(topic=topic.topic, partitions=tuple(parts)))
        return m.OffsetForLeaderEpochResponse(topics=tuple(topics))

    def _epoch_end(self, log: Log, epoch: int) -> tuple[int, int]:
        """Old brokers know an epoch once it has a record, and nothing of those before the first
        that they know. A leader whose log was empty knows none."""
        is_known = log.end > 0 and epoch >= log.epochs[0][0]
        return log.epoch_end(epoch) if is_known or not self.is_old else (-1, -1)

    def on_configs(self, node: int, asked: m.DescribeConfigsRequest) -> m.DescribeConfigsResponse:
        results = []
        for resource in asked.resources:
            topic = self.topics.get(resource.resource_name)
            values = {
                "cleanup.policy": "compact" if topic and topic.compacts else "delete",
                "retention.ms": "604800000",
                "retention.bytes": "-1",
            }
            configs = tuple(
                m.DescribedConfig(
                    name=name, value=values[name], read_only=False, is_sensitive=False
                )
                for name in resource.configuration_keys or ()
            )
            results.append(
                m.DescribedResource(
                    error_code=NONE if topic else UNKNOWN_TOPIC,
                    error_message=None,
                    resource_type=m.TOPIC,
                    resource_name=resource.resource_name,
                    configs=configs,
                )
            )
        return m.DescribeConfigsResponse(throttle_time_ms=0, results=tuple(results))

    def on_sizes(self, node: int, asked: m.DescribeLogDirsRequest) -> m.DescribeLogDirsResponse:
        topics = tuple(
            m.LogDirTopic(
                name=topic.name,
                partitions=tuple(
                    m.LogDirPartition(
                        partition_index=log.number,
                        partition_size=sum(len(entry.data) for entry in log.entries),
                        offset_lag=0,
                        is_future_key=False,
                    )
                    for log in topic.logs
                ),
            )
            for topic in self.topics.values()
        )
        found = m.LogDir(error_code=NONE, log_dir="/data", topics=topics)
        return m.DescribeLogDirsResponse(throttle_time_ms=0, results=(found,))


@lru_cache(MOST)
def _asked(frame: bytes) -> tuple[type[Any], int, Any]:
    """A request and its version. ``frame`` has no correlation id: requests repeat."""
    key, version = (int.from_bytes(frame[at : at + 2], "big") for at in (0, 2))
    request = BY_KEY[key]
    _, at = decode_from(RequestHeader, header_of_request(request, version), frame)
    return request, version, decode(request, version, frame, at)


@lru_cache(MOST)
def _headed(request: type[Any], version: int, response: Any) -> bytes:
    """What follows the correlation id."""
    head = encode(ResponseHeader(correlation_id=0), header_of_response(request, version))
    return head[4:] + encode(response, version)


def _framed(correlation_id: bytes, response: bytes) -> bytes:
    return (len(correlation_id) + len(response)).to_bytes(4, "big") + correlation_id + response


@lru_cache
def _versions_response(age: str, frame: bytes) -> bytes:
    """Versions that the broker does not know are answered in version 0."""
    versions = AGES[age]
    version = int.from_bytes(frame[2:4], "big")
    code, version = (NONE, version) if version <= versions[API_VERSIONS] else (UNSUPPORTED, 0)
    keys = tuple(
        m.ApiVersion(api_key=key, min_version=spec_of(BY_KEY[key]).versions[0], max_version=highest)
        for key, highest in versions.items()
    )
    response = m.ApiVersionsResponse(error_code=code, api_keys=keys)
    return _headed(m.ApiVersionsRequest, version, response)


def _first_from(start: int, entry: Entry) -> int | None:
    """The first record from there on; a cleaner may have taken any of an entry."""
    if entry.is_marker or entry.is_aborted:
        return max(entry.base, start)
    return next((offset for offset, _ in entry.records if offset >= start), None)


def _failed(number: int, code: int) -> m.FetchedPartitionData:
    return m.FetchedPartitionData(partition_index=number, error_code=code, high_watermark=-1)


def _limited(records: memoryview, size: int, is_first: bool) -> memoryview:
    """An entry that does not fit is left out, unless it is the first of the whole response; later
    ones are cut anywhere."""
    whole = 12 + int.from_bytes(records[8:12], "big")
    if size < whole:
        return records[: whole if is_first else 0]
    return records[:size]


def _aborted(log: Log, from_offset: int, until_offset: int) -> tuple[m.AbortedTransaction, ...]:
    """Those that overlap what is sent, by where they began: a cleaner may have taken their first
    records since. Without any of their records they do not matter."""
    if not log.ended:
        return ()
    markers = {entry.base for entry in log.entries if entry.is_marker and entry.until > from_offset}
    aborted = [(entry.producer_id, entry.base) for entry in log.entries if entry.is_aborted]
    return tuple(
        m.AbortedTransaction(producer_id=one.producer, first_offset=one.first)
        for marker, one in log.ended.items()
        if one.aborts and one.first < until_offset and marker in markers
        if any(of == one.producer and one.first <= base < marker for of, base in aborted)
    )


_RESPONSES: dict[type[Any], Callable[[Cluster, int, Any], Any]] = {
    m.MetadataRequest: Cluster.on_metadata,
    m.ListOffsetsRequest: Cluster.on_offsets,
    m.FetchRequest: Cluster.on_fetch,
    m.OffsetForLeaderEpochRequest: Cluster.on_epochs,
    m.DescribeConfigsRequest: Cluster.on_configs,
    m.DescribeLogDirsRequest: Cluster.on_sizes,
}
