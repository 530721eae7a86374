"""Messages that are not there: compacted away, or deleted while they were read.

Brokers say neither. A pull goes on at the next message that is there, and by tags a broker
does not say of what it leaves out whether it has it. So once a series' answers have come, more
is asked, where its first message calls for it:

- By tags, for the first message once more. Logs lose their oldest messages first: if that one
  is still there, so were all behind it. And, until that is told, for how the topic was made:
  where it may have batches that are stored as one, brokers know no tags of the messages in
  them (see ``topics``).
- Where messages begin behind the offset, for it once more, for the queue's beginning, and
  whether the topic is compacted, which is settled when it is made. Only then, and if both
  pulls agree, are the offsets between compacted. Else a broker has deleted messages and does
  not know yet that its queue begins later; that takes it seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import SUCCESS
from rangeland.dialects.rocketmq.log_entries import begins_at, is_batch
from rangeland.dialects.rocketmq.placement import is_complete
from rangeland.dialects.rocketmq.pull_series import number_of
from rangeland.dialects.rocketmq.topic_types import COMPACTED, TopicTypes, is_made
from rangeland.untrusted import Unreadable, decimal


def found_at(answer: m.RemotingResponse) -> int | None:
    """The offset of a pull's first message, or its own where a batch holds that. None where it
    has brought none."""
    return begins_at(answer.body, answer.pull.offset) if answer.code == SUCCESS else None


def ask_behind(
    series: m.PullSeries, answers: Sequence[m.RemotingResponse], topics: TopicTypes
) -> list[m.RemotingRequest | m.Pull]:
    """What is to be asked once all of a series' pulls have their ``answers``."""
    topic, found = series.about.topic, found_at(answers[0])
    if found is None:
        return []
    is_gap = _is_gap(answers[0], found)
    by_tags = any(answer.pull.tags for answer in answers)
    if not (by_tags or is_gap):
        asks = series.tags and topics.asks_again(topic)
        asks = asks or (topics.is_compacted(topic) is None and _leaves_out(answers))
        return [m.topic_config(topic)] if asks else []
    asked: list[m.RemotingRequest | m.Pull] = [m.Pull(series.about, series.offset, 1)]
    if is_gap:
        asked.append(m.min_offset(series.about))
    if is_gap or topics.is_for_batches(topic) is None:
        asked.append(m.topic_config(topic))
    return asked


def _leaves_out(answers: Sequence[m.RemotingResponse]) -> bool:
    """Whether a pull of everything has brought fewer messages than it accounts for offsets."""
    found = [answer for answer in answers if answer.code == SUCCESS]
    return not all(
        is_complete(answer.body, answer.pull.offset, number_of(answer, "nextBeginOffset"))
        for answer in found
    )


def compacted_until(series: m.SeriesResponse) -> int | None:
    """The first message's offset, if those from the series' beginning on are compacted. None
    where that is not certain, or there is no gap. What is stored in the message is not relied on:
    a pull of one message ends behind it."""
    found = found_at(series.answers[0])
    start = series.request.offset
    if found is None or found == start or len(series.behind) != 3:
        return None
    again, begins, topic = series.behind
    there = found if is_batch(again.body) else number_of(again, "nextBeginOffset") - 1
    agrees = found_at(again) == found and there > start
    is_compacted = _begins_before(begins, start) and is_made(topic, *COMPACTED)
    return there if agrees and is_compacted else None


def _is_gap(answer: m.RemotingResponse, found: int) -> bool:
    """Whether a pull has not brought the message at its own offset."""
    at = answer.pull.offset
    return found != at and not is_complete(answer.body, at, number_of(answer, "nextBeginOffset"))


def _begins_before(answer: m.RemotingResponse, offset: int) -> bool:
    text = answer.fields.get("offset", "")
    try:
        return answer.code == SUCCESS and decimal(text, "offset", 0) <= offset
    except Unreadable:
        return False
