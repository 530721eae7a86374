"""The state of one connection as a value: unanswered requests, and how much each response returns.

Bytes in, bytes out. Nothing is negotiated. Every request has its own number, ``opaque``, and
responses come in any order. A server may send requests as well; they are ignored. Name servers and
brokers speak the same protocol.

The pulls of a series are sent together, each beginning where the previous one is expected to end
(``pulls_in_flight``). As many again are sent ahead, so that the broker works while the responses
are being decoded: the next series of the queue takes those over and sends only the pulls after
them. Responses that no series takes over are ignored.

If a topic stores batches, or may do so, everything is pulled even if tags are requested.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rangeland.dialects.protocol_session import (
    Credentials,
    ProtocolSession,
    unmatched_response_error,
)
from rangeland.dialects.rocketmq.frames import (
    ONE_WAY,
    Frame,
    HeaderReader,
    SimilarHeaders,
    write_frame,
)
from rangeland.dialects.rocketmq.log_start import next_start_request, start_search_result
from rangeland.dialects.rocketmq.messages import (
    PULL,
    TOPIC_CONFIG,
    AclLogin,
    Pull,
    PullSeries,
    RemotingRequest,
    RemotingResponse,
    SeriesResponse,
    StartSearch,
    TimeSearch,
    hello,
)
from rangeland.dialects.rocketmq.missing_messages import follow_up_requests, last_follow_ups
from rangeland.dialects.rocketmq.pulls_in_flight import PullPace, PullStride, SentPull, usable_pulls
from rangeland.dialects.rocketmq.time_search import next_request, search_result
from rangeland.dialects.rocketmq.topic_types import TopicTypes
from rangeland.model import Partition
from rangeland.wire.framing import frame
from rangeland.wire.primitives import Buffer

MAX_OPAQUE: Final = 2**31 - 1


@dataclass(slots=True)
class _OpenRequest:
    """A message whose response is incomplete. ``unanswered`` is how many of its requests have no
    response yet."""

    message: RemotingRequest | Pull | PullSeries | TimeSearch | StartSearch
    sent: list[SentPull]
    unanswered: int
    follow_ups: list[SentPull] = field(default_factory=list)


class RocketmqSession(ProtocolSession):
    """The protocol state of one connection to a RocketMQ server. A session ends with its
    connection. Not thread-safe. ``client_id`` is not sent. With ``credentials``, or after an
    ``AclLogin``, every request is signed."""

    def __init__(self, client_id: str, credentials: Credentials | None = None) -> None:
        self._client_id = client_id
        self._credentials = credentials
        self._waiting: dict[int, SentPull] = {}
        self._open: dict[int, _OpenRequest] = {}
        self._paces: dict[Partition, PullPace] = {}
        self._strides: dict[tuple[Partition, tuple[str, ...]], PullStride] = {}
        self._topics = TopicTypes()
        self._ahead: dict[tuple[Partition, int], list[SentPull]] = {}
        self._starts_waiting: dict[str, list[tuple[int, StartSearch]]] = {}
        self._also_completed: list[tuple[int, Any]] = []
        self._due: list[bytes] = []
        self._reader = HeaderReader()
        self._next_id = 0
        self._next_opaque = 0

    @property
    def unanswered(self) -> int:
        """The number of requests that have not been answered yet."""
        return len(self._waiting)

    def encode(self, request: Any, max_version: int | None = None) -> tuple[int, bytes]:
        """The message's id and its frame, or frames. ``max_version`` is ignored."""
        request_id = self._next_id
        self._next_id += 1
        if isinstance(request, AclLogin):
            self._credentials = request.credentials
            request = hello()
        if isinstance(request, RemotingRequest) and request.is_one_way:
            return request_id, self._write(self._next_number(), request)
        ahead: list[SentPull] = []
        if isinstance(request, PullSeries):
            sent, ahead = self._series(request)
        elif isinstance(request, TimeSearch | StartSearch):
            sent = [SentPull(request.search)]
        else:
            sent = [SentPull(request)]
        new = [pull for pull in (*sent, *ahead) if pull.is_new]
        for pull in sent:
            pull.owner = request_id
        unanswered = sum(pull.response is None for pull in sent)
        self._open[request_id] = _OpenRequest(request, sent, unanswered)
        return request_id, b"".join(self._send(new))

    def _series(self, series: PullSeries) -> tuple[list[SentPull], list[SentPull]]:
        """The pulls of a series, and the pulls that are sent ahead for the next one."""
        queue = series.about
        tags = series.tags
        key = (queue, series.until_offset)
        if tags and not self._topics.needs_all(queue.topic):
            self._ahead.pop(key, None)
            stride = self._strides.setdefault((queue, tags), PullStride())
            return list(stride.pulls(series)), []
        pace = self._paces.setdefault(queue, PullPace())
        sent = usable_pulls(self._ahead.pop(key, ()), series.offset)
        number = pace.number(series)
        max_pulls = 2 * number if pace.is_steady else number
        start = sent[-1].until_offset if sent else series.offset
        sent += pace.pulls(series, start, max_pulls - len(sent))
        # At least one must be unanswered, because a series is completed by the arrival of a
        # response.
        first = next((n for n, pull in enumerate(sent) if pull.response is None), None)
        if first is None:
            first = max(0, len(sent) - 1)
            sent[first:] = [pace.again(series, sent)]
        cut = max(number, first + 1)
        if sent[cut:]:
            self._ahead[key] = sent[cut:]
        return sent[:cut], sent[cut:]

    def _send(self, new: Iterable[SentPull]) -> Iterable[bytes]:
        """Frames of new requests, which count as unanswered from now on."""
        headers: SimilarHeaders | None = None
        for pull in new:
            opaque = self._next_number()
            self._waiting[opaque] = pull
            pull.is_new = False
            request = pull.request
            if self._credentials is None and isinstance(request, Pull) and not request.tags:
                if headers is None:
                    headers = SimilarHeaders(
                        PULL, request.queue_fields, ("queueOffset", "maxMsgNums")
                    )
                yield headers.write(opaque, request.offset, request.max_messages)
            else:
                yield self._write(opaque, request)

    def _next_number(self) -> int:
        opaque = self._next_opaque
        self._next_opaque = (opaque + 1) & MAX_OPAQUE
        return opaque

    def _write(self, opaque: int, request: RemotingRequest | Pull) -> bytes:
        # A server treats empty text as absent, and would compute another signature.
        fields = {name: text for name, text in request.fields.items() if text}
        if self._credentials is not None:
            fields = sign_fields(fields, request.body, self._credentials)
        flag = ONE_WAY if request.is_one_way else 0
        header = Frame(request.code, opaque, flag, fields=fields, body=request.body)
        return frame(*write_frame(header))

    def decode(self, response: memoryview) -> tuple[int, Any] | None:
        """The id and the response of the message that this frame completes: a ``RemotingResponse``,
        or a ``SeriesResponse`` once all of its pulls are answered. None until then, and for a frame
        that is not a response. Raises RemoteProtocolError for an unexpected response."""
        reply = self._reader.read(response)
        if not reply.is_response:
            return None
        sent = self._waiting.pop(reply.opaque, None)
        if sent is None:
            raise unmatched_response_error(
                f"its number is {reply.opaque}", opaque=reply.opaque, code=reply.code
            )
        sent.response = RemotingResponse(
            sent.request, reply.code, reply.remark, reply.fields, reply.body
        )
        return None if sent.owner is None else self._take_response(sent.owner, sent.response)

    def _take_response(self, request_id: int, response: RemotingResponse) -> tuple[int, Any] | None:
        """Takes the last response of a message; returns None while others are missing, or if the
        response calls for more requests."""
        pending = self._open[request_id]
        pending.unanswered -= 1
        if pending.unanswered:
            return None
        series = pending.message
        if isinstance(series, TimeSearch | StartSearch):
            return self._take_search_response(request_id, pending, series)
        if not isinstance(series, PullSeries):
            del self._open[request_id]
            return request_id, response
        if not pending.follow_ups and self._follow(request_id, pending, series):
            return None
        if self._send_follow_ups(request_id, pending, series):
            return None
        del self._open[request_id]
        responses = responses_of(pending.sent)
        follow_ups = responses_of(pending.follow_ups)
        topic = series.about.topic
        if series.tags or follow_ups:
            self._topics.learn(topic, (*responses, *follow_ups))
        if not any(response.pull.tags for response in responses):
            self._paces[series.about].learn(pending.sent)
        elif self._topics.is_for_batches(topic) is False:
            self._strides[series.about, series.tags].learn(pending.sent)
        else:
            responses = responses[:1]  # pulls by tags may have missed messages
        is_compacted = self._topics.is_compacted(topic) is True
        return request_id, SeriesResponse(series, responses, follow_ups, is_compacted)

    def _follow(self, request_id: int, pending: _OpenRequest, series: PullSeries) -> bool:
        """Sends another pull if the series needs one, now that the others are answered."""
        pace = self._paces.get(series.about)
        pull = pace.next_pull(series, pending.sent) if pace else None
        if pull is not None:
            self._add(request_id, pending, pull)
        return pull is not None

    def _take_search_response(
        self, request_id: int, pending: _OpenRequest, search: TimeSearch | StartSearch
    ) -> tuple[int, Any] | None:
        """Takes a response to a search; returns None if it calls for another request."""
        responses = responses_of(pending.sent)
        self._topics.learn(search.about.topic, responses)
        request = (
            next_request(search, responses)
            if isinstance(search, TimeSearch)
            else next_start_request(search, responses, self._topics)
        )
        if responses[-1].request.code == TOPIC_CONFIG:
            self._share_topic_type(search.about.topic, responses[-1])
        if request is not None:
            is_shared = (
                isinstance(search, StartSearch)
                and request.code == TOPIC_CONFIG
                and self._await_topic_type(request_id, search)
            )
            if not is_shared:
                self._add(request_id, pending, SentPull(request))
            return None
        del self._open[request_id]
        if isinstance(search, TimeSearch):
            return request_id, search_result(search, responses)
        return request_id, start_search_result(responses)

    def _await_topic_type(self, request_id: int, search: StartSearch) -> bool:
        """Lets a search wait for the type of its topic, if another one has already asked for it: a
        survey searches all queues of a topic at once. Returns False if it has to ask itself."""
        topic = search.about.topic
        if topic not in self._starts_waiting:
            self._starts_waiting[topic] = []
            return False
        self._starts_waiting[topic].append((request_id, search))
        return True

    def _share_topic_type(self, topic: str, response: RemotingResponse) -> None:
        """Continues the searches that have waited for this response."""
        for request_id, search in self._starts_waiting.pop(topic, ()):
            pending = self._open[request_id]
            pending.sent.append(SentPull(response.request, response=response))
            completed = self._take_search_response(request_id, pending, search)
            self._also_completed += [] if completed is None else [completed]

    def also_completed(self) -> list[tuple[int, Any]]:
        completed, self._also_completed = self._also_completed, []
        return completed

    def _add(self, request_id: int, pending: _OpenRequest, pull: SentPull) -> None:
        """Sends one more request of a message whose earlier requests have all been answered."""
        pull.owner = request_id
        pending.sent.append(pull)
        pending.unanswered = 1
        self._due += self._send([pull])

    def _send_follow_ups(self, request_id: int, pending: _OpenRequest, series: PullSeries) -> bool:
        """Sends the requests that are still needed, now that all others are answered. Returns False
        if there are none."""
        responses = responses_of(pending.sent)
        if pending.follow_ups:
            requests = last_follow_ups(series, responses, responses_of(pending.follow_ups))
        else:
            requests = follow_up_requests(series, responses, self._topics)
        sent = [SentPull(r, owner=request_id) for r in requests]
        pending.follow_ups += sent
        pending.unanswered = len(sent)
        self._due += self._send(sent)
        return bool(sent)

    def due(self) -> bytes:
        """The requests that the responses so far call for."""
        due = b"".join(self._due)
        self._due = []
        return due


def responses_of(sent: Iterable[SentPull]) -> tuple[RemotingResponse, ...]:
    return tuple(pull.response for pull in sent if pull.response is not None)


ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"


def sign_fields(
    fields: Mapping[str, str], body: Buffer, credentials: Credentials
) -> dict[str, str]:
    """The fields with the access key (``username``) and the signature, made with the secret key
    (``password``): the Base64 of HMAC-SHA1 over the values of all other fields, in the order of
    their keys, followed by the body."""
    signed = {**fields, ACCESS_KEY: credentials.username}
    text = "".join(signed[key] for key in sorted(signed) if key != SIGNATURE)
    mac = hmac.new(credentials.password.encode(), digestmod=hashlib.sha1)
    mac.update(text.encode())
    mac.update(body)
    return {**signed, SIGNATURE: base64.b64encode(mac.digest()).decode()}
