"""A gap between two batches: compacted where something says so, and else missing, once the leader
has been read again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.failures import ConnectionLost
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import CleanupPolicy
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka import topic_settings
from rangeland.dialects.protocol_session import BrokerRequest, UnsupportedRequest
from rangeland.errors import RangeLost, Unreachable
from rangeland.fetch import leader_lookup, loss_judgement, slice_reading
from rangeland.fetch.fetched_pieces import FetchedPiece
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.receipt_builder import ReceiptBuilder
from rangeland.fetch.replica_choice import Sender
from rangeland.fetch.slice_chunks import SliceChunk
from rangeland.fetch.slice_reading import read_slices
from rangeland.loss import Action, LossKind
from rangeland.model import Address, Counts, Partition, Slice
from rangeland.planning.policy import Policy
from rangeland.planning.slice_receipt import Receipt
from tests.fetched_records import fetched_at
from tests.record_batches import Batch, Record, cleaned, encode

P = Partition("t", 0)
B1, B2 = Address("b1", 1), Address("b2", 2)
PIECE = Slice(0, P, 0, 30, leader=B1)


def four(base: int) -> Batch:
    return Batch(base, [Record(b"k", b"v" * 9)] * 4)


HOLED = (cleaned(four(0), [0, 2, 3]), four(8), four(12), four(40))
"""Offset 1 is missing inside a batch; 4 to 7 and 16 to 29 are between batches."""
WHOLE = (four(0), four(4), four(8), four(12), Batch(16, [Record(b"k", b"v")] * 14))


class Source:
    """In place of a fetcher: the log as it is read first, and as the leader has it then."""

    log: tuple[Batch, ...] = HOLED
    log_again: tuple[Batch, ...] = HOLED
    again = 0

    def __init__(
        self, slices: Sequence[Slice], *_: Any, leader_only: bool = False, **_more: Any
    ) -> None:
        self.slices, self.leader_only = slices, leader_only
        self.brokers = ConnectionPool(ClusterSettings("kafka", ()))

    def start(self) -> None:
        type(self).again += self.leader_only

    def stop(self) -> None:
        pass

    def pieces(self) -> Iterator[FetchedPiece]:
        log = type(self).log_again if self.leader_only else type(self).log
        sender = Sender.LEADER_AGAIN if self.leader_only else Sender.LEADER
        for s in self.slices:
            there = [b for b in log if b.next_offset > s.from_offset]
            stored = fetched_at(b"".join(encode(b) for b in there), s.from_offset)
            yield FetchedPiece(s.index, stored, s.until_offset, str(B1), sender)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Address]:
    """Whom a gap's topic was asked of."""
    found: list[Address] = []
    monkeypatch.setattr(slice_reading, "FetchThread", Source)
    monkeypatch.setattr(Source, "again", 0)
    monkeypatch.setattr(Source, "log_again", HOLED)
    monkeypatch.setattr(leader_lookup, "ConnectionPool", lambda settings: Asked(settings, found))
    return found


class Asked(ConnectionPool):
    """Brokers that say what ``response`` is, or raise it."""

    response: Any = "delete"

    def __init__(self, settings: ClusterSettings, found: list[Address]) -> None:
        super().__init__(settings)
        self.found = found

    def call_all(self, address: Address, questions: Sequence[BrokerRequest]) -> list[Any]:
        self.found.append(address)
        response = (
            type(self).response.get(address) if isinstance(self.response, dict) else self.response
        )
        if isinstance(response, Exception):
            raise response
        return [described(response)]


def described(policy: str | None, error_code: int = 0) -> m.DescribeConfigsResponse:
    configs = (
        m.DescribedConfig(name="cleanup.policy", value=policy, read_only=False, is_sensitive=False),
    )
    result = m.DescribedResource(
        error_code=error_code,
        error_message=None,
        resource_type=m.TOPIC,
        resource_name="t",
        configs=configs if policy else (),
    )
    return m.DescribeConfigsResponse(throttle_time_ms=0, results=(result,))


def read(action: Action = Action.FAIL, **changed: Any) -> tuple[list[SliceChunk], Receipt]:
    cluster = ClusterSettings("kafka", (B1, B2))
    settings = ReadSettings(cluster, policy=Policy(missing=action), **changed)
    found = list(read_slices([PIECE], settings))
    tally = ReceiptBuilder([PIECE])
    for chunk in found:
        tally.add(chunk)
    (receipt,) = tally.receipts()
    return found, receipt


# --- what explains a gap ----------------------------------------------------------------


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete, compact"])
def test_a_compacted_topic_has_compacted_gaps(
    policy: str, monkeypatch: pytest.MonkeyPatch, asked: list[Address]
) -> None:
    monkeypatch.setattr(Asked, "response", policy)
    found, receipt = read()
    assert receipt.counts == Counts(landed=11, compacted=19)
    assert (asked, Source.again) == ([B1], 0), "once, of the leader, and nothing is read again"
    assert len(found) == 2


def test_a_job_may_say_it_and_nobody_is_asked(asked: list[Address]) -> None:
    for pattern in ("t", "[st]"):
        assert read(compacted=("other", pattern))[1].counts == Counts(landed=11, compacted=19)
    assert asked == []
    with pytest.raises(RangeLost):
        read(compacted=("tt",))


def test_the_registry_is_believed_where_brokers_do_not_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = UnsupportedRequest("no version of DescribeConfigs is supported by both sides")
    monkeypatch.setattr(Asked, "response", old)
    told = {"asks_zookeeper": True, "zookeeper_cleanup": (("t", "compact"),)}
    assert read(**told)[1].counts == Counts(landed=11, compacted=19)
    with pytest.raises(RangeLost, match="too old to report"):
        read()
    for registered, words in (((), "is not set"), ((("t", "delete"),), "is delete")):
        with pytest.raises(RangeLost, match=f"cleanup.policy in ZooKeeper {words}"):
            read(asks_zookeeper=True, zookeeper_cleanup=registered)
    monkeypatch.setattr(Asked, "response", "delete")
    with pytest.raises(RangeLost, match=r"its cleanup\.policy is delete"):
        read(**told)


def test_that_nobody_can_be_asked_now_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch, asked: list[Address]
) -> None:
    monkeypatch.setattr(
        Asked, "response", {B1: ConnectionLost("gone"), B2: ConnectionLost("gone", why="refused")}
    )
    for action in Action.SKIP, Action.HOLD, Action.FAIL:
        with pytest.raises(Unreachable, match=r"no broker could be asked.*b2:2: refused"):
            read(action)
    monkeypatch.setattr(Asked, "response", {B1: ConnectionLost("gone"), B2: "compact"})
    assert read()[1].counts.compacted == 19
    assert asked[-2:] == [B1, B2]
    old = UnsupportedRequest("no version of DescribeConfigs is supported by both sides")
    monkeypatch.setattr(Asked, "response", old)
    with pytest.raises(Unreachable, match="ZooKeeper could not be asked"):
        read(Action.SKIP, asks_zookeeper=True)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (described("compact"), CleanupPolicy(True, "its cleanup.policy is compact")),
        (described("delete"), CleanupPolicy(False, "its cleanup.policy is delete")),
        (described(""), CleanupPolicy(None, "the broker does not say what its cleanup.policy is")),
    ],
)
def test_what_a_broker_says(response: m.DescribeConfigsResponse, expected: CleanupPolicy) -> None:
    assert topic_settings.read_cleanup([response]) == expected


def test_who_may_not_ask_does_not_know() -> None:
    found = topic_settings.read_cleanup([described("", error_code=29)])
    assert found.compacts is None
    assert "TOPIC_AUTHORIZATION_FAILED" in found.evidence


# --- what nothing explains --------------------------------------------------------------


def test_without_a_policy_it_ends_the_run_naming_the_first_gap() -> None:
    with pytest.raises(
        RangeLost, match=r"t/0 \[4, 8\) missing.*cleanup.policy is delete"
    ) as caught:
        read()
    assert Source.again == 1
    assert "policy: {missing: skip}" in caught.value.do
    assert "source.compacted" in caught.value.do


def test_what_is_skipped_is_lost_and_what_a_batch_lacks_is_compacted() -> None:
    _, receipt = read(Action.SKIP)
    assert receipt.counts == Counts(landed=11, compacted=1, lost=18)
    assert [(x.from_offset, x.until_offset, x.kind) for x in receipt.losses] == [
        (4, 8, "missing"),
        (16, 30, "missing"),
    ]
    assert receipt.rowless == ((1, 2), (4, 8), (16, 30))
    assert Source.again == 1


@pytest.mark.parametrize(("action", "lost"), [(Action.SKIP, 8), (Action.HOLD, 30)])
def test_only_the_first_gap_of_a_slice_is_logged(
    action: Action, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    read(action)
    (line,) = caplog.records
    assert line.message.startswith(f"Applied policy {action}: t/0 [4, {lost}) is missing: the log")
    fields = vars(line)
    assert (fields["topic"], fields["partition"], fields["offset"]) == ("t", 0, 4)


def test_what_is_held_ends_the_slice_at_the_gap() -> None:
    _, receipt = read(Action.HOLD)
    assert (receipt.until_offset, receipt.counts) == (4, Counts(landed=3, compacted=1))
    assert receipt.held is not None
    assert (receipt.held.from_offset, receipt.held.until_offset) == (4, 30)
    assert receipt.held.kind is LossKind.MISSING


def test_a_gap_that_the_leader_does_not_have_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Source, "log_again", WHOLE)
    assert read()[1].counts == Counts(landed=29, compacted=1)


def test_a_slice_with_very_many_gaps_is_told_that_it_looks_compacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loss_judgement, "MAX_LOSSES", 1)
    with pytest.raises(RangeLost, match=r"more than 1 gaps.*source\.compacted"):
        read(Action.SKIP)
