"""Where a queue's messages of a time begin, also where batches are stored as one.

Of a topic made for batches brokers answer a time behind the last of them with that last one,
and not with the queue's end. Taken at its word, an interval that ends there would leave it out,
and the next one, which begins behind it, too. So once a topic is known to be made so, the entry
that was named is looked at: if it was stored before the time, the queue's end is meant.
"""

from __future__ import annotations

from collections.abc import Sequence

from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.codes import SUCCESS
from rangeland.dialects.rocketmq.entries import stored_ms
from rangeland.dialects.rocketmq.pulls import number_of


def ask_next(
    search: m.TimeSearch, answers: Sequence[m.Answer], for_batches: bool | None
) -> m.Request | m.Pull | None:
    """What else it takes, after ``answers``. ``for_batches`` None: nobody has asked yet."""
    found, queue = answers[0], search.about
    if found.code != SUCCESS or number_of(found, "offset") < 0 or for_batches is False:
        return None
    if for_batches is None:
        return m.topic_config(queue.topic)
    if isinstance(answers[-1].request, m.Pull):
        return None
    return m.Pull(queue, number_of(found, "offset"), 1)


def settled(search: m.TimeSearch, answers: Sequence[m.Answer]) -> m.Answer:
    """The answer to the search as it is meant."""
    found, last = answers[0], answers[-1]
    if not isinstance(last.request, m.Pull) or last.code != SUCCESS:
        return found
    stored = stored_ms(last.body)
    if stored is None or stored >= search.time_ms:
        return found
    end = str(number_of(last, "nextBeginOffset"))
    return found._replace(fields={**found.fields, "offset": end})
