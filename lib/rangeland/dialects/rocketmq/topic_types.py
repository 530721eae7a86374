"""What one connection knows about the types of topics: normal, storing batches, or unknown.

Brokers do not index the tags of messages inside batches that are stored as one message. So a
response by tags is complete only if a broker has said that the topic does not store batches. A
broker that is busy, or does not allow the request, has said nothing. Then everything is pulled, as
for topics that store batches, and the decoder selects by tags, which costs nothing but bandwidth.
Such a broker is asked again from time to time, less and less often.

Once a batch or a response has shown that a topic stores batches, this is never forgotten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import SUCCESS, error_code_of
from rangeland.dialects.rocketmq.queue_entries import is_batch
from rangeland.untrusted import JsonFields, Unreadable

COMPACTED: Final = ("cleanup.policy", "COMPACTION")
FOR_BATCHES: Final = ("queue.type", "BatchCQ")
"""Attributes of topics. Brokers refuse to change them once the topic exists."""


class TopicTypes:
    """The types of topics, as the responses on one connection have shown them."""

    def __init__(self) -> None:
        self._for_batches: dict[str, bool | None] = {}
        self._compacted: dict[str, bool | None] = {}
        self._series: Counter[str] = Counter()

    def was_asked(self, topic: str) -> bool:
        """Whether a broker was asked for the type, or has shown it, whatever the result."""
        return topic in self._for_batches

    def is_for_batches(self, topic: str) -> bool | None:
        """Whether a topic stores batches; None while that is unknown."""
        return self._for_batches.get(topic)

    def is_compacted(self, topic: str) -> bool | None:
        """Whether a topic is compacted; None while no broker has reported it."""
        return self._compacted.get(topic)

    def may_learn_compaction(self, topic: str) -> bool:
        """Whether to ask if a topic is compacted: no broker has reported it, or refused to."""
        return topic not in self._compacted

    def needs_all(self, topic: str) -> bool:
        """Whether everything must be pulled, whatever the tags."""
        return self.was_asked(topic) and self.is_for_batches(topic) is not False

    def learn(self, topic: str, responses: Sequence[m.RemotingResponse]) -> None:
        """Learns from responses about the topic, including pulls."""
        configs = [response for response in responses if response.request.code == m.TOPIC_CONFIG]
        for config in configs:
            is_compacted = has_attribute(config, *COMPACTED)
            if is_compacted is not None:
                self._compacted[topic] = is_compacted
            elif not error_code_of(config.code).meaning.is_retriable:
                self._compacted.setdefault(topic, None)
        answers = [has_attribute(response, *FOR_BATCHES) for response in configs]
        if any(answers) or any(_has_batch(response) for response in responses):
            self._for_batches[topic] = True
        elif answers and self._for_batches.get(topic) is None:
            self._for_batches[topic] = False if False in answers else None

    def asks_again(self, topic: str) -> bool:
        """Whether to ask again after this series, if the type is still unknown: after the first
        series since then, the second, the fourth, and so on."""
        if not self.was_asked(topic) or self.is_for_batches(topic) is not None:
            return False
        self._series[topic] += 1
        return self._series[topic].bit_count() == 1


def has_attribute(response: m.RemotingResponse, attribute: str, value: str) -> bool | None:
    """Whether the topic has the attribute; None if the broker does not say (because it is busy, or
    does not allow the request)."""
    if response.code != SUCCESS:
        return None
    try:
        attributes = JsonFields.parse(response.body).get("attributes")
    except Unreadable:
        return None
    return isinstance(attributes, dict) and attributes.get(attribute) == value


def _has_batch(response: m.RemotingResponse) -> bool:
    return (
        isinstance(response.request, m.Pull)
        and response.code == SUCCESS
        and is_batch(response.body)
    )
