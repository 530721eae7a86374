"""The traffic of one connection between a client and a broker, as far as a proxy must know it.

A conversation receives each request and response as frames without lengths. It tells which
responses contain records, makes the same response with an error instead, and replaces the
addresses of brokers in responses that contain them. There is one class per dialect, which uses its
messages.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rangeland.dialects.kafka import messages as kafka
from rangeland.dialects.kafka.messages.headers import response_header_version
from rangeland.dialects.rocketmq import messages as rocketmq
from rangeland.dialects.rocketmq.frames import read_frame, write_frame
from rangeland.wire.declarations import spec_of
from rangeland.wire.encoding import decode, decode_from, encode

Relocate = Callable[[str], str]
"""The address of the proxy that stands before a broker, by the broker's own."""


@dataclass(frozen=True, slots=True)
class ProxiedResponse:
    """``failed`` is what goes to the client instead, given an error code; None where the response
    brings no records."""

    frame: bytes
    failed: Callable[[int], bytes] | None = None


class Conversation(ABC):
    """One connection's. Frames come in the order in which they were sent."""

    codes: Sequence[int]
    """Errors that brokers answer to a fetch when they are busy, restarting or moved."""

    def __init__(self, relocate: Relocate) -> None:
        self.relocate = relocate

    @abstractmethod
    def on_request(self, frame: bytes) -> None:
        """What the client has sent."""

    @abstractmethod
    def on_response(self, frame: bytes) -> ProxiedResponse:
        """What the broker has answered."""


class KafkaConversation(Conversation):
    """In the clear and without a login: of that, tokens in bare frames would not be understood."""

    codes = (-1, 3, 5, 6, 7, 9, 13, 56, 74, 75, 78, 100)

    def __init__(self, relocate: Relocate) -> None:
        super().__init__(relocate)
        self._asked: dict[int, tuple[int, int]] = {}

    def on_request(self, frame: bytes) -> None:
        key, version, correlation = (
            int.from_bytes(frame[a:b], "big") for a, b in ((0, 2), (2, 4), (4, 8))
        )
        self._asked[correlation] = key, version

    def on_response(self, frame: bytes) -> ProxiedResponse:
        key, version = self._asked.pop(int.from_bytes(frame[:4], "big"))
        if key == spec_of(kafka.FetchRequest).key:
            whole = self._read(kafka.FetchRequest, version, frame)
            return ProxiedResponse(
                frame, lambda code: whole(lambda found: _fetch_failed(found, code))
            )
        if key == spec_of(kafka.MetadataRequest).key:
            return ProxiedResponse(
                self._read(kafka.MetadataRequest, version, frame)(self._relocated)
            )
        if key == spec_of(kafka.FindCoordinatorRequest).key and version <= _LAST_WITH_ONE_KEY:
            whole = self._read(kafka.FindCoordinatorRequest, version, frame)
            return ProxiedResponse(
                whole(lambda found: self._at_proxy(found) if found.host else found)
            )
        return ProxiedResponse(frame)

    @staticmethod
    def _read(
        request: type[Any], version: int, frame: bytes
    ) -> Callable[[Callable[[Any], Any]], bytes]:
        """The same frame with another value in it."""
        _, start = decode_from(
            kafka.ResponseHeader, response_header_version(request, version), memoryview(frame)
        )
        value = decode(spec_of(request).response or object, version, memoryview(frame), start)
        return lambda change: frame[:start] + encode(change(value), version)

    def _relocated(self, found: kafka.MetadataResponse) -> kafka.MetadataResponse:
        return replace(found, brokers=tuple(self._at_proxy(broker) for broker in found.brokers))

    def _at_proxy(self, found: Any) -> Any:
        host, _, port = self.relocate(f"{found.host}:{found.port}").rpartition(":")
        return replace(found, host=host, port=int(port))


_LAST_WITH_ONE_KEY = 3


def _fetch_failed(found: kafka.FetchResponse, code: int) -> kafka.FetchResponse:
    def failed(part: Any) -> Any:
        return replace(part, error_code=code, records=None, high_watermark=-1)

    topics = (
        replace(topic, partitions=tuple(failed(part) for part in topic.partitions))
        for topic in found.responses
    )
    return replace(found, responses=tuple(topics))


class JafkaConversation(Conversation):
    """Clients get the addresses of brokers from ZooKeeper or from the job, and never here."""

    codes = (-1,)
    _FETCH, _MULTI_FETCH, _NO_RESPONSE = 1, 2, (0, 3)

    def __init__(self, relocate: Relocate) -> None:
        super().__init__(relocate)
        self._asked: deque[tuple[int, int]] = deque()

    def on_request(self, frame: bytes) -> None:
        key, count = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        if key not in self._NO_RESPONSE:
            self._asked.append((key, count))

    def on_response(self, frame: bytes) -> ProxiedResponse:
        key, count = self._asked.popleft()
        if key == self._FETCH:
            return ProxiedResponse(frame, lambda code: code.to_bytes(2, "big", signed=True))
        if key == self._MULTI_FETCH:
            size = (2).to_bytes(4, "big")
            return ProxiedResponse(
                frame, lambda code: bytes(2) + count * (size + code.to_bytes(2, "big", signed=True))
            )
        return ProxiedResponse(frame)


class RocketmqConversation(Conversation):
    """Name servers say where brokers listen; responses may overtake each other."""

    codes = (1, 2, 14, 20)
    _ADDRESS = re.compile(rb'"(\d+\.\d+\.\d+\.\d+:\d+)"')

    def __init__(self, relocate: Relocate) -> None:
        super().__init__(relocate)
        self._asked: dict[int, int] = {}

    def on_request(self, frame: bytes) -> None:
        request = read_frame(memoryview(frame))
        if not request.is_response:
            self._asked[request.opaque] = request.code

    def on_response(self, frame: bytes) -> ProxiedResponse:
        found = read_frame(memoryview(frame))
        asked = self._asked.pop(found.opaque, None) if found.is_response else None
        if asked == rocketmq.PULL:
            return ProxiedResponse(
                frame,
                lambda code: b"".join(
                    write_frame(found._replace(code=code, remark="too busy", fields={}, body=b""))
                ),
            )
        if asked == rocketmq.ROUTE:
            body = self._ADDRESS.sub(self._at_proxy, bytes(found.body))
            return ProxiedResponse(b"".join(write_frame(found._replace(body=body))))
        return ProxiedResponse(frame)

    def _at_proxy(self, match: re.Match[bytes]) -> bytes:
        return b'"%s"' % self.relocate(match[1].decode()).encode()


CONVERSATIONS: dict[str, type[Conversation]] = {
    "kafka": KafkaConversation,
    "jafka": JafkaConversation,
    "rocketmq": RocketmqConversation,
}
