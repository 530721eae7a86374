"""RocketMQ's requests about groups, and their responses.

Brokers associate a client with the connection of its heartbeats, while locks belong to the client
id that a request names. The code relies on both facts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from rangeland.dialects.rocketmq.messages import RemotingRequest, RemotingResponse, fields_of
from rangeland.errors import RemoteProtocolError
from rangeland.model import Partition
from rangeland.untrusted import MAX_INT32, JsonFields, Unreadable

QUERY_OFFSET, UPDATE_OFFSET = 14, 15
HEARTBEAT, UNREGISTER = 34, 35
LOCK, UNLOCK = 41, 42
CONNECTIONS = 203

RETRY_PREFIX: Final = "%RETRY%"
"""Prefix of the topic that a broker creates for a group when its first member appears."""


@dataclass(frozen=True, slots=True)
class GroupClient:
    """A member of a group as one broker sees it."""

    client_id: str
    host: str = ""
    language: str = ""


@dataclass(frozen=True, slots=True)
class GroupConnections:
    """The clients of a group that one broker lists. ``topics`` are the group's subscriptions,
    according to its latest heartbeat."""

    clients: tuple[GroupClient, ...] = ()
    topics: frozenset[str] = frozenset()


# --- offsets ----------------------------------------------------------------------------


def query_offset(group: str, queue: Partition) -> RemotingRequest:
    """Asks for a group's offset. Without the last field a broker answers 0 if it has no offset."""
    fields = fields_of(
        consumerGroup=group, topic=queue.topic, queueId=queue.number, setZeroIfNotFound=False
    )
    return RemotingRequest(QUERY_OFFSET, fields, about=queue)


def update_offset(group: str, queue: Partition, offset: int) -> RemotingRequest:
    fields = fields_of(
        consumerGroup=group, topic=queue.topic, queueId=queue.number, commitOffset=offset
    )
    return RemotingRequest(UPDATE_OFFSET, fields, about=queue)


# --- members ----------------------------------------------------------------------------


def connections(group: str) -> RemotingRequest:
    return RemotingRequest(CONNECTIONS, fields_of(consumerGroup=group))


def heartbeat(client: str, group: str, topics: Collection[str]) -> RemotingRequest:
    """Makes the client a member, and creates the group if the broker may. The subscriptions
    apply to the whole group."""
    subscriptions = [
        {
            "classFilterMode": False,
            "codeSet": [],
            "expressionType": "TAG",
            "subString": "*",
            "subVersion": 0,
            "tagsSet": [],
            "topic": topic,
        }
        for topic in sorted(topics)
    ]
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_ACTIVELY",
        "groupName": group,
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
    }
    body = {"clientID": client, "consumerDataSet": [consumer], "producerDataSet": []}
    return RemotingRequest(HEARTBEAT, {}, _json(body))


def unregister(client: str, group: str) -> RemotingRequest:
    """Removes the connection that sends it from the group."""
    return RemotingRequest(UNREGISTER, fields_of(clientID=client, consumerGroup=group))


def read_connections(response: RemotingResponse) -> GroupConnections:
    """Raises RemoteProtocolError."""
    with _body_of(response) as body:
        clients = tuple(
            GroupClient(
                client.text("clientId"),
                client.text("clientAddr", "").rpartition(":")[0].strip("[]"),
                client.text("language", ""),
            )
            for client in body.each("connectionSet", ())
        )
        topics = body.fields("subscriptionTable", {})
    return GroupConnections(clients, frozenset(t for t in topics if not t.startswith(RETRY_PREFIX)))


# --- locks ------------------------------------------------------------------------------


def lock(client: str, group: str, queues: Collection[Partition]) -> RemotingRequest:
    """Locks queues that are free, and renews the client's own locks. A lock expires after a
    minute, and when the broker stops."""
    return RemotingRequest(LOCK, {}, _lock_body(client, group, queues))


def unlock(client: str, group: str, queues: Collection[Partition]) -> RemotingRequest:
    """Releases the queues that the named client has locked."""
    return RemotingRequest(UNLOCK, {}, _lock_body(client, group, queues))


def _lock_body(client: str, group: str, queues: Collection[Partition]) -> bytes:
    listed = [
        {"brokerName": q.broker, "queueId": q.number, "topic": q.topic} for q in sorted(queues)
    ]
    return _json({"clientId": client, "consumerGroup": group, "mqSet": listed})


def read_locked(response: RemotingResponse) -> frozenset[Partition]:
    """Raises RemoteProtocolError."""
    with _body_of(response) as body:
        return frozenset(
            Partition(q.text("topic"), q.number("queueId", 0, MAX_INT32), q.text("brokerName"))
            for q in body.each("lockOKMQSet", ())
        )


# --- JSON -------------------------------------------------------------------------------


def _json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


@contextmanager
def _body_of(response: RemotingResponse) -> Iterator[JsonFields]:
    """The fields of a response, while they are read."""
    try:
        yield JsonFields.parse(response.body)
    except Unreadable as error:
        raise RemoteProtocolError(
            f"the response to request {response.request.code} cannot be read",
            why=str(error),
            do="check that the servers are brokers of this dialect, in a supported version",
            size=len(response.body),
            code=response.request.code,
        ) from None
