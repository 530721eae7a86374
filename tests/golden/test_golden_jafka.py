"""Responses of a real Jafka broker, byte for byte, to a log that upstream's producer wrote.

What the log holds is in ``expected.json``; see ``capture_jafka.py``. Requests are held to
bytes that were put together by hand.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from rangeland.dialects.jafka import messages as m
from rangeland.dialects.jafka.error_codes import error_code_of
from rangeland.dialects.jafka.log_entries import scan
from rangeland.dialects.jafka.records import decode_chunk
from rangeland.dialects.jafka.session import JafkaSession
from rangeland.errors import RemoteProtocolError
from tests.contract.readers import read_three_ways
from tests.fetched_records import fetched_at
from tests.golden.capture_jafka import HOME, LINES, PACKED, PLAIN, REQUESTS, VERSION
from tests.jafka_entries import entry

STORED = HOME / VERSION
EXPECTED = json.loads((STORED / "expected.json").read_text(encoding="utf-8"))
NAMES = sorted(REQUESTS)


def data_of(name: str) -> memoryview:
    return memoryview((STORED / f"{name}.bin").read_bytes())


def response_of(name: str) -> Any:
    session = JafkaSession("golden")
    request_id, _ = session.encode(REQUESTS[name])
    answered, value = session.decode(data_of(name))
    assert answered == request_id
    assert session.unanswered == 0
    return value


def rows_of(records: memoryview) -> list[tuple[int, int, bytes]]:
    chunk = decode_chunk(records, 0, len(records))
    assert chunk.next_offset == scan(fetched_at(records)).next_offset == len(records)
    assert chunk.batch is not None
    return [(r["offset"], r["position"], r["value"]) for r in chunk.batch.to_pylist()]


def test_every_question_has_its_response_stored() -> None:
    assert sorted(path.stem for path in STORED.glob("*.bin")) == NAMES
    text = (STORED / "README.md").read_text(encoding="utf-8")
    assert all(f"| {name}.bin |" in text for name in NAMES)
    assert (EXPECTED["broker"], EXPECTED["lines"]) == (VERSION, LINES)


@pytest.mark.parametrize("name", [n for n in NAMES if n.partition(".")[0] != "Fetch"])
def test_a_response_passes_the_three_ways(name: str) -> None:
    request = REQUESTS[name]
    read_three_ways(lambda b, at: m.read_response(request, b, at), bytes(data_of(name)))


@pytest.mark.parametrize("name", [n for n in NAMES if n.partition(".")[0] == "Offsets"])
def test_bytes_after_a_response_are_refused(name: str) -> None:
    session = JafkaSession("golden")
    session.encode(REQUESTS[name])
    with pytest.raises(RemoteProtocolError, match="left over") as caught:
        session.decode(memoryview(bytes(data_of(name)) + b"\0"))
    assert caught.value.facts["reason"] == "left over"


def test_plain_messages_are_the_lines_that_were_sent_at_their_places() -> None:
    response = response_of("Fetch.plain")
    values = [line.encode() for line in LINES]
    assert bytes(response.records) == b"".join(map(entry, values))
    starts = [sum(len(entry(value)) for value in values[:i]) for i in range(len(values))]
    wanted = [(start, 0, value) for start, value in zip(starts, values, strict=True)]
    assert rows_of(response.records) == wanted
    assert len(response.records) == EXPECTED["ends"][PLAIN]


def test_packed_messages_are_the_lines_that_were_sent_at_one_position() -> None:
    response = response_of("Fetch.packed")
    assert rows_of(response.records) == [(0, i, line.encode()) for i, line in enumerate(LINES)]
    assert len(response.records) == EXPECTED["ends"][PACKED]


def test_records_are_a_slice_of_the_frame() -> None:
    session = JafkaSession("golden")
    session.encode(REQUESTS["Fetch.plain"])
    frame = data_of("Fetch.plain")
    assert session.decode(frame)[1].records.obj is frame.obj


def test_a_cut_response_has_whole_entries_and_a_piece() -> None:
    response = response_of("Fetch.cut")
    assert len(response.records) == 30
    assert scan(fetched_at(response.records)).next_offset == len(entry(b"line-1")) + len(entry(b""))
    assert scan(fetched_at(response.records[:9])).next_offset is None


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("Fetch.plain", "NONE"),
        ("Fetch.nothing", "NONE"),
        ("Fetch.unknown-topic", "NONE"),
        ("Fetch.out-of-range", "OFFSET_OUT_OF_RANGE"),
        ("Fetch.wrong-partition", "WRONG_PARTITION"),
    ],
)
def test_errors_of_a_fetch_are_reported_by_code(name: str, code: str) -> None:
    response = response_of(name)
    assert error_code_of(response.error_code).name == code
    assert bool(response.records) == (name == "Fetch.plain")


def test_each_part_of_a_multi_fetch_has_its_own_code_and_records() -> None:
    response = response_of("MultiFetch.all-kinds")
    assert response.error_code == 0
    codes = [error_code_of(part.error_code).name for part in response.responses]
    assert codes == ["NONE", "NONE", "WRONG_PARTITION", "OFFSET_OUT_OF_RANGE", "NONE"]
    records = [bytes(part.records) for part in response.responses]
    plain, packed = (bytes(response_of(f"Fetch.{kind}").records) for kind in ("plain", "packed"))
    assert records == [plain, packed, b"", b"", b""]
    request = REQUESTS["MultiFetch.all-kinds"]
    assert isinstance(request, m.MultiFetchRequest)
    assert tuple(part.request for part in response.responses) == request.fetches


def test_offsets_are_the_end_and_the_segments() -> None:
    end = EXPECTED["ends"][PLAIN]
    assert response_of("Offsets.latest").offsets == (end, 0)
    assert response_of("Offsets.earliest").offsets == (0,)
    assert response_of("Offsets.too-early").offsets == ()
    assert response_of("Offsets.unknown-topic").offsets == ()


# --- requests, put together by hand -----------------------------------------------------

FETCH_BODY = "0001 74 00000003 0000000000000007 00000100"


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        (m.FetchRequest(topic="t", partition=3, offset=7, max_bytes=256), "0001" + FETCH_BODY),
        (
            m.MultiFetchRequest(
                (m.FetchRequest(topic="t", partition=3, offset=7, max_bytes=256),) * 2
            ),
            "0002 0002" + FETCH_BODY + FETCH_BODY,
        ),
        (
            m.OffsetsRequest(topic="ö", partition=0, time_ms=-2, max_count=1, broker="7"),
            "0004 0002 c3b6 00000000 fffffffffffffffe 00000001",
        ),
        (
            m.ProduceRequest(topic="t", partition=-1, messages=memoryview(entry(b"line-3"))),
            "0000 0001 74 ffffffff 00000010 0000000c 01 00 50c9c9bc 6c696e652d33",
        ),
    ],
    ids=["fetch", "multi-fetch", "offsets", "produce"],
)
def test_a_request_is_these_bytes(request_: m.Request, wanted: str) -> None:
    body = bytes.fromhex(wanted)
    _, frame = JafkaSession("golden").encode(request_)
    assert frame == len(body).to_bytes(4, "big") + body
