"""Clients that write to RocketMQ brokers and read from them, for tests and the demo.

`RocketmqClient` is a socket that uses the dialect's requests; `produce` writes with it. RocketMQ's
own clients are in Java; tests start them as needed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rangeland.clock import wall_ms
from rangeland.dialects.protocol_session import Credentials
from rangeland.dialects.rocketmq.error_codes import SUCCESS, error_code_of
from rangeland.dialects.rocketmq.messages import RemotingRequest, max_offset, send
from rangeland.dialects.rocketmq.pulls_in_flight import number_of
from rangeland.dialects.rocketmq.session import RocketmqSession
from rangeland.errors import Unreachable
from rangeland.model import Partition
from rangeland.testing.frame_client import TIMEOUT_S, FrameClient

AHEAD = 64
DELAY = "DELAY"
"""The property of a message that the broker stores elsewhere until it is due."""
READ_LOG = "read the broker's log"


class RocketmqClient(FrameClient):
    """A single connection to ``host:port``, to be closed or used in a ``with`` statement."""

    def __init__(self, address: str, credentials: Credentials | None = None) -> None:
        super().__init__(address)
        self._session = RocketmqSession("testing", credentials)
        self._responses: dict[int, Any] = {}

    def send(self, request: Any) -> int:
        """Sends a request and returns its id, for ``receive``."""
        request_id, data = self._session.encode(request)
        self.send_raw(data)
        return request_id

    def receive(self, request_id: int) -> Any:
        while request_id not in self._responses:
            decoded = self._session.decode(self.receive_raw())
            if decoded is not None:
                self._responses.update([decoded, *self._session.also_completed()])
            elif due := self._session.due():
                self.send_raw(due)
        return self._responses.pop(request_id)

    def ask(self, request: Any, *, check: bool = True) -> Any:
        """Sends a request and returns its response. With ``check``, a response that reports an
        error raises `Unreachable`."""
        response = self.receive(self.send(request))
        if check and isinstance(request, RemotingRequest) and response.code != SUCCESS:
            raise _refused_error(f"{self.address} refused request {request.code}", response)
        return response


def produce(
    address: str,
    topic: str,
    values: Sequence[bytes],
    queue: int = 0,
    *,
    properties: Mapping[str, str] | None = None,
    sys_flag: int = 0,
    born_ms: int | None = None,
) -> list[int]:
    """Appends ``values`` to a queue of a master; returns their offsets once all can be pulled,
    because a master acknowledges a message before it enters it in its queue. ``sys_flag`` is sent
    unchanged; it says whether values are packed. Raises `Unreachable` if a value is not
    accepted."""
    about = Partition(topic, queue)
    born = wall_ms() if born_ms is None else born_ms
    offsets: list[int] = []
    with RocketmqClient(address) as client:
        for start in range(0, len(values), AHEAD):
            ids = [
                client.send(send(about, value, properties or {}, born, sys_flag))
                for value in values[start : start + AHEAD]
            ]
            for response in map(client.receive, ids):
                if response.code != SUCCESS:
                    raise _refused_error(f"{address} refused a message", response)
                offsets.append(number_of(response, "queueOffset"))
        if offsets and DELAY not in (properties or {}):
            _wait_for(client, about, max(offsets))
    return offsets


def _refused_error(what: str, response: Any) -> Unreachable:
    reason = f"{error_code_of(response.code).name}: {response.remark}"
    return Unreachable(what, why=reason, do=READ_LOG)


def _wait_for(client: RocketmqClient, queue: Partition, offset: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while (end := number_of(client.ask(max_offset(queue)), "offset")) <= offset:
        if time.monotonic() > deadline:
            what = f"{client.address} has {queue} up to {end}, not to {offset}"
            raise Unreachable(what, do=READ_LOG)
        time.sleep(0.01)
