"""RocketMQ's side of the dialect interface: requests as messages, responses as values.

Pure. Name servers know which brokers have which queues. They are asked in turn until all topics are
known, because one that has just started knows little. A broker answers
0 for a queue that it does not have, so only a route shows whether a topic exists.

Queues are read from their master, or from a slave if the master is down. A slave that a route calls
the master (``routes``) is still a slave.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
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
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import (
    FetchOptions,
    FetchResult,
    PartitionFetch,
)
from rangeland.dialects.protocol_session import BrokerRequest, Credentials
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import (
    REQUEST_NOT_SUPPORTED,
    STATIC_NUMBERS,
    SUCCESS,
    code_text,
    error_code_of,
)
from rangeland.dialects.rocketmq.joined_pulls import join_pulls
from rangeland.dialects.rocketmq.pulls_in_flight import number_of
from rangeland.dialects.rocketmq.routes import (
    MASTER,
    confirm_masters,
    read_brokers,
    read_route,
    read_topics,
)
from rangeland.dialects.rocketmq.system_topics import is_system_topic
from rangeland.errors import BROKER_OPERATOR, AccessDenied, JobFileError
from rangeland.model import Address, AtTime, Earliest, Isolation, Latest, Leader, Partition

CAPABILITIES: Final = Capabilities(
    numbered_per_broker=True,
    columns=(BORN_TIMESTAMP,),
    leader_id=MASTER,
    is_in_zookeeper=False,
    source_keys=frozenset({"tls", "acl", "tags"}),
)
SIGNED: Final = "ACL"
"""The mechanism in ``Credentials``: an access key, and the secret key for signing."""
MAX_INT64: Final = 2**63 - 1


# --- leaders ----------------------------------------------------------------------------


def find_leaders(
    topics: Sequence[str] | None, seeds: Sequence[Address], named_brokers: Mapping[str, Address]
) -> Search:
    """Searches for the brokers and queues of topics. Raises Unreachable if no name server
    answers."""
    silences: list[NoSeedAnswered] = []
    views: dict[str, TopicView] = {}
    broker_lists: list[Mapping[str, Address | None]] = []
    names = None if topics is None else list(dict.fromkeys(topics))
    has_responded = False
    for seed in seeds:
        if has_responded and not _has_unknown(names, views):
            break
        answer = yield from _search_server(seed, names)
        if isinstance(answer, NoSeedAnswered):
            silences.append(answer)
        elif answer is not None:
            has_responded = True
            masters = yield from _list_brokers(seed)
            broker_lists += [] if masters is None else [masters]
            for name, view in answer.items():
                leaders = confirm_masters(view.leaders, masters or {})
                views[name] = _merge_views(views.get(name), replace(view, leaders=leaders))
    if not has_responded:
        raise NoSeedAnswered.join_all(silences).as_error()
    # Topics of a broker are only complete where its master is registered.
    registered = frozenset(b for masters in broker_lists for b, at in masters.items() if at)
    has_no_brokers = bool(broker_lists) and not any(broker_lists)
    return ClusterView((), views, registered=registered, has_no_brokers=has_no_brokers)


def _has_unknown(topics: Sequence[str] | None, views: Mapping[str, TopicView]) -> bool:
    return any(name not in views or views[name].is_unknown for name in topics or ())


def _merge_views(earlier: TopicView | None, later: TopicView) -> TopicView:
    """The topic as two servers describe it. One that does not know all topics may not know all
    brokers of a topic either."""
    if earlier is None or (earlier.is_unknown and not later.is_unknown):
        return later
    if later.meaning is not ErrorMeaning.OK:
        return earlier
    if earlier.meaning is not ErrorMeaning.OK:
        return later
    return replace(earlier, leaders={**later.leaders, **earlier.leaders})


def _search_server(
    seed: Address, topics: Sequence[str] | None
) -> Generator[LeaderRequest, Any, dict[str, TopicView] | NoSeedAnswered | None]:
    """The topics as a name server knows them. None if the address turns out to be a broker's."""
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


def _list_brokers(
    seed: Address,
) -> Generator[LeaderRequest, Any, dict[str, Address | None] | None]:
    """The registered brokers by name, with their masters. None if the name server does not list
    them."""
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
            code_text(code, response.remark),
            is_system_topic(topic),
            is_unknown=code.is_unknown_topic,
        )
    route = read_route(response.body)
    if route.has_static_numbers:
        text = STATIC_NUMBERS.describe()
        return TopicView(topic, STATIC_NUMBERS.meaning, text, route.is_internal(topic))
    return TopicView(topic, ErrorMeaning.OK, "", route.is_internal(topic), route.leaders(topic))


# --- offsets ----------------------------------------------------------------------------


def offsets_requests(
    leaders: Mapping[Partition, Leader], when: Earliest | Latest | AtTime, isolation: Isolation
) -> list[BrokerRequest]:
    """One search or request per queue. Times are those at which brokers stored messages."""
    match when:
        case Earliest():
            return [BrokerRequest(m.StartSearch(queue)) for queue in leaders]
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
        name = code_text(code, response.remark) if offset is None else code.name
        meaning = code.meaning
        if offset is None and meaning is ErrorMeaning.OK and response.code != SUCCESS:
            meaning = ErrorMeaning.UNKNOWN
        offsets[response.request.about] = OffsetResult(meaning, name, offset)
    return offsets


def _offset_in(response: m.RemotingResponse) -> int | None:
    """The offset in a response. For an empty queue of a topic that stores batches, a broker answers
    -1: the queue begins at 0, and no entry is that late."""
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
    """What each series returned, up to the first gap."""
    partitions = tuple(join_pulls(a.partition, s) for a, s in zip(fetches, responses, strict=True))
    return FetchResult(ErrorMeaning.OK, "", partitions)


# --- access -----------------------------------------------------------------------------


def login(credentials: Credentials) -> Generator[BrokerRequest, Any, None]:
    """Sends a request that shows whether the signature is accepted: there is no login as such, each
    request is signed. Raises JobFileError for any other mechanism, AccessDenied if the access key
    or its signature is refused."""
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
