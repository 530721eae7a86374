"""Logs that are served without a socket, so that tests can read thousands of them.

Everything except the connections is the library's own code: the fetching thread, its loop, the
dialect's reading of responses, the decoder and the policies. A broker finds entries by its own
index, so damage in an entry does not change which entries it sends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from unittest.mock import patch

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import OffsetResult
from rangeland.dialects.dialect import load_dialect
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition, FetchResult, PartitionFetch
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.frames import RESPONSE, Frame, read_frame, write_frame
from rangeland.dialects.rocketmq.session import RocketmqSession
from rangeland.fetch import slice_reading
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.fetch_thread import FetchThread
from rangeland.fetch.leader_judgement import FoundLeaders
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.receipt_builder import ReceiptBuilder
from rangeland.model import Address, Earliest, Isolation, Leader, Partition, Slice
from rangeland.planning.slice_receipt import Receipt
from tests.fetched_records import fetched_at
from tests.frames import split_frames

LEADER = Address("broker", 1)
HASTY = FetchLimits(no_progress_ms=400, backoff_ms=1, max_backoff_ms=2, largest_fetch_bytes=1 << 24)
JOINED = 3
"""Entries in one response."""


@dataclass
class Log:
    """Stored entries: the true first and last offset of each, and its bytes."""

    entries: list[tuple[int, int, bytes]]
    joined: int = JOINED

    @property
    def begins(self) -> int:
        return self.entries[0][0]

    @property
    def ends(self) -> int:
        return self.entries[-1][1]

    def flipped(self, index: int, bit: int) -> Log:
        first, until, data = self.entries[index]
        changed = bytearray(data)
        changed[bit >> 3] ^= 0x80 >> (bit & 7)
        entries = list(self.entries)
        entries[index] = (first, until, bytes(changed))
        return Log(entries, self.joined)

    def from_offset(self, offset: int) -> list[tuple[int, int, bytes]]:
        return [entry for entry in self.entries if entry[1] > offset]


@dataclass
class Serving:
    """In place of the connections of a fetcher. ``log`` is partition 0 of topic t."""

    log: Log
    dialect: Any
    settings: ClusterSettings
    sent: list[Any] = field(default_factory=list)

    def call_all(self, address: Address, questions: Sequence[BrokerRequest]) -> list[Any]:
        return [self.answer(question.message) for question in questions]

    def send_all(self, address: Address, questions: Sequence[BrokerRequest]) -> None:
        self.sent = self.call_all(address, questions)

    def receive_or_call_again(
        self, address: Address, questions: Sequence[BrokerRequest]
    ) -> list[Any]:
        return self.sent

    def drop(self, address: Address) -> None:
        """There is no connection."""

    def close(self) -> None:
        """There is no connection."""

    def answer(self, request: Any) -> Any:
        raise NotImplementedError


class KafkaServing(Serving):
    """Complete entries, and the beginning of the next one."""

    def answer(self, request: Any) -> Any:
        if not isinstance(request, PartitionFetch):
            return self.log.begins if isinstance(request, Earliest) else self.log.ends
        found = self.log.from_offset(request.offset)
        whole = b"".join(data for _, _, data in found[: self.log.joined])
        rest = b"".join(data for _, _, data in found[self.log.joined :])[:40]
        return memoryview(whole + rest)


class JafkaServing(Serving):
    """Bytes from the requested position on."""

    def answer(self, request: Any) -> Any:
        if not isinstance(request, PartitionFetch):
            return self.log.begins if isinstance(request, Earliest) else self.log.ends
        data = b"".join(data for _, _, data in self.log.entries)
        return memoryview(data)[request.offset - self.log.begins :][: request.max_bytes]


class RocketmqServing(Serving):
    """Pulls through the library's own session. ``tags``: those of the entries, by index; tags of
    batches are ignored."""

    def __init__(self, log: Log, dialect: Any, settings: ClusterSettings) -> None:
        super().__init__(log, dialect, settings)
        self.session = RocketmqSession("test")
        self.tags: dict[int, str] = {}
        self.config = b'{"attributes": {}}'

    def answer(self, request: Any) -> Any:
        _, sent = self.session.encode(request)
        response: Any = None
        while sent:
            for raw in split_frames(sent):
                response = self.session.decode(self._answered(read_frame(raw))) or response
            sent = self.session.due()
        return response[1]

    def _answered(self, asked: Frame) -> memoryview:
        code, remark, fields, body = self._found(asked)
        texts = {name: str(value) for name, value in fields.items()}
        response = Frame(code, asked.opaque, RESPONSE, remark, texts, body)
        return memoryview(b"".join(bytes(part) for part in write_frame(response)))

    def _found(self, asked: Frame) -> tuple[int, str, dict[str, int], bytes]:
        match asked.code:
            case m.MIN_OFFSET:
                return 0, "", {"offset": self.log.begins}, b""
            case m.MAX_OFFSET:
                return 0, "", {"offset": self.log.ends}, b""
            case m.TOPIC_CONFIG:
                return 0, "", {}, self.config
        at, count = int(asked.fields["queueOffset"]), int(asked.fields["maxMsgNums"])
        wanted = asked.fields["subscription"]
        found, following = [], at
        for index, (_, until, data) in enumerate(self.log.entries):
            if until <= at:
                continue
            if found and (len(found) >= self.log.joined or until - at > count):
                break
            following = until
            if wanted == "*" or self.tags.get(index, "") in wanted.split(" || "):
                found.append(data)
        fields = {"nextBeginOffset": following, "minOffset": self.log.begins}
        fields["maxOffset"] = self.log.ends
        if at >= self.log.ends:
            return 19, "OFFSET_OVERFLOW_ONE", fields, b""
        if not found:
            return 20, "NO_MATCHED_MESSAGE", fields, b""
        return 0, "FOUND", fields, b"".join(found)


class _Direct:
    """A dialect without its wire format: requests and responses are plain values."""

    def __init__(self, dialect: Any, log: Log) -> None:
        self._dialect = dialect
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dialect, name)

    def records_requests(self, asked: Sequence[PartitionFetch], terms: Any) -> list[BrokerRequest]:
        return [BrokerRequest(one) for one in asked]

    def read_records(
        self, responses: Sequence[Any], asked: Sequence[PartitionFetch], isolation: Any
    ) -> FetchResult:
        end = -1 if self._dialect.capabilities.offsets_are_bytes else self._log.ends
        parts = [
            FetchedPartition(
                one.partition, ErrorMeaning.OK, "", fetched_at(records, one.offset), end
            )
            for one, records in zip(asked, responses, strict=True)
        ]
        return FetchResult(ErrorMeaning.OK, "", tuple(parts))

    def offsets_requests(self, leaders: Any, when: Any, isolation: Any) -> list[BrokerRequest]:
        return [BrokerRequest(when)]

    def read_offsets(self, responses: Sequence[int]) -> Any:
        return _OfAny(OffsetResult(ErrorMeaning.OK, "", responses[0]))


class _OfAny(dict[Partition, OffsetResult]):
    def __init__(self, response: OffsetResult) -> None:
        super().__init__()
        self.response = response

    def get(self, key: Partition, default: Any = None) -> Any:
        return self.response


SERVINGS: dict[str, type[Serving]] = {
    "kafka": KafkaServing,
    "jafka": JafkaServing,
    "rocketmq": RocketmqServing,
}


@dataclass(frozen=True)
class Read:
    """Rows with their offsets, and the receipt."""

    rows: list[dict[str, Any]]
    receipt: Receipt


def read_log(
    dialect: str,
    log: Log,
    from_offset: int,
    until_offset: int,
    *,
    tags: Iterable[tuple[int, str]] = (),
    **changed: Any,
) -> Read:
    """Reads like a task, and raises what a task would. ``tags``: those of entries, by index."""
    broker = "" if dialect == "kafka" else "broker-a"
    partition = Partition("t", 0, broker)
    named_brokers = (("broker-a", LEADER),) if broker else ()
    isolation = changed.pop("isolation", Isolation.READ_COMMITTED)
    cluster = ClusterSettings(dialect, (LEADER,), named_brokers=named_brokers, isolation=isolation)
    settings = ReadSettings(cluster, **changed)
    slice_ = Slice(0, partition, from_offset, until_offset, leader=LEADER)
    found = load_dialect(dialect)
    chosen = found if dialect == "rocketmq" else _Direct(found, log)

    def fetcher_of(slices: Sequence[Slice], settings: ReadSettings, *_: Any, **more: Any) -> Any:
        serving = SERVINGS[dialect](log, chosen, settings.cluster)
        if isinstance(serving, RocketmqServing):
            serving.tags = dict(tags)
        brokers = cast(ConnectionPool, serving)
        fetcher = FetchThread(slices, settings, HASTY, **more, brokers=brokers)
        leaders = FoundLeaders({partition: Leader(LEADER)})
        fetcher._find = lambda step: fetcher._loop.on_leaders(leaders)  # type: ignore[method-assign]
        return fetcher

    tally = ReceiptBuilder([slice_])
    rows: list[dict[str, Any]] = []
    with patch.object(slice_reading, "FetchThread", fetcher_of):
        for chunk in slice_reading.read_slices([slice_], settings):
            tally.add(chunk)
            if chunk.rows is not None:
                columns = [name for name in chunk.rows.schema.names if "imestamp" not in name]
                rows += chunk.rows.select(columns).to_pylist()
    (receipt,) = tally.receipts()
    return Read(rows, receipt)
