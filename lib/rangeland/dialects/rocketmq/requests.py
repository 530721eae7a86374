"""RocketMQ's side of the dialect interface: requests as messages, responses as values.

Pure. Name servers know which brokers have which queues. They are asked in turn, each for the topics
that the previous ones do not know, because one that has just started knows little. A broker answers
0 for a queue that it does not have, so only a route shows whether a topic exists.

Queues are read from their master, or from a slave if the master is down.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rangeland.decode.rocketmq.layout import BORN_TIMESTAMP
from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.cluster_values import (
    ClusterView,
    LeaderRequest,
    NoSeedAnswered,
    OffsetResult,
    Search,
    TopicView,
)
from rangeland.dialects.error_meaning import ErrorCode, ErrorMeaning
from rangeland.dialects.fetch_values import (
    FetchContext,
    FetchedPartition,
    FetchOptions,
    FetchResult,
    PartitionFetch,
    ResponseSpan,
)
from rangeland.dialects.protocol_session import BrokerRequest, Credentials
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import (
    MISSING,
    NO_MATCHED_MESSAGE,
    REQUEST_NOT_SUPPORTED,
    SUCCESS,
    TOPIC_NOT_EXIST,
    error_code_of,
    pull_code_of,
)
from rangeland.dialects.rocketmq.missing_messages import compacted_until, found_at
from rangeland.dialects.rocketmq.offset_checks import before_gap, is_complete, misplaced_messages
from rangeland.dialects.rocketmq.pull_result import PullResult, messages_from
from rangeland.dialects.rocketmq.pulls_in_flight import number_of
from rangeland.dialects.rocketmq.routes import MASTER, read_brokers, read_route, read_topics
from rangeland.dialects.rocketmq.system_topics import is_system_topic
from rangeland.errors import BROKER_OPERATOR, AccessDenied, JobFileError
from rangeland.model import Address, AtTime, Earliest, Isolation, Latest, Leader, Partition

CAPABILITIES: Final = Capabilities(
    numbered_per_broker=True,
    columns=(BORN_TIMESTAMP,),
    leader_id=MASTER,
    source_keys=frozenset({"tls", "acl", "tags"}),
)
SIGNED: Final = "ACL"
"""The mechanism of ``Credentials``: an access key, and the secret key that signs with it."""
NOTHING: Final = memoryview(b"")
MAX_INT64: Final = 2**63 - 1


# --- leaders ----------------------------------------------------------------------------


def find_leaders(
    topics: Sequence[str] | None, seeds: Sequence[Address], named_brokers: Mapping[str, Address]
) -> Search:
    """Searches for the brokers and queues of topics. Raises Unreachable if no name server
    answers."""
    silences: list[NoSeedAnswered] = []
    views: dict[str, TopicView] = {}
    broker_lists: list[frozenset[str]] = []
    names = None if topics is None else list(dict.fromkeys(topics))
    has_responded = False
    for seed in seeds:
        if has_responded and not _unknown_topics(names, views):
            break
        answer = yield from _search_server(
            seed, names if not views else _unknown_topics(names, views)
        )
        if isinstance(answer, NoSeedAnswered):
            silences.append(answer)
        elif answer is not None:
            has_responded = True
            views |= {name: view for name, view in answer.items() if _is_new(view, views)}
            brokers = yield from _list_brokers(seed)
            broker_lists += [] if brokers is None else [brokers]
    if not has_responded:
        raise NoSeedAnswered.join_all(silences).as_error()
    registered = frozenset[str]().union(*broker_lists)
    has_no_brokers = bool(broker_lists) and not registered
    return ClusterView((), views, registered=registered, has_no_brokers=has_no_brokers)


def _unknown_topics(topics: Sequence[str] | None, views: Mapping[str, TopicView]) -> list[str]:
    if topics is None:
        return []
    return [name for name in topics if name not in views or views[name].is_unknown]


def _is_new(view: TopicView, views: Mapping[str, TopicView]) -> bool:
    return view.name not in views or not view.is_unknown


def _search_server(
    seed: Address, topics: Sequence[str] | None
) -> Generator[LeaderRequest, Any, dict[str, TopicView] | NoSeedAnswered | None]:
    """The topics as a name server knows them. None if the address is a broker's instead."""
    if topics is None:
        responses = yield LeaderRequest((seed,), (BrokerRequest(m.all_topics()),))
        if isinstance(responses, NoSeedAnswered):
            return responses
        if responses[0].code == REQUEST_NOT_SUPPORTED:
            return None
        topics = [] if responses[0].code != SUCCESS else read_topics(responses[0].body)
        topics = [name for name in topics if not is_system_topic(name)]
    if not topics:
        return {}
    responses = yield LeaderRequest(
        (seed,), tuple(BrokerRequest(m.route(topic)) for topic in topics)
    )
    if isinstance(responses, NoSeedAnswered):
        return responses
    if all(response.code == REQUEST_NOT_SUPPORTED for response in responses):
        return None
    return {t: _view(t, response) for t, response in zip(topics, responses, strict=True)}


def _list_brokers(seed: Address) -> Generator[LeaderRequest, Any, frozenset[str] | None]:
    """The names of the registered brokers. None if the name server does not list them."""
    responses = yield LeaderRequest((seed,), (BrokerRequest(m.all_brokers()),))
    if isinstance(responses, NoSeedAnswered) or responses[0].code != SUCCESS:
        return None
    return read_brokers(responses[0].body)


def _view(topic: str, response: m.RemotingResponse) -> TopicView:
    """The topic as a response describes it."""
    code = error_code_of(response.code)
    if response.code != SUCCESS:
        return TopicView(
            topic,
            code.meaning,
            _code_text(code, response),
            is_system_topic(topic),
            is_unknown=response.code == TOPIC_NOT_EXIST,
        )
    route = read_route(response.body)
    return TopicView(topic, ErrorMeaning.OK, "", route.is_internal(topic), route.leaders(topic))


# --- offsets ----------------------------------------------------------------------------


def offsets_requests(
    leaders: Mapping[Partition, Leader], when: Earliest | Latest | AtTime, isolation: Isolation
) -> list[BrokerRequest]:
    """One request per queue. Times are those at which brokers stored messages."""
    match when:
        case Earliest():
            return [BrokerRequest(m.min_offset(queue)) for queue in leaders]
        case Latest():
            return [BrokerRequest(m.max_offset(queue)) for queue in leaders]
        case AtTime(time_ms):
            return [BrokerRequest(m.TimeSearch(queue, max(time_ms, 0))) for queue in leaders]


def read_offsets(responses: Sequence[m.RemotingResponse]) -> dict[Partition, OffsetResult]:
    """The offset by queue."""
    offsets = {}
    for response in responses:
        assert response.request.about is not None
        code = error_code_of(response.code)
        # Without the code for success there is no offset.
        offset = _offset_in(response) if response.code == SUCCESS else None
        name = _code_text(code, response) if offset is None else code.name
        meaning = code.meaning
        if offset is None and meaning is ErrorMeaning.OK and response.code != SUCCESS:
            meaning = ErrorMeaning.UNKNOWN
        offsets[response.request.about] = OffsetResult(meaning, name, offset)
    return offsets


def _offset_in(response: m.RemotingResponse) -> int | None:
    """The offset in a response. An empty queue for batches answers -1: it begins at 0, and no entry
    is that late."""
    offset = number_of(response, "offset")
    if offset >= 0:
        return offset
    return None if response.request.code == m.SEARCH_OFFSET else 0


# --- records ----------------------------------------------------------------------------


def records_requests(
    fetches: Sequence[PartitionFetch], options: FetchOptions
) -> list[BrokerRequest]:
    """A series of pulls for each queue; all are sent together."""
    return [
        BrokerRequest(
            m.PullSeries(
                about=a.partition,
                offset=a.offset,
                until_offset=MAX_INT64 if a.until_offset is None else a.until_offset,
                max_bytes=a.max_bytes,
                tags=options.tags,
            )
        )
        for a in fetches
    ]


def read_records(
    responses: Sequence[m.SeriesResponse], fetches: Sequence[PartitionFetch], isolation: Isolation
) -> FetchResult:
    """What each series returned without a gap."""
    partitions = tuple(
        _joined_pulls(a.partition, s) for a, s in zip(fetches, responses, strict=True)
    )
    return FetchResult(ErrorMeaning.OK, "", partitions)


@dataclass(slots=True)
class _JoinedPulls:
    """The joined pulls of a series: the bodies before ``next_offset``, and the offsets that each
    accounts for; the end of the queue and the broker to read from, as in the last response.
    ``has_gaps``: offsets may be missing."""

    next_offset: int
    has_gaps: bool
    tags: tuple[bytes, ...]
    bodies: list[Any] = field(default_factory=list)
    spans: list[ResponseSpan] = field(default_factory=list)
    end: int = -1
    preferred: int | None = None

    def note(self, response: m.RemotingResponse) -> None:
        if "maxOffset" in response.fields:
            self.end = max(self.end, number_of(response, "maxOffset"))
        if "suggestWhichBrokerId" in response.fields:
            self.preferred = number_of(response, "suggestWhichBrokerId")

    def add(self, response: m.RemotingResponse) -> bool:
        """Adds the messages from ``next_offset`` on. Pulls overlap with tags, and if a batch
        extends beyond the end of one. False: later pulls cannot be joined."""
        start, until = self.next_offset, number_of(response, "nextBeginOffset")
        if until <= start:
            return True
        body = response.body if response.code == SUCCESS else NOTHING
        if response.pull.offset < start:
            if self._is_misplaced(body, response.pull.offset, until):
                return False  # a separate pull will show which messages are misplaced
            body = messages_from(body, start)
        if not self.has_gaps and not is_complete(body, start, until):
            # The missing offsets are pulled again, from the first of them.
            size, gap = before_gap(body, start)
            body, until = body[:size], until if gap is None else gap
        is_whole = until == number_of(response, "nextBeginOffset")
        if until > start:
            self._put(body, until)
        return is_whole

    def _is_misplaced(self, body: Any, from_offset: int, until: int) -> bool:
        spans = (ResponseSpan(len(body), from_offset, until),)
        return bool(misplaced_messages(PullResult(memoryview(body), self._context(spans))))

    def _context(self, spans: Sequence[ResponseSpan]) -> FetchContext:
        return FetchContext(spans=tuple(spans), has_gaps=self.has_gaps, tags=self.tags)

    def _put(self, body: Any, until: int) -> None:
        end = (self.spans[-1].end if self.spans else 0) + len(body)
        self.spans.append(ResponseSpan(end, self.next_offset, until))
        self.bodies.append(body)
        self.next_offset = until

    def as_fetched(self, partition: Partition) -> FetchedPartition:
        if not self.spans:
            return self.nothing(partition, "PULL_NOT_FOUND")
        bodies = self.bodies
        records = memoryview(b"".join(bodies) if bodies[1:] else bodies[0])
        fetched = self.nothing(partition, "FOUND")
        return replace(fetched, records=records, context=self._context(self.spans))

    def nothing(self, partition: Partition, name: str) -> FetchedPartition:
        return FetchedPartition(
            partition, ErrorMeaning.OK, name, NOTHING, self.end, preferred=self.preferred
        )


def _joined_pulls(partition: Partition, series: m.SeriesResponse) -> FetchedPartition:
    """What the pulls of a series returned together. If nothing was returned without a gap, the
    first pull's response says why."""
    start = series.request.offset
    compacted_end = compacted_until(series)
    by_tags = any(response.pull.tags for response in series.responses)
    firsts = [series.responses[0], *(series.follow_ups[:1] if by_tags else ())]
    for response in firsts:
        first = _pull_code(response, start, is_known=compacted_end is not None)
        if first.meaning is not ErrorMeaning.OK or found_at(response) != found_at(firsts[0]):
            name = _code_text(first, response)
            return FetchedPartition(partition, first.meaning, name, NOTHING)
    tags = tuple(tag.encode() for tag in series.request.tags)
    joined = _JoinedPulls(start, by_tags or series.is_compacted, tags)
    joined.note(series.responses[0])
    if by_tags:
        return _by_tags(partition, series, joined)
    for response in series.responses:
        at = response.pull.offset
        if at > joined.next_offset:
            break
        is_known = compacted_end is not None and at == start
        if _pull_code(response, at, is_known=is_known).meaning is not ErrorMeaning.OK:
            break
        joined.note(response)
        if response.code != SUCCESS or not joined.add(response):
            break
    return joined.as_fetched(partition)


def _by_tags(
    partition: Partition, series: m.SeriesResponse, joined: _JoinedPulls
) -> FetchedPartition:
    """What the pulls of a series by tags returned together. The first response has shown that the
    log contains the offset, and the follow-up that it still did after all pulls. A broker searches
    beyond the last message it returns, and pulls may overlap."""
    for response in series.responses[1:]:
        if response.pull.offset > joined.next_offset:
            break
        is_found = response.code == SUCCESS
        if not is_found and response.remark != NO_MATCHED_MESSAGE:
            break
        joined.note(response)
        if not joined.add(response):
            break
    if not joined.spans:
        return _nothing_by_tags(partition, series, joined)
    return joined.as_fetched(partition)


def _nothing_by_tags(
    partition: Partition, series: m.SeriesResponse, joined: _JoinedPulls
) -> FetchedPartition:
    """The result of a series by tags without any messages. The first pull with tags says why,
    unless the queue ends there."""
    response = series.responses[1]
    code = pull_code_of(response.code, response.remark, joined.next_offset)
    if code.meaning is ErrorMeaning.OK:
        return joined.nothing(partition, code.name)
    return FetchedPartition(partition, code.meaning, f"{code.name}: {response.remark}", NOTHING)


def _code_text(code: ErrorCode, response: m.RemotingResponse) -> str:
    return f"{code.name}: {response.remark}" if response.remark else code.name


def _pull_code(response: m.RemotingResponse, offset: int, *, is_known: bool = False) -> ErrorCode:
    """The code of a pull at ``offset``. A broker that does not find the offset's message continues
    at the next one. The caller then asks whether the log's beginning has moved. ``is_known``: the
    offsets before the next message are known to be compacted."""
    code = pull_code_of(response.code, response.remark, offset)
    first = found_at(response)
    if first is None or first == offset or is_known:
        return code
    # A complete response has the offset's message, whatever offset is stored in it.
    until = number_of(response, "nextBeginOffset")
    return code if is_complete(response.body, offset, until) else MISSING


# --- access -----------------------------------------------------------------------------


def login(credentials: Credentials) -> Generator[BrokerRequest, Any, None]:
    """Sends a request that shows whether the signature is accepted: there is no login, each request
    is signed. Raises JobFileError for another mechanism, AccessDenied if the access key or its
    signature is refused."""
    if credentials.mechanism != SIGNED:
        raise JobFileError(
            "servers of this dialect only accept access keys",
            why=f"{credentials.mechanism} was requested",
            do="set source.security.acl, and remove source.security.sasl",
        )
    response = yield BrokerRequest(m.AclLogin(credentials))
    code = error_code_of(response.code)
    if code.meaning in (ErrorMeaning.DENIED, ErrorMeaning.REFUSED):
        raise AccessDenied(
            f"the access key {credentials.username} was refused",
            why=f"{code.name}: {response.remark}",
            do="check the access key in source.security.acl, and where its secret key comes from",
            operator=BROKER_OPERATOR,
            login_is_in_doubt=True,
        )
