"""Jafka's side of the dialect interface: requests as messages, responses as values.

Pure. Every broker has its own partitions and does not know other brokers, so each is asked
separately. There is no metadata: fetches of zero bytes show how many partitions a topic has, and a
request for its end shows whether the topic exists. The special values of the protocol (-1 latest,
-2 earliest) are not visible outside this module.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rangeland.decode.jafka.layout import POSITION
from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.cluster_values import (
    ClusterView,
    LeaderRequest,
    NoSeedAnswered,
    OffsetResult,
    Search,
    TopicView,
)
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import (
    FetchedPartition,
    FetchedRecords,
    FetchOptions,
    FetchResult,
    PartitionFetch,
)
from rangeland.dialects.jafka import messages as m
from rangeland.dialects.jafka.error_codes import (
    NONE,
    OFFSET_OUT_OF_RANGE,
    WRONG_PARTITION,
    error_code_of,
)
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import JobFileError
from rangeland.model import Address, AtTime, Earliest, Isolation, Latest, Leader, Partition

CAPABILITIES: Final = Capabilities(
    numbered_per_broker=True,
    offsets_are_bytes=True,
    columns=(POSITION,),
    has_metadata=False,
    has_timestamps=False,
)

FIRST_PARTITIONS: Final = 4
"""How many partitions are requested at first. A broker logs an error for each that does not
exist."""
MAX_PARTITIONS: Final = 1 << 12
ALL_OFFSETS: Final = 2**31 - 1
UNKNOWN_TOPIC: Final = "UNKNOWN_TOPIC_OR_PARTITION"
"""Brokers have no code for this. The name is the one that Kafka uses."""
_INVALID_NAME: Final = re.compile(r"/|[\x00-\x1f\x7f-\x9f]|^\.{0,2}$|^.{256,}$", re.DOTALL)
"""Topic names that brokers refuse, with a code that does not say why. Upstream:
TopicNameValidator.java."""


# --- leaders ----------------------------------------------------------------------------


def find_leaders(
    topics: Sequence[str] | None, seeds: Sequence[Address], named_brokers: Mapping[str, Address]
) -> Search:
    """Asks every broker. Raises JobFileError for a pattern, and if brokers have no names, because
    partitions need them; Unreachable if no broker answers."""
    if topics is None:
        raise JobFileError(
            "the topics of a pattern cannot be found",
            why="brokers of this dialect do not list their topics; their registry does",
            do="set source.zookeeper, or name the topics in source.topics",
        )
    if not named_brokers:
        raise JobFileError(
            "the brokers have no names",
            why="each broker has its own partitions, which are named after it",
            do="name them in source.servers, or set source.zookeeper",
            seeds=[str(seed) for seed in seeds],
        )
    searches_of: dict[str, dict[str, _BrokerSearch]] = {}
    silences: dict[str, NoSeedAnswered] = {}
    for name, address in named_brokers.items():
        searches = yield from _search_broker(address, tuple(dict.fromkeys(topics)))
        if isinstance(searches, NoSeedAnswered):
            silences[name] = searches
        else:
            searches_of[name] = searches
    if not searches_of:
        raise NoSeedAnswered.join_all(silences.values()).as_error()
    unreachable = {name: "; ".join(s.tried.values()) for name, s in silences.items()}
    views = [_view(topic, searches_of, named_brokers, unreachable) for topic in topics]
    addresses = tuple(named_brokers[name] for name in searches_of)
    return ClusterView(addresses, {view.name: view for view in views}, unreachable)


@dataclass(slots=True)
class _BrokerSearch:
    """What one broker has answered about one topic. ``code`` is the error code of the partition at
    which counting ended; NONE if counting ended after the last partition. ``written``: at least one
    partition has a log."""

    count: int = 0
    is_counted: bool = False
    code: int = NONE
    written: bool = False

    def take(self, responses: Sequence[m.FetchResponse]) -> None:
        """Takes the responses about the next partitions, in order."""
        for response in responses:
            # Out of range: the log begins after 0, so the partition exists.
            if response.error_code not in (NONE, OFFSET_OUT_OF_RANGE):
                self.is_counted = True
                is_end = response.error_code == WRONG_PARTITION and self.count > 0
                self.code = NONE if is_end else response.error_code
                return
            self.count += 1
        self.is_counted = self.count >= MAX_PARTITIONS


def _search_broker(
    address: Address, topics: Sequence[str]
) -> Generator[LeaderRequest, Any, dict[str, _BrokerSearch] | NoSeedAnswered]:
    """Asks a broker how many partitions of each topic it has, and whether any of them has a log.
    Returns NoSeedAnswered if the broker does not answer."""
    searches = {topic: _BrokerSearch() for topic in topics}
    step = FIRST_PARTITIONS
    while remaining := [topic for topic, search in searches.items() if not search.is_counted]:
        requests = tuple(
            _partitions_request(topic, searches[topic].count, step) for topic in remaining
        )
        responses = yield LeaderRequest((address,), requests)
        if isinstance(responses, NoSeedAnswered):
            return responses
        for topic, response in zip(remaining, responses, strict=True):
            searches[topic].take(response.responses)
        step *= 2
    # Ask only about partitions that exist: for any other, the broker closes the connection.
    logs = [
        Partition(topic, number) for topic in searches for number in range(searches[topic].count)
    ]
    if not logs:
        return searches
    responses = yield LeaderRequest(
        (address,), tuple(_offsets_request(log, m.LATEST_TIME, 1) for log in logs)
    )
    if isinstance(responses, NoSeedAnswered):
        return responses
    for log, response in zip(logs, responses, strict=True):
        searches[log.topic].written |= bool(response.offsets)
    return searches


def _partitions_request(topic: str, first: int, count: int) -> BrokerRequest:
    """A request that shows whether partitions exist. It fetches no bytes: only the error codes
    matter."""
    numbers = range(first, first + count)
    requests = (m.FetchRequest(topic=topic, partition=n, offset=0, max_bytes=0) for n in numbers)
    return BrokerRequest(m.MultiFetchRequest(tuple(requests)))


def _view(
    topic: str,
    searches_of: Mapping[str, Mapping[str, _BrokerSearch]],
    named_brokers: Mapping[str, Address],
    unreachable: Mapping[str, str],
) -> TopicView:
    """The topic as all brokers together describe it. Its leaders are the brokers that have a log of
    it."""
    written = {
        name: searches[topic] for name, searches in searches_of.items() if searches[topic].written
    }
    leaders = {
        Partition(topic, number, name): Leader(named_brokers[name])
        for name, search in written.items()
        for number in range(search.count)
    }
    codes = [
        error_code_of(searches[topic].code)
        for searches in searches_of.values()
        if searches[topic].code != NONE
    ]
    is_counted = all(
        searches[topic].code in (NONE, WRONG_PARTITION) for searches in searches_of.values()
    )
    if written and is_counted:
        return TopicView(topic, ErrorMeaning.OK, "", leaders=leaders)
    if codes:
        is_bad_name = codes[0].meaning is ErrorMeaning.UNKNOWN and _INVALID_NAME.search(topic)
        meaning = ErrorMeaning.REFUSED if is_bad_name else codes[0].meaning
        return TopicView(topic, meaning, codes[0].name)
    if unreachable:
        code = f"no broker that answers has the topic; {', '.join(unreachable)} did not answer"
        return TopicView(topic, ErrorMeaning.RETRY, code)
    return TopicView(topic, ErrorMeaning.FIND_LEADER, UNKNOWN_TOPIC, is_unknown=True)


# --- offsets ----------------------------------------------------------------------------


def offsets_requests(
    leaders: Mapping[Partition, Leader], when: Earliest | Latest | AtTime, isolation: Isolation
) -> list[BrokerRequest]:
    """One request per partition for the end, two for anything else: the request for the end is the
    only one that lists all segments."""
    match when:
        case Earliest():
            bounds = [(m.EARLIEST_TIME, 1), (m.LATEST_TIME, ALL_OFFSETS)]
        case Latest():
            bounds = [(m.LATEST_TIME, ALL_OFFSETS)]
        case AtTime(time_ms):
            bounds = [(max(time_ms, 0), 1), (m.EARLIEST_TIME, 1)]
    return [
        _offsets_request(partition, time, count) for partition in leaders for time, count in bounds
    ]


def _offsets_request(partition: Partition, time_ms: int, max_count: int) -> BrokerRequest:
    return BrokerRequest(
        m.OffsetsRequest(
            topic=partition.topic,
            partition=partition.number,
            time_ms=time_ms,
            max_count=max_count,
            broker=partition.broker,
        )
    )


def read_offsets(responses: Sequence[Any]) -> dict[Partition, OffsetResult]:
    """The offset by partition. A partition that was never written to begins and ends at 0. For a
    time, the result is the start of a segment at or before it, or the log's beginning if the broker
    names no segment."""
    by_partition: dict[Partition, list[m.OffsetsResponse]] = {}
    for response in responses:
        request = response.request
        partition = Partition(request.topic, request.partition, request.broker)
        by_partition.setdefault(partition, []).append(response)
    return {partition: _read_offset(group) for partition, group in by_partition.items()}


def _read_offset(responses: Sequence[m.OffsetsResponse]) -> OffsetResult:
    """The offset that follows from all responses about one partition."""
    code = next(
        (c for a in responses if (c := error_code_of(a.error_code)).number != NONE),
        error_code_of(NONE),
    )
    if code.meaning is not ErrorMeaning.OK:
        return OffsetResult(code.meaning, code.name, None)
    by_time = {response.request.time_ms: response.offsets for response in responses}
    borders = tuple(sorted({offset for offsets in by_time.values() for offset in offsets}))
    at_times = [offsets for time, offsets in by_time.items() if time >= 0]
    earliest = min(by_time.get(m.EARLIEST_TIME, ()), default=0)
    if at_times:
        offset = max(*at_times[0], earliest) if at_times[0] else earliest
        return OffsetResult(code.meaning, code.name, offset, is_exact=False, borders=borders)
    if m.EARLIEST_TIME in by_time:
        return OffsetResult(code.meaning, code.name, earliest, borders=borders)
    return OffsetResult(code.meaning, code.name, max(borders, default=0), borders=borders)


# --- records ----------------------------------------------------------------------------


def records_requests(
    fetches: Sequence[PartitionFetch], options: FetchOptions
) -> list[BrokerRequest]:
    """One request for all partitions. A broker neither waits for more data nor limits the response
    as a whole, so nothing in ``options`` is sent."""
    requests = tuple(
        m.FetchRequest(
            topic=a.partition.topic,
            partition=a.partition.number,
            offset=a.offset,
            max_bytes=a.max_bytes,
        )
        for a in fetches
    )
    return [BrokerRequest(requests[0] if len(requests) == 1 else m.MultiFetchRequest(requests))]


def read_records(
    responses: Sequence[m.FetchResponse | m.MultiFetchResponse],
    fetches: Sequence[PartitionFetch],
    isolation: Isolation,
) -> FetchResult:
    """What was returned for each partition, in the order of the request. Brokers do not report up
    to where a log can be read."""
    (response,) = responses
    is_one = isinstance(response, m.FetchResponse)
    whole = error_code_of(NONE if is_one else response.error_code)
    parts = (response,) if isinstance(response, m.FetchResponse) else response.responses
    partitions = tuple(_fetched_partition(a, part) for a, part in zip(fetches, parts, strict=True))
    return FetchResult(whole.meaning, whole.name, partitions)


def _fetched_partition(fetch: PartitionFetch, response: m.FetchResponse) -> FetchedPartition:
    code = error_code_of(response.error_code)
    records = FetchedRecords(response.records, fetch.offset)
    return FetchedPartition(fetch.partition, code.meaning, code.name, records)
