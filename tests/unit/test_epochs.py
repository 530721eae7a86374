"""The leader epoch of a log whose broker reports none is read from its last batch. It may be
older than the leader's, and the result says so.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from rangeland import deadline
from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.cluster_values import OffsetResult
from rangeland.dialects.dialect import Dialect
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import (
    FetchedPartition,
    FetchedRecords,
    FetchResult,
    PartitionFetch,
)
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import Unreachable
from rangeland.model import Address, Leader, LogState, Partition
from rangeland.survey.epoch_ends import end_before_batch, epoch_ends, with_epochs
from rangeland.survey.survey_attempt import SurveyAttempt
from rangeland.survey.survey_request import SurveyRequest
from rangeland.survey.wanted_partitions import ChangedMeanwhile
from tests.fetched_records import fetched_at

B1 = Address("b1", 9092)
P0, P1 = Partition("t", 0), Partition("t", 1)


class Old:
    """A broker whose metadata has no epochs: a dialect and its connections at once. The bytes of
    a batch are its epoch. Of earlier epochs it reports nothing."""

    capabilities = Capabilities(has_epochs=True)
    settings = ClusterSettings("kafka", (B1,))

    @property
    def dialect(self) -> Old:
        return self

    def records_requests(self, asked: list[PartitionFetch], terms: Any) -> list[BrokerRequest]:
        return [BrokerRequest(tuple((a.partition, a.offset) for a in asked))]

    def call_all(self, address: Address, questions: list[BrokerRequest]) -> list[Any]:
        return [question.message for question in questions]

    def read_records(self, responses: list[Any], asked: Any, isolation: Any) -> FetchResult:
        ((wanted,),) = [responses]
        parts = tuple(
            FetchedPartition(p, ErrorMeaning.OK, "", fetched_at(bytes([at]), at))
            for p, at in wanted
        )
        return FetchResult(ErrorMeaning.OK, "", parts)

    def epoch_of(self, records: FetchedRecords) -> int:
        return records.data[0]

    def first_offset(self, records: FetchedRecords, from_offset: int) -> int:
        return from_offset + 1

    def epochs_requests(self, leaders: Any, epochs: Any) -> list[BrokerRequest]:
        return [BrokerRequest(tuple(epochs))]

    def read_epochs(self, responses: list[Any]) -> dict[Partition, int | None]:
        return dict.fromkeys(responses[0])


def test_an_epoch_that_no_metadata_tells_is_the_last_batch_s_and_known_to_be() -> None:
    logs = {
        P0: LogState(P0, Leader(B1), 0, 8),
        P1: LogState(P1, Leader(B1, epoch=3), 0, 8),
    }
    found = with_epochs(cast(ConnectionPool, Old()), logs)
    assert (found[P0].leader.epoch, found[P0].epoch_is_read) == (7, True)
    assert found[P1] == logs[P1]


@pytest.mark.parametrize(("start", "ends"), [(5, {P0: 6}), (4, {}), (3, {})])
def test_an_epoch_before_the_first_that_an_old_log_has_ends_where_its_first_batch_begins(
    start: int, ends: dict[Partition, int]
) -> None:
    """The log's batch at an offset has the epoch of that number; epoch 4 is asked for."""
    logs = with_epochs(cast(ConnectionPool, Old()), {P0: LogState(P0, Leader(B1), start, 9)})
    assert epoch_ends(cast(ConnectionPool, Old()), logs, {P0: 4}) == (ends, [])


def test_of_a_log_whose_leader_reports_epochs_nothing_is_concluded_from_its_silence() -> None:
    logs = {P0: LogState(P0, Leader(B1, epoch=8), 5, 9)}
    assert epoch_ends(cast(ConnectionPool, Old()), logs, {P0: 4}) == ({}, [])


class Expiring(Old):
    """Its log begins at 6 now: what was before is gone."""

    def offsets_requests(self, leaders: Any, when: Any, isolation: Any) -> list[BrokerRequest]:
        return [BrokerRequest(tuple((p, 6) for p in leaders))]

    def read_offsets(self, responses: list[Any]) -> dict[Partition, OffsetResult]:
        return {p: OffsetResult(ErrorMeaning.OK, "", at) for p, at in responses[0]}

    def read_records(self, responses: list[Any], asked: Any, isolation: Any) -> FetchResult:
        return super().read_records([[(p, at) for p, at in responses[0] if at >= 6]], asked, None)


def test_a_log_that_begins_later_meanwhile_still_shows_where_an_earlier_epoch_ended() -> None:
    old = LogState(P0, Leader(B1, epoch=7), 3, 9, epoch_is_read=True)
    assert epoch_ends(cast(ConnectionPool, Expiring()), {P0: old}, {P0: 4}) == ({P0: 7}, [])


class Moved(Old):
    """It no longer leads P0: it does not say where an epoch ended."""

    def read_epochs(self, responses: list[Any]) -> dict[Partition, int | None]:
        return {p: 7 for p in responses[0] if p != P0}


class Lagging(Old):
    """Does not send the last batch of P0 at first: its high watermark lags."""

    def __init__(self, times: int, settings: ClusterSettings) -> None:
        self.times = times
        self.settings = settings

    def call_all(self, address: Address, questions: list[BrokerRequest]) -> list[Any]:
        self.times -= 1
        wanted = super().call_all(address, questions)
        return [[(p, at) for p, at in wanted[0] if p != P0 or self.times < 0]]


LOGS = {p: LogState(p, Leader(B1), 0, 8) for p in (P0, P1)}


def attempt(times: int, **wanted: Any) -> SurveyAttempt:
    brokers = cast(ConnectionPool, Lagging(times, ClusterSettings("kafka", (B1,), survey_ms=2_000)))
    found = SurveyAttempt(brokers, SurveyRequest(("t",), **wanted))
    found.answered_by = B1
    return found


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes by sleeping, at once."""
    clock = [0.0]
    monkeypatch.setattr(deadline.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(deadline.time, "sleep", lambda s: clock.__setitem__(0, clock[0] + s))


@pytest.mark.usefixtures("hurried")
def test_the_epoch_of_a_log_is_waited_for_while_its_last_batch_is_not_sent() -> None:
    found = attempt(3).with_epochs(LOGS)
    assert [(log.leader.epoch, log.epoch_is_read) for log in found.values()] == [(7, True)] * 2


@pytest.mark.usefixtures("hurried")
def test_a_log_whose_epoch_remains_unknown_is_not_taken_for_one_without() -> None:
    with pytest.raises(Unreachable, match="the last batch of t/0 could not be read"):
        attempt(1_000_000).with_epochs(LOGS)


def test_a_log_whose_leader_does_not_answer_for_an_earlier_epoch_is_surveyed_again() -> None:
    logs = {p: LogState(p, Leader(B1, epoch=8), 5, 9) for p in (P0, P1)}
    brokers = cast(ConnectionPool, Moved())
    assert epoch_ends(brokers, logs, {P0: 4, P1: 4}) == ({P1: 7}, [P0])
    with pytest.raises(ChangedMeanwhile, match="t/0 could not be surveyed"):
        SurveyAttempt(brokers, SurveyRequest(("t",))).with_epoch_ends(logs, {P0: 4, P1: 4})


@pytest.mark.usefixtures("hurried")
def test_others_go_on_without_a_log_whose_epoch_remains_unknown_where_a_policy_holds_it() -> None:
    surveyed = attempt(1_000_000, tolerates_missing_leaders=True)
    assert list(surveyed.with_epochs(LOGS)) == [P1]
    assert surveyed.partitions.absent.unreachable == {P0: "its last batch could not be read"}


@pytest.mark.parametrize(("batch_epoch", "end"), [(5, 11), (4, None), (3, None)])
def test_an_epoch_ends_before_a_first_batch_of_a_later_one(
    batch_epoch: int, end: int | None
) -> None:
    records = fetched_at(bytes([batch_epoch]))
    assert end_before_batch(cast(Dialect, Old()), records, 10, 4) == end
