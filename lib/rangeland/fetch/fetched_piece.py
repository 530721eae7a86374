"""What the fetching thread hands over, and the bound on the memory that it takes."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from rangeland.dialects.fetch_values import NO_CONTEXT, FetchContext
from rangeland.planning.policy import Loss

NO_BYTES = memoryview(b"")


@dataclass(frozen=True, slots=True)
class EntryEnd:
    """An entry ended at this offset in the log of a leader. Where another leader has replaced the
    end of the log, one of its entries may begin before that offset."""

    offset: int
    leader: str
    epoch: int | None

    def is_seen_by(self, leader: str, epoch: int | None) -> bool:
        """Whether entries also end there for this leader, as far as is known."""
        if self.epoch is not None and epoch is not None:
            return self.epoch == epoch
        return self.leader == leader


@dataclass(frozen=True, slots=True)
class FetchedPiece:
    """Raw bytes of one slice, from the offset that was requested; or a loss. ``is_doubtful``: a
    replica may have sent them, so another copy may be intact where this one is damaged. ``epoch``:
    that of the leader, if it was known."""

    index: int
    from_offset: int
    until_offset: int
    records: memoryview = NO_BYTES
    aborted: tuple[tuple[int, int], ...] = ()
    leader: str = ""
    loss: Loss | None = None
    context: FetchContext = NO_CONTEXT
    is_doubtful: bool = False
    epoch: int | None = None

    @property
    def is_empty(self) -> bool:
        """There is nothing to decode."""
        return not len(self.records) and not self.context.spans


class MemoryBudget:
    """A bound on bytes that are fetched and not yet decoded. One piece always fits."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held = 0
        self._changed = threading.Condition()
        self._closed = False

    def take(self, size: int) -> bool:
        """Waits until there is room. False once closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._held == 0 or self._held + size <= self._limit
            )
            self._held += size
            return not self._closed

    def give_back(self, size: int) -> None:
        with self._changed:
            self._held -= size
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
