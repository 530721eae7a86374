"""The request for a fetch, its result, and what is known about the returned bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import ProofFailed
from rangeland.model import Counts, Isolation, Leader, Partition
from rangeland.wire.memory_budget import MAX_BATCH_BYTES


class ResponseSpan(NamedTuple):
    """One of the responses that were joined into the fetched records: its bytes end at ``end``, and
    it accounts for the offsets ``[from_offset, until_offset)``."""

    end: int
    from_offset: int
    until_offset: int


@dataclass(frozen=True, slots=True)
class FetchContext:
    """What is known about fetched records apart from their bytes. It is kept separately, so that
    nothing a broker stores can be mistaken for it."""

    spans: tuple[ResponseSpan, ...] = ()
    """The broker's own account of the offsets, in order; empty if it gives none."""
    has_gaps: bool = False
    """The broker has confirmed that offsets may be missing because the topic is compacted."""
    tags: tuple[bytes, ...] = ()
    """Only messages with one of these tags were requested; empty means all messages."""
    from_quarantine: bool = False
    """The records were read from quarantine."""


NO_CONTEXT = FetchContext()
NO_DATA = memoryview(b"")


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """The bytes of a log that were fetched at ``from_offset``, and what is known about them. If
    offsets are bytes, the data begin exactly there; otherwise their first entry may begin before
    it."""

    data: memoryview
    from_offset: int
    aborted: tuple[tuple[int, int], ...] = ()
    """The aborted transactions that the broker returned with the records, as pairs of producer id
    and first offset; empty if uncommitted records are read."""
    context: FetchContext = NO_CONTEXT
    floor: int | None = None
    """Everything before this offset has been read, so no entry may begin before it; None if
    unknown."""
    requested_offset: int | None = None
    """The offset that was requested, which lies in the first entry or before it; None if
    unknown."""
    max_batch_bytes: int = MAX_BATCH_BYTES
    """How much memory one batch or message may take (see ``wire.memory_budget``)."""

    def __len__(self) -> int:
        """How many bytes there are."""
        return len(self.data)


NO_RECORDS = FetchedRecords(NO_DATA, 0)


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """One partition in the response to a fetch."""

    partition: Partition
    meaning: ErrorMeaning
    code_name: str
    """The name of the partition's error code, with whatever the broker says about it."""
    records: FetchedRecords = NO_RECORDS
    readable_end: int | None = None
    """The last stable offset or the high watermark, depending on the isolation; None if it is not
    reported."""
    preferred: int | None = None
    """The id of the replica that the broker wants this client to read from instead; None if it
    names none."""
    leader_hint: Leader | None = None
    """The new leader's address and epoch, as named by a broker that no longer leads the
    partition."""

    @property
    def is_empty(self) -> bool:
        """Whether there are no records, and no offsets are accounted for without records."""
        return not len(self.records) and not self.records.context.spans


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The response to one fetch request."""

    meaning: ErrorMeaning
    """The meaning of the error code for the request as a whole; each partition also has its own."""
    code_name: str
    partitions: tuple[FetchedPartition, ...]
    throttle_ms: int = 0
    """How long a quota delayed the response."""


@dataclass(frozen=True, slots=True)
class PartitionFetch:
    """One partition in a fetch."""

    partition: Partition
    topic_id: str | None
    epoch: int | None
    offset: int
    max_bytes: int
    until_offset: int | None = None
    """Records from here on are not needed, but may be returned all the same."""


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """The settings that apply to a whole fetch request."""

    isolation: Isolation
    max_wait_ms: int
    """How long the broker may wait until it has ``min_bytes``."""
    max_bytes: int
    min_bytes: int = 1
    rack: str = ""
    """The rack of this client, so that it can read from the nearest replica."""
    tags: tuple[str, ...] = ()
    """Only messages with one of these tags are wanted; empty means all messages."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The log has no offsets from here to ``next_offset``, where an entry follows. The bytes do not
    say why."""

    next_offset: int


class UnconfirmedGap(NamedTuple):
    """Offsets ``[from_offset, until_offset)`` that are missing before ``entry``, the last entry of
    a response. It ends at ``last_offset``, and nothing follows it that would show that it is where
    it claims to be."""

    from_offset: int
    until_offset: int
    last_offset: int
    entry: memoryview


@dataclass(frozen=True, slots=True)
class Scan:
    """What can be said about the complete entries of a response without opening them."""

    next_offset: int | None
    """The offset after the last of them; None if there is none: the fetch was too small for the
    next entry, or returned nothing."""
    unconfirmed_gap: UnconfirmedGap | None = None
    """A gap before the last of them that shows only in the offset stored in that entry. None if the
    dialect's brokers say where entries are."""

    @property
    def has_certain_end(self) -> bool:
        """Whether the last of them certainly ends where it claims to: another entry follows, or it
        is intact. True if the dialect's brokers say where entries are."""
        return True


@dataclass(frozen=True, slots=True)
class DecodedChunk:
    """Decoded rows of a fetch. ``counts`` says how many of the offsets before ``next_offset`` have
    which class; if offsets are bytes, the chunk's entries cover these offsets instead. ``batch``
    has the columns of the dialect's decoder; it is None if there are no rows."""

    next_offset: int
    batch: pa.RecordBatch | None
    counts: Counts


def miscount_error(
    from_offset: int, next_offset: int, rows: int, became: object, why: str = ""
) -> ProofFailed:
    """The error for offsets ``[from_offset, next_offset)`` whose decoded ``rows`` contradict their
    headers."""
    return ProofFailed(
        f"offsets [{from_offset}, {next_offset}) became {became}",
        why=why,
        from_offset=from_offset,
        next_offset=next_offset,
        landed=rows,
    )
