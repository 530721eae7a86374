"""Who is asked for the retention of topics, and what follows where nobody answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rangeland.connection.pool import ConnectionPool
from rangeland.errors import Unreachable
from rangeland.model import Address, Leader, LogState, Partition, Retention, Survey
from rangeland.planning.retention_risk import ReadSpeed
from rangeland.survey.retention_lookup import MAX_BROKERS_ASKED, with_retention
from rangeland.survey.survey_request import SurveyRequest

B1, B2, B3 = (Address(f"b{n}", 9092) for n in (1, 2, 3))
KEPT = {"t": Retention(None, None)}
WANTED = SurveyRequest(topics=("t",), speed=ReadSpeed())


class Brokers:
    """Of these brokers the ``dead`` do not answer, and ``unsure`` has an error for the topic."""

    def __init__(self, *dead: Address, unsure: Address | None = None) -> None:
        self.dead, self.unsure = dead, unsure
        self.asked: list[Address] = []
        self.dialect = SimpleNamespace(
            retention_requests=lambda topics: [topics],
            read_retention=lambda responses: KEPT if responses else {},
        )
        self.settings = SimpleNamespace(isolation=None)

    def call_all(self, address: Address, questions: list[Any]) -> list[Any]:
        self.asked.append(address)
        if address in self.dead:
            raise Unreachable(f"{address} does not answer", why="it is down")
        return [] if address == self.unsure else questions


def asked_of(brokers: Brokers, *leaders: Address, seed: Address | None = None) -> Survey:
    partitions = [Partition("t", number) for number in range(len(leaders) or 1)]
    addresses = leaders or (None,)
    logs = {
        p: LogState(p, Leader(address), 0, 10)
        for p, address in zip(partitions, addresses, strict=True)
    }
    survey = Survey(0, logs)
    return with_retention(cast(ConnectionPool, brokers), survey, WANTED, seed)


def test_one_broker_is_asked_if_it_answers() -> None:
    brokers = Brokers()
    assert asked_of(brokers, B1, B2).retention == KEPT
    assert brokers.asked == [B1]


def test_another_broker_is_asked_where_one_does_not_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    brokers = Brokers(B1)
    with caplog.at_level("INFO"):
        assert asked_of(brokers, B1, B1, B2).retention == KEPT
    assert brokers.asked == [B1, B2]
    assert "Got no retention of topics from b1:9092" in caplog.text


def test_another_broker_is_asked_for_topics_that_one_has_an_error_for() -> None:
    brokers = Brokers(unsure=B1)
    assert asked_of(brokers, B1, B2).retention == KEPT
    assert brokers.asked == [B1, B2]


def test_no_more_than_two_are_waited_for() -> None:
    brokers = Brokers(B1, B2, B3)
    assert asked_of(brokers, B1, B2, B3).retention == {}
    assert len(brokers.asked) == MAX_BROKERS_ASKED == 2


def test_without_a_leader_the_broker_that_answered_before_is_asked() -> None:
    brokers = Brokers()
    assert asked_of(brokers, seed=B3).retention == KEPT
    assert brokers.asked == [B3]
