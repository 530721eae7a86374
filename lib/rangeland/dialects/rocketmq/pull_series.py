"""How the pulls of a series follow each other: as many messages each as a broker gives.

How many a broker gives in one answer is its own affair (32 from memory, 8 from disk, and fewer
of large ones), so it is learned: pulls are expected to bring as many as came last, and the last
of those that are sent together asks for as many as there can be. A pull that brings less leaves
a gap, which the reader of the series stops at. By tags a pull brings what it finds, so it is
learned how far one looks, and pulls may overlap.

Batches that are stored as one message come whole, so where a pull ends is told by the one
before alone: then each is sent when that has its answer.

Pure: offsets and answers in, pulls out. Who sends them is ``session``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rangeland.dialects.rocketmq.error_codes import NO_MATCHED_MESSAGE, SUCCESS
from rangeland.dialects.rocketmq.log_entries import is_batch
from rangeland.dialects.rocketmq.messages import (
    MOST_A_PULL,
    Pull,
    PullSeries,
    RemotingRequest,
    RemotingResponse,
)
from rangeland.errors import RemoteProtocolError
from rangeland.untrusted import Unreadable, decimal

MOST_PULLS: Final = 64
"""Of one series. A broker has a queue for them that is much longer."""
FIRST_PULLS: Final = 8
"""Of the first series of a queue, whose messages' sizes are not known."""


@dataclass(slots=True)
class SentPull:
    """A request on its way, or answered. A pull should bring all up to ``end``, and may ask for
    more. ``owner``: the number of the question that it belongs to, None while there is none."""

    request: RemotingRequest | Pull
    end: int = 0
    owner: int | None = None
    answer: RemotingResponse | None = None
    is_new: bool = True

    @property
    def is_good(self) -> bool:
        """False where it has brought nothing: what was so then need not be so now."""
        return self.answer is None or self.answer.code == SUCCESS


@dataclass(slots=True)
class PullPace:
    """What one queue's answers have taught. ``is_steady``: the last pulls have each brought what
    they should, so that it is worth while to send others ahead. ``has_batches``: it has them
    stored as one message, now and then at least."""

    count: int = MOST_A_PULL
    message_bytes: int = 0
    is_steady: bool = False
    has_batches: bool = False

    def number(self, series: PullSeries) -> int:
        """How many pulls its messages are worth, wherever it ends."""
        if self.has_batches:
            return 1
        if not self.message_bytes:
            return FIRST_PULLS
        wanted = max(1, series.max_bytes // self.message_bytes)
        return min(MOST_PULLS, -(-wanted // self.count))

    def pulls(self, series: PullSeries, offset: int, number: int) -> Iterator[SentPull]:
        """At most ``number`` from ``offset`` on, none behind the series' end."""
        for index in range(number):
            rest = series.until_offset - offset
            if rest <= 0:
                return
            extent = min(self.count, rest)
            is_last = index == number - 1 or extent == rest
            # Also the last is asked for no more than is wanted.
            count = min(rest, MOST_A_PULL) if is_last else extent
            pull = Pull(series.about, offset, count)
            offset += extent
            yield SentPull(pull, offset)

    def again(self, series: PullSeries, sent: Sequence[SentPull]) -> SentPull:
        """The last of them anew; one of one message where there are none."""
        if sent and isinstance(last := sent[-1].request, Pull):
            return SentPull(last, sent[-1].end)
        return SentPull(Pull(series.about, series.offset, 1), series.offset + 1)

    def following(self, series: PullSeries, sent: Sequence[SentPull]) -> SentPull | None:
        """Behind the last of a series of batches, which is answered: the next, if it is worth
        while."""
        last = sent[-1].answer
        if not self.has_batches or len(sent) >= MOST_PULLS or last is None or not brought(last):
            return None
        size = sum(len(one.answer.body) for one in sent if one.answer is not None)
        offset = number_of(last, "nextBeginOffset")
        if size >= series.max_bytes or offset >= series.until_offset or _is_end(last):
            return None
        return next(self.pulls(series, offset, 1), None)

    def learn(self, series: Sequence[SentPull]) -> None:
        answers = [(sent.end, sent.answer) for sent in series if sent.answer is not None]
        if any(answer.code == SUCCESS and is_batch(answer.body) for _, answer in answers):
            self.has_batches = True
        if self.has_batches:
            self.is_steady = False
            return
        came = [(end - a.pull.offset, brought(a), a) for end, a in answers]
        if total := sum(number for _, number, _ in came):
            size = sum(len(answer.body) for _, _, answer in came)
            self.message_bytes = max(1, size // total)
        self.is_steady = all(extent == number for extent, number, _ in came)
        short = [n for extent, n, answer in came if 0 < n < extent and not _is_end(answer)]
        if short:
            self.count = min(short)
        elif grown := [n for _, n, _ in came if n > self.count]:
            self.count = min(max(grown), MOST_A_PULL)


@dataclass(slots=True)
class PullStride:
    """What one queue's answers by tags have taught: how many offsets one covers at least, and
    how large it is."""

    offsets: int = MOST_A_PULL
    answer_bytes: int = 0

    def pulls(self, series: PullSeries) -> Iterator[SentPull]:
        """The first of all is for one message, whatever its tag."""
        yield SentPull(Pull(series.about, series.offset, 1))
        most = FIRST_PULLS
        if self.answer_bytes:
            most = max(1, min(MOST_PULLS, series.max_bytes // self.answer_bytes))
        width = max(1, series.until_offset - series.offset)
        for index in range(min(most, -(-width // self.offsets))):
            at = series.offset + index * self.offsets
            count = min(width - index * self.offsets, MOST_A_PULL)
            yield SentPull(Pull(series.about, at, count, tags=series.tags))

    def learn(self, series: Sequence[SentPull]) -> None:
        answers = [sent.answer for sent in series[1:] if sent.answer is not None]
        looked = [
            (number_of(a, "nextBeginOffset") - a.pull.offset, len(a.body))
            for a in answers
            if (a.code == SUCCESS or a.remark == NO_MATCHED_MESSAGE)
            and a.pull.wanted == MOST_A_PULL
        ]
        if looked:
            self.offsets = max(1, min(offsets for offsets, _ in looked))
            self.answer_bytes = max(1, sum(size for _, size in looked) // len(looked))


def brought(answer: RemotingResponse) -> int:
    """How many offsets a pull's answer covers."""
    if answer.code != SUCCESS:
        return 0
    return max(0, number_of(answer, "nextBeginOffset") - answer.pull.offset)


def taken_over(ahead: Sequence[SentPull], offset: int) -> list[SentPull]:
    """Those of the pulls sent ahead that a series from ``offset`` on goes on with: without a
    gap, and as long as they are good."""
    found: list[SentPull] = []
    for sent in ahead:
        if isinstance(sent.request, Pull) and sent.request.offset == offset and sent.is_good:
            found.append(sent)
            offset = sent.end
    return found


def _is_end(answer: RemotingResponse) -> bool:
    has_end = "maxOffset" in answer.fields
    return has_end and number_of(answer, "nextBeginOffset") >= number_of(answer, "maxOffset")


def number_of(of: RemotingResponse | RemotingRequest | Pull, name: str) -> int:
    """A field that is a number. Raises RemoteProtocolError where there is none."""
    try:
        return decimal(of.fields.get(name, ""), name)
    except Unreadable as error:
        raise RemoteProtocolError(
            f"an answer has no number {name}", why=str(error), field=name
        ) from None
