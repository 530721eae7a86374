"""A data frame has all rows of its range or fails, since nobody sees its receipts."""

from __future__ import annotations

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.decode.payload.row_format import RowFormat
from rangeland.decode.payload.string_format import StringFormat
from rangeland.errors import BadRecord
from rangeland.fetch.read_settings import ReadSettings
from rangeland.loss import Action, DamagedBytes
from rangeland.model import Counts, Partition, Slice
from rangeland.planning.policy import Policy
from rangeland.planning.slice_receipt import Receipt
from rangeland.spark.plan_frames import frame_batches
from tests.record_batches import Batch, Record, encode

P = Partition("t", 0)
KAFKA = ClusterSettings("kafka", ())
PIECE = Slice(0, P, 0, 12)


def settings(action: Action) -> ReadSettings:
    """Three batches of four records; the checksum of one is wrong."""
    errors = {0: 0, 4: 1, 8: 0}
    stored = [encode(Batch(base, [Record(b"k")] * 4, crc_error=n)) for base, n in errors.items()]
    kept = {0: DamagedBytes(b"".join(stored), (), "")}
    return ReadSettings(KAFKA, policy=Policy(corrupt=action), quarantined_bytes=kept)


class Receipts:
    def __init__(self) -> None:
        self.found: dict[int, Receipt] = {}

    def add(self, found: dict[int, Receipt]) -> None:
        self.found |= found


@pytest.mark.parametrize("action", [Action.FAIL, Action.HOLD, Action.QUARANTINE])
def test_a_frame_without_receipts_never_ends_short(action: Action) -> None:
    with pytest.raises(BadRecord, match="offset 4 cannot be decoded"):
        list(frame_batches([PIECE], settings(action)))


def test_a_frame_leaves_out_what_was_said_to_be_skipped() -> None:
    assert sum(b.num_rows for b in frame_batches([PIECE], settings(Action.SKIP))) == 8


@pytest.mark.parametrize(("action", "rows"), [(Action.HOLD, 4), (Action.QUARANTINE, 8)])
def test_with_receipts_the_policy_holds(action: Action, rows: int) -> None:
    receipts = Receipts()
    batches = frame_batches([PIECE], settings(action), receipts)
    assert sum(b.num_rows for b in batches) == rows
    assert receipts.found[0].counts.landed == rows


def test_a_piece_without_a_decodable_record_has_no_rows() -> None:
    """All of its records are skipped, and their slice is still read to its end."""
    stored = encode(Batch(0, [Record(b"k", b"\xff")] * 12))
    typed = ReadSettings(
        KAFKA,
        policy=Policy(undecodable=Action.SKIP),
        quarantined_bytes={0: DamagedBytes(stored, (), "")},
        row_format=RowFormat(value=StringFormat()),
    )
    receipts = Receipts()
    assert list(frame_batches([PIECE], typed, receipts)) == []
    assert receipts.found[0].counts == Counts(lost=12)
