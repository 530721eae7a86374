"""RocketMQ's response codes, one per line: the name of a number and what it means for a reader.

For a pull, the code is not enough: one code stands for several statuses of the broker's store, and
the remark contains the status as one word. A slave whose master is up even answers "retry" whenever
it finds nothing. So a known status takes precedence over the code.
"""

from __future__ import annotations

from typing import Final

from rangeland.dialects.error_meaning import (
    ErrorCode,
    ErrorMeaning,
    GroupMeaning,
    error_code_lookup,
)

_E = ErrorCode
_V = ErrorMeaning
_G = GroupMeaning

SUCCESS: Final = 0
REQUEST_NOT_SUPPORTED: Final = 3
ASK_AGAIN: Final = 20
OFFSET_MOVED: Final = 21
NO_MATCHED_MESSAGE: Final = "NO_MATCHED_MESSAGE"
"""The status of a pull by tags that has found no message; the response says how far the broker has
searched."""

# fmt: off
CODES: Final[tuple[ErrorCode, ...]] = (
    _E(0, "SUCCESS", _V.OK, "the request succeeded"),
    _E(1, "SYSTEM_ERROR", _V.RETRY, "it failed for the reason in the remark"),
    _E(2, "SYSTEM_BUSY", _V.RETRY, "it has too much to do"),
    _E(3, "REQUEST_CODE_NOT_SUPPORTED", _V.UNSUPPORTED, "it does not know this request"),
    _E(4, "TRANSACTION_FAILED", _V.RETRY, "the transaction failed"),
    _E(10, "FLUSH_DISK_TIMEOUT", _V.RETRY, "its disk is too slow"),
    _E(11, "SLAVE_NOT_AVAILABLE", _V.RETRY, "it has no slave to write to"),
    _E(12, "FLUSH_SLAVE_TIMEOUT", _V.RETRY, "its slave is too slow"),
    _E(13, "MESSAGE_ILLEGAL", _V.REFUSED, "the message cannot be stored"),
    _E(14, "SERVICE_NOT_AVAILABLE", _V.RETRY, "it is starting or going down"),
    _E(15, "VERSION_NOT_SUPPORTED", _V.UNSUPPORTED, "this version is not supported"),
    _E(16, "NO_PERMISSION", _V.DENIED, "this client may not read this, or nobody may"),
    _E(17, "TOPIC_NOT_EXIST", _V.FIND_LEADER, "there is no such topic", is_unknown_topic=True),
    _E(18, "TOPIC_EXIST_ALREADY", _V.REFUSED, "the topic exists already"),
    _E(19, "PULL_NOT_FOUND", _V.OK, "there is no message yet"),
    _E(20, "PULL_RETRY_IMMEDIATELY", _V.RETRY, "it should be asked again"),
    _E(21, "PULL_OFFSET_MOVED", _V.OUT_OF_RANGE, "the queue does not contain this offset"),
    _E(22, "QUERY_NOT_FOUND", _V.OK, "the group has no offset", _G.NO_OFFSET),
    _E(23, "SUBSCRIPTION_PARSE_FAILED", _V.REFUSED, "the subscription is invalid"),
    _E(24, "SUBSCRIPTION_NOT_EXIST", _V.REFUSED, "the group has no such consumer or subscription"),
    _E(25, "SUBSCRIPTION_NOT_LATEST", _V.RETRY, "the subscription is not the latest"),
    _E(26, "SUBSCRIPTION_GROUP_NOT_EXIST", _V.REFUSED, "there is no such group",
       _G.NO_SUCH_GROUP),
    _E(27, "FILTER_DATA_NOT_EXIST", _V.REFUSED, "the filter does not exist"),
    _E(28, "FILTER_DATA_NOT_LATEST", _V.RETRY, "the filter is not the latest"),
    _E(29, "INVALID_PARAMETER", _V.FIND_LEADER, "it has no queue of this number"),
    _E(205, "NOT_IN_CURRENT_UNIT", _V.FIND_LEADER, "the request is for another unit"),
    _E(206, "CONSUMER_NOT_ONLINE", _V.REFUSED, "the consumer is not connected", _G.NO_MEMBERS),
    _E(209, "POLLING_FULL", _V.RETRY, "too many requests are waiting"),
    _E(210, "POLLING_TIMEOUT", _V.RETRY, "no message arrived in time"),
    _E(211, "BROKER_NOT_EXIST", _V.FIND_LEADER, "there is no such broker"),
    _E(215, "FLOW_CONTROL", _V.RETRY, "this client sends too many requests"),
    _E(501, "NOT_LEADER_FOR_QUEUE", _V.FIND_LEADER, "another broker has the queue"),
    _E(1500, "GO_AWAY", _V.RETRY, "it is shutting down: connect again"),
    _E(3001, "USER_NOT_EXIST", _V.REFUSED, "there is no such user"),
    _E(3002, "POLICY_NOT_EXIST", _V.DENIED, "the user has no rights"),
)

STATUSES: Final[tuple[ErrorCode, ...]] = (
    _E(0, "FOUND", _V.OK, "messages were found"),
    _E(19, "OFFSET_OVERFLOW_ONE", _V.OK, "the queue ends here"),
    _E(21, "OFFSET_OVERFLOW_BADLY", _V.OUT_OF_RANGE, "the queue ends earlier"),
    _E(21, "OFFSET_TOO_SMALL", _V.OUT_OF_RANGE, "the queue begins later", is_before_log_start=True),
    _E(21, "OFFSET_RESET", _V.RETRY, "the group's offsets were reset"),
    _E(19, "OFFSET_FOUND_NULL", _V.OUT_OF_RANGE, "the queue's index does not have this offset"),
    _E(20, "MESSAGE_WAS_REMOVING", _V.OUT_OF_RANGE, "the messages have just been deleted"),
    _E(20, NO_MATCHED_MESSAGE, _V.RETRY, "no message has the tags"),
    _E(19, "NO_MESSAGE_IN_QUEUE", _V.OK, "the queue never had a message"),
    _E(19, "NO_MATCHED_LOGIC_QUEUE", _V.OK, "the queue never had a message"),
)
# fmt: on

MISSING: Final = ErrorCode(
    0, "OFFSETS_MISSING", _V.OUT_OF_RANGE, "the messages begin after the offset"
)
"""Not sent by brokers: messages were returned, but not the one at the requested offset."""

STATIC_TOPIC: Final = ErrorCode(
    0,
    "STATIC_TOPIC",
    _V.UNSUPPORTED,
    "the queue of a static topic has moved, which is not supported",
)
"""Not sent by brokers: messages are stored with offsets other than those requested."""

STATIC_NUMBERS: Final = ErrorCode(
    0,
    "STATIC_TOPIC",
    _V.UNSUPPORTED,
    "the queues of a static topic are numbered over several brokers, which is not supported",
)
"""Not from a name server: a route shows it."""

error_code_of: Final = error_code_lookup(CODES)
_BY_STATUS: Final = {code.name: code for code in STATUSES}
_EMPTY: Final = (_BY_STATUS["NO_MESSAGE_IN_QUEUE"], _BY_STATUS["NO_MATCHED_LOGIC_QUEUE"])


def pull_code_of(code: int, remark: str, offset: int) -> ErrorCode:
    """The result of a pull at ``offset``. In an empty queue, only offset 0 is in range."""
    status = _BY_STATUS.get(remark)
    if status is None or code not in (0, 19, 20, 21):
        return error_code_of(code)
    if status in _EMPTY and offset != 0:
        return ErrorCode(21, status.name, ErrorMeaning.OUT_OF_RANGE, status.description)
    return status


def code_text(code: ErrorCode, remark: str) -> str:
    """The code's name, with what the broker says about it, if anything."""
    return f"{code.name}: {remark}" if remark else code.name
