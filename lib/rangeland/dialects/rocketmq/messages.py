"""RocketMQ's requests and responses: a code, named fields, and a body.

For each request there is a function of that name. A response refers to its request, which alone
shows what it is about. A pull returns only a few messages, so many pulls are sent together:
``PullSeries`` is one request here, from which the session makes several pulls.

The numbers of requests appear only in this module, those of responses only in ``error_codes``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from rangeland.dialects.protocol_session import Credentials
from rangeland.model import Partition
from rangeland.wire.primitives import Buffer

SEND, PULL, CREATE_TOPIC = 10, 11, 17
SEARCH_OFFSET, MAX_OFFSET, MIN_OFFSET = 29, 30, 31
ROUTE, ALL_BROKERS, ALL_TOPICS = 105, 106, 206
TOPIC_CONFIG = 351
HELLO = 32_000

READER_GROUP: Final = "TOOLS_CONSUMER"
"""The group that we use for pulls. A broker creates any group that it does not know; this one
exists on every broker from the start, for upstream's own tools."""

MAX_PER_PULL: Final = 32
"""The most messages that a broker returns in one response, with its default settings."""

SUBSCRIPTION_INSIDE: Final = 4
"""The only flag that our pulls set: the request contains its subscription. The flags for waiting
(2) and committing (1) are not set, because a broker checks waiting pulls only every few seconds."""


@dataclass(frozen=True, slots=True)
class RemotingRequest:
    """A request of any kind. ``about`` is the queue that it concerns; it is not sent.
    ``is_one_way``: there is no response."""

    code: int
    fields: Mapping[str, str]
    body: Buffer = b""
    about: Partition | None = None
    is_one_way: bool = False


class Pull(NamedTuple):
    """A request for at most ``max_messages`` from ``offset`` on: with any tag, or only with a tag
    whose hash equals that of one of ``tags``. With tags, a broker examines 800 messages by default
    and returns those that match, possibly none. A NamedTuple, because many are made."""

    about: Partition
    offset: int
    max_messages: int = MAX_PER_PULL
    group: str = READER_GROUP
    tags: tuple[str, ...] = ()

    @property
    def code(self) -> int:
        return PULL

    @property
    def body(self) -> Buffer:
        return b""

    @property
    def is_one_way(self) -> bool:
        return False

    @property
    def queue_fields(self) -> Mapping[str, str]:
        """The fields that are the same in all pulls of a queue."""
        subscription = " || ".join(self.tags) or "*"
        return _queue_fields(self.about.topic, self.about.number, self.group, subscription)

    @property
    def fields(self) -> Mapping[str, str]:
        return {
            **self.queue_fields,
            "queueOffset": str(self.offset),
            "maxMsgNums": str(self.max_messages),
        }


@dataclass(frozen=True, slots=True)
class PullSeries:
    """Everything from ``offset`` to ``until_offset``, or about ``max_bytes``. With ``tags``, the
    first pull is for one message with any tag: it shows whether the log still contains the
    offset."""

    about: Partition
    offset: int
    until_offset: int
    max_bytes: int
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TimeSearch:
    """The first message of a queue that was stored at or after a time; the end if there is none.
    One request, and pulls that check where its response leads (see ``time_search``)."""

    about: Partition
    time_ms: int

    @property
    def search(self) -> RemotingRequest:
        return search_offset(self.about, self.time_ms)


@dataclass(frozen=True, slots=True)
class StartSearch:
    """The beginning of a queue. One request, and up to two more if it is not 0 (see
    ``log_start``)."""

    about: Partition

    @property
    def search(self) -> RemotingRequest:
        return min_offset(self.about)


@dataclass(frozen=True, slots=True)
class AclLogin:
    """A login: every later request on the connection is signed."""

    credentials: Credentials


class RemotingResponse(NamedTuple):
    """A response. ``body`` is a slice of its frame."""

    request: RemotingRequest | Pull
    code: int
    remark: str
    fields: Mapping[str, str]
    body: Buffer

    @property
    def pull(self) -> Pull:
        """The request, which must be a pull."""
        assert isinstance(self.request, Pull)
        return self.request


@dataclass(frozen=True, slots=True)
class SeriesResponse:
    """The responses to all pulls of a series, ordered by offset. ``follow_ups``: the responses to
    further requests (see ``missing_messages``). ``is_compacted``: the broker has reported that the
    topic is."""

    request: PullSeries
    responses: tuple[RemotingResponse, ...]
    follow_ups: tuple[RemotingResponse, ...] = ()
    is_compacted: bool = False


def fields_of(**values: Any) -> dict[str, str]:
    """The fields as they are sent: all values are text, booleans in lower case."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
    }


def hello() -> RemotingRequest:
    """A request that no server knows, and that every server answers immediately."""
    return RemotingRequest(HELLO, {})


# --- name servers -----------------------------------------------------------------------


def route(topic: str) -> RemotingRequest:
    return RemotingRequest(ROUTE, fields_of(topic=topic))


def all_brokers() -> RemotingRequest:
    """Asks a name server for all brokers."""
    return RemotingRequest(ALL_BROKERS, {})


def all_topics() -> RemotingRequest:
    return RemotingRequest(ALL_TOPICS, {})


# --- brokers ----------------------------------------------------------------------------


def max_offset(queue: Partition) -> RemotingRequest:
    """Asks for the end of a queue. A broker answers 0 for a queue that does not exist."""
    return _of_queue(MAX_OFFSET, queue)


def min_offset(queue: Partition) -> RemotingRequest:
    """A request for the beginning of a queue, which a compacted one may begin before (see
    ``log_start``)."""
    return _of_queue(MIN_OFFSET, queue)


def topic_config(topic: str) -> RemotingRequest:
    """Asks for the settings of the topic on this broker, as JSON."""
    return RemotingRequest(TOPIC_CONFIG, fields_of(topic=topic))


def search_offset(queue: Partition, time_ms: int) -> RemotingRequest:
    """Asks for the offset of a time, which a broker may miss (see ``time_search``)."""
    return _of_queue(SEARCH_OFFSET, queue, timestamp=time_ms, boundaryType="LOWER")


def _of_queue(code: int, queue: Partition, **more: Any) -> RemotingRequest:
    fields = fields_of(topic=queue.topic, queueId=queue.number, **more)
    return RemotingRequest(code, fields, about=queue)


@lru_cache(256)
def _queue_fields(topic: str, number: int, group: str, subscription: str) -> Mapping[str, str]:
    """The fields that are the same in all pulls of a subscription. The version of the subscription
    matters only to groups."""
    return fields_of(
        topic=topic,
        queueId=number,
        consumerGroup=group,
        sysFlag=SUBSCRIPTION_INSIDE,
        commitOffset=0,
        suspendTimeoutMillis=0,
        subscription=subscription,
        subVersion=0,
        expressionType="TAG",
    )


# --- for tests and the demo only ---------------------------------------------------------


def create_topic(topic: str, queues: int, attributes: str = "") -> RemotingRequest:
    """Asks to create a topic. ``attributes`` have the form that upstream's tool uses:
    ``+name=value``, separated by commas."""
    return RemotingRequest(
        CREATE_TOPIC,
        fields_of(
            topic=topic,
            defaultTopic="TBW102",
            readQueueNums=queues,
            writeQueueNums=queues,
            perm=6,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order=False,
            attributes=attributes,
        ),
    )


def send(
    queue: Partition, body: bytes, properties: Mapping[str, str], born_ms: int, sys_flag: int = 0
) -> RemotingRequest:
    """Asks to store a message."""
    return RemotingRequest(
        SEND,
        fields_of(
            producerGroup="rangeland-testing",
            topic=queue.topic,
            defaultTopic="TBW102",
            defaultTopicQueueNums=1,
            queueId=queue.number,
            sysFlag=sys_flag,
            bornTimestamp=born_ms,
            flag=0,
            properties="".join(f"{k}\x01{v}\x02" for k, v in properties.items()),
            reconsumeTimes=0,
            unitMode=False,
            maxReconsumeTimes=0,
            batch=False,
        ),
        body,
        queue,
    )
