"""Where a queue's messages of a time begin, also where batches are stored as one.

Of a topic made for batches brokers answer a time behind the last of them with that last one,
and not with the queue's end. Taken at its word, an interval that ends there would leave it out,
and the next one, which begins behind it, too. So the entry that was named is looked at, unless
the broker has said that the topic is not made so: if it was stored before the time, the queue's
end is meant. Where it cannot be looked at now, the time has no answer yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import OFFSET_TOO_SMALL, SUCCESS, judge_pull
from rangeland.dialects.rocketmq.log_entries import stored_ms
from rangeland.dialects.rocketmq.pull_series import number_of
from rangeland.dialects.rocketmq.topic_types import TopicTypes


def ask_next(
    search: m.TimeSearch, answers: Sequence[m.RemotingResponse], topics: TopicTypes
) -> m.RemotingRequest | m.Pull | None:
    """What else it takes, after ``answers``, which ``topics`` has learned from."""
    found, queue = answers[0], search.about
    if found.code != SUCCESS or number_of(found, "offset") < 0:
        return None
    if not topics.was_asked(queue.topic):
        return m.topic_config(queue.topic)
    if topics.is_for_batches(queue.topic) is False or isinstance(answers[-1].request, m.Pull):
        return None
    return m.Pull(queue, number_of(found, "offset"), 1)


def settled(search: m.TimeSearch, answers: Sequence[m.RemotingResponse]) -> m.RemotingResponse:
    """The answer to the search as it is meant, or why that cannot be told."""
    found, last = answers[0], answers[-1]
    if not isinstance(last.request, m.Pull):
        return found
    if last.code != SUCCESS:
        said = judge_pull(last.code, last.remark, last.pull.offset)
        # At the end there is no entry, and one before the beginning is no longer there.
        is_known = said.verdict is ErrorMeaning.OK or said.name == OFFSET_TOO_SMALL
        return found if is_known else found._replace(code=last.code, remark=last.remark)
    stored = stored_ms(last.body)
    if stored is None or stored >= search.time_ms:
        return found
    end = str(number_of(last, "nextBeginOffset"))
    return found._replace(fields={**found.fields, "offset": end})
