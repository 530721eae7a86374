"""The state of one connection as a value: the unanswered requests, in order.

Bytes in, bytes out; the owner of the socket sends the returned frames. Nothing is negotiated: a
connection is ready as soon as it is open. A response carries no id, so it belongs to the oldest
unanswered request; ids are counted here for the caller.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from rangeland.dialects.jafka.messages import ProduceRequest, Request, encode_request, read_whole
from rangeland.dialects.protocol_session import ProtocolSession, unmatched_response_error
from rangeland.wire.framing import frame


class JafkaSession(ProtocolSession):
    """The protocol state of one connection to a Jafka broker. A session ends with its connection.
    Not thread-safe. ``client_id`` is not sent, because the protocol has no field for it."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._pending: deque[tuple[int, Request]] = deque()
        self._next_id = 0

    @property
    def unanswered(self) -> int:
        """The number of requests that have not been answered yet."""
        return len(self._pending)

    def encode(self, request: Any, max_version: int | None = None) -> tuple[int, bytes]:
        """The request's id and its frame. A response is expected, unless this is a Produce.
        ``max_version`` is ignored: there are no versions."""
        whole = frame(*encode_request(request))
        request_id = self._next_id
        self._next_id += 1
        if not isinstance(request, ProduceRequest):
            self._pending.append((request_id, request))
        return request_id, whole

    def decode(self, response: memoryview) -> tuple[int, Any]:
        """The id of the oldest unanswered request, and the value of a complete frame. Records in it
        are slices of the frame. Raises RemoteProtocolError for an unexpected response."""
        if not self._pending:
            size = len(response)
            raise unmatched_response_error(f"it has {size} bytes", size=size)
        request_id, request = self._pending[0]
        value = read_whole(request, response)
        self._pending.popleft()
        return request_id, value
