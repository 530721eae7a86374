"""The state of one connection as a value: versions, correlation ids, unanswered requests.

Bytes in, bytes out; the owner of the socket sends the returned frames. Versions are negotiated
first: send the frame from ``open``, pass the response to ``take_negotiation``, and repeat this with
the frame that it returns until it returns None. Then use ``encode`` and ``decode``. A broker that
is too old for ApiVersions (0.8 closes the connection, 0.9 does not answer) is assumed to support
``WITHOUT_API_VERSIONS``.

A request is sent in the highest version that both sides support. Kafka 4 lists Produce from version
0 on, but closes the connection when it gets versions 0 to 2. The declared versions begin at 3, so
that does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rangeland import __version__
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.kafka.error_codes import UNSUPPORTED_VERSION, error_code_of
from rangeland.dialects.kafka.legacy_requests import fit_request
from rangeland.dialects.kafka.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    BareToken,
    FetchRequest,
    MetadataRequest,
    MetadataResponse,
    RequestHeader,
    ResponseHeader,
    SaslAuthenticateResponse,
    request_header_version,
    response_header_version,
)
from rangeland.dialects.protocol_session import (
    NoCommonVersion,
    ProtocolSession,
    UnsupportedRequest,
    unmatched_response_error,
)
from rangeland.errors import LocalProtocolError, RemoteProtocolError, Unreachable
from rangeland.wire.declarations import spec_of
from rangeland.wire.encoding import decode, decode_from, encode_buffers
from rangeland.wire.framing import frame
from rangeland.wire.primitives import Buffer

SOFTWARE_NAME: Final = "rangeland"
SOFTWARE_VERSION: Final = __version__

FIRST_ASKED: Final = 3
"""The version of ApiVersions that is tried first, supported since Kafka 2.4. Version 4 adds nothing
about versions, and fewer brokers support it."""

WITHOUT_API_VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    0: (0, 0),
    1: (0, 0),
    2: (0, 0),
    3: (0, 0),
    8: (0, 1),
    9: (0, 1),
    10: (0, 0),
}
"""The versions that both Kafka 0.8.2 and 0.9 support. 0.8 ignores the version of a Fetch request
and answers in version 0. For a group's offsets, version 1 asks the coordinator and version 0 asks
ZooKeeper."""

_MAX_CORRELATION_ID: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Pending:
    request: type[Any]
    version: int


class KafkaSession(ProtocolSession):
    """The protocol state of one connection to a Kafka broker. Responses may come in any order. A
    new connection needs a new session. Not thread-safe."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._pending: dict[int, _Pending] = {}
        self._next_id = 0
        self._versions: Mapping[int, tuple[int, int]] | None = None
        self._bare_id: int | None = None

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The versions that the broker supports, by request key: (min, max), inclusive; empty until
        they are known."""
        return self._versions or {}

    @property
    def unanswered(self) -> int:
        """The number of requests that have not been answered yet."""
        return len(self._pending)

    def open(self) -> bytes:
        """The first frame, which asks what versions the broker supports."""
        return self._versions_frame(FIRST_ASKED)

    def take_negotiation(self, response: memoryview) -> bytes | None:
        """Takes the response to the last frame of the negotiation. Returns the next frame, or None
        once the versions are known.

        A broker that does not support the version of this request answers with error 35, in version
        0, and may list the versions that it does support. Then it is asked again.
        """
        correlation_id, pending, start = self._match(response)
        if pending.request is not ApiVersionsRequest:
            raise LocalProtocolError(
                "the response to another request was passed to `take_negotiation`"
            )
        # The code comes first in every version, and 35 means that the rest is in version 0.
        is_unsupported = bytes(response[start : start + 2]) == UNSUPPORTED_VERSION.number.to_bytes(
            2, "big"
        )
        version = 0 if is_unsupported else pending.version
        value = decode(ApiVersionsResponse, version, response, start)
        del self._pending[correlation_id]
        versions = {v.api_key: (v.min_version, v.max_version) for v in value.api_keys}
        if is_unsupported and pending.version > 0:
            highest = versions.get(spec_of(ApiVersionsRequest).key, (0, 0))[1]
            return self._versions_frame(max(0, min(highest, pending.version - 1)))
        code = error_code_of(value.error_code)
        if code.meaning is not ErrorMeaning.OK:
            kind = Unreachable if code.meaning.is_retriable else RemoteProtocolError
            raise kind(
                "the broker does not report which versions it supports",
                why=f"{code.name} ({value.error_code}): {code.description}",
                do="check that the port is a Kafka listener for clients",
                code=value.error_code,
            )
        self._versions = versions
        return None

    def skip_opening(self) -> bytes:
        """The first frame for a broker before 0.10, which does not report its versions: an empty
        fetch, which such a broker answers."""
        self._pending.clear()
        self.assume(WITHOUT_API_VERSIONS)
        nothing = FetchRequest(max_wait_ms=0, min_bytes=0, topics=())
        return self._encode(nothing, 0)[1]

    def version_probe(self) -> bytes:
        """A request for the metadata of no topics, in version 1. Brokers before 0.10 ignore the
        version: they return the metadata of all topics, in version 0."""
        return self._encode(MetadataRequest(topics=()), 1)[1]

    def is_too_old(self, response: memoryview) -> bool:
        """Whether a broker is too old for ApiVersions. This follows from the version of its
        response to ``version_probe``, which can be decoded in only one version."""
        correlation_id, pending, start = self._match(response)
        if pending.request is not MetadataRequest:
            raise LocalProtocolError("the response to another request was passed to `is_too_old`")
        del self._pending[correlation_id]
        try:
            decode(MetadataResponse, 1, response, start)
        except RemoteProtocolError:
            decode(MetadataResponse, 0, response, start)
            return True
        return False

    def assume(self, versions: Mapping[int, tuple[int, int]]) -> None:
        """Sets the versions of a broker that cannot be asked, or that has been asked before."""
        self._versions = dict(versions)

    def choose(self, request: type[Any], max_version: int | None = None) -> int:
        """The version in which to send ``request``. Raises ``NoCommonVersion`` if there is none
        that both sides support, and ``LocalProtocolError`` if the versions are not known yet."""
        if self._versions is None:
            raise LocalProtocolError(
                f"no version of {request.__name__} can be chosen",
                why="the versions that the broker supports are not known yet",
            )
        spec = spec_of(request)
        low, high = spec.versions
        top = high if max_version is None else min(high, max_version)
        if top < low:
            raise LocalProtocolError(
                f"{request.__name__} is not declared in version {max_version} or below",
                why=f"versions {low} to {high} are declared",
                request=spec.name,
            )
        broker_versions = self._versions.get(spec.key)
        if (
            broker_versions is not None
            and low <= min(top, broker_versions[1])
            and broker_versions[0] <= top
        ):
            return min(top, broker_versions[1])
        support = (
            "no version"
            if broker_versions is None
            else f"versions {broker_versions[0]} to {broker_versions[1]}"
        )
        kind = UnsupportedRequest if broker_versions is None else NoCommonVersion
        raise kind(
            f"no version of {spec.name} is supported by both sides",
            why=f"the broker supports {support} of it, and this library supports versions {low} "
            f"to {top}",
            do="check whether this version of the broker is supported",
            request=spec.name,
            ours=[low, top],
            theirs=list(broker_versions) if broker_versions else None,
        )

    def encode(self, request: Any, max_version: int | None = None) -> tuple[int, bytes]:
        """The correlation id of the request, and its frame in the version that ``choose`` returns.

        From then on, a response is expected.
        """
        if isinstance(request, BareToken):
            self._bare_id, self._next_id = self._next_id, self._next_id + 1
            return self._bare_id, frame(request.auth_bytes)
        version = self.choose(type(request), max_version)
        return self._encode(fit_request(request, version), version)

    def decode(self, response: memoryview) -> tuple[int, Any]:
        """The correlation id and the value of a complete frame. Its ``Records`` are slices of the
        frame. Raises ``RemoteProtocolError`` for an unexpected response."""
        if self._bare_id is not None:
            bare_id, self._bare_id = self._bare_id, None
            return bare_id, SaslAuthenticateResponse(error_code=0, auth_bytes=bytes(response))
        correlation_id, pending, start = self._match(response)
        value: Any = decode(_response_of(pending.request), pending.version, response, start)
        del self._pending[correlation_id]
        return correlation_id, value

    def _versions_frame(self, version: int) -> bytes:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        return self._encode(request, version)[1]

    def _encode(self, request: Any, version: int) -> tuple[int, bytes]:
        """The correlation id of the request, and its frame in this version."""
        cls = type(request)
        correlation_id = self._next_id
        header = RequestHeader(
            api_key=spec_of(cls).key,
            api_version=version,
            correlation_id=correlation_id,
            client_id=self._client_id,
        )
        buffers: list[Buffer] = encode_buffers(header, request_header_version(cls, version))
        buffers += encode_buffers(request, version)
        whole = frame(*buffers)
        self._next_id = 0 if correlation_id == _MAX_CORRELATION_ID else correlation_id + 1
        self._pending[correlation_id] = _Pending(cls, version)
        return correlation_id, whole

    def _match(self, response: memoryview) -> tuple[int, _Pending, int]:
        """The correlation id, the request that this frame answers, and where the header ends."""
        header, end = decode_from(ResponseHeader, 0, response)
        pending = self._pending.get(header.correlation_id)
        if pending is None:
            raise unmatched_response_error(
                f"its correlation id is {header.correlation_id}",
                correlation_id=header.correlation_id,
                waiting=sorted(self._pending),
            )
        version = response_header_version(pending.request, pending.version)
        if version > 0:
            _, end = decode_from(ResponseHeader, version, response)
        return header.correlation_id, pending, end


def _response_of(request: type[Any]) -> type[Any]:
    response = spec_of(request).response
    if response is None:
        raise LocalProtocolError(f"no response to {request.__name__} is declared")
    return response
