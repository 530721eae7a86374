"""Topics are matched in linear time, whatever the pattern is and however topics are named."""

from __future__ import annotations

import time

import pytest

from rangeland.cluster_access.cluster_lookup import look_up_read_settings
from rangeland.errors import JobFileError
from rangeland.fetch.loss_judgement import stated_cleanup
from rangeland.job import Job
from rangeland.patterns import check_pattern_is_valid, match_topics, matches

JOB = """
job: a
source: {{servers: ['127.0.0.1:1'], topic_pattern: '{pattern}', compacted: ['{pattern}']}}
sink: {{table: lake/a}}
policy: {{topics: {{'{pattern}': {{expired: skip}}}}}}
"""
EVIL = ["(a+)+$", "(a|a)*", "(a|aa)+", "(.*a){20}", "([a-z]+)*"]


@pytest.mark.parametrize("pattern", EVIL)
def test_no_pattern_takes_long_for_any_topic(pattern: str) -> None:
    source = Job.parse(JOB.format(pattern=pattern))
    matches(pattern, "warm")
    started = time.process_time()
    assert not source.source.reads("a" * 249 + "!")
    assert not source.policies.topics[0].matches("a" * 249 + "!")
    assert match_topics(pattern, ["a" * 100_000 + "!"]) == []
    assert stated_cleanup("a" * 249 + "!", look_up_read_settings(source)) is None
    assert time.process_time() - started < 1


def test_a_pattern_matches_whole_names() -> None:
    assert match_topics("a|b.", ["a", "b", "bc", "ab", "bcd", "a\n"]) == ["a", "bc"]
    assert matches("(?i)orders-[0-9]+", "ORDERS-12")
    assert not matches("orders", "orders\n")


@pytest.mark.parametrize("pattern", ["(", "a{2000}", "(?=a)b", r"(a)\1", "a)|(b", "x" * 1_001])
def test_what_is_not_a_pattern_is_a_mistake_of_the_job(pattern: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        check_pattern_is_valid(pattern)
    with pytest.raises(
        JobFileError, match=r"source\.topic_pattern: expected an RE2 regular expression"
    ):
        Job.parse(JOB.format(pattern=pattern))


def test_a_pattern_of_compacted_topics_has_the_same_limits() -> None:
    job = "job: a\nsource: {servers: [h:1], topics: [t], compacted: ['%s']}\nsink: {table: lake/a}"
    for pattern in ("(" * 900 + ")" * 900, "(?=a)b", "(" * 5_000):
        with pytest.raises(
            JobFileError, match=r"source\.compacted: expected a topic or an RE2 regular"
        ):
            Job.parse(job % pattern)
