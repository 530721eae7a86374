"""What every dialect can answer, and the values it answers in.

A dialect is one folder whose package has the functions of ``Dialect``: each asks for one
thing (``ask_...`` gives a question to send) or reads one answer (``read_...``). All are
pure. A fourth dialect is a fourth folder; nothing outside it names it, and the contract
tests find it by its folder.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, cast

from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import JobFileError, RangelandError, RemoteProtocolError, Unreachable
from rangeland.model import (
    Address,
    AtTime,
    Counts,
    Earliest,
    Isolation,
    Latest,
    Leader,
    OpenTransaction,
    Partition,
    Retention,
)
from rangeland.wire.memory_budget import MAX_BATCH_BYTES


@dataclass(frozen=True, slots=True)
class Question:
    """A request to send, not above ``max_version`` of its kind. ``wait_ms``: how long its
    answer may take, where that is longer than usual."""

    request: Any
    max_version: int | None = None
    wait_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LeaderQuery:
    """Ask these brokers in turn, until one answers; all questions to the same broker."""

    seeds: tuple[Address, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class NoReply:
    """Nobody answered: why, by address. ``strangers`` of them speak another protocol."""

    tried: Mapping[Address, str]
    strangers: int = 0


class NoCommonVersion(RemoteProtocolError):
    """A broker and this library have no version of a request in common."""


class UnsupportedRequest(NoCommonVersion):
    """The broker does not know the request at all."""


Search = Generator[LeaderQuery, "list[Any] | NoReply", "ClusterView"]
"""Looks for leaders: yields what to ask, is sent the answers, returns what it found."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What sets a dialect's logs apart. ``numbered_per_broker``: each broker has partitions
    of its own, which nobody else can serve. ``offsets_are_bytes``: an offset is the position
    of an entry in the log, so ranges begin and end at entries, and only there. ``columns``
    come after those that all dialects have; they are Arrow fields. ``leader_id``: what each
    partition's leader is called among its replicas, where that never changes.
    ``has_epochs``: leaders are counted, and records know in whose time they were written.
    ``lists_topics``: brokers can be asked which topics there are; else only a registry knows.
    ``has_transactions``: readers of what is committed wait at the first open transaction.
    ``log_tool`` is what an operator looks at a damaged log with. ``is_timeless``: whether the
    first of some fetched records has no time, where logs may begin with such ones; then
    ``max_version`` 0 of a question for offsets is answered by segments, whose beginnings are
    the ``borders``."""

    numbered_per_broker: bool = False
    offsets_are_bytes: bool = False
    columns: tuple[Any, ...] = ()
    leader_id: int | None = None
    has_epochs: bool = False
    lists_topics: bool = True
    has_transactions: bool = False
    log_tool: str = ""
    is_timeless: Callable[[memoryview], bool] | None = None


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic as metadata told it. ``code`` is the topic's own error name, empty if well.
    ``is_unknown``: the broker that was asked knows of no such topic. ``may_be_hidden``: or it
    does not show it to this client, and cannot be asked which of the two it is."""

    name: str
    verdict: ErrorMeaning
    code: str
    is_internal: bool
    leaders: Mapping[Partition, Leader]
    is_unknown: bool = False
    may_be_hidden: bool = False


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Who is there and who leads what. ``unreachable``: brokers, by their name in
    partitions, that did not say which partitions they have, and why. ``registered``: those that
    are known to be there, also without a partition that was asked for."""

    brokers: tuple[Address, ...]
    topics: Mapping[str, TopicView]
    unreachable: Mapping[str, str] = field(default_factory=dict)
    told_by: Address | None = None
    """Who was the last to be asked for it."""
    registered: frozenset[str] = frozenset()
    cluster_id: str = ""
    """What the cluster calls itself, for good; empty where it does not say."""


@dataclass(frozen=True, slots=True)
class OffsetAnswer:
    """``offset`` None: no record is that late, or ``verdict`` says why there is none.
    ``is_exact`` False: the broker only knows that the offset is at or before the time.
    ``borders`` are offsets at which entries are known to begin, sorted."""

    verdict: ErrorMeaning
    code: str
    offset: int | None
    is_exact: bool = True
    borders: tuple[int, ...] = ()


class AnsweredSpan(NamedTuple):
    """One of the answers that fetched records were joined from: its bytes end at ``end``, and it
    accounts for the offsets ``[from_offset, until_offset)``."""

    end: int
    from_offset: int
    until_offset: int


@dataclass(frozen=True, slots=True)
class FetchContext:
    """What is known about fetched records beyond their bytes. It never travels inside them, so
    nothing that a broker stores can be mistaken for it.

    ``floor``: everything before this offset has been read, so no entry may begin before it; 0
    where that is not known. ``asked_at``: the offset they were asked for, which the first entry
    holds or lies behind; 0 where that is not known. ``spans``: the broker's own account of the
    offsets, in order; empty where it gives none. ``has_gaps``: the broker has confirmed that
    offsets may be missing from them, because the topic is compacted. ``tags``: only messages with
    one of these were asked for; all if empty. ``is_kept``: they come from quarantine.
    ``names_gaps``: offsets between two entries are a ``Gap`` each, since nobody has explained them
    yet; else they are compacted. What is missing inside an entry is compacted all the same: only a
    cleaner writes such an entry.
    ``max_batch_bytes``: what one batch or message may take in memory (see ``wire.bounds``)."""

    floor: int = 0
    asked_at: int = 0
    spans: tuple[AnsweredSpan, ...] = ()
    has_gaps: bool = False
    tags: tuple[bytes, ...] = ()
    is_kept: bool = False
    names_gaps: bool = False
    max_batch_bytes: int = MAX_BATCH_BYTES


NO_CONTEXT = FetchContext()


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """One partition's part of a fetch. ``readable_end`` is where reading must wait: the last
    stable offset or the high watermark by isolation, -1 if not told. ``aborted`` are pairs
    of producer id and first offset. ``preferred``: the id of the replica that the broker would
    rather have read; None where it says nothing."""

    partition: Partition
    verdict: ErrorMeaning
    code: str
    records: memoryview
    readable_end: int = -1
    aborted: tuple[tuple[int, int], ...] = ()
    preferred: int | None = None
    context: FetchContext = NO_CONTEXT

    @property
    def is_empty(self) -> bool:
        """It brought no records, and accounts for no offsets without any."""
        return not len(self.records) and not self.context.spans


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """``verdict`` speaks for the whole request. ``throttle_ms``: a quota held it back."""

    verdict: ErrorMeaning
    code: str
    parts: tuple[FetchedPartition, ...]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class PartitionFetch:
    """What a fetch asks of one partition. ``until_offset``: records from there on are of no
    use; they may come all the same."""

    partition: Partition
    topic_id: str | None
    epoch: int | None
    offset: int
    max_bytes: int
    until_offset: int | None = None


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """What holds for a whole fetch request. The broker waits for ``min_bytes`` up to
    ``max_wait_ms``. ``rack`` is where this client is: a replica there may serve it. ``tags``:
    only messages with one of these are wanted, all if there are none."""

    isolation: Isolation
    max_wait_ms: int
    max_bytes: int
    min_bytes: int = 1
    rack: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """Whether a topic's log may have gaps: None where the broker does not say. ``evidence`` is
    what it said, for people."""

    compacts: bool | None
    evidence: str


@dataclass(frozen=True, slots=True)
class Gap:
    """The log has nothing from here to ``next_offset``, and an entry after it. The bytes do
    not say why."""

    next_offset: int


class DecodedChunk(Protocol):
    """A piece of a fetch: offsets up to ``next_offset`` are classed in ``counts``, or taken
    up by its entries where offsets are bytes."""

    @property
    def next_offset(self) -> int: ...
    @property
    def batch(self) -> Any: ...
    @property
    def counts(self) -> Counts: ...


class ProtocolSession(Protocol):
    """The state of one connection, without its socket."""

    def open(self) -> bytes:
        """The first frame to send, before any request; empty where nothing comes first."""

    def negotiated(self, answer: memoryview) -> bytes | None:
        """Takes the answer to the last opening frame; gives the next one, or None when done."""

    def oldest(self) -> bytes:
        """The peer closed the connection instead of answering the opening. From now on this
        session speaks as to one that is too old for it. Gives a frame that those answer, and
        that does nothing; empty where no peer is that old."""

    def ask_age(self) -> bytes:
        """A frame that peers of all ages answer, those too old for an opening in their own way;
        empty where no peer is that old."""

    def is_old(self, answer: memoryview) -> bool:
        """Takes the answer to ``ask_age``. True: the peer is too old for an opening."""

    def encode(self, request: Any, max_version: int | None = None) -> tuple[int, bytes]:
        """A whole frame, and the id that its answer will carry."""

    def decode(self, answer: memoryview) -> tuple[int, Any] | None:
        """The id and the answer that is whole with this frame, in whatever order answers
        come; None where it takes more frames, or this one is no answer."""

    def due(self) -> bytes:
        """What to send before more is waited for; empty where nothing is."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """``username`` and ``password``, or a ``token`` with ``extensions``, by mechanism."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    extensions: tuple[tuple[str, str], ...] = ()


class Dialect(Protocol):
    """See the head of this file. Questions that come in a list are for one broker and are
    sent in one go; their answers come in the same order."""

    @property
    def NATURE(self) -> Capabilities: ...
    def open_session(self, client_id: str) -> ProtocolSession: ...
    def login(self, credentials: Credentials) -> Generator[Question, Any, int | None]:
        """Is sent the answers; what goes wrong with a question is thrown in. Returns after how
        many milliseconds it must be done again on the same connection; None or 0: never.
        Raises JobFileError for who is not let in. A fact ``closed`` of what is thrown in: the
        peer closed the connection. A fact ``closed_at`` of what is raised: that was all that
        was seen, at this step, so it is sure only if it happens twice."""

    def ask_mechanisms(self) -> list[Question]:
        """Which logins the listener offers to a client that has not logged in. Sends nothing
        secret; empty where a listener cannot be asked."""

    def read_mechanisms(self, answers: Sequence[Any]) -> tuple[str, ...] | None:
        """None: the listener takes no login, or did not say."""

    def find_leaders(
        self,
        topics: Sequence[str] | None,
        seeds: Sequence[Address],
        members: Mapping[str, Address],
    ) -> Search:
        """``topics`` None: all there are. ``seeds`` to be asked first; ``members`` are the
        brokers by name, where names are known."""

    def ask_offsets(
        self,
        leaders: Mapping[Partition, Leader],
        when: Earliest | Latest | AtTime,
        isolation: Isolation,
    ) -> list[Question]: ...
    def read_offsets(self, answers: Sequence[Any]) -> dict[Partition, OffsetAnswer]: ...
    def ask_sizes(self, logs: Mapping[Partition, tuple[int, int]]) -> list[Question]:
        """``logs``: where each begins and ends."""

    def read_sizes(self, answers: Sequence[Any]) -> dict[Partition, int]: ...
    def ask_epochs(
        self, leaders: Mapping[Partition, Leader], epochs: Mapping[Partition, int]
    ) -> list[Question]:
        """Where, in its leader's log, the records of this leader epoch and of those before it
        end."""

    def read_epochs(self, answers: Sequence[Any]) -> dict[Partition, int]: ...
    def epoch_of(self, records: memoryview) -> int | None:
        """The leader epoch that the first of these records were written in, if it is told."""

    def ask_transactions(self, partitions: Collection[Partition]) -> list[Question]:
        """Which transactions are open in these partitions, of their leader; empty where brokers
        cannot be asked."""

    def read_transactions(self, answers: Sequence[Any]) -> dict[Partition, OpenTransaction]:
        """The one that holds readers back, where there is one."""

    def ask_retention(self, topics: Sequence[str]) -> list[Question]: ...
    def read_retention(self, answers: Sequence[Any]) -> dict[str, Retention]: ...
    def ask_cleanup(self, topic: str) -> list[Question]:
        """How the topic's log is cleaned. Nothing to ask: no decoder of this dialect finds gaps
        that it cannot explain."""

    def read_cleanup(self, answers: Sequence[Any]) -> CleanupPolicy: ...

    def ask_records(
        self, asked: Sequence[PartitionFetch], terms: FetchOptions
    ) -> list[Question]: ...
    def read_records(
        self, answers: Sequence[Any], asked: Sequence[PartitionFetch], isolation: Isolation
    ) -> FetchAnswer: ...
    def next_offset(
        self, records: memoryview, from_offset: int, context: FetchContext = NO_CONTEXT
    ) -> int | None:
        """Behind the last complete batch or entry of what was fetched at ``from_offset``;
        None where none is complete."""

    def entry_around(
        self, records: memoryview, from_offset: int, target: int
    ) -> tuple[int, int | None]:
        """Where the entry begins and ends that ``target`` is in or begins, walking from
        ``from_offset``, at which an entry begins. End None: it was not reached; then the
        first is where the walk stopped."""

    def cut_out(
        self,
        records: memoryview,
        from_offset: int,
        first: int,
        until: int,
        context: FetchContext = NO_CONTEXT,
    ) -> memoryview:
        """The bytes of the entries with offsets in ``[first, until)``, one of which could not
        be decoded; ``records`` begin at ``from_offset``, as in ``decode_chunks``."""

    def aborted_within(
        self, records: memoryview, first: int, until: int, aborted: Sequence[tuple[int, int]]
    ) -> tuple[tuple[int, int], ...]:
        """Of the list that came with ``records``, what must go with the entries of
        ``[first, until)`` where they are decoded without the others."""

    def decode_chunks(
        self,
        records: memoryview,
        from_offset: int,
        until_offset: int,
        isolation: Isolation,
        aborted: Sequence[tuple[int, int]],
        context: FetchContext = NO_CONTEXT,
    ) -> Iterator[DecodedChunk | Gap]:
        """The offsets from ``from_offset`` on. Where offsets are bytes, ``records`` begin
        there; else they may begin before."""


def nobody_answers(silence: NoReply) -> RangelandError:
    """The error for a search that nobody has answered: every address and why."""
    reasons = "; ".join(f"{address}: {why}" for address, why in silence.tried.items())
    tried = {str(address): why for address, why in silence.tried.items()}
    if tried and silence.strangers == len(tried):
        return JobFileError(
            "no server answers as a broker does",
            why=reasons,
            do="check host, port and security in source",
            tried=tried,
        )
    return Unreachable(
        f"no broker could be reached, {len(tried)} tried",
        why=reasons,
        do="check source.servers, the network and that the brokers are up, then run again",
        tried=tried,
    )


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
