"""Finds the first message of a queue at or after a time, even in topics that store batches.

If all entries of such a topic are older than the time, a broker returns the last batch and not the
queue's end. Taken at its word, an interval that ends at the time would leave the batch out, and
so would the next one, which begins after it. So the entry is pulled, unless the broker has reported
that the topic does not store batches: if it is older than the time, the response is the queue's
end. If it cannot be pulled now, the search has no result yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import SUCCESS, pull_code_of
from rangeland.dialects.rocketmq.pulls_in_flight import number_of
from rangeland.dialects.rocketmq.queue_entries import stored_ms
from rangeland.dialects.rocketmq.topic_types import TopicTypes


def next_request(
    search: m.TimeSearch, responses: Sequence[m.RemotingResponse], topics: TopicTypes
) -> m.RemotingRequest | m.Pull | None:
    """The next request of the search; None if it is complete. ``topics`` has learned from
    ``responses``."""
    first = responses[0]
    queue = search.about
    if first.code != SUCCESS or number_of(first, "offset") < 0:
        return None
    if not topics.was_asked(queue.topic):
        return m.topic_config(queue.topic)
    if topics.is_for_batches(queue.topic) is False or isinstance(responses[-1].request, m.Pull):
        return None
    return m.Pull(queue, number_of(first, "offset"), 1)


def search_result(
    search: m.TimeSearch, responses: Sequence[m.RemotingResponse]
) -> m.RemotingResponse:
    """The corrected response to the search, or the reason why there is none."""
    response = responses[0]
    last = responses[-1]
    if not isinstance(last.request, m.Pull):
        return response
    if last.code != SUCCESS:
        pull_code = pull_code_of(last.code, last.remark, last.pull.offset)
        # At the end there is no entry, and one before the beginning has been deleted.
        is_known = pull_code.meaning is ErrorMeaning.OK or pull_code.is_before_log_start
        return response if is_known else response._replace(code=last.code, remark=last.remark)
    time_ms = stored_ms(last.body)
    if time_ms is None or time_ms >= search.time_ms:
        return response
    end = str(number_of(last, "nextBeginOffset"))
    return response._replace(fields={**response.fields, "offset": end})
