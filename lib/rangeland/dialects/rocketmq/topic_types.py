"""How topics were made, as far as one connection knows: as usual, for batches, or not told.

Brokers know no tags of the messages in batches that are stored as one. So what came by tags is
everything only where a broker has said that the topic is not made for batches. One that is busy,
or lets nobody see how topics are made, has said nothing; then everything is pulled, as of topics
for batches, and the decoder keeps what has the tags. That costs bandwidth alone. Such a broker
is asked again now and then, ever more rarely.

That a topic is for batches is never forgotten: it takes one batch, or one answer, to know it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import SUCCESS
from rangeland.dialects.rocketmq.log_entries import is_batch
from rangeland.untrusted import JsonFields, Unreadable

COMPACTED: Final = ("cleanup.policy", "COMPACTION")
FOR_BATCHES: Final = ("queue.type", "BatchCQ")
"""Attributes of topics. Both are settled when a topic is made."""


class TopicTypes:
    """What the answers of one connection have told."""

    def __init__(self) -> None:
        self._for_batches: dict[str, bool | None] = {}
        self._compacted: dict[str, bool] = {}
        self._series: Counter[str] = Counter()

    def was_asked(self, topic: str) -> bool:
        """Whether a broker was asked how it was made, or has shown it, whatever came of it."""
        return topic in self._for_batches

    def is_for_batches(self, topic: str) -> bool | None:
        """None as long as that is not told."""
        return self._for_batches.get(topic)

    def is_compacted(self, topic: str) -> bool | None:
        """None as long as no broker has said how it was made."""
        return self._compacted.get(topic)

    def needs_all(self, topic: str) -> bool:
        """Whether everything is to be pulled, whatever the tags."""
        return self.was_asked(topic) and self.is_for_batches(topic) is not False

    def learn(self, topic: str, answers: Sequence[m.RemotingResponse]) -> None:
        """From what was asked about it, pulls among that."""
        configs = [answer for answer in answers if answer.request.code == m.TOPIC_CONFIG]
        for config in configs:
            is_compacted = is_made(config, *COMPACTED)
            if is_compacted is not None:
                self._compacted[topic] = is_compacted
        told = [is_made(answer, *FOR_BATCHES) for answer in configs]
        if any(told) or any(_has_batch(answer) for answer in answers):
            self._for_batches[topic] = True
        elif told and self._for_batches.get(topic) is None:
            self._for_batches[topic] = False if False in told else None

    def asks_again(self, topic: str) -> bool:
        """Whether to ask again behind this series, of a topic of which it was not told: behind
        the first since then, the second, the fourth, and so on."""
        if not self.was_asked(topic) or self.is_for_batches(topic) is not None:
            return False
        self._series[topic] += 1
        return self._series[topic].bit_count() == 1


def is_made(answer: m.RemotingResponse, attribute: str, value: str) -> bool | None:
    """None where the broker does not say, be it busy or for want of a right."""
    if answer.code != SUCCESS:
        return None
    try:
        attributes = JsonFields.parse(answer.body).get("attributes")
    except Unreadable:
        return None
    return isinstance(attributes, dict) and attributes.get(attribute) == value


def _has_batch(answer: m.RemotingResponse) -> bool:
    return isinstance(answer.request, m.Pull) and answer.code == SUCCESS and is_batch(answer.body)
