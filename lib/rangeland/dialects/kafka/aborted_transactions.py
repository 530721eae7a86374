"""Decides which entries of a Kafka log belong to aborted transactions.

Works like Kafka's own consumer (CompletedFetch): from the list that a fetch returns, and from abort
markers. Pure functions of bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rangeland.decode.kafka.entry_layouts import CONTROL_KEY
from rangeland.dialects.fetch_values import FetchedRecords
from rangeland.dialects.kafka.entry_checks import LogEntry
from rangeland.dialects.kafka.entry_records import records_of
from rangeland.dialects.kafka.entry_spans import MAX_OFFSET
from rangeland.dialects.kafka.legacy_messages import batch_error
from rangeland.dialects.kafka.log_entries import entries
from rangeland.errors import BadRecord

Aborted = tuple[int, int]
"""Producer id, first offset of the transaction."""

_ABORT = 0


class AbortedTransactions:
    """The producers that are inside an aborted transaction, as of the last entry that was read."""

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._pending = deque(sorted(aborted, key=lambda t: t[1]))
        self._open: dict[int, int] = {}

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    @property
    def opens_at(self) -> int:
        """The offset at which the next aborted transaction opens. If none is open now, entries that
        end before this offset belong to none."""
        return self._pending[0][1] if self._pending else MAX_OFFSET

    def is_aborted(self, entry: LogEntry, *, is_passed: bool = False) -> bool:
        """Whether the entry belongs to an aborted transaction. Must be called for every entry, in
        order. If a producer's aborted transaction is open, its next marker ends it, so a marker
        that is skipped need not be readable."""
        producer = entry.producer_id
        if producer < 0:
            return False
        while self._pending and self._pending[0][1] <= entry.last_offset:
            producer_id, first_offset = self._pending.popleft()
            self._open[producer_id] = first_offset
        if producer not in self._open:
            return False
        if not entry.control:
            return entry.transactional
        if _is_abort_marker(entry, is_passed=is_passed):
            del self._open[producer]
        return False

    def open_at(self, until_offset: int) -> tuple[Aborted, ...]:
        """The transactions that are open now, and those that begin before ``until_offset``."""
        pending = [t for t in self._pending if t[1] < until_offset]
        return (*self._open.items(), *pending)


def aborted_within(
    fetched: FetchedRecords, from_offset: int, until_offset: int
) -> tuple[Aborted, ...]:
    """The aborted transactions that can affect the offsets ``[from_offset, until_offset)``: all
    except those that end before these offsets or begin after them."""
    transactions = AbortedTransactions(fetched.aborted)
    try:
        for entry in entries(fetched, from_offset):
            if entry.last_offset >= from_offset:
                break
            transactions.is_aborted(entry, is_passed=True)
    except BadRecord:  # the entry at ``from_offset``: everything before it has been read
        pass
    return transactions.open_at(until_offset)


def _is_abort_marker(entry: LogEntry, *, is_passed: bool) -> bool:
    """Whether a control batch contains an abort marker. A marker is one record; a cleaner may have
    removed it but kept the batch."""
    try:
        keys = records_of(entry, entry.base_offset, entry.last_offset + 1).column("key")
    except BadRecord:
        if is_passed:
            return True
        raise
    if not len(keys):
        return False
    key = keys[0].as_py()
    if key is None or len(key) < CONTROL_KEY.size:
        raise batch_error(entry.base_offset, "its transaction marker has no kind")
    return CONTROL_KEY.read(key).kind == _ABORT
