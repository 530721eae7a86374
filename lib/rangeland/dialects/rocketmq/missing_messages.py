"""Finds out why messages are missing: compacted, or deleted while they were being read.

Brokers do not say. A pull continues at the next message that exists, and if a broker selects by
tags, it does not say whether there is a message at an offset that it leaves out. So once the pulls
of a series are answered, more requests follow, depending on the first message:

- With tags, the first message is pulled again. Logs lose their oldest messages first: if this one
  still exists, so did all later ones. If the topic's type is unknown, it is asked for as well,
  because brokers do not index the tags of messages inside batches (``topic_types``).
- If the messages begin after the requested offset, that offset is pulled again, and the queue's
  beginning and the topic's type are asked for. The missing offsets are compacted only if both pulls
  agree, the queue begins earlier and the topic is compacted. Otherwise a broker has deleted
  messages but does not know yet that its queue begins later; that takes it a few seconds. Brokers
  do not say where a compacted queue begins (``log_start``). So if one reports a later beginning,
  the message is pulled once more: a broker that knows that beginning and still returns the message
  has not deleted what was before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import SUCCESS
from rangeland.dialects.rocketmq.offset_checks import is_complete
from rangeland.dialects.rocketmq.pulls_in_flight import number_of
from rangeland.dialects.rocketmq.queue_entries import begins_at, is_batch
from rangeland.dialects.rocketmq.topic_types import COMPACTED, TopicTypes, has_attribute
from rangeland.untrusted import Unreadable, decimal

FOLLOW_UPS_OF_GAP: Final = 3
"""A pull, the queue's beginning and the topic's type."""


def found_at(response: m.RemotingResponse) -> int | None:
    """The offset of a pull's first message; the pull's own offset if the message is a batch that
    contains it. None if there is no message."""
    return begins_at(response.body, response.pull.offset) if response.code == SUCCESS else None


def follow_up_requests(
    series: m.PullSeries, responses: Sequence[m.RemotingResponse], topics: TopicTypes
) -> list[m.RemotingRequest | m.Pull]:
    """The requests that still have to be sent once all pulls of a series have been answered with
    ``responses``."""
    topic = series.about.topic
    offset = found_at(responses[0])
    if offset is None:
        return []
    is_gap = _is_gap(responses[0], offset)
    by_tags = any(response.pull.tags for response in responses)
    if not (by_tags or is_gap):
        asks = series.tags and topics.asks_again(topic)
        asks = asks or (topics.is_compacted(topic) is None and _leaves_out(responses))
        return [m.topic_config(topic)] if asks else []
    requests: list[m.RemotingRequest | m.Pull] = [m.Pull(series.about, series.offset, 1)]
    if is_gap:
        requests.append(m.min_offset(series.about))
    if is_gap or topics.is_for_batches(topic) is None:
        requests.append(m.topic_config(topic))
    return requests


def last_follow_ups(
    series: m.PullSeries,
    responses: Sequence[m.RemotingResponse],
    follow_ups: Sequence[m.RemotingResponse],
) -> list[m.RemotingRequest | m.Pull]:
    """The requests that remain to be sent once the first follow-ups have their responses."""
    offset = found_at(responses[0])
    if offset is None or offset == series.offset or len(follow_ups) != FOLLOW_UPS_OF_GAP:
        return []
    again, begins, topic = follow_ups
    is_said_to_begin_later = begins.code == SUCCESS and not _begins_before(begins, series.offset)
    is_in_question = is_said_to_begin_later and has_attribute(topic, *COMPACTED)
    return [again.pull] if is_in_question and found_at(again) == offset else []


def _leaves_out(responses: Sequence[m.RemotingResponse]) -> bool:
    """Whether a pull without tags has returned fewer messages than the offsets that it accounts
    for."""
    successes = [response for response in responses if response.code == SUCCESS]
    return not all(
        is_complete(response.body, response.pull.offset, number_of(response, "nextBeginOffset"))
        for response in successes
    )


def compacted_until(series: m.SeriesResponse) -> int | None:
    """The first message's offset, if all offsets from the beginning of the series up to it are
    compacted. None if that is uncertain, or if there is no gap. The offset stored in the message is
    not relied on: a pull of one message ends right after it."""
    offset = found_at(series.responses[0])
    start = series.request.offset
    if offset is None or offset == start or len(series.follow_ups) < FOLLOW_UPS_OF_GAP:
        return None
    again, begins, topic, *last = series.follow_ups
    repeated_offset = offset if is_batch(again.body) else number_of(again, "nextBeginOffset") - 1
    agrees = found_at(again) == offset and repeated_offset > start
    is_there = _begins_before(begins, start) or any(found_at(pull) == offset for pull in last)
    is_compacted = is_there and has_attribute(topic, *COMPACTED)
    return repeated_offset if agrees and is_compacted else None


def _is_gap(response: m.RemotingResponse, first_offset: int) -> bool:
    """Whether a pull did not return the message at its own offset."""
    offset = response.pull.offset
    return first_offset != offset and not is_complete(
        response.body, offset, number_of(response, "nextBeginOffset")
    )


def _begins_before(response: m.RemotingResponse, offset: int) -> bool:
    text = response.fields.get("offset", "")
    try:
        return response.code == SUCCESS and decimal(text, "offset", 0) <= offset
    except Unreadable:
        return False
