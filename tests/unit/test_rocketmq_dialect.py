"""RocketMQ's frames, routes, series of pulls and codes, without a broker."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from typing import Any

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import LeaderRequest, NoSeedAnswered
from rangeland.dialects.error_meaning import ErrorMeaning, GroupMeaning
from rangeland.dialects.fetch_values import FetchContext, FetchOptions, PartitionFetch, ResponseSpan
from rangeland.dialects.protocol_session import Credentials
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import CODES, STATUSES, error_code_of, pull_code_of
from rangeland.dialects.rocketmq.frames import (
    RESPONSE,
    Frame,
    SimilarHeaders,
    read_frame,
    write_frame,
)
from rangeland.dialects.rocketmq.log_entries import scan
from rangeland.dialects.rocketmq.pulls_in_flight import FIRST_PULLS, MAX_PULLS
from rangeland.dialects.rocketmq.records import decode_chunks
from rangeland.dialects.rocketmq.requests import (
    find_leaders,
    offsets_requests,
    read_offsets,
    read_records,
    records_requests,
)
from rangeland.dialects.rocketmq.routes import read_route
from rangeland.dialects.rocketmq.session import RocketmqSession, sign_fields
from rangeland.dialects.rocketmq.system_topics import is_system_topic
from rangeland.errors import BadRecord, MissingRequirement, RemoteProtocolError, Unreachable
from rangeland.fetch import leader_lookup
from rangeland.fetch.fetch_steps import FindLeaders
from rangeland.model import Address, AtTime, Counts, Earliest, Isolation, Latest, Leader, Partition
from rangeland.survey.survey_request import SurveyRequest
from rangeland.survey.wanted_partitions import wanted_partitions
from rangeland.wire.framing import frame
from tests.fetched_records import fetched_at
from tests.frames import split_frames
from tests.rocketmq_messages import messages, stored

QUEUE, QUEUE_OF_Z = Partition("t", 0, "broker-a"), Partition("t", 0, "broker-z")
COMMITTED = Isolation.READ_COMMITTED
TERMS = FetchOptions(COMMITTED, 0, 1 << 20)


def frames_in(data: bytes) -> list[Frame]:
    return [read_frame(frame) for frame in split_frames(data)]


def whole(frame: Frame) -> memoryview:
    return memoryview(b"".join(bytes(part) for part in write_frame(frame)))


def json_frame(header: Any, body: bytes = b"") -> memoryview:
    text = json.dumps(header).encode()
    return memoryview(len(text).to_bytes(4, "big") + text + body)


# --- frames -----------------------------------------------------------------------------


def test_a_frame_is_read_as_it_was_written() -> None:
    frame = Frame(11, 7, RESPONSE, "größe", {"topic": "t", "empty": ""}, b"body")
    read = read_frame(whole(frame))
    assert (read.code, read.opaque, read.flag, read.remark) == (11, 7, RESPONSE, "größe")
    assert dict(read.fields) == {"topic": "t", "empty": ""}
    assert bytes(read.body) == b"body"


def test_a_json_header_is_read_too() -> None:
    header = {"code": 0, "opaque": 9, "flag": 1, "extFields": {"offset": "5"}, "language": "JAVA"}
    read = read_frame(json_frame(header, b"b"))
    assert (read.opaque, read.fields["offset"], bytes(read.body)) == (9, "5", b"b")
    assert read_frame(json_frame({"code": 0, "opaque": 1, "extFields": None})).fields == {}


@pytest.mark.parametrize(
    "bytes_",
    [
        b"",
        b"\0\0\0",
        b"\0\0\0\x09{}",
        b"\0\0\0\x02{}",
        b"\0\0\0\x02[]",
        b"\x02\0\0\0",
        b"\0\0\0\x04\xff\xff\xff\xff",
        bytes(json_frame({"code": "x", "opaque": 1})),
        bytes(json_frame({"code": 1, "opaque": 1, "extFields": [1]})),
        b"\x01\0\0\x15" + bytes(13) + b"\xff\xff\xff\xff" + bytes(4),
    ],
)
def test_what_is_not_a_frame_is_refused(bytes_: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_frame(memoryview(bytes_))


def test_every_cut_of_a_binary_header_is_refused() -> None:
    data = bytes(whole(Frame(1, 2, 1, "why", {"key": "value"})))
    for size in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            read_frame(memoryview(data[:size]))


# --- sessions ---------------------------------------------------------------------------


def response_to(sent: Frame, fields: dict[str, Any] | None = None, **more: Any) -> memoryview:
    texts = {name: str(value) for name, value in (fields or {}).items()}
    return whole(Frame(more.pop("code", 0), sent.opaque, RESPONSE, fields=texts, **more))


def test_responses_are_matched_by_number_in_any_order() -> None:
    session = RocketmqSession("test")
    first_id, first = session.encode(m.min_offset(QUEUE))
    second_id, second = session.encode(m.max_offset(QUEUE))
    (first_frame,), (second_frame,) = frames_in(first), frames_in(second)
    found_id, found = session.decode(response_to(second_frame, {"offset": 2}))  # type: ignore[misc]
    assert (found_id, found.request.code, found.fields["offset"]) == (second_id, 30, "2")
    found_id, found = session.decode(response_to(first_frame, {"offset": 1}))  # type: ignore[misc]
    assert (found_id, found.request.code) == (first_id, 31)
    assert session.unanswered == 0


def test_a_request_of_the_server_is_not_a_response() -> None:
    session = RocketmqSession("test")
    _, sent = session.encode(m.min_offset(QUEUE))
    (frame,) = frames_in(sent)
    assert session.decode(whole(Frame(40, frame.opaque))) is None
    assert session.unanswered == 1


def test_a_response_to_nothing_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="belongs to no request"):
        RocketmqSession("test").decode(whole(Frame(0, 5, RESPONSE)))


def test_a_one_way_request_waits_for_nothing() -> None:
    session = RocketmqSession("test")
    session.encode(m.RemotingRequest(34, {}, is_one_way=True))
    assert session.unanswered == 0


class Broker:
    """One queue of ``end`` messages, of which a response brings ``most``."""

    def __init__(self, end: int, most: int = 32, body_bytes: int = 10) -> None:
        self.end, self.most = end, most
        self.data = [stored(bytes(body_bytes), offset) for offset in range(end)]
        self.session = RocketmqSession("test")
        self.pulls = 0
        self.waiting: list[Frame] = []
        self.next_one = -1

    def ask(self, series: m.PullSeries) -> m.SeriesResponse:
        """Responses the last pull first, if not told otherwise, until the series has its response;
        the others later."""
        _, sent = self.session.encode(series)
        frames = frames_in(sent)
        self.pulls += len(frames)
        self.waiting += frames
        found: Any = None
        while found is None:
            found = self.session.decode(self._answer(self.waiting.pop(self.next_one)))
        response: m.SeriesResponse = found[1]
        return response

    def _answer(self, frame: Frame) -> memoryview:
        at, count = int(frame.fields["queueOffset"]), int(frame.fields["maxMsgNums"])
        until = min(self.end, at + min(count, self.most))
        fields = {"nextBeginOffset": max(until, at), "minOffset": 0, "maxOffset": self.end}
        if at >= self.end:
            fields["nextBeginOffset"] = self.end
            beyond = at > self.end
            remark = "OFFSET_OVERFLOW_BADLY" if beyond else "OFFSET_OVERFLOW_ONE"
            return response_to(frame, fields, code=21 if beyond else 19, remark=remark)
        return response_to(frame, fields, remark="FOUND", body=b"".join(self.data[at:until]))

    def read(self, until: int, max_bytes: int = 1 << 20) -> int:
        """Reads [0, until) as the fetch package does; gives how many series it took."""
        position = series = 0
        while position < until:
            asked = [PartitionFetch(QUEUE, None, None, position, max_bytes, until)]
            (question,) = records_requests(asked, TERMS)
            (part,) = read_records([self.ask(question.message)], asked, COMMITTED).partitions
            assert part.meaning is ErrorMeaning.OK
            assert part.readable_end == self.end
            behind = scan(part.records).next_offset
            assert behind is not None
            assert position < behind <= self.end
            chunks = list(decode_chunks(part.records, position, until))
            assert sum(chunk.counts.landed for chunk in chunks) == min(behind, until) - position
            position = behind
            series += 1
        return series


def test_a_series_is_as_long_as_what_is_wanted() -> None:
    broker = Broker(1000)
    responses = broker.ask(m.PullSeries(QUEUE, 0, 70, 1 << 20)).responses
    asked = [(a.request.fields["queueOffset"], a.request.fields["maxMsgNums"]) for a in responses]
    assert asked == [("0", "32"), ("32", "32"), ("64", "6")]
    assert len(broker.ask(m.PullSeries(QUEUE, 70, 71, 1 << 20)).responses) == 1


def test_the_first_series_is_short_and_later_ones_are_of_as_many_bytes_as_asked() -> None:
    broker = Broker(40_000)
    assert len(broker.ask(m.PullSeries(QUEUE, 0, 40_000, 1 << 20)).responses) == FIRST_PULLS
    size = len(broker.data[0])
    assert len(broker.ask(m.PullSeries(QUEUE, 0, 40_000, size * 320)).responses) == 10
    assert len(broker.ask(m.PullSeries(QUEUE, 0, 40_000, 1 << 30)).responses) == MAX_PULLS


@pytest.mark.parametrize("most", [1, 7, 8, 31, 32])
def test_how_much_a_broker_gives_is_learned(most: int) -> None:
    broker = Broker(3_000, most)
    broker.read(3_000)
    assert broker.pulls <= 3_000 / most * 1.2 + 2 * FIRST_PULLS


def test_a_broker_that_gives_more_again_is_noticed() -> None:
    broker = Broker(10_000, 8)
    broker.read(1_000)
    broker.most, broker.pulls = 32, 0
    broker.read(10_000)
    assert broker.pulls < 10_000 / 32 * 1.3 + 200


def test_a_series_takes_over_the_pulls_that_went_ahead_of_it() -> None:
    broker = Broker(40_000)
    broker.next_one = 0
    position, sent = 0, []
    for _ in range(4):
        before = broker.pulls
        responses = broker.ask(m.PullSeries(QUEUE, position, 40_000, 1 << 30)).responses
        sent.append(broker.pulls - before)
        begins = [response.pull.offset for response in responses]
        assert begins == list(range(position, position + 32 * len(responses), 32))
        position += 32 * len(responses)
        assert len(broker.waiting) in (0, MAX_PULLS)  # what is under way in the meantime
    assert sent == [FIRST_PULLS, 2 * MAX_PULLS, MAX_PULLS, MAX_PULLS]


def test_nothing_goes_ahead_until_pulls_bring_what_they_should() -> None:
    broker = Broker(40_000, most=7)
    broker.next_one = 0
    position, sent = 0, []
    for _ in range(3):
        before = broker.pulls
        broker.ask(m.PullSeries(QUEUE, position, 40_000, 1 << 30))
        sent.append(broker.pulls - before)
        position += 7 if not position else 7 * MAX_PULLS
    assert sent == [FIRST_PULLS, MAX_PULLS, 2 * MAX_PULLS]


def test_what_went_ahead_and_is_not_wanted_is_passed_over() -> None:
    broker = Broker(20_000)
    for position in (0, 256, 12_000, 4_000, 6_048, 0):
        series = m.PullSeries(QUEUE, position, 20_000, 1 << 30)
        first = broker.ask(series).responses[0]
        assert (first.pull.offset, first.fields["nextBeginOffset"]) == (
            position,
            f"{position + 32}",
        )
    while broker.waiting:
        assert broker.session.decode(broker._answer(broker.waiting.pop())) is None
    assert broker.session.unanswered == 0


def test_all_that_went_ahead_may_be_answered_already() -> None:
    broker = Broker(20_000)
    position = 0
    while position < 20_000:
        responses = broker.ask(m.PullSeries(QUEUE, position, 20_000, 1 << 30)).responses
        assert responses[0].pull.offset == position
        position = int(responses[-1].fields["nextBeginOffset"])
        while broker.waiting:
            assert broker.session.decode(broker._answer(broker.waiting.pop(0))) is None


def test_a_pull_ahead_that_found_nothing_yet_is_asked_again() -> None:
    end = 32 * (FIRST_PULLS + MAX_PULLS)
    broker = Broker(end + 10)
    broker.end = end
    for position in (0, 32 * FIRST_PULLS):
        broker.ask(m.PullSeries(QUEUE, position, 40_000, 1 << 30))
    while broker.waiting:
        broker.session.decode(broker._answer(broker.waiting.pop()))
    broker.end = end + 10
    assert broker.ask(m.PullSeries(QUEUE, end, 40_000, 1 << 30)).responses[0].code == 0


def test_a_pull_is_written_as_any_request_is() -> None:
    for offset, wanted, opaque in ((0, 1, 0), (2**62, 32, 2**31 - 1)):
        pull = m.Pull(QUEUE, offset, wanted)
        whole = frame(*write_frame(Frame(m.PULL, opaque, fields=pull.fields)))
        alike = SimilarHeaders(m.PULL, pull.queue_fields, ("queueOffset", "maxMsgNums"))
        assert alike.write(opaque, offset, wanted) == whole


def test_a_series_ends_with_the_queue() -> None:
    broker = Broker(45)
    asked = [PartitionFetch(QUEUE, None, None, 0, 1 << 20, 1_000)]
    (question,) = records_requests(asked, TERMS)
    (part,) = read_records([broker.ask(question.message)], asked, COMMITTED).partitions
    assert scan(part.records).next_offset == 45
    assert part.readable_end == 45
    asked = [PartitionFetch(QUEUE, None, None, 45, 1 << 20, 1_000)]
    (question,) = records_requests(asked, TERMS)
    (part,) = read_records([broker.ask(question.message)], asked, COMMITTED).partitions
    assert (part.meaning, len(part.records), part.readable_end) == (ErrorMeaning.OK, 0, 45)


# --- pulls that bring nothing -----------------------------------------------------------


def pulled(offset: int, *responses: tuple[int, str, dict[str, int], bytes]) -> Any:
    """What a series at ``offset`` comes to, with a response per pull."""
    requests = [m.Pull(QUEUE, offset + 32 * i) for i in range(len(responses))]
    made = tuple(
        m.RemotingResponse(
            request, code, remark, {k: str(v) for k, v in fields.items()}, memoryview(body)
        )
        for request, (code, remark, fields, body) in zip(requests, responses, strict=True)
    )
    series = m.PullSeries(QUEUE, offset, 1_000, 1 << 20)
    asked = [PartitionFetch(QUEUE, None, None, offset, 1 << 20, 1_000)]
    (part,) = read_records([m.SeriesResponse(series, made)], asked, COMMITTED).partitions
    return part


ENDS = {"nextBeginOffset": 9, "minOffset": 0, "maxOffset": 9}


@pytest.mark.parametrize(
    ("code", "remark", "offset", "meaning"),
    [
        (19, "OFFSET_OVERFLOW_ONE", 9, ErrorMeaning.OK),
        (20, "OFFSET_OVERFLOW_ONE", 9, ErrorMeaning.OK),  # as a slave says it
        (21, "OFFSET_OVERFLOW_BADLY", 11, ErrorMeaning.OUT_OF_RANGE),
        (20, "OFFSET_TOO_SMALL", 1, ErrorMeaning.OUT_OF_RANGE),
        (21, "OFFSET_TOO_SMALL", 1, ErrorMeaning.OUT_OF_RANGE),
        (21, "OFFSET_RESET", 1, ErrorMeaning.RETRY),
        (20, "MESSAGE_WAS_REMOVING", 1, ErrorMeaning.OUT_OF_RANGE),
        (19, "NO_MESSAGE_IN_QUEUE", 0, ErrorMeaning.OK),
        (21, "NO_MATCHED_LOGIC_QUEUE", 5, ErrorMeaning.OUT_OF_RANGE),
        (17, "topic[t] not exist", 0, ErrorMeaning.FIND_LEADER),
        (29, "queueId[9] is illegal", 0, ErrorMeaning.FIND_LEADER),
        (16, "the topic is forbidden", 0, ErrorMeaning.DENIED),
        (24, "the group info not exist", 0, ErrorMeaning.REFUSED),
        (26, "subscription group does not exist", 0, ErrorMeaning.REFUSED),
        (2, "busy", 0, ErrorMeaning.RETRY),
        (14, "down", 0, ErrorMeaning.RETRY),
        (4711, "new", 0, ErrorMeaning.UNKNOWN),
    ],
)
def test_a_pull_is_judged_by_status_and_code(
    code: int, remark: str, offset: int, meaning: ErrorMeaning
) -> None:
    part = pulled(offset, (code, remark, ENDS, b""))
    assert part.meaning is meaning
    assert not len(part.records)


def test_pulls_after_a_gap_are_not_taken() -> None:
    first, third = messages([b"v"] * 20, 0), messages([b"v"] * 32, 64)
    part = pulled(
        0,
        (0, "FOUND", {"nextBeginOffset": 20, "maxOffset": 99}, first),
        (0, "FOUND", {"nextBeginOffset": 64, "maxOffset": 99}, messages([b"v"] * 32, 32)),
        (0, "FOUND", {"nextBeginOffset": 96, "maxOffset": 99}, third),
    )
    assert scan(part.records).next_offset == 20


def test_an_error_after_messages_does_not_spoil_them() -> None:
    part = pulled(
        0,
        (0, "FOUND", {"nextBeginOffset": 32, "maxOffset": 99}, messages([b"v"] * 32)),
        (2, "busy", {}, b""),
    )
    assert scan(part.records).next_offset == 32


MOVED = {"nextBeginOffset": 514, "minOffset": 0, "maxOffset": 600, "suggestWhichBrokerId": 0}


@pytest.mark.parametrize(
    ("code", "remark", "body"),
    [(0, "FOUND", messages([b"v"] * 4, 10)), (19, "OFFSET_OVERFLOW_ONE", b"")],
)
@pytest.mark.parametrize("delta", [500, -7])
def test_a_static_topics_queue_that_has_moved_is_unsupported_and_not_damaged(
    code: int, remark: str, body: bytes, delta: int
) -> None:
    """Its messages are stored with the offsets of another queue, ``offsetDelta`` less."""
    part = pulled(510, (code, remark, {**MOVED, "offsetDelta": delta}, body))
    assert part.meaning is ErrorMeaning.UNSUPPORTED
    assert part.code_name == (
        "STATIC_TOPIC (the queue of a static topic has moved, which is not supported)"
    )
    assert not len(part.records)


@pytest.mark.parametrize("fields", [{}, {"offsetDelta": 0}])
def test_a_queue_that_has_not_moved_is_read(fields: dict[str, int]) -> None:
    part = pulled(510, (0, "FOUND", {**MOVED, **fields}, messages([b"v"] * 4, 510)))
    assert scan(part.records).next_offset == 514


def test_a_series_ends_where_the_queue_has_moved() -> None:
    first = messages([b"v"] * 32, 478)
    part = pulled(
        478,
        (0, "FOUND", {"nextBeginOffset": 510, "offsetDelta": 0}, first),
        (0, "FOUND", {**MOVED, "offsetDelta": 510}, messages([b"v"] * 4, 0)),
    )
    assert part.meaning is ErrorMeaning.OK
    assert scan(part.records).next_offset == 510


def test_messages_that_begin_after_the_offset_are_not_taken_for_all_there_are() -> None:
    body = messages([b"v"] * 3, 7)
    part = pulled(5, (0, "FOUND", {"nextBeginOffset": 10, "maxOffset": 10}, body))
    assert (part.meaning, part.code_name.split(":")[0]) == (
        ErrorMeaning.OUT_OF_RANGE,
        "OFFSETS_MISSING",
    )


def test_offsets_between_messages_are_counted_as_compacted() -> None:
    records = memoryview(stored(b"a", 5) + stored(b"b", 8))
    (chunk,) = decode_chunks(fetched_at(records, 5), 5, 9)
    assert (chunk.next_offset, chunk.counts) == (9, Counts(landed=2, compacted=2))
    (chunk,) = decode_chunks(fetched_at(records, 5), 5, 7)
    assert (chunk.next_offset, chunk.counts) == (6, Counts(landed=1))
    told = FetchContext(spans=(ResponseSpan(len(records), 5, 9),), has_gaps=True)
    (chunk,) = decode_chunks(fetched_at(records, 5, context=told), 5, 7)
    assert (chunk.next_offset, chunk.counts) == (7, Counts(landed=1, compacted=1))


@pytest.mark.parametrize("flags", [1, 1 | 0x100, 1 | 0x200, 1 | 0x300, 1 | 0x500])
@pytest.mark.parametrize(
    "body", [b"", b"junk", b"\x04\x22\x4d\x18" + bytes(3), b"\x28\xb5\x2f\xfd"]
)
def test_a_body_that_cannot_be_unpacked_is_named(flags: int, body: bytes) -> None:
    records = memoryview(stored(b"a", 5) + stored(body, 6, flags=flags) + stored(b"b", 7))
    with pytest.raises(BadRecord) as caught:
        list(decode_chunks(fetched_at(records, 5), 5, 8))
    assert (caught.value.facts["base_offset"], caught.value.facts["next_offset"]) == (6, 7)
    before = list(decode_chunks(fetched_at(records, 5), 5, 6))
    behind = list(decode_chunks(fetched_at(records, 7), 7, 8))
    assert [chunk.counts for chunk in (*before, *behind)] == [Counts(landed=1)] * 2


@pytest.mark.parametrize("flags", [1, 1 | 0x300])
def test_bodies_that_clients_of_proxies_have_compressed_are_unpacked(flags: int) -> None:
    """Their protocol has gzip, and proxies store it as zlib."""
    bodies = gzip.compress(b"one"), zlib.compress(b"two"), gzip.compress(b"")
    data = b"".join(stored(body, 5 + n, flags=flags) for n, body in enumerate(bodies))
    (chunk,) = decode_chunks(fetched_at(memoryview(data), 5), 5, 8)
    assert chunk.batch is not None
    assert chunk.batch.column("value").to_pylist() == [b"one", b"two", b""]


GZIP = gzip.compress(b"one", mtime=0)


@pytest.mark.parametrize(
    "body", [GZIP[:-1], GZIP + GZIP, b"\x1f\x8b"], ids=["cut off", "two", "a header's beginning"]
)
def test_a_body_that_is_not_one_whole_gzip_is_named(body: bytes) -> None:
    with pytest.raises(BadRecord, match="offset 5") as caught:
        list(decode_chunks(fetched_at(memoryview(stored(body, 5, flags=1)), 5), 5, 6))
    assert caught.value.facts["next_offset"] == 6


# --- name servers -----------------------------------------------------------------------


ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"[fd00::1]:10911"},'
    b'"brokerName":"broker, 2:\\"x\\"","cluster":"c"},{"brokerAddrs":{2:"h:1"},'
    b'"brokerName":"b","cluster":"c"},{"brokerAddrs":{},"brokerName":"none"}],'
    b'"queueDatas":[{"brokerName":"broker, 2:\\"x\\"","perm":6,"readQueueNums":2},'
    b'{"brokerName":"b","readQueueNums":1},{"brokerName":"none","readQueueNums":1}]}'
)


def test_a_route_with_bare_numbers_is_read() -> None:
    leaders = read_route(ROUTE).leaders("t")
    master, slave, away = Address("10.0.0.1", 10911), Address("fd00::1", 10911), Address("h", 1)
    both = Leader(master, None, None, (master, slave), (0, 1))
    assert leaders == {
        Partition("t", 0, 'broker, 2:"x"'): both,
        Partition("t", 1, 'broker, 2:"x"'): both,
        Partition("t", 0, "b"): Leader(away, None, None, (away,), (2,), is_replica=True),
        Partition("t", 0, "none"): Leader(None),
    }


def acting_route(*, perm: int = 4, may_act: bool = True, numbers: str = '0:"a:1",2:"b:1"') -> bytes:
    acts = "true" if may_act else "false"
    broker = f'"brokerAddrs":{{{numbers}}},"brokerName":"broker-z","enableActingMaster":{acts}'
    queue = f'"brokerName":"broker-z","perm":{perm},"readQueueNums":1'
    return f'{{"brokerDatas":[{{{broker}}}],"queueDatas":[{{{queue}}}]}}'.encode()


@pytest.mark.parametrize(
    ("route", "registered", "is_replica"),
    [
        (acting_route(), '"1":"a:1","2":"b:1"', True),
        (acting_route(), '"0":"a:1","2":"b:1"', False),
        (acting_route(), '"0":"c:1","1":"a:1"', True),
        (acting_route(), None, True),
        (acting_route(perm=6), None, False),
        (acting_route(may_act=False), None, False),
        (acting_route(numbers='1:"a:1"'), '"1":"a:1"', True),
    ],
    ids=["acts", "nobody may write", "is back", "not listed", "may write", "acts never", "no"],
)
def test_a_slave_that_acts_for_its_master_is_a_replica(
    route: bytes, registered: str | None, is_replica: bool
) -> None:
    """Name servers give it the number of the master. It may lag, so what its log lacks is not lost.
    The list of all brokers shows who is registered as the master."""

    def response(request: m.RemotingRequest) -> m.RemotingResponse:
        if request.code == m.ALL_BROKERS:
            known = f'{{"brokerAddrTable":{{"broker-z":{{"brokerAddrs":{{{registered}}}}}}}}}'
            code = 16 if registered is None else 0
            return m.RemotingResponse(request, code, "", {}, known.encode())
        return m.RemotingResponse(request, 0, "", {}, route)

    (leader,) = search(["t"], {FIRST: response}).topics["t"].leaders.values()
    assert (leader.address, leader.is_replica) == (Address("a", 1), is_replica)


def static_route(**queues: tuple[int, str]) -> bytes:
    """By broker: how many readable queues it has, and their numbers in the topic."""
    listed = [{"brokerName": b, "readQueueNums": count} for b, (count, _) in queues.items()]
    brokers = [{"brokerName": b, "brokerAddrs": {"0": "h:1"}} for b in queues]
    route = {"brokerDatas": brokers, "queueDatas": listed}
    mapped = [
        f'"{b}":{{"bname":"{b}","topic":"t","totalQueues":4,"currIdMap":{{{numbers}}}}}'
        for b, (_, numbers) in queues.items()
    ]
    static = f'"topicQueueMappingByBroker":{{{",".join(mapped)}}}}}'
    return (json.dumps(route)[:-1] + "," + static).encode()


@pytest.mark.parametrize(
    ("route", "is_read"),
    [
        (static_route(a=(2, "0:0,1:1")), True),
        (static_route(a=(2, "0:0,1:1"), b=(2, "2:0,3:1")), False),
        (static_route(a=(2, ""), b=(2, "0:0,1:1")), False),
        (static_route(a=(1, "0:0,1:1")), False),
        (ROUTE[:-1] + b',"topicQueueMappingByBroker":{}}', True),
        (ROUTE[:-1] + b',"topicQueueMappingByBroker":null}', True),
    ],
    ids=["one broker", "two", "moved", "more numbers", "no mapping", "null"],
)
def test_a_static_topic_whose_queues_have_other_numbers_is_unsupported(
    route: bytes, is_read: bool
) -> None:
    """Its brokers take every number for that of the topic, and refuse those of other brokers with
    a code that says to look for the leader."""

    def response(request: m.RemotingRequest) -> m.RemotingResponse:
        body = BROKERS if request.code == m.ALL_BROKERS else route
        return m.RemotingResponse(request, 0, "", {}, body)

    view = search(["t"], {FIRST: response})
    topic = view.topics["t"]
    assert (topic.meaning is ErrorMeaning.OK) == is_read == bool(topic.leaders)
    if not is_read:
        assert topic.meaning is ErrorMeaning.UNSUPPORTED
        with pytest.raises(MissingRequirement, match="numbered over several brokers") as refused:
            wanted_partitions(view, SurveyRequest(topics=("t",)))
        assert "source.topics" in str(refused.value)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"brokerDatas":[1]}', b"\xff"])
def test_what_is_not_a_route_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="name servers"):
        read_route(body)


def test_topics_of_brokers_for_themselves_are_internal() -> None:
    route = read_route(ROUTE)
    assert all(route.is_internal(topic) for topic in ("b", "c", "TBW102", "%RETRY%g"))
    assert not route.is_internal("orders")
    assert is_system_topic("RMQ_SYS_TRANS_HALF_TOPIC")
    assert is_system_topic("rmq_sys_REVIVE_LOG_DefaultCluster")
    assert is_system_topic("DefaultHeartBeatSyncerTopic")
    assert not is_system_topic("DefaultHeartBeat")


def search(topics: Sequence[str] | None, script: dict[Address, Any]) -> Any:
    """Runs a search; ``script`` has what each server answers to a route, or a Silence."""
    going = find_leaders(topics, tuple(script), {})
    asking = next(going)
    while True:
        (seed,) = asking.seeds
        given = script[seed]
        responses = (
            given
            if isinstance(given, NoSeedAnswered)
            else [given(q.message) for q in asking.requests]
        )
        try:
            asking = going.send(responses)
            assert isinstance(asking, LeaderRequest)
        except StopIteration as done:
            return done.value


def knows(*topics: str) -> Any:
    def response(request: m.RemotingRequest) -> m.RemotingResponse:
        if request.code == m.ALL_TOPICS:
            body = json.dumps({"topicList": list(topics)}).encode()
            return m.RemotingResponse(request, 0, "", {}, body)
        if request.code == m.ALL_BROKERS:
            return m.RemotingResponse(request, 0, "", {}, BROKERS)
        there = request.fields["topic"] in topics
        return m.RemotingResponse(request, 0 if there else 17, "", {}, ROUTE if there else b"")

    return response


BROKERS = (
    b'{"brokerAddrTable":{"broker-z":{"brokerAddrs":{0:"127.0.0.1:1"}}},"clusterAddrTable":{}}'
)


def is_a_broker(request: m.RemotingRequest) -> m.RemotingResponse:
    return m.RemotingResponse(request, 3, "not supported", {}, b"")


FIRST, SECOND = Address("one", 1), Address("two", 2)


def test_the_next_name_server_is_asked_for_what_the_first_does_not_know() -> None:
    view = search(["t", "u"], {FIRST: knows("t"), SECOND: knows("u")})
    assert [view.topics[name].meaning for name in ("t", "u")] == [ErrorMeaning.OK] * 2
    view = search(["t", "u"], {FIRST: knows("t"), SECOND: knows()})
    assert view.topics["u"].is_unknown
    assert view.topics["t"].meaning is ErrorMeaning.OK


def test_a_server_that_does_not_know_all_topics_may_not_know_all_queues_of_a_topic() -> None:
    """One that has just started knows a single broker. The queues of the other one are not gone,
    although the next server has it registered."""

    def server(*brokers: str) -> Any:
        def response(request: m.RemotingRequest) -> m.RemotingResponse:
            if request.code == m.ALL_BROKERS:
                body: Any = {"brokerAddrTable": {b: {"brokerAddrs": {"0": "h:1"}} for b in brokers}}
            else:
                there = [b for b in brokers if (request.fields["topic"], b) != ("u", "a")]
                if not there:
                    return m.RemotingResponse(request, 17, "", {}, b"")
                body = {
                    "brokerDatas": [{"brokerName": b, "brokerAddrs": {"0": "h:1"}} for b in there],
                    "queueDatas": [{"brokerName": b, "readQueueNums": 1} for b in there],
                }
            return m.RemotingResponse(request, 0, "", {}, json.dumps(body).encode())

        return response

    view = search(["t", "u"], {FIRST: server("a"), SECOND: server("a", "b")})
    queues = {p for topic in view.topics.values() for p in topic.leaders}
    assert queues == {Partition("t", 0, "a"), Partition("t", 0, "b"), Partition("u", 0, "b")}
    view = search(["t", "u"], {FIRST: server("a"), SECOND: server("a")})
    assert view.topics["u"].is_unknown
    assert view.topics["t"].leaders.keys() == {Partition("t", 0, "a")}


def test_brokers_that_are_registered_are_told_or_nobody_is() -> None:
    assert search(["t"], {FIRST: knows()}).registered == {"broker-z"}
    assert search(None, {FIRST: knows("t")}).registered == {"broker-z"}

    def says_little(request: m.RemotingRequest) -> m.RemotingResponse:
        refused = m.RemotingResponse(request, 16, "no right", {}, b"")
        return refused if request.code == m.ALL_BROKERS else knows("t")(request)

    silent = search(["t"], {FIRST: says_little})
    assert silent.registered == frozenset()
    assert not silent.has_no_brokers


def test_servers_without_any_broker_do_not_know_which_topics_there_are() -> None:
    def has_none(request: m.RemotingRequest) -> m.RemotingResponse:
        if request.code == m.ALL_BROKERS:
            return m.RemotingResponse(request, 0, "", {}, b'{"brokerAddrTable":{}}')
        return knows()(request)

    assert search(["t"], {FIRST: has_none}).has_no_brokers
    assert search(None, {FIRST: has_none}).has_no_brokers
    assert not search(["t"], {FIRST: has_none, SECOND: knows()}).has_no_brokers


def test_a_broker_among_the_seeds_is_passed_over() -> None:
    silent = NoSeedAnswered({FIRST: "refused"})
    assert search(["t"], {FIRST: is_a_broker, SECOND: knows("t")}).topics["t"].leaders
    assert search(["t"], {FIRST: silent, SECOND: knows("t")}).topics["t"].leaders
    assert search(None, {FIRST: is_a_broker, SECOND: knows("t", "TBW102")}).topics.keys() == {"t"}
    with pytest.raises(Unreachable, match="refused"):
        search(["t"], {FIRST: silent, SECOND: is_a_broker})


def test_a_queue_is_only_unknown_where_its_broker_is_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leader_lookup, "ask_metadata", lambda *_: search(["t"], {FIRST: knows()}))
    brokers, there = ConnectionPool(ClusterSettings("rocketmq", (FIRST,))), QUEUE_OF_Z
    found = leader_lookup.look_up_leaders(brokers, FindLeaders((QUEUE, there), ()))
    assert found.unknown == {there}
    assert found.unreachable == {QUEUE: "broker broker-a: no broker of that name is registered"}


def test_a_queue_is_not_unknown_where_only_a_slave_of_its_broker_is_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name server that has restarted may have heard of the slave before the master, and takes
    topics from masters; from slaves only in newer versions, and as far as they know them."""

    def response(request: m.RemotingRequest) -> m.RemotingResponse:
        is_list = request.code == m.ALL_BROKERS
        body = BROKERS.replace(b'{0:"', b'{1:"') if is_list else ROUTE
        return m.RemotingResponse(request, 0, "", {}, body)

    view = search(["t"], {FIRST: response})
    assert (view.registered, view.has_no_brokers) == (frozenset(), False)
    monkeypatch.setattr(leader_lookup, "ask_metadata", lambda *_: view)
    brokers = ConnectionPool(ClusterSettings("rocketmq", (FIRST,)))
    queues = QUEUE_OF_Z, Partition("t", 1, "b"), Partition("t", 9, 'broker, 2:"x"')
    found = leader_lookup.look_up_leaders(brokers, FindLeaders(queues, ()))
    assert found.unknown == {queues[2]}
    assert found.unreachable == {
        queues[0]: "broker broker-z: no broker of that name is registered",
        queues[1]: "broker b: only a replica of it is up",
    }


# --- offsets ----------------------------------------------------------------------------


def test_each_queue_is_asked_for_itself() -> None:
    leaders = {QUEUE: Leader(FIRST), Partition("t", 1, "broker-a"): Leader(FIRST)}
    codes = {Earliest(): 31, Latest(): 30, AtTime(5): 29}
    for when, code in codes.items():
        asked = [question.message for question in offsets_requests(leaders, when, COMMITTED)]
        searches = m.TimeSearch | m.StartSearch
        sent = [one.search if isinstance(one, searches) else one for one in asked]
        assert [request.code for request in sent] == [code, code]
        responses = [m.RemotingResponse(request, 0, "", {"offset": "7"}, b"") for request in sent]
        assert {p: a.offset for p, a in read_offsets(responses).items()} == dict.fromkeys(
            leaders, 7
        )


def test_an_empty_queue_for_batches_begins_at_0_and_has_nothing_of_any_time() -> None:
    for request, offset in ((m.min_offset(QUEUE), 0), (m.search_offset(QUEUE, 5), None)):
        found = read_offsets([m.RemotingResponse(request, 0, "", {"offset": "-1"}, b"")])[QUEUE]
        assert (found.meaning, found.offset) == (ErrorMeaning.OK, offset)


def test_an_offset_that_is_refused_is_none() -> None:
    (question,) = offsets_requests({QUEUE: Leader(FIRST)}, Latest(), COMMITTED)
    found = read_offsets([m.RemotingResponse(question.message, 16, "no right", {}, b"")])[QUEUE]
    assert (found.meaning, found.offset, found.code_name) == (
        ErrorMeaning.DENIED,
        None,
        "NO_PERMISSION: no right",
    )
    with pytest.raises(RemoteProtocolError, match="offset"):
        read_offsets([m.RemotingResponse(question.message, 0, "", {}, b"")])


def test_codes_are_listed_once() -> None:
    assert len({code.number for code in CODES}) == len(CODES)
    assert len({code.name for code in (*CODES, *STATUSES)}) == len(CODES) + len(STATUSES)
    assert error_code_of(99_999).meaning is ErrorMeaning.UNKNOWN
    assert pull_code_of(0, "FOUND", 5).meaning is ErrorMeaning.OK


def test_the_lines_that_say_more_are_those_of_their_codes() -> None:
    codes = (*CODES, *STATUSES)
    assert [c.name for c in codes if c.is_unknown_topic] == ["TOPIC_NOT_EXIST"]
    assert [c.name for c in codes if c.is_before_log_start] == ["OFFSET_TOO_SMALL"]
    meanings = {c.name: c.group_meaning for c in codes}
    assert {n: meaning for n, meaning in meanings.items() if meaning is not GroupMeaning.OTHER} == {
        "QUERY_NOT_FOUND": GroupMeaning.NO_OFFSET,
        "SUBSCRIPTION_GROUP_NOT_EXIST": GroupMeaning.NO_SUCH_GROUP,
        "CONSUMER_NOT_ONLINE": GroupMeaning.NO_MEMBERS,
    }


# --- signing ----------------------------------------------------------------------------


def test_a_request_is_signed_over_its_values_in_order_of_their_keys_and_its_body() -> None:
    # Made with upstream's AclClientRPCHook.
    fields = sign_fields(
        {"topic": "orders", "queueId": "3"}, b"body", Credentials("ACL", "key", "secret")
    )
    assert fields["AccessKey"] == "key"
    assert fields["Signature"] == "0iRjBWfo+S16mh9AtJHqz8462q4="
    again = sign_fields(fields, b"body", Credentials("ACL", "key", "secret"))
    assert again == fields


def test_a_session_with_credentials_signs_every_request() -> None:
    session = RocketmqSession("test", Credentials("ACL", "key", "secret"))
    _, sent = session.encode(m.PullSeries(QUEUE, 0, 100, 1 << 20))
    frames = frames_in(sent)
    assert len(frames) > 1
    assert len({frame.fields["Signature"] for frame in frames}) == len(frames)
    assert "secret" not in repr(session.__dict__)
