"""One connection: versions are negotiated, responses are matched, nothing else is believed."""

from __future__ import annotations

from typing import Any

import pytest

from rangeland.dialects.kafka.messages import (
    REQUESTS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    RequestHeader,
    ResponseHeader,
    SaslHandshakeRequest,
    request_header_version,
    response_header_version,
)
from rangeland.dialects.kafka.session import WITHOUT_API_VERSIONS, KafkaSession
from rangeland.errors import LocalProtocolError, RemoteProtocolError
from rangeland.wire.declarations import spec_of
from rangeland.wire.encoding import decode, decode_from, encode
from tests.kafka_produce import ProduceRequest

FOUR_ONE = {0: (0, 13), 1: (4, 18), 2: (1, 10), 3: (0, 13), 18: (0, 4)}


def versions_response(
    correlation_id: int, version: int, ranges: dict[int, tuple[int, int]], error_code: int = 0
) -> memoryview:
    keys = tuple(
        ApiVersion(api_key=key, min_version=low, max_version=high)
        for key, (low, high) in ranges.items()
    )
    body = ApiVersionsResponse(error_code=error_code, api_keys=keys)
    header = ResponseHeader(correlation_id=correlation_id)
    return memoryview(encode(header, 0) + encode(body, version))


def sent(data: bytes | None) -> tuple[RequestHeader, Any]:
    """What a broker sees in a frame: the header, and the request."""
    assert data is not None
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    key, version = int.from_bytes(data[4:6], "big"), int.from_bytes(data[6:8], "big")
    request = next(cls for cls in (*REQUESTS, ProduceRequest) if spec_of(cls).key == key)
    header, end = decode_from(RequestHeader, request_header_version(request, version), data, 4)
    return header, decode(request, version, data, end)


def ready(ranges: dict[int, tuple[int, int]] | None = None) -> KafkaSession:
    session = KafkaSession("reader")
    session.open()
    assert session.take_negotiation(versions_response(0, 3, ranges or FOUR_ONE)) is None
    return session


def test_the_first_frame_asks_for_versions_with_a_name() -> None:
    header, request = sent(KafkaSession("reader").open())
    assert (header.api_key, header.api_version, header.client_id) == (18, 3, "reader")
    assert request.client_software_name == "rangeland"


def test_the_response_to_versions_has_the_old_header_though_it_is_flexible() -> None:
    assert response_header_version(ApiVersionsRequest, 3) == 0
    assert request_header_version(ApiVersionsRequest, 3) == 2
    assert ready().versions == FOUR_ONE


def test_flexible_messages_have_flexible_headers() -> None:
    assert request_header_version(FetchRequest, 11) == 1
    assert request_header_version(FetchRequest, 12) == 2
    assert response_header_version(FetchRequest, 11) == 0
    assert response_header_version(FetchRequest, 12) == 1
    assert response_header_version(SaslHandshakeRequest, 1) == 0


def test_a_broker_that_refuses_version_3_is_asked_again_in_version_0() -> None:
    session = KafkaSession("reader")
    session.open()
    again = session.take_negotiation(versions_response(0, 0, {}, error_code=35))
    header, _ = sent(again)
    assert (header.api_version, header.correlation_id) == (0, 1)
    assert session.take_negotiation(versions_response(1, 0, {1: (0, 5)})) is None
    assert session.versions == {1: (0, 5)}
    assert session.unanswered == 0


def test_a_broker_that_lists_what_it_has_is_asked_in_its_highest() -> None:
    session = KafkaSession("reader")
    session.open()
    header, _ = sent(session.take_negotiation(versions_response(0, 0, {18: (0, 2)}, error_code=35)))
    assert header.api_version == 2


def test_a_broker_that_refuses_every_version_is_given_up_after_three_questions() -> None:
    session = KafkaSession("reader")
    session.open()
    again = session.take_negotiation(versions_response(0, 0, {18: (0, 9)}, error_code=35))
    assert sent(again)[0].api_version == 2
    assert (
        sent(session.take_negotiation(versions_response(1, 0, {}, error_code=35)))[0].api_version
        == 0
    )
    with pytest.raises(RemoteProtocolError, match="UNSUPPORTED_VERSION"):
        session.take_negotiation(versions_response(2, 0, {}, error_code=35))


def test_any_other_error_ends_the_negotiation() -> None:
    session = KafkaSession("reader")
    session.open()
    with pytest.raises(RemoteProtocolError, match=r"ILLEGAL_SASL_STATE \(34\)"):
        session.take_negotiation(versions_response(0, 3, {}, error_code=34))


def test_the_lower_of_the_two_maxima_is_chosen() -> None:
    session = ready({1: (4, 99), 3: (0, 7)})
    assert session.choose(FetchRequest) == spec_of(FetchRequest).versions[1]
    assert session.choose(MetadataRequest) == 7
    assert session.choose(FetchRequest, max_version=12) == 12


def test_without_a_shared_version_both_ranges_are_named() -> None:
    session = ready({1: (30, 40)})
    with pytest.raises(
        RemoteProtocolError,
        match="versions 30 to 40 of it, and this library supports versions 0 to 18",
    ) as caught:
        session.choose(FetchRequest)
    assert (caught.value.facts["ours"], caught.value.facts["theirs"]) == ([0, 18], [30, 40])
    with pytest.raises(RemoteProtocolError, match="supports no version of it"):
        session.choose(MetadataRequest)
    with pytest.raises(RemoteProtocolError, match="versions 0 to 3"):
        ready().choose(FetchRequest, max_version=3)


def test_a_limit_below_what_is_declared_is_our_own_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="version 2 or below"):
        ready().choose(ProduceRequest, max_version=2)


def test_the_lower_bound_a_broker_lists_for_produce_is_not_relied_on() -> None:
    assert ready({0: (0, 13)}).choose(ProduceRequest) >= 3
    with pytest.raises(RemoteProtocolError):
        ready({0: (0, 2)}).choose(ProduceRequest)


def test_nothing_is_sent_before_the_versions_are_known() -> None:
    session = KafkaSession("reader")
    session.open()
    with pytest.raises(LocalProtocolError, match="are not known yet"):
        session.encode(MetadataRequest())
    assert session.unanswered == 1


def test_the_oldest_brokers_are_asked_in_version_0() -> None:
    session = KafkaSession("reader")
    session.assume(WITHOUT_API_VERSIONS)
    for request in (FetchRequest, ListOffsetsRequest, MetadataRequest):
        assert session.choose(request) == 0


def test_responses_are_matched_by_id_in_any_order() -> None:
    session = ready()
    metadata_id, data = session.encode(MetadataRequest())
    offsets_id, _ = session.encode(ListOffsetsRequest(topics=()), max_version=5)
    assert sent(data)[0].correlation_id == metadata_id
    offsets = ListOffsetsResponse(topics=())
    frame = encode(ResponseHeader(correlation_id=offsets_id), 0) + encode(offsets, 5)
    assert session.decode(memoryview(frame)) == (offsets_id, offsets)
    metadata = MetadataResponse(brokers=(), topics=())
    frame = encode(ResponseHeader(correlation_id=metadata_id), 1) + encode(metadata, 13)
    assert session.decode(memoryview(frame)) == (metadata_id, metadata)
    assert session.unanswered == 0


def test_a_response_that_nobody_waits_for_is_refused() -> None:
    session = ready()
    correlation_id, _ = session.encode(MetadataRequest(), max_version=1)
    response = encode(MetadataResponse(brokers=(), topics=()), 1)
    frame = memoryview(encode(ResponseHeader(correlation_id=correlation_id), 0) + response)
    session.decode(frame)
    for again in (frame, memoryview(encode(ResponseHeader(correlation_id=99), 0))):
        with pytest.raises(RemoteProtocolError, match="no request: its correlation id is"):
            session.decode(again)


def test_an_answer_with_bytes_too_many_is_refused_and_stays_unanswered() -> None:
    session = ready()
    correlation_id, _ = session.encode(MetadataRequest(), max_version=1)
    response = encode(MetadataResponse(brokers=(), topics=()), 1) + b"x"
    frame = encode(ResponseHeader(correlation_id=correlation_id), 0) + response
    with pytest.raises(RemoteProtocolError, match="left over") as caught:
        session.decode(memoryview(frame))
    assert caught.value.facts["offset"] == len(frame) - 1
    assert session.unanswered == 1


def test_a_request_that_cannot_be_sent_is_not_waited_for() -> None:
    session = ready()
    with pytest.raises(LocalProtocolError):
        session.encode(MetadataRequest(include_topic_authorized_operations=True), max_version=7)
    assert session.unanswered == 0


def test_correlation_ids_begin_again_after_the_largest() -> None:
    session = ready()
    session._next_id = 2**31 - 1
    assert session.encode(MetadataRequest())[0] == 2**31 - 1
    assert session.encode(MetadataRequest())[0] == 0
