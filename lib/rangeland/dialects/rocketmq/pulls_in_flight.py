"""The pulls of a series: where each begins, and how many messages it asks for.

The broker decides how many messages a response has (32 from memory, 8 from disk, fewer if they are
large), so the number is learned. A pull is expected to return as many as the last ones did, and the
last of the pulls sent together asks for the maximum. A pull that returns fewer leaves a gap, where
the reader of the series stops. With tags, a pull returns only matches, so what is learned instead
is the number of offsets that a pull covers, and pulls may overlap.

Batches that are stored as one message are returned whole, so only the response shows where a pull
ends: each pull is sent when the previous one is answered.

Pure: offsets and responses in, pulls out. ``session`` sends them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rangeland.dialects.rocketmq.error_codes import NO_MATCHED_MESSAGE, SUCCESS
from rangeland.dialects.rocketmq.messages import (
    MAX_PER_PULL,
    Pull,
    PullSeries,
    RemotingRequest,
    RemotingResponse,
)
from rangeland.dialects.rocketmq.queue_entries import is_batch
from rangeland.errors import RemoteProtocolError
from rangeland.untrusted import Unreadable, decimal

MAX_PULLS: Final = 64
"""The most pulls of one series in flight. A broker's queue for pulls is much longer than that."""
FIRST_PULLS: Final = 8
"""How many pulls the first series of a queue begins with, while the size of the queue's messages is
unknown."""


@dataclass(slots=True)
class SentPull:
    """A request that was sent or is about to be. A pull should return everything before
    ``until_offset``, but may ask for more. ``owner``: the id of its message; None if it has none
    yet."""

    request: RemotingRequest | Pull
    until_offset: int = 0
    owner: int | None = None
    response: RemotingResponse | None = None
    is_new: bool = True

    @property
    def is_good(self) -> bool:
        """Whether the pull can be used. It cannot if its response has no messages: some may have
        arrived since."""
        return self.response is None or self.response.code == SUCCESS


@dataclass(slots=True)
class PullPace:
    """The pace of pulls, learned from one queue's responses. ``is_steady``: each of the last pulls
    returned as many messages as expected, so it is worthwhile to send others ahead.
    ``has_batches``: at least some of the queue's entries are batches stored as one message."""

    count: int = MAX_PER_PULL
    message_bytes: int = 0
    is_steady: bool = False
    has_batches: bool = False

    def number(self, series: PullSeries) -> int:
        """The number of pulls needed to fetch ``max_bytes``, wherever the series ends."""
        if self.has_batches:
            return 1
        if not self.message_bytes:
            return FIRST_PULLS
        messages = max(1, series.max_bytes // self.message_bytes)
        return min(MAX_PULLS, -(-messages // self.count))

    def pulls(self, series: PullSeries, offset: int, number: int) -> Iterator[SentPull]:
        """At most ``number`` pulls from ``offset`` on, none beyond the end of the series."""
        for index in range(number):
            width = series.until_offset - offset
            if width <= 0:
                return
            extent = min(self.count, width)
            is_last = index == number - 1 or extent == width
            # Even the last pull asks for nothing beyond the end.
            count = min(width, MAX_PER_PULL) if is_last else extent
            pull = Pull(series.about, offset, count)
            offset += extent
            yield SentPull(pull, offset)

    def again(self, series: PullSeries, sent: Sequence[SentPull]) -> SentPull:
        """The last of these pulls again; a pull of one message if there are none."""
        if sent and isinstance(last := sent[-1].request, Pull):
            return SentPull(last, sent[-1].until_offset)
        return SentPull(Pull(series.about, series.offset, 1), series.offset + 1)

    def next_pull(self, series: PullSeries, sent: Sequence[SentPull]) -> SentPull | None:
        """The next pull of a series of batches, once the last one is answered; None if the series
        is complete."""
        last = sent[-1].response
        if (
            not self.has_batches
            or len(sent) >= MAX_PULLS
            or last is None
            or not offsets_covered(last)
        ):
            return None
        size = sum(len(pull.response.body) for pull in sent if pull.response is not None)
        offset = number_of(last, "nextBeginOffset")
        if size >= series.max_bytes or offset >= series.until_offset or _is_end(last):
            return None
        return next(self.pulls(series, offset, 1), None)

    def learn(self, series: Sequence[SentPull]) -> None:
        """Learns from a series of pulls that have been answered."""
        responses = [
            (sent.until_offset, sent.response) for sent in series if sent.response is not None
        ]
        if any(response.code == SUCCESS and is_batch(response.body) for _, response in responses):
            self.has_batches = True
        if self.has_batches:
            self.is_steady = False
            return
        results = [(until - a.pull.offset, offsets_covered(a), a) for until, a in responses]
        if total := sum(number for _, number, _ in results):
            size = sum(len(response.body) for _, _, response in results)
            self.message_bytes = max(1, size // total)
        self.is_steady = all(extent == number for extent, number, _ in results)
        short = [n for extent, n, response in results if 0 < n < extent and not _is_end(response)]
        if short:
            self.count = min(short)
        elif larger := [n for _, n, _ in results if n > self.count]:
            self.count = min(max(larger), MAX_PER_PULL)


@dataclass(slots=True)
class PullStride:
    """The stride of pulls with tags, learned from one queue's responses: the smallest number of
    offsets that a response covers, and its size."""

    offsets: int = MAX_PER_PULL
    response_bytes: int = 0

    def pulls(self, series: PullSeries) -> Iterator[SentPull]:
        """The pulls of a series. The first is for one message with any tag."""
        yield SentPull(Pull(series.about, series.offset, 1))
        max_pulls = FIRST_PULLS
        if self.response_bytes:
            max_pulls = max(1, min(MAX_PULLS, series.max_bytes // self.response_bytes))
        width = max(1, series.until_offset - series.offset)
        for index in range(min(max_pulls, -(-width // self.offsets))):
            at = series.offset + index * self.offsets
            count = min(width - index * self.offsets, MAX_PER_PULL)
            yield SentPull(Pull(series.about, at, count, tags=series.tags))

    def learn(self, series: Sequence[SentPull]) -> None:
        """Learns from a series of pulls that have been answered."""
        responses = [sent.response for sent in series[1:] if sent.response is not None]
        extents = [
            (number_of(a, "nextBeginOffset") - a.pull.offset, len(a.body))
            for a in responses
            if (a.code == SUCCESS or a.remark == NO_MATCHED_MESSAGE)
            and a.pull.max_messages == MAX_PER_PULL
        ]
        if extents:
            self.offsets = max(1, min(offsets for offsets, _ in extents))
            self.response_bytes = max(1, sum(size for _, size in extents) // len(extents))


def offsets_covered(response: RemotingResponse) -> int:
    """The number of offsets that a pull's response covers."""
    if response.code != SUCCESS:
        return 0
    return max(0, number_of(response, "nextBeginOffset") - response.pull.offset)


def usable_pulls(ahead: Sequence[SentPull], offset: int) -> list[SentPull]:
    """The pulls sent ahead that a series from ``offset`` on can begin with: without a gap, and all
    of them good."""
    pulls: list[SentPull] = []
    for sent in ahead:
        if isinstance(sent.request, Pull) and sent.request.offset == offset and sent.is_good:
            pulls.append(sent)
            offset = sent.until_offset
    return pulls


def _is_end(response: RemotingResponse) -> bool:
    has_end = "maxOffset" in response.fields
    return has_end and number_of(response, "nextBeginOffset") >= number_of(response, "maxOffset")


def number_of(of: RemotingResponse | RemotingRequest | Pull, name: str) -> int:
    """The value of a field that contains a number. Raises RemoteProtocolError if it is missing or
    not a number."""
    try:
        return decimal(of.fields.get(name, ""), name)
    except Unreadable as error:
        raise RemoteProtocolError(
            f"a response lacks the number {name}",
            why=str(error),
            do="check that the servers are brokers of this dialect, in a supported version",
            field=name,
        ) from None
