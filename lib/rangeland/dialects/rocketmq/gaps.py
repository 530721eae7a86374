"""Messages that are not there: compacted away, or deleted while they were read.

Brokers say neither. A pull goes on at the next message that is there, and by tags a broker
does not say of what it leaves out whether it has it. So once a series' answers have come, more
is asked, where its first message calls for it:

- By tags, for the first message once more. Logs lose their oldest messages first: if that one
  is still there, so were all behind it.
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
from rangeland.dialects.rocketmq.stored import first_offset

CLEANUP_POLICY: Final = "cleanup.policy"
COMPACTION: Final = "COMPACTION"


def found_at(answer: m.Answer) -> int | None:
    """The offset of a pull's first message. None where it has brought none."""
    return first_offset(answer.body) if answer.code == SUCCESS else None


def ask_behind(series: m.PullSeries, answers: Sequence[m.Answer]) -> list[m.Request | m.Pull]:
    """What is to be asked once all of a series' pulls have their ``answers``."""
    found = found_at(answers[0])
    is_gap = found is not None and found > series.offset
    if found is None or not (series.tags or is_gap):
        return []
    again = m.Pull(series.about, series.offset, 1)
    if not is_gap:
        return [again]
    return [again, m.min_offset(series.about), m.topic_config(series.about.topic)]


def compacted_until(series: m.SeriesAnswer) -> int | None:
    """The first message's offset, if those from the series' beginning on are compacted. None
    where that is not certain, or there is no gap."""
    found = found_at(series.answers[0])
    start = series.request.offset
    if found is None or found <= start or len(series.behind) != 3:
        return None
    again, begins, topic = series.behind
    agrees = found_at(again) == found
    return found if agrees and _begins_before(begins, start) and _is_compacted(topic) else None


def _begins_before(answer: m.Answer, offset: int) -> bool:
    text = answer.fields.get("offset", "")
    return answer.code == SUCCESS and text.isdecimal() and int(text) <= offset


def _is_compacted(answer: m.Answer) -> bool:
    """False where the broker does not say, be it for want of a right."""
    if answer.code != SUCCESS:
        return False
    try:
        attributes = json.loads(bytes(answer.body)).get("attributes")
    except (ValueError, AttributeError):
        return False
    return isinstance(attributes, dict) and attributes.get(CLEANUP_POLICY) == COMPACTION
