"""What a batch that cannot be decoded becomes: an error, a gap, kept bytes, or an end."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.errors import BadRecord, Damage, ProofFailed
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.fetch_steps import FindLeaders, SendFetch
from rangeland.fetch.fetch_thread import FetchThread
from rangeland.fetch.loss_judgement import judge_damage
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.receipt_builder import ReceiptBuilder
from rangeland.fetch.replica_choice import Sender
from rangeland.fetch.slice_chunks import LostChunk, SliceChunk
from rangeland.fetch.slice_reading import read_slices
from rangeland.fetch.slice_state import Fail
from rangeland.loss import Action, DamagedBytes, DecidedLoss, Loss, LossKind
from rangeland.model import Address, Counts, Isolation, Partition, Range, Slice
from rangeland.planning.incarnation import LogMark
from rangeland.planning.plan import Plan
from rangeland.planning.policy import Policy
from rangeland.planning.proof import prove
from rangeland.planning.slice_receipt import Receipt
from tests.record_batches import Batch, Record, encode

P = Partition("t", 0)


def stored(bad: int | None = 1) -> bytes:
    """Three batches of four records; a byte of one is flipped."""
    batches = [bytearray(encode(Batch(base, [Record(b"k", b"v" * 9)] * 4))) for base in (0, 4, 8)]
    if bad is not None:
        batches[bad][-3] ^= 1
    return b"".join(batches)


def chunks(action: Action, records: bytes, slice_: Slice | None = None) -> list[SliceChunk]:
    whole = slice_ or Slice(0, P, 0, 12)
    settings = ReadSettings(
        ClusterSettings("kafka", ()),
        policy=Policy(corrupt=action),
        quarantined_bytes={whole.index: DamagedBytes(records, (), "")},
    )
    return list(read_slices([whole], settings))


def quarantined(found: Sequence[SliceChunk]) -> list[DamagedBytes]:
    kept = [chunk.quarantined_bytes for chunk in found if isinstance(chunk, LostChunk)]
    return [one for one in kept if isinstance(one, DamagedBytes)]


def receipt(found: Sequence[SliceChunk], whole: Slice | None = None) -> Receipt:
    tally = ReceiptBuilder([whole or Slice(0, P, 0, 12)])
    for chunk in found:
        tally.add(chunk)
    (made,) = tally.receipts()
    return made


def bounds_of(loss: Loss) -> tuple[int, int, str]:
    return loss.from_offset, loss.until_offset, loss.kind


def test_a_damaged_batch_fails_without_a_policy() -> None:
    with pytest.raises(BadRecord, match="offset 4 cannot be decoded"):
        chunks(Action.FAIL, stored())


def test_what_is_skipped_is_counted_lost() -> None:
    made = receipt(chunks(Action.SKIP, stored()))
    assert made.counts == Counts(landed=8, lost=4)
    assert [bounds_of(loss) for loss in made.losses] == [(4, 8, "corrupt")]
    assert (made.rowless, made.losses_by(Action.SKIP), made.held) == (((4, 8),), made.losses, None)


def test_what_is_quarantined_is_kept_byte_for_byte() -> None:
    found = chunks(Action.QUARANTINE, stored())
    made = receipt(found)
    assert made.counts == Counts(landed=8, quarantined=4)
    assert [bounds_of(loss) for loss in made.losses_by(Action.QUARANTINE)] == [(4, 8, "corrupt")]
    (kept,) = quarantined(found)
    size = len(stored()) // 3
    assert kept.records == stored()[size : 2 * size]
    assert "checksum" in kept.reason


def test_a_slice_keeps_the_whole_batch_that_it_cuts_through() -> None:
    whole = Slice(0, P, 0, 6)
    found = chunks(Action.QUARANTINE, stored(), whole)
    assert receipt(found, whole).counts == Counts(landed=4, quarantined=2)
    (kept,) = quarantined(found)
    assert len(kept.records) == len(stored()) // 3


def test_kept_bytes_decode_to_the_offsets_that_were_quarantined() -> None:
    size = len(stored()) // 3
    good = stored(bad=None)[size : 2 * size]
    made = receipt(chunks(Action.FAIL, good, Slice(0, P, 5, 8)), Slice(0, P, 5, 8))
    assert made.counts == Counts(landed=3)


def test_a_held_slice_ends_where_the_damage_begins() -> None:
    found = chunks(Action.HOLD, stored())
    made = receipt(found)
    assert (made.from_offset, made.until_offset, made.counts) == (0, 4, Counts(landed=4))
    assert made.held is not None
    assert bounds_of(made.held) == (4, 12, "corrupt")


@pytest.mark.parametrize("action", [Action.SKIP, Action.QUARANTINE])
def test_nothing_goes_on_after_a_batch_whose_end_is_not_known(action: Action) -> None:
    broken = bytearray(stored(bad=None))
    size = len(broken) // 3
    broken[size + 16] = 7  # its magic: how it is laid out is not known
    with pytest.raises(BadRecord, match=f"`{action}` cannot continue after it"):
        chunks(action, bytes(broken))
    assert receipt(chunks(Action.HOLD, bytes(broken))).until_offset == 4


def test_bytes_that_the_leader_no_longer_returns_are_skipped_and_not_quarantined() -> None:
    error = BadRecord("t/0: bad", why="torn", damage=Damage(4, 8, has_bytes=False))
    whole = Slice(0, P, 0, 12)
    loss = judge_damage(error, Sender.LEADER, Policy(corrupt=Action.SKIP), whole, 4, 12)
    assert isinstance(loss, DecidedLoss)
    assert bounds_of(loss) == (4, 8, "corrupt")
    judged = judge_damage(error, Sender.LEADER, Policy(corrupt=Action.QUARANTINE), whole, 4, 12)
    assert isinstance(judged, Fail)
    assert "no longer returns its bytes" in str(judged.error)


@pytest.mark.parametrize(
    ("action", "lost"), [(Action.SKIP, Counts(landed=10, lost=5)), (Action.HOLD, Counts(landed=5))]
)
@pytest.mark.parametrize("until", [5, 7])
def test_a_gap_before_a_damaged_header_is_on_its_word_and_goes_with_it(
    action: Action, lost: Counts, until: int
) -> None:
    """How long the gap is, only the damaged batch says: it may be the one that fills it."""
    five = [Record(b"k", b"v")] * 5
    damaged = encode(replace(Batch(7, five[:3]), count=90))
    records = encode(Batch(0, five)) + damaged + encode(Batch(10, five))
    found = chunks(action, records, Slice(0, P, 0, 15))
    assert Counts.sum(chunk.counts for chunk in found) == lost
    losses = [chunk.loss for chunk in found if isinstance(chunk, LostChunk)]
    ends = 10 if action is Action.SKIP else 15
    assert [(loss.from_offset, loss.until_offset) for loss in losses] == [(5, ends)]
    before = chunks(action, records, Slice(0, P, 0, until))
    assert Counts.sum(chunk.counts for chunk in before).landed == 5


# --- the proof ----------------------------------------------------------------------------------


def plan(*slices: Slice) -> Plan:
    whole = Range(P, slices[0].from_offset, slices[-1].until_offset)
    marks = {P: LogMark(whole.until_offset)}
    committed = Isolation.READ_COMMITTED
    return Plan("j", "rangeland/j", 1, "kafka", committed, (whole,), slices, checkpoint=marks)


def test_a_range_is_cut_to_what_is_accounted_for() -> None:
    slices = (Slice(0, P, 0, 12), Slice(1, P, 12, 20))
    held = receipt(chunks(Action.HOLD, stored()))
    behind = Receipt(1, P, 12, 20, Counts(landed=8), rowless=())
    outcomes = prove(plan(*slices), {0: held, 1: behind})
    assert [(o.range.from_offset, o.range.until_offset, o.counts) for o in outcomes] == [
        (0, 4, Counts(landed=4)),
        (12, 20, Counts(landed=8)),
    ]


def test_a_slice_that_is_held_at_its_beginning_leaves_nothing() -> None:
    whole = Slice(0, P, 0, 12)
    made = receipt(chunks(Action.HOLD, stored(bad=0)))
    assert made.until_offset == 0
    assert prove(plan(whole), {0: made}) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"losses": ()},  # it ends early and nobody says why
        {"losses": (DecidedLoss(P, 5, 12, LossKind.CORRUPT, "", action=Action.HOLD),)},
        {"losses": (DecidedLoss(P, 4, 11, LossKind.CORRUPT, "", action=Action.HOLD),)},
        {
            "losses": (
                DecidedLoss(P, 4, 12, LossKind.CORRUPT, "", action=Action.HOLD),
                DecidedLoss(P, 0, 1, LossKind.CORRUPT, "", action=Action.QUARANTINE),
            )
        },
    ],
)
def test_a_receipt_that_ends_early_must_say_where_and_why(wrong: dict[str, object]) -> None:
    made = replace(receipt(chunks(Action.HOLD, stored())), **wrong)  # type: ignore[arg-type]
    with pytest.raises(ProofFailed):
        prove(plan(Slice(0, P, 0, 12)), {0: made})


def test_the_stored_length_of_the_test_s_batches_is_what_they_say() -> None:
    (length,) = struct.unpack_from(">i", stored(), 8)
    assert length + 12 == len(stored()) // 3


@pytest.mark.parametrize("dialect", ["jafka", "rocketmq"])
def test_a_leader_that_is_read_again_is_one_that_metadata_names(dialect: str) -> None:
    """The job file or the survey names the brokers too: that is enough to begin with them."""
    broker = Address("h", 10911)
    cluster = ClusterSettings(dialect, (broker,), named_brokers=(("broker-a", broker),))
    slices = [Slice(0, Partition("t", 0, "broker-a"), 0, 5)]

    def first_step(leader_only: bool) -> object:
        settings = ReadSettings(cluster)
        fetcher = FetchThread(slices, settings, FetchLimits(), leader_only=leader_only)
        return fetcher._loop.next(0)

    assert isinstance(first_step(leader_only=False), SendFetch)
    assert isinstance(first_step(leader_only=True), FindLeaders)
