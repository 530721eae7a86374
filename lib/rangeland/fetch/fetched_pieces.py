"""Pieces: what the fetch thread hands to decoding, raw bytes of one slice or a loss."""

from __future__ import annotations

from dataclasses import dataclass

from rangeland.dialects.fetch_values import FetchedRecords
from rangeland.fetch.replica_choice import Sender
from rangeland.loss import DecidedLoss


@dataclass(frozen=True, slots=True)
class EntryEnd:
    """The end of an entry in the log of one broker. If a new leader has overwritten the end of the
    log, one of its entries may begin before that offset."""

    offset: int
    address: str
    epoch: int | None

    def is_seen_by(self, address: str, epoch: int | None) -> bool:
        """Whether an entry ends there for this broker as well, if that is known."""
        if self.epoch is not None and epoch is not None:
            return self.epoch == epoch
        return self.address == address


@dataclass(frozen=True, slots=True)
class FetchedPiece:
    """Raw bytes of one slice, from the requested offset up to ``until_offset``. ``address``: the
    broker that sent them. ``epoch``: the leader's epoch, if known."""

    index: int
    records: FetchedRecords
    until_offset: int
    address: str = ""
    sender: Sender = Sender.LEADER
    epoch: int | None = None

    @property
    def from_offset(self) -> int:
        return self.records.from_offset


@dataclass(frozen=True, slots=True)
class LostPiece:
    """Offsets of one slice that could not be fetched."""

    index: int
    loss: DecidedLoss
    epoch: int | None = None
    """The latest leader epoch that was known then."""


Piece = FetchedPiece | LostPiece
