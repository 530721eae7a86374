"""The data source's options as the job that they describe."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql.types import StructType

from rangeland.dataframe import datasource
from rangeland.dataframe.datasource import RangelandSource
from rangeland.dataframe.frozen_plan import KNOWN, job_of_options
from rangeland.errors import JobFileError, UsageError
from rangeland.logging_setup import LogFormat, LogLevel, LogSettings, current_settings

WHERE = {"servers": "ns:9876", "topics": "orders", "dialect": "rocketmq"}


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("A", ("A",)),
        (" A , B,,A ", ("A", "B")),
        ('["A", "B"]', ("A", "B")),
        (' ["with, comma"]', ("with, comma",)),
        ("[]", ()),
    ],
)
def test_tags_are_given_by_commas_or_as_a_list(text: str, tags: tuple[str, ...]) -> None:
    assert "tags" in KNOWN
    assert job_of_options({**WHERE, "tags": text}).source.tags == tags


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, str]]:
    """The options of each plan that was made, without asking brokers or changing how we log."""
    made: list[Mapping[str, str]] = []

    def make(options: Mapping[str, str]) -> tuple[str, None, int]:
        made.append(options)
        return f"plan {len(made)}", None, 1

    monkeypatch.setattr(datasource, "_plan_of", make)
    monkeypatch.setattr(datasource, "configure", lambda _: None)
    return made


def test_each_action_on_a_frame_reads_the_plan_of_its_source(
    plans: list[Mapping[str, str]],
) -> None:
    """PySpark makes the source once and pickles it, and for each action asks a copy for a reader.
    It asks for no schema if the user gives one."""
    pickled = pickle.dumps(RangelandSource(WHERE))
    readers: list[Any] = [pickle.loads(pickled).reader(StructType()) for _ in range(3)]
    assert [reader._plan for reader in readers] == ["plan 1"] * 3
    assert plans == [WHERE]


@pytest.mark.usefixtures("plans")
def test_how_its_tasks_log_is_an_option() -> None:
    source = RangelandSource({**WHERE, "logLevel": "INFO", "logFormat": "json"})
    assert source._logging == LogSettings(LogLevel.INFO, LogFormat.JSON)
    assert RangelandSource(WHERE)._logging == current_settings()


@pytest.mark.parametrize(
    ("option", "own"),
    [("kafka.bootstrap.servers", "servers"), ("startingOffsets", "from"), ("subscribe", "topics")],
)
def test_an_option_of_spark_s_kafka_source_is_named_as_it_is_called_here(
    option: str, own: str
) -> None:
    with pytest.raises(
        UsageError, match=f"there is no option .*[Uu]se {own}, which is its name here"
    ):
        RangelandSource({option: "x"})


def test_the_options_that_stand_for_others_exist() -> None:
    assert {own.lower() for own in datasource._OF_KAFKA_SOURCE.values()} <= KNOWN


def test_an_unknown_log_level_is_refused() -> None:
    with pytest.raises(UsageError, match="option logLevel is loud"):
        RangelandSource({**WHERE, "logLevel": "loud"})


def test_without_the_option_all_messages_are_read() -> None:
    assert job_of_options(WHERE).source.tags == ()


@pytest.mark.parametrize("text", ["", " , ", "A || B", "[1]", '[["A"]]'])
def test_what_is_not_a_tag_is_refused(text: str) -> None:
    with pytest.raises(JobFileError, match="tags"):
        job_of_options({**WHERE, "tags": text})


def test_a_list_that_is_not_json_is_refused() -> None:
    with pytest.raises(UsageError, match=r"option tags is .* not JSON"):
        job_of_options({**WHERE, "tags": "[A, B]"})


def test_tags_are_of_rocketmq_alone() -> None:
    with pytest.raises(JobFileError, match="rocketmq only"):
        job_of_options({**WHERE, "dialect": "kafka", "tags": "A"})


def test_a_job_file_says_its_tags_itself() -> None:
    with pytest.raises(UsageError, match="option job cannot be combined with tags"):
        job_of_options({"job": "orders.yaml", "tags": "A"})
