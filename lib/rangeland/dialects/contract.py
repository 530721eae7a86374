"""What every dialect can answer, and the values it answers in.

A dialect is one folder whose package has the functions of ``Dialect``: each asks for one
thing (``ask_...`` gives a question to send) or reads one answer (``read_...``). All are
pure. A fourth dialect is a fourth folder; nothing outside it names it, and the contract
tests find it by its folder.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from rangeland.dialects.verdicts import Verdict
from rangeland.errors import JobFileError
from rangeland.model import (
    Address,
    AtTime,
    Counts,
    Earliest,
    Isolation,
    Latest,
    Leader,
    Partition,
)


@dataclass(frozen=True, slots=True)
class Question:
    """A request to send, not above ``max_version`` of its kind."""

    request: Any
    max_version: int | None = None


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic as metadata told it. ``code`` is the topic's own error name, empty if well.
    ``is_unknown``: the broker that was asked knows of no such topic."""

    name: str
    verdict: Verdict
    code: str
    is_internal: bool
    leaders: Mapping[Partition, Leader]
    is_unknown: bool = False


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Who is there and who leads what, as one broker told it."""

    brokers: tuple[Address, ...]
    topics: Mapping[str, TopicView]


@dataclass(frozen=True, slots=True)
class OffsetAnswer:
    """``offset`` None: no record is that late, or ``verdict`` says why there is none."""

    verdict: Verdict
    code: str
    offset: int | None


@dataclass(frozen=True, slots=True)
class Fetched:
    """One partition's part of a fetch. ``readable_end`` is where reading must wait: the last
    stable offset or the high watermark by isolation, -1 if not told. ``aborted`` are pairs
    of producer id and first offset."""

    partition: Partition
    verdict: Verdict
    code: str
    records: memoryview
    readable_end: int = -1
    aborted: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """``verdict`` speaks for the whole request. ``throttle_ms``: a quota held it back."""

    verdict: Verdict
    code: str
    parts: tuple[Fetched, ...]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """What a fetch asks of one partition."""

    partition: Partition
    topic_id: str | None
    epoch: int | None
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchTerms:
    """What holds for a whole fetch request. The broker waits for ``min_bytes`` up to
    ``max_wait_ms``."""

    isolation: Isolation
    max_wait_ms: int
    max_bytes: int
    min_bytes: int = 1


class DecodedChunk(Protocol):
    """A piece of a fetch: offsets up to ``next_offset`` are classed in ``counts``."""

    @property
    def next_offset(self) -> int: ...
    @property
    def batch(self) -> Any: ...
    @property
    def counts(self) -> Counts: ...


class Session(Protocol):
    """The state of one connection, without its socket."""

    def open(self) -> bytes:
        """The first frame to send, before any request."""

    def negotiated(self, answer: memoryview) -> bytes | None:
        """Takes the answer to the last opening frame; gives the next one, or None when done."""

    def encode(self, request: Any, max_version: int | None = None) -> tuple[int, bytes]:
        """A whole frame, and the id that its answer will carry."""

    def decode(self, answer: memoryview) -> tuple[int, Any]:
        """The id and the answer of a frame."""


@dataclass(frozen=True, slots=True)
class Credentials:
    mechanism: str
    username: str
    password: str = field(repr=False)


class Dialect(Protocol):
    """See the head of this file."""

    def open_session(self, client_id: str) -> Session: ...
    def login(self, credentials: Credentials) -> Generator[Question, Any, None]: ...
    def ask_cluster(self, topics: Sequence[str] | None) -> Question: ...
    def read_cluster(self, answer: Any) -> ClusterView: ...
    def ask_offsets(
        self,
        leaders: Mapping[Partition, Leader],
        when: Earliest | Latest | AtTime,
        isolation: Isolation,
    ) -> Question: ...
    def read_offsets(self, answer: Any) -> dict[Partition, OffsetAnswer]: ...
    def ask_sizes(self, partitions: Sequence[Partition]) -> Question: ...
    def read_sizes(self, answer: Any) -> dict[Partition, int]: ...
    def ask_coordinator(self, group: str) -> Question: ...
    def read_coordinator(self, answer: Any) -> Address: ...
    def ask_group_offsets(self, group: str, partitions: Sequence[Partition]) -> Question: ...
    def read_group_offsets(self, answer: Any) -> dict[Partition, int | None]: ...
    def ask_records(self, asked: Sequence[Asked], terms: FetchTerms) -> Question: ...
    def read_records(
        self, answer: Any, asked: Sequence[Asked], isolation: Isolation
    ) -> FetchAnswer: ...
    def next_offset(self, records: memoryview) -> int | None: ...
    def decode_chunks(
        self,
        records: memoryview,
        from_offset: int,
        until_offset: int,
        isolation: Isolation,
        aborted: Sequence[tuple[int, int]],
    ) -> Iterator[DecodedChunk]: ...


def dialect_names() -> list[str]:
    """The folders beside this file."""
    import rangeland.dialects as room

    return sorted(found.name for found in pkgutil.iter_modules(room.__path__) if found.ispkg)


def load_dialect(name: str) -> Dialect:
    """The dialect of a folder. Raises JobFileError for a name that has none."""
    if name not in dialect_names():
        raise JobFileError(
            f"the dialect {name} is not available in this version",
            do=f"use one of: {', '.join(dialect_names())}",
            dialect=name,
        )
    return cast(Dialect, importlib.import_module(f"rangeland.dialects.{name}"))
