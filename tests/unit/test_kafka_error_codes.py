"""Kafka's codes: a number, its name, and what follows from it."""

from __future__ import annotations

import pytest

from rangeland.dialects.error_meaning import ErrorMeaning, GroupMeaning, unlisted_code
from rangeland.dialects.kafka.error_codes import CODES, error_code_of


@pytest.mark.parametrize(
    ("number", "name", "meaning"),
    [
        (0, "NONE", ErrorMeaning.OK),
        (-1, "UNKNOWN_SERVER_ERROR", ErrorMeaning.UNKNOWN),
        (1, "OFFSET_OUT_OF_RANGE", ErrorMeaning.OUT_OF_RANGE),
        (2, "CORRUPT_MESSAGE", ErrorMeaning.CORRUPT),
        (3, "UNKNOWN_TOPIC_OR_PARTITION", ErrorMeaning.FIND_LEADER),
        (5, "LEADER_NOT_AVAILABLE", ErrorMeaning.FIND_LEADER),
        (6, "NOT_LEADER_OR_FOLLOWER", ErrorMeaning.FIND_LEADER),
        (9, "REPLICA_NOT_AVAILABLE", ErrorMeaning.FIND_LEADER),
        (14, "COORDINATOR_LOAD_IN_PROGRESS", ErrorMeaning.RETRY),
        (16, "NOT_COORDINATOR", ErrorMeaning.FIND_LEADER),
        (22, "ILLEGAL_GENERATION", ErrorMeaning.REJOIN),
        (29, "TOPIC_AUTHORIZATION_FAILED", ErrorMeaning.DENIED),
        (30, "GROUP_AUTHORIZATION_FAILED", ErrorMeaning.DENIED),
        (35, "UNSUPPORTED_VERSION", ErrorMeaning.UNSUPPORTED),
        (58, "SASL_AUTHENTICATION_FAILED", ErrorMeaning.REFUSED),
        (74, "FENCED_LEADER_EPOCH", ErrorMeaning.FIND_LEADER),
        (75, "UNKNOWN_LEADER_EPOCH", ErrorMeaning.FIND_LEADER),
        (76, "UNSUPPORTED_COMPRESSION_TYPE", ErrorMeaning.UNSUPPORTED),
        (78, "OFFSET_NOT_AVAILABLE", ErrorMeaning.RETRY),
        (100, "UNKNOWN_TOPIC_ID", ErrorMeaning.FIND_LEADER),
        (103, "INCONSISTENT_TOPIC_ID", ErrorMeaning.RECREATED),
    ],
)
def test_a_code_has_one_name_and_one_meaning(number: int, name: str, meaning: ErrorMeaning) -> None:
    code = error_code_of(number)
    assert (code.number, code.name, code.meaning) == (number, name, meaning)


def test_every_number_from_minus_one_on_is_listed_once() -> None:
    numbers = [code.number for code in CODES]
    assert numbers == list(range(-1, len(CODES) - 1))
    assert len({code.name for code in CODES}) == len(CODES)


@pytest.mark.parametrize("number", [-2, len(CODES) - 1, 32767, -32768])
def test_a_number_that_is_not_listed_is_named_and_is_retriable(number: int) -> None:
    assert error_code_of(number).name == f"error code {number}"
    assert error_code_of(number).meaning is ErrorMeaning.UNKNOWN


def test_only_a_reader_s_success_reads_on() -> None:
    assert {code.name for code in CODES if code.meaning is ErrorMeaning.OK} == {
        "NONE",
        "ELECTION_NOT_NEEDED",
    }


def test_each_group_meaning_has_its_codes() -> None:
    assert {
        c.name: c.group_meaning for c in CODES if c.group_meaning is not GroupMeaning.OTHER
    } == {
        "ILLEGAL_GENERATION": GroupMeaning.GENERATION_OVER,
        "INCONSISTENT_GROUP_PROTOCOL": GroupMeaning.PROTOCOL_MISMATCH,
        "UNKNOWN_MEMBER_ID": GroupMeaning.MEMBER_UNKNOWN,
        "REBALANCE_IN_PROGRESS": GroupMeaning.REBALANCING,
        "GROUP_ID_NOT_FOUND": GroupMeaning.NO_SUCH_GROUP,
        "MEMBER_ID_REQUIRED": GroupMeaning.MEMBER_ID_REQUIRED,
        "GROUP_MAX_SIZE_REACHED": GroupMeaning.GROUP_FULL,
        "FENCED_INSTANCE_ID": GroupMeaning.INSTANCE_ID_TAKEN,
    }


def test_a_member_loses_its_partitions_with_its_generation_its_id_or_its_group() -> None:
    assert {c.name for c in CODES if c.group_meaning.ends_membership} == {
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "FENCED_INSTANCE_ID",
        "GROUP_ID_NOT_FOUND",
    }


def test_a_topic_is_unknown_by_its_name_or_its_id() -> None:
    assert [c.name for c in CODES if c.is_unknown_topic] == [
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID",
    ]


RETRIABLE_IN_JAVA = (
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_OR_FOLLOWER",
    "REPLICA_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "REQUEST_TIMED_OUT",
    "NETWORK_EXCEPTION",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "NOT_CONTROLLER",
    "CONCURRENT_TRANSACTIONS",
    "KAFKA_STORAGE_ERROR",
    "LISTENER_NOT_FOUND",
    "FETCH_SESSION_ID_NOT_FOUND",
    "INVALID_FETCH_SESSION_EPOCH",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "PREFERRED_LEADER_NOT_AVAILABLE",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    "UNSTABLE_OFFSET_COMMIT",
    "THROTTLING_QUOTA_EXCEEDED",
    "UNKNOWN_TOPIC_ID",
    "FETCH_SESSION_TOPIC_ID_ERROR",
    "NEW_LEADER_ELECTED",
    "UNKNOWN_SERVER_ERROR",
)
"""The subclasses of RetriableException in Errors.java but for CORRUPT_MESSAGE, at which its
consumer ends, and INCONSISTENT_TOPIC_ID, after which ids are compared; and -1, which its consumer
retries all the same (FetchCollector.java)."""


@pytest.mark.parametrize("name", RETRIABLE_IN_JAVA)
def test_what_the_java_client_retries_is_never_final(name: str) -> None:
    (code,) = (code for code in CODES if code.name == name)
    assert code.meaning.is_retriable


def test_every_description_is_a_phrase_without_an_end() -> None:
    for code in (*CODES, unlisted_code(999)):
        assert code.description[0].islower() or code.description.startswith("SASL")
        assert not code.description.endswith(".")
