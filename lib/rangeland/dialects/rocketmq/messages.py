"""RocketMQ's requests and answers: a code, fields by name, and a body.

A request is made by the function that is named for it, one line of the protocol each; an
answer keeps its request, since it does not say what it is about. A pull brings a handful of
messages, so many are asked for at once: ``PullSeries`` is one request here, which the session
makes several of.

Rules: names and numbers of the protocol live here and in ``codes``, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from rangeland.dialects.protocol_session import Credentials
from rangeland.model import Partition
from rangeland.wire.primitives import Part

SEND, PULL, CREATE_TOPIC = 10, 11, 17
SEARCH_OFFSET, MAX_OFFSET, MIN_OFFSET = 29, 30, 31
ROUTE, ALL_BROKERS, ALL_TOPICS = 105, 106, 206
TOPIC_CONFIG = 351
HELLO = 32_000

READER_GROUP: Final = "TOOLS_CONSUMER"
"""The group that pulls are made for. A broker must know it, and makes those that it does not:
this one every broker has from the start, for reading by upstream's own tools."""

MOST_A_PULL: Final = 32
"""How many messages a broker gives in one answer, unless its settings say otherwise."""

SUBSCRIPTION_INSIDE: Final = 4
"""The one bit of a pull's flags that is set: what is subscribed to is said in the request. Those
for waiting (2) and for committing (1) are not: a broker looks at waiting pulls only every few
seconds."""


@dataclass(frozen=True, slots=True)
class RemotingRequest:
    """``about`` is the queue it is about, which is not sent. ``is_one_way``: it has no
    answer."""

    code: int
    fields: Mapping[str, str]
    body: Part = b""
    about: Partition | None = None
    is_one_way: bool = False


class Pull(NamedTuple):
    """At most ``wanted`` messages from ``offset`` on: all that come, or those whose tag's hash is
    that of one of ``tags``. Then a broker looks at 800 messages, in its usual settings, and
    answers with what it has found, be it nothing. A request that is cheap to make."""

    about: Partition
    offset: int
    wanted: int = MOST_A_PULL
    group: str = READER_GROUP
    tags: tuple[str, ...] = ()

    @property
    def code(self) -> int:
        return PULL

    @property
    def body(self) -> Part:
        return b""

    @property
    def is_one_way(self) -> bool:
        return False

    @property
    def same(self) -> Mapping[str, str]:
        """The fields that all pulls of a queue have alike."""
        subscription = " || ".join(self.tags) or "*"
        return _same_of_pulls(self.about.topic, self.about.number, self.group, subscription)

    @property
    def fields(self) -> Mapping[str, str]:
        return {**self.same, "queueOffset": str(self.offset), "maxMsgNums": str(self.wanted)}


@dataclass(frozen=True, slots=True)
class PullSeries:
    """Everything from ``offset`` on, until ``until_offset`` or about ``max_bytes``. With
    ``tags`` a pull of one message, whatever its tag, comes before those for messages that have
    one: it tells whether the log still holds the offset."""

    about: Partition
    offset: int
    until_offset: int
    max_bytes: int
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TimeSearch:
    """The first message of a queue that was stored at or after a time; the end where there is
    none. One request, and two more where topics may be made for batches (see ``times``)."""

    about: Partition
    time_ms: int

    @property
    def search(self) -> RemotingRequest:
        return search_offset(self.about, self.time_ms)


@dataclass(frozen=True, slots=True)
class AclLogin:
    """From here on every request of the connection is signed."""

    credentials: Credentials


class RemotingResponse(NamedTuple):
    """``body`` is a slice of its frame."""

    request: RemotingRequest | Pull
    code: int
    remark: str
    fields: Mapping[str, str]
    body: Part

    @property
    def pull(self) -> Pull:
        """What it answers, where that is a pull."""
        assert isinstance(self.request, Pull)
        return self.request


@dataclass(frozen=True, slots=True)
class SeriesResponse:
    """The answers to all pulls of a series, by offset. ``behind``: to what was asked when those
    had come (see ``gaps``). ``is_compacted``: the broker has said that the topic is."""

    request: PullSeries
    answers: tuple[RemotingResponse, ...]
    behind: tuple[RemotingResponse, ...] = ()
    is_compacted: bool = False


def fields_of(**values: Any) -> dict[str, str]:
    """As the wire has them: all text, truths in small letters."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
    }


def hello() -> RemotingRequest:
    """What no server knows, and each answers at once."""
    return RemotingRequest(HELLO, {})


# --- name servers -----------------------------------------------------------------------


def route(topic: str) -> RemotingRequest:
    return RemotingRequest(ROUTE, fields_of(topic=topic))


def all_brokers() -> RemotingRequest:
    """Of a name server."""
    return RemotingRequest(ALL_BROKERS, {})


def all_topics() -> RemotingRequest:
    return RemotingRequest(ALL_TOPICS, {})


# --- brokers ----------------------------------------------------------------------------


def max_offset(queue: Partition) -> RemotingRequest:
    """A broker answers 0 for a queue that is not there."""
    return _of_queue(MAX_OFFSET, queue)


def min_offset(queue: Partition) -> RemotingRequest:
    return _of_queue(MIN_OFFSET, queue)


def topic_config(topic: str) -> RemotingRequest:
    """How the topic was made, at this broker, in JSON."""
    return RemotingRequest(TOPIC_CONFIG, fields_of(topic=topic))


def search_offset(queue: Partition, time_ms: int) -> RemotingRequest:
    """Of a topic made for batches a broker names the last one where it should the end."""
    return _of_queue(SEARCH_OFFSET, queue, timestamp=time_ms, boundaryType="LOWER")


def _of_queue(code: int, queue: Partition, **more: Any) -> RemotingRequest:
    fields = fields_of(topic=queue.topic, queueId=queue.number, **more)
    return RemotingRequest(code, fields, about=queue)


@lru_cache(256)
def _same_of_pulls(topic: str, number: int, group: str, subscription: str) -> Mapping[str, str]:
    """The version of a subscription counts for groups only."""
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


# --- what only tests and the demo need --------------------------------------------------


def create_topic(topic: str, queues: int, attributes: str = "") -> RemotingRequest:
    """``attributes`` as upstream's tool takes them: ``+name=value``, separated by commas."""
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
