"""Jafka's messages: what is written reads back, and any bytes are a value or a refusal."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rangeland.dialects.jafka import messages as m
from rangeland.dialects.jafka.session import JafkaSession
from rangeland.wire.encoding import decode, encode
from tests.contract.readers import read_anything, read_three_ways
from tests.examples import tried

many = tried(40)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
CODE = st.integers(-(1 << 15), (1 << 15) - 1)
topics = st.text(max_size=20)
fetches = st.builds(m.FetchRequest, topic=topics, partition=INT32, offset=INT64, max_bytes=INT32)
offsets = st.builds(m.OffsetsRequest, topic=topics, partition=INT32, time_ms=INT64, max_count=INT32)
produces = st.builds(
    m.ProduceRequest, topic=topics, partition=INT32, messages=st.binary().map(memoryview)
)
multi_fetches = st.builds(m.MultiFetchRequest, st.lists(fetches, max_size=4).map(tuple))


@many
@given(request=st.one_of(fetches, offsets, produces))
def test_a_request_reads_back(request: Any) -> None:
    again = decode(type(request), 0, encode(request, 0))
    assert again == request


@many
@given(request=multi_fetches)
def test_a_multi_fetch_is_a_count_and_its_fetches(request: m.MultiFetchRequest) -> None:
    _, frame = JafkaSession("p").encode(request)
    size, key, count = struct.unpack_from(">ihh", frame)
    assert (size, key, count) == (len(frame) - 4, 2, len(request.fetches))
    assert frame[8:] == b"".join(encode(part, 0) for part in request.fetches)


@many
@given(request=multi_fetches, data=st.data(), code=CODE)
def test_a_multi_fetchs_response_reads_back(
    request: m.MultiFetchRequest, data: st.DataObject, code: int
) -> None:
    given = [(data.draw(CODE), data.draw(st.binary(max_size=30))) for _ in request.fetches]
    parts = [struct.pack(">ih", 2 + len(body), error) + body for error, body in given]
    whole = struct.pack(">h", code) + b"".join(parts)
    response = read_three_ways(lambda b, at: m.read_response(request, b, at), whole)
    assert isinstance(response, m.MultiFetchResponse)
    assert response.error_code == code
    assert [(p.error_code, bytes(p.records)) for p in response.responses] == given


@many
@given(request=offsets, code=CODE, listed=st.lists(INT64, max_size=8))
def test_a_list_of_offsets_reads_back(
    request: m.OffsetsRequest, code: int, listed: list[int]
) -> None:
    whole = struct.pack(f">hi{len(listed)}q", code, len(listed), *listed)
    response = read_three_ways(lambda b, at: m.read_response(request, b, at), whole)
    assert response == m.OffsetsResponse(request, code, tuple(listed))


@many
@given(request=st.one_of(fetches, offsets, multi_fetches), data=st.binary(max_size=80))
def test_any_bytes_are_a_response_or_refused(request: m.Request, data: bytes) -> None:
    read_anything(lambda b, at: m.read_response(request, b, at), data)
