"""Finds where a queue begins. What its broker says is wrong if the topic is compacted.

A broker keeps what compaction leaves of a topic in separate files, and pulls of such a topic
are answered from there. But it takes the queue's beginning from the index of the log that all
topics share, which loses its oldest messages after some days, whatever the topic. If that were
believed, messages that the broker still returns would be left out, or called expired.

So if a queue does not begin at 0, the type of its topic is asked for, and if that is compacted, the
message at offset 0. A broker that does not have offset 0 answers that it is too small; one that has
compacted the messages there answers with the next message.
"""

from __future__ import annotations

from collections.abc import Sequence

from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import (
    OFFSET_MOVED,
    SUCCESS,
    error_code_of,
    pull_code_of,
)
from rangeland.dialects.rocketmq.pulls_in_flight import number_of
from rangeland.dialects.rocketmq.topic_types import TopicTypes


def next_start_request(
    search: m.StartSearch, responses: Sequence[m.RemotingResponse], topics: TopicTypes
) -> m.RemotingRequest | m.Pull | None:
    """The next request of the search; None if it is complete. ``topics`` has learned from
    ``responses``."""
    first, topic = responses[0], search.about.topic
    if first.code != SUCCESS or number_of(first, "offset") <= 0:
        return None
    if len(responses) == 1 and topics.may_learn_compaction(topic):
        return m.topic_config(topic)
    if not topics.is_compacted(topic) or isinstance(responses[-1].request, m.Pull):
        return None
    return m.Pull(search.about, 0, 1)


def start_search_result(responses: Sequence[m.RemotingResponse]) -> m.RemotingResponse:
    """The corrected response to the search, or the reason why there is none."""
    first, last = responses[0], responses[-1]
    if last is first:
        return first
    if not isinstance(last.request, m.Pull):
        is_known = not error_code_of(last.code).meaning.is_retriable
    elif last.code == SUCCESS:
        return first._replace(fields={**first.fields, "offset": "0"})
    else:
        is_known = _is_without_0(last)
    return first if is_known else first._replace(code=last.code, remark=last.remark)


def _is_without_0(response: m.RemotingResponse) -> bool:
    """Whether a pull shows that the queue does not have offset 0. An index without an entry, or a
    message that has just been deleted, does not show it: this may change in a moment."""
    code = pull_code_of(response.code, response.remark, 0)
    if code.meaning is ErrorMeaning.OUT_OF_RANGE:
        return code.number == OFFSET_MOVED
    return code.meaning is ErrorMeaning.OK or code.meaning.is_final
