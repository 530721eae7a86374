"""Messages that are not there: compacted away, or deleted while they were read.

Brokers say neither. A pull goes on at the next message that is there, and by tags a broker
does not say of what it leaves out whether it has it. So once a series' answers have come, more
is asked, where its first message calls for it:

- By tags, for the first message once more. Logs lose their oldest messages first: if that one
  is still there, so were all behind it. And, once, for how the topic was made: where it may
  have batches that are stored as one, brokers know no tags of the messages in them.
- Where messages begin behind the offset, for it once more, for the queue's beginning, and
  whether the topic is compacted, which is settled when it is made. Only then, and if both
  pulls agree, are the offsets between compacted. Else a broker has deleted messages and does
  not know yet that its queue begins later; that takes it seconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.codes import SUCCESS
from rangeland.dialects.rocketmq.entries import begins_at

COMPACTED: Final = ("cleanup.policy", "COMPACTION")
FOR_BATCHES: Final = ("queue.type", "BatchCQ")
"""Attributes of topics. Both are settled when a topic is made."""


def found_at(answer: m.Answer) -> int | None:
    """The offset of a pull's first message, or its own where a batch holds that. None where it
    has brought none."""
    return begins_at(answer.body, answer.pull.offset) if answer.code == SUCCESS else None


def ask_behind(
    series: m.PullSeries, answers: Sequence[m.Answer], knows_topic: bool = False
) -> list[m.Request | m.Pull]:
    """What is to be asked once all of a series' pulls have their ``answers``. ``knows_topic``:
    whether it is made for batches is known."""
    found = found_at(answers[0])
    is_gap = found is not None and found > series.offset
    by_tags = any(answer.pull.tags for answer in answers)
    if found is None or not (by_tags or is_gap):
        return []
    asked: list[m.Request | m.Pull] = [m.Pull(series.about, series.offset, 1)]
    if is_gap:
        asked.append(m.min_offset(series.about))
    if is_gap or not knows_topic:
        asked.append(m.topic_config(series.about.topic))
    return asked


def compacted_until(series: m.SeriesAnswer) -> int | None:
    """The first message's offset, if those from the series' beginning on are compacted. None
    where that is not certain, or there is no gap."""
    found = found_at(series.answers[0])
    start = series.request.offset
    if found is None or found <= start or len(series.behind) != 3:
        return None
    again, begins, topic = series.behind
    agrees = found_at(again) == found
    is_compacted = _begins_before(begins, start) and _is_made(topic, *COMPACTED)
    return found if agrees and is_compacted else None


def is_for_batches(answers: Sequence[m.Answer]) -> bool:
    """Whether one of them, to what was asked behind a series, says so of the topic."""
    told = [answer for answer in answers if answer.request.code == m.TOPIC_CONFIG]
    return any(_is_made(answer, *FOR_BATCHES) for answer in told)


def _begins_before(answer: m.Answer, offset: int) -> bool:
    text = answer.fields.get("offset", "")
    return answer.code == SUCCESS and text.isdecimal() and int(text) <= offset


def _is_made(answer: m.Answer, attribute: str, value: str) -> bool:
    """False where the broker does not say, be it for want of a right."""
    if answer.code != SUCCESS:
        return False
    try:
        attributes = json.loads(bytes(answer.body)).get("attributes")
    except (ValueError, AttributeError):
        return False
    return isinstance(attributes, dict) and attributes.get(attribute) == value
