"""A job file with a table for each topic, as one job for each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rangeland.errors import JobFileError
from rangeland.job import Job
from rangeland.job.job_text import parse_job_text
from rangeland.job.topic_tables import (
    check_tables_are_distinct,
    is_asked_for,
    job_of_topic,
    table_of_topic,
)
from rangeland.model import AtOffset, Earliest, Partition


def template(table: str = "lake/{topic}", **sections: Any) -> tuple[Job, Any]:
    document = {
        "job": "all",
        "source": {"servers": ["k:9092"], "topics": ["a", "b.c"], **sections.pop("source", {})},
        "sink": {"table": table},
        **sections,
    }
    text = parse_job_text(json.dumps(document), "all.yaml")
    return Job.of(text), text


def test_the_job_of_a_topic_has_only_what_belongs_to_it() -> None:
    job, text = template(
        source={"partitions": {"a": [0], "b.c": [1, 2]}},
        policy={"expired": "skip", "topics": {"b.*": {"expired": "fail"}}},
        group={"id": "g"},
    )
    found, of_topic = job_of_topic(job, text, "a")
    assert found.sink.table == "lake/a"
    assert found.source.topics == ("a",)
    assert dict(found.source.partitions) == {"a": (0,)}
    assert found.policy.topics == {}
    assert found.group is None
    assert (found.name, found.application) == ("all", "rangeland/all")
    assert Job.of(of_topic) == found


def test_a_pattern_becomes_the_topic() -> None:
    job, text = template(source={"topics": [], "topic_pattern": "t.*"})
    found, _ = job_of_topic(job, text, "t1")
    assert (found.source.topics, found.source.topic_pattern) == (("t1",), None)


def test_a_range_by_topic_is_that_of_the_topic_and_leaves_the_others_out() -> None:
    of_a = {"a": {0: 5}}
    job, text = template(range={"from": of_a, "until": {"a": {0: 9}}})
    assert [topic for topic in ("a", "b.c") if is_asked_for(job, topic)] == ["a"]
    found, _ = job_of_topic(job, text, "a")
    assert found.range.from_.listed == {Partition("a", 0): AtOffset(5)}


@pytest.mark.parametrize("sections", [{}, {"range": {"first_run": "latest", "until": "latest"}}])
def test_a_topic_that_came_after_the_first_run_begins_at_its_beginning(
    sections: dict[str, Any],
) -> None:
    job, text = template(**sections)
    found, of_topic = job_of_topic(job, text, "a", is_later=True)
    assert found.range.first_run == Earliest()
    assert Job.of(of_topic) == found
    assert job_of_topic(job, text, "a")[0].range.first_run == job.range.first_run


@pytest.mark.parametrize(
    ("table", "topic", "expected"),
    [
        ("lake/{topic}", "Orders.EU-1", "lake/Orders.EU-1"),
        ("s3a://b/{topic}/v1", "a", "s3a://b/a/v1"),
        ("main.sales.{topic}", "Orders.EU-1", "main.sales.orders_eu_1"),
        ("sales.t_{topic}", "x", "sales.t_x"),
    ],
)
def test_the_table_of_a_topic(table: str, topic: str, expected: str) -> None:
    assert table_of_topic(template(table)[0].sink, topic) == expected


def test_topics_that_would_share_a_table_of_a_catalog_are_refused() -> None:
    job, _ = template("main.sales.{topic}")
    with pytest.raises(JobFileError, match=r"a\.b and a_b .* main\.sales\.a_b"):
        check_tables_are_distinct(job, ["a.b", "a", "a_b"])
    check_tables_are_distinct(template()[0], ["a.b", "a", "a_b", "A"])


@pytest.mark.parametrize("table", ["lake/{topics}", "lake/{ topic }", "{topic}/{topic}", "{TOPIC}"])
def test_a_field_that_is_not_quite_the_topic_is_refused(table: str) -> None:
    with pytest.raises(JobFileError, match=r"\{topic\} once"):
        template(table)


def test_other_braces_belong_to_the_folder() -> None:
    assert not template("lake/{a}")[0].sink.is_per_topic
