"""How large queues are: estimated from a few of their own messages.

All queues of a broker lie in one log, and nobody knows each one's share. A broker tells how
large messages are on average, of all topics and since it was started only, so that is of no
use for a topic of its own kind, or behind a restart. Two pulls of a few messages, one from the
middle of a queue and one from its end, where the next run reads, say more; they are sent with
those of all other queues in one go. How wide the queue is stands in the same answers.

A queue that is short is not asked about: whatever it is taken for, it is one piece of work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rangeland.dialects.protocol_session import Question
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import SUCCESS
from rangeland.dialects.rocketmq.log_entries import first_offset
from rangeland.dialects.rocketmq.pull_series import number_of
from rangeland.model import Partition

SAMPLE: Final = 8
"""As many as a broker gives in one answer of what is on disk only."""
FEW: Final = 64


def ask_sizes(logs: Mapping[Partition, tuple[int, int]]) -> list[Question]:
    return [
        Question(m.Pull(queue, offset, SAMPLE))
        for queue, (start, end) in logs.items()
        if end - start >= FEW
        for offset in ((start + end) // 2, end - SAMPLE)
    ]


def read_sizes(answers: Sequence[m.RemotingResponse]) -> dict[Partition, int]:
    """As all messages of a queue would be, if they were like those that came."""
    samples: dict[Partition, list[tuple[int, int]]] = {}
    widths: dict[Partition, int] = {}
    for answer in answers:
        queue = answer.request.about
        if queue is None or answer.code != SUCCESS:
            continue
        begins = first_offset(answer.body)
        if begins is None:
            continue
        # A batch comes whole, also to a pull from inside of it.
        begins = min(begins, answer.pull.offset)
        count = number_of(answer, "nextBeginOffset") - begins
        if count > 0:
            samples.setdefault(queue, []).append((len(answer.body), count))
            widths[queue] = number_of(answer, "maxOffset") - number_of(answer, "minOffset")
    return {
        queue: widths[queue] * sum(size for size, _ in found) // sum(count for _, count in found)
        for queue, found in samples.items()
    }
