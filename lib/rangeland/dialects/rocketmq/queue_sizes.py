"""Estimates the sizes of queues from a few of their messages.

All queues of a broker share one log, and nothing reports the share of each. A broker does report an
average message size, but over all topics and only since it was started, which is useless for a
topic of another kind or after a restart. It is better to pull a few messages twice, once from the
middle of a queue and once from its end, where the next run will read. The pulls of all queues are
sent together, and the same responses show how wide the queue is.

Short queues are not sampled: each is one slice, whatever its size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import SUCCESS
from rangeland.dialects.rocketmq.pulls_in_flight import number_of
from rangeland.dialects.rocketmq.queue_entries import first_offset
from rangeland.model import Partition

SAMPLE: Final = 8
"""How many messages to look at: as many as a broker returns in one response from disk."""
FEW: Final = 64
"""Two samples are a quarter of this many messages; fewer messages fit into one slice, whatever
their size."""


def sizes_requests(logs: Mapping[Partition, tuple[int, int]]) -> list[BrokerRequest]:
    return [
        BrokerRequest(m.Pull(queue, offset, SAMPLE))
        for queue, (from_offset, until_offset) in logs.items()
        if until_offset - from_offset >= FEW
        for offset in ((from_offset + until_offset) // 2, until_offset - SAMPLE)
    ]


def read_sizes(responses: Sequence[m.RemotingResponse]) -> dict[Partition, int]:
    """The size that each queue would have if all of its messages were like the sampled ones."""
    samples: dict[Partition, list[tuple[int, int]]] = {}
    widths: dict[Partition, int] = {}
    for response in responses:
        queue = response.request.about
        if queue is None or response.code != SUCCESS:
            continue
        first = first_offset(response.body)
        if first is None:
            continue
        # A batch is returned whole, even for a pull from inside it.
        first = min(first, response.pull.offset)
        count = number_of(response, "nextBeginOffset") - first
        if count > 0:
            samples.setdefault(queue, []).append((len(response.body), count))
            widths[queue] = number_of(response, "maxOffset") - number_of(response, "minOffset")
    return {
        queue: widths[queue] * sum(size for size, _ in pairs) // sum(count for _, count in pairs)
        for queue, pairs in samples.items()
    }
