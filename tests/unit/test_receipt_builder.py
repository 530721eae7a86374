"""The receipts of a task, with the offsets that have no row."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from rangeland.errors import ProofFailed
from rangeland.fetch import receipt_builder
from rangeland.fetch.receipt_builder import ReceiptBuilder
from rangeland.fetch.slice_chunks import LostChunk, ReadChunk, SliceChunk
from rangeland.loss import Action, Loss, LossKind
from rangeland.model import Counts, Partition, Slice

PIECE = Slice(0, Partition("t", 0), 10, 20)


def chunk(start: int, end: int, offsets: list[int]) -> SliceChunk:
    batch = pa.record_batch({"offset": pa.array(offsets, pa.int64())}) if offsets else None
    missing = end - start - len(offsets)
    return ReadChunk(0, start, end, Counts(landed=len(offsets), control=missing), batch)


@pytest.mark.parametrize(
    ("chunks", "rowless"),
    [
        ([(10, 20, [*range(10, 20)])], ()),
        ([(10, 20, [])], ((10, 20),)),
        ([(10, 20, [10, 11, 14, 18])], ((12, 14), (15, 18), (19, 20))),
        ([(10, 14, [12]), (14, 20, [17])], ((10, 12), (13, 17), (18, 20))),
        ([(10, 12, []), (12, 15, []), (15, 20, [15, 16, 17, 18, 19])], ((10, 15),)),
    ],
)
def test_rowless_are_the_offsets_without_a_row(
    chunks: list[tuple[int, int, list[int]]], rowless: tuple[tuple[int, int], ...]
) -> None:
    counting = ReceiptBuilder([PIECE])
    for one in chunks:
        counting.add(chunk(*one))
    (receipt,) = counting.receipts()
    assert receipt.rowless == rowless


def test_a_receipt_has_the_latest_leader_epoch_that_was_known_of_its_slice() -> None:
    counting = ReceiptBuilder([PIECE])
    loss = Loss(PIECE.partition, 16, 20, LossKind.TRUNCATED, "the log ends at 16")
    held = LostChunk(0, loss.with_action(Action.HOLD), "", False, leader_epoch=6)
    for one, epoch in ((chunk(10, 12, []), 4), (chunk(12, 14, []), 5), (chunk(14, 16, []), None)):
        counting.add(replace(one, leader_epoch=epoch))
    counting.add(held)
    (receipt,) = counting.receipts()
    assert receipt.leader_epoch == 6


def test_too_many_rowless_intervals_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_builder, "MAX_ROWLESS_INTERVALS", 2)
    counting = ReceiptBuilder([PIECE])
    counting.add(chunk(10, 20, [11, 13, 15]))
    (receipt,) = counting.receipts()
    assert receipt.rowless is None
    assert receipt.counts == Counts(landed=3, control=7)


def test_a_piece_that_does_not_go_on_where_the_slice_stood_is_refused() -> None:
    counting = ReceiptBuilder([PIECE])
    with pytest.raises(ProofFailed, match="does not add up"):
        counting.add(chunk(11, 20, []))
