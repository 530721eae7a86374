"""The leader epoch of a log whose broker reports none is read from its last batch. It may be
older than the leader's, and the result says so.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition, FetchResult, PartitionFetch
from rangeland.dialects.protocol_session import Question
from rangeland.model import Address, Leader, LogState, Partition
from rangeland.survey.epoch_ends import epoch_ends, with_epochs

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

    def ask_records(self, asked: list[PartitionFetch], terms: Any) -> list[Question]:
        return [Question(tuple((a.partition, a.offset) for a in asked))]

    def call_all(self, address: Address, questions: list[Question]) -> list[Any]:
        return [question.request for question in questions]

    def read_records(self, responses: list[Any], asked: Any, isolation: Any) -> FetchResult:
        ((wanted,),) = [responses]
        parts = tuple(
            FetchedPartition(p, ErrorMeaning.OK, "", memoryview(bytes([at]))) for p, at in wanted
        )
        return FetchResult(ErrorMeaning.OK, "", parts)

    def epoch_of(self, records: memoryview) -> int:
        return records[0]

    def first_offset(self, records: memoryview, from_offset: int) -> int:
        return from_offset + 1

    def ask_epochs(self, leaders: Any, epochs: Any) -> list[Question]:
        return [Question("epochs")]

    def read_epochs(self, responses: list[Any]) -> dict[Partition, int]:
        assert responses == ["epochs"]
        return {}


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
    assert epoch_ends(cast(ConnectionPool, Old()), logs, {P0: 4}) == ends


def test_of_a_log_whose_leader_reports_epochs_nothing_is_concluded_from_its_silence() -> None:
    logs = {P0: LogState(P0, Leader(B1, epoch=8), 5, 9)}
    assert epoch_ends(cast(ConnectionPool, Old()), logs, {P0: 4}) == {}
