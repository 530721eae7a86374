"""One connection's state as a value: what is unanswered, and how much an answer brings.

Bytes in, bytes out. Nothing is negotiated. Every request has a number of its own, its
``opaque``, and answers come in any order; a server may also send requests, which are passed
over. Name servers and brokers are spoken to alike.

A series of pulls goes out in one go, each pull where the one before is expected to end. How
many messages a broker gives in one answer is its own affair (32 from memory, 8 from disk, and
fewer of large ones), so it is learned: pulls ask for as many as came last, and the last of a
series for as many as there can be. A pull that brings less leaves a gap, which the reader of
the series stops at. By tags a pull brings what it finds, so it is learned how far one looks,
and pulls may overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rangeland.dialects.contract import Credentials
from rangeland.dialects.rocketmq.codes import NO_MATCHED_MESSAGE, SUCCESS
from rangeland.dialects.rocketmq.frames import ONE_WAY, Frame, read_frame, write_frame
from rangeland.dialects.rocketmq.messages import (
    MOST_A_PULL,
    Answer,
    Login,
    PullSeries,
    Request,
    SeriesAnswer,
    hello,
    pull,
)
from rangeland.dialects.rocketmq.signing import signed
from rangeland.errors import LocalProtocolError, RemoteProtocolError
from rangeland.model import Partition
from rangeland.wire.frames import frame

MOST_PULLS: Final = 64
"""Of one series. A broker has a queue for them that is much longer."""
FIRST_PULLS: Final = 8
"""Of the first series of a queue, whose messages' sizes are not known."""
MAX_OPAQUE: Final = 2**31 - 1


@dataclass(slots=True)
class _Pace:
    """What one queue's answers have taught."""

    count: int = MOST_A_PULL
    message_bytes: int = 0

    def pulls(self, series: PullSeries) -> Iterator[tuple[int, int]]:
        """(offset, count) of each. There is one even where nothing is wanted."""
        width = max(1, series.until_offset - series.offset)
        most = FIRST_PULLS
        if self.message_bytes:
            wanted = max(1, series.max_bytes // self.message_bytes)
            most = min(MOST_PULLS, -(-wanted // self.count))
        number = min(most, -(-width // self.count))
        for index in range(number):
            last = index == number - 1
            # Also the last is asked for no more than is wanted.
            rest = width - index * self.count
            count = min(rest, MOST_A_PULL) if last else self.count
            yield series.offset + index * self.count, count

    def learn(self, answers: tuple[Answer, ...]) -> None:
        asked = [int(a.request.fields["maxMsgNums"]) for a in answers]
        came = [_brought(a) for a in answers]
        if total := sum(came):
            self.message_bytes = max(1, sum(len(a.body) for a in answers) // total)
        ends = any(a.code != SUCCESS for a in answers)
        short = [n for n, wanted in zip(came[:-1], asked[:-1], strict=True) if 0 < n < wanted]
        if short:
            self.count = min(short)
        elif not ends and (came[-1] > self.count or came[-1] < asked[-1]):
            self.count = max(1, came[-1])


@dataclass(slots=True)
class _Stride:
    """What one queue's answers by tags have taught: how many offsets one covers at least, and
    how large it is."""

    offsets: int = MOST_A_PULL
    answer_bytes: int = 0

    def pulls(self, series: PullSeries) -> Iterator[tuple[int, int]]:
        """(offset, count) of each. There is one even where nothing is wanted."""
        most = FIRST_PULLS
        if self.answer_bytes:
            most = max(1, min(MOST_PULLS, series.max_bytes // self.answer_bytes))
        width = max(1, series.until_offset - series.offset)
        for index in range(min(most, -(-width // self.offsets))):
            rest = width - index * self.offsets
            yield series.offset + index * self.offsets, min(rest, MOST_A_PULL)

    def learn(self, answers: tuple[Answer, ...]) -> None:
        looked = [
            (number_of(a, "nextBeginOffset") - number_of(a.request, "queueOffset"), len(a.body))
            for a in answers
            if (a.code == SUCCESS or a.remark == NO_MATCHED_MESSAGE)
            and number_of(a.request, "maxMsgNums") == MOST_A_PULL
        ]
        if looked:
            self.offsets = max(1, min(offsets for offsets, _ in looked))
            self.answer_bytes = max(1, sum(size for _, size in looked) // len(looked))


def _brought(answer: Answer) -> int:
    """How many offsets a pull's answer covers."""
    if answer.code != SUCCESS:
        return 0
    return max(0, number_of(answer, "nextBeginOffset") - number_of(answer.request, "queueOffset"))


def number_of(of: Answer | Request, name: str) -> int:
    """A field that is a number. Raises RemoteProtocolError where there is none."""
    text = of.fields.get(name)
    try:
        return int(text or "")
    except ValueError:
        raise RemoteProtocolError(
            f"an answer has no number {name}", why=f"it has {text!r}", field=name
        ) from None


@dataclass(slots=True)
class _Open:
    """A question that has no answer yet, and those of its requests that have one."""

    question: Request | PullSeries
    opaques: tuple[int, ...]
    answers: dict[int, Answer] = field(default_factory=dict)


class Session:
    """Not for several threads at once. A connection that was lost takes its session with it.
    ``client_id`` is not sent. With ``credentials``, or behind a ``Login``, every request is
    signed."""

    def __init__(self, client_id: str, credentials: Credentials | None = None) -> None:
        self._client_id = client_id
        self._credentials = credentials
        self._waiting: dict[int, tuple[int, Request]] = {}
        self._open: dict[int, _Open] = {}
        self._paces: dict[Partition, _Pace] = {}
        self._strides: dict[tuple[Partition, tuple[str, ...]], _Stride] = {}
        self._next_id = 0
        self._next_opaque = 0

    @property
    def unanswered(self) -> int:
        """Requests whose answers have not come."""
        return len(self._waiting)

    def open(self) -> bytes:
        """Nothing."""
        return b""

    def negotiated(self, answer: memoryview) -> bytes | None:
        """Nothing was asked, so no answer can be taken for one."""
        raise LocalProtocolError("an answer was taken for that to an opening, and there is none")

    def oldest(self) -> bytes:
        """Nothing: all are spoken to alike."""
        return b""

    def encode(self, request: Any, max_version: int | None = None) -> tuple[int, bytes]:
        """The question's id and its frame, or frames. ``max_version`` says nothing."""
        question_id = self._next_id
        self._next_id += 1
        if isinstance(request, Login):
            self._credentials = request.credentials
            request = hello()
        requests = [request]
        if isinstance(request, PullSeries):
            requests = self._pulls(request)
        written = [self._write(question_id, each) for each in requests]
        if not getattr(request, "is_one_way", False):
            opaques = tuple(opaque for opaque, _ in written)
            self._open[question_id] = _Open(request, opaques)
        return question_id, b"".join(data for _, data in written)

    def _pulls(self, series: PullSeries) -> list[Request]:
        queue, tags = series.about, series.tags
        if not tags:
            pace = self._paces.setdefault(queue, _Pace())
            return [pull(queue, at, count) for at, count in pace.pulls(series)]
        stride = self._strides.setdefault((queue, tags), _Stride())
        found = [pull(queue, at, count, tags=tags) for at, count in stride.pulls(series)]
        return [pull(queue, series.offset, 1), *found]

    def _write(self, question_id: int, request: Request) -> tuple[int, bytes]:
        opaque = self._next_opaque
        self._next_opaque = (opaque + 1) & MAX_OPAQUE
        # A server takes empty text for none at all, and would read it as signed otherwise.
        fields = {name: text for name, text in request.fields.items() if text}
        if self._credentials is not None:
            fields = signed(fields, request.body, self._credentials)
        flag = ONE_WAY if request.is_one_way else 0
        one = Frame(request.code, opaque, flag, fields=fields, body=request.body)
        if not request.is_one_way:
            self._waiting[opaque] = (question_id, request)
        return opaque, frame(*write_frame(one))

    def decode(self, answer: memoryview) -> tuple[int, Any] | None:
        """The id and the answer of the question that is answered with this frame: an
        ``Answer``, or a ``SeriesAnswer`` once all of its pulls have one. None for what is
        no answer, and until then. Raises RemoteProtocolError for an answer nobody waits for."""
        read = read_frame(answer)
        if not read.is_answer:
            return None
        if read.opaque not in self._waiting:
            raise RemoteProtocolError(
                "an answer came that nothing was asked for",
                why=f"it is numbered {read.opaque}",
                do="Close the connection: what follows cannot be matched either",
                opaque=read.opaque,
                code=read.code,
            )
        question_id, request = self._waiting.pop(read.opaque)
        asked = self._open[question_id]
        asked.answers[read.opaque] = Answer(request, read.code, read.remark, read.fields, read.body)
        if len(asked.answers) < len(asked.opaques):
            return None
        del self._open[question_id]
        answers = tuple(asked.answers[opaque] for opaque in asked.opaques)
        if isinstance(asked.question, Request):
            return question_id, answers[0]
        self._learn(asked.question, answers)
        return question_id, SeriesAnswer(asked.question, answers)

    def _learn(self, series: PullSeries, answers: tuple[Answer, ...]) -> None:
        if series.tags:
            self._strides[series.about, series.tags].learn(answers[1:])
        else:
            self._paces[series.about].learn(answers)
