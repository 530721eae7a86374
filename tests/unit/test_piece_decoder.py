"""What comes of a piece: chunks, a question, the rest at the leader, or the error that ends the
run. Nothing here has a connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.cluster_values import CleanupPolicy, NoSeedAnswered
from rangeland.dialects.dialect import Dialect, load_dialect
from rangeland.dialects.fetch_values import DecodedChunk, FetchedRecords, Gap
from rangeland.errors import BadRecord, Bug, Damage, RangeLost, Unreachable
from rangeland.fetch.fetched_pieces import EntryEnd, FetchedPiece, LostPiece
from rangeland.fetch.piece_decoder import AskCleanup, PieceDecoder, PieceResult, ReadAtLeader
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.replica_choice import Sender
from rangeland.fetch.slice_chunks import LostChunk, ReadChunk
from rangeland.fetch.slice_state import Fail
from rangeland.loss import Action, DamagedBytes, DecidedLoss, LossKind
from rangeland.model import Address, Counts, Partition, Slice
from rangeland.planning.policy import Policy
from tests.fetched_records import fetched_at
from tests.record_batches import Batch, Record, encode

P = Partition("t", 0)
SLICE = Slice(0, P, 0, 40, leader=Address("b1", 1))
COMPACTS, DELETES = CleanupPolicy(True, "it compacts"), CleanupPolicy(False, "it deletes")
GAPS = [action for action in Action if action is not Action.QUARANTINE]


def four(base: int, *, flipped: bool = False) -> bytes:
    stored = bytearray(encode(Batch(base, [Record(b"k", b"v" * 9)] * 4)))
    stored[-3] ^= flipped
    return bytes(stored)


def piece_of(*stored: bytes, sender: Sender = Sender.LEADER, until: int = 20) -> FetchedPiece:
    records = fetched_at(b"".join(stored), floor=0)
    return FetchedPiece(0, records, until, "b1:1", sender, epoch=7)


def decoder_of(dialect: Dialect | None = None, **changed: Any) -> PieceDecoder:
    policy = Policy(
        **{kind: changed.pop(kind) for kind in ("missing", "corrupt") if kind in changed}
    )
    settings = ReadSettings(ClusterSettings("kafka", ()), policy=policy, **changed)
    return PieceDecoder([SLICE], settings, dialect or load_dialect("kafka"))


def results(
    decoder: PieceDecoder,
    piece: FetchedPiece | LostPiece,
    answer: CleanupPolicy | NoSeedAnswered | None = None,
) -> list[PieceResult]:
    """All results; each question gets the answer, if there is one."""
    found = []
    for result in decoder.decode(piece):
        found.append(result)
        if isinstance(result, AskCleanup) and answer is not None:
            decoder.on_cleanup(result.topic, answer)
    return found


def short(result: PieceResult) -> Any:
    """A result as a few values."""
    match result:
        case ReadChunk():
            return result.from_offset, result.until_offset, result.counts
        case LostChunk(loss=loss):
            return loss.interval, loss.kind, loss.action
        case Fail(error):
            return type(error)
    return result


def landed(begin: int, end: int, **others: int) -> tuple[int, int, Counts]:
    return begin, end, Counts(landed=end - begin - sum(others.values()), **others)


# --- pieces without a flaw --------------------------------------------------------------------


def test_an_intact_piece_is_one_chunk_up_to_its_end() -> None:
    found = results(decoder_of(), piece_of(four(0), four(4), until=6))
    assert [short(one) for one in found] == [landed(0, 6)]


@pytest.mark.parametrize(("action", "until"), [(Action.SKIP, 20), (Action.HOLD, 40)])
def test_what_could_not_be_fetched_is_lost_and_a_hold_lasts_to_the_end_of_the_slice(
    action: Action, until: int
) -> None:
    loss = DecidedLoss(P, 10, 20, LossKind.EXPIRED, "gone", action=action)
    (found,) = results(decoder_of(), LostPiece(0, loss))
    assert short(found) == ((10, until), LossKind.EXPIRED, action)
    assert isinstance(found, LostChunk)
    assert not found.is_unlogged


# --- gaps -------------------------------------------------------------------------------------

HOLED = (four(0), four(8), four(16))
"""Offsets 4 to 7 and 12 to 15 are missing."""


@pytest.mark.parametrize("action", GAPS)
@pytest.mark.parametrize("sender", list(Sender))
def test_a_gap_in_a_compacted_topic_is_explained_whoever_shows_it(
    sender: Sender, action: Action
) -> None:
    decoder = decoder_of(missing=action)
    found = results(decoder, piece_of(*HOLED, sender=sender), COMPACTS)
    question, rest = AskCleanup("t", "b1:1"), landed(4, 20, compacted=8)
    assert [short(one) for one in found] == [landed(0, 4), question, rest]
    again = results(decoder, piece_of(*HOLED, sender=sender))
    assert [short(one) for one in again] == [landed(0, 20, compacted=8)], "nobody is asked again"


def test_a_job_that_names_the_topic_as_compacted_asks_nobody() -> None:
    found = results(decoder_of(compacted=("t",)), piece_of(*HOLED))
    assert [short(one) for one in found] == [landed(0, 20, compacted=8)]


@pytest.mark.parametrize("action", GAPS)
@pytest.mark.parametrize("sender", [s for s in Sender if s is not Sender.LEADER_AGAIN])
def test_the_rest_from_an_unexplained_gap_on_is_read_at_the_leader(
    sender: Sender, action: Action
) -> None:
    piece = piece_of(*HOLED, sender=sender)
    found = results(decoder_of(missing=action), piece, DELETES)
    rest = replace(SLICE, from_offset=4, until_offset=20, leader=None)
    at_leader = ReadAtLeader(rest, EntryEnd(4, "b1:1", 7))
    assert [short(one) for one in found] == [landed(0, 4), AskCleanup("t", "b1:1"), at_leader]


@pytest.mark.parametrize(
    ("action", "rest"),
    [
        (
            Action.SKIP,
            [
                ((4, 8), LossKind.MISSING, Action.SKIP),
                landed(8, 12),
                ((12, 16), LossKind.MISSING, Action.SKIP),
                landed(16, 20),
            ],
        ),
        (Action.HOLD, [((4, 40), LossKind.MISSING, Action.HOLD)]),
        (Action.FAIL, [RangeLost]),
    ],
)
def test_a_gap_that_the_leader_shows_again_is_lost_by_policy(
    action: Action, rest: list[Any]
) -> None:
    piece = piece_of(*HOLED, sender=Sender.LEADER_AGAIN)
    found = results(decoder_of(missing=action), piece, DELETES)
    assert [short(one) for one in found] == [landed(0, 4), AskCleanup("t", "b1:1"), *rest]


@pytest.mark.parametrize("sender", list(Sender))
def test_the_run_ends_if_nobody_can_say_how_the_topic_is_cleaned(sender: Sender) -> None:
    answer = NoSeedAnswered({Address("b1", 1): "refused"})
    decoder = decoder_of(missing=Action.SKIP)
    found = results(decoder, piece_of(*HOLED, sender=sender), answer)
    assert short(found[-1]) is Unreachable
    assert len(found) == 3


def test_a_question_has_to_be_answered_before_decoding_goes_on() -> None:
    with pytest.raises(Bug, match="before it is known how the log is cleaned"):
        results(decoder_of(), piece_of(*HOLED))


# --- damage -----------------------------------------------------------------------------------

TORN = (four(0), four(4, flipped=True), four(8))


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("sender", [s for s in Sender if not s.proves_damage])
def test_the_rest_from_unproven_damage_on_is_read_at_the_leader(
    sender: Sender, action: Action
) -> None:
    found = results(decoder_of(corrupt=action), piece_of(*TORN, sender=sender, until=12))
    *before, at_leader = found
    begin = before[-1].until_offset if before else 0  # type: ignore[union-attr]
    rest = replace(SLICE, from_offset=begin, until_offset=12, leader=None)
    assert at_leader == ReadAtLeader(rest, EntryEnd(begin, "b1:1", 7))


def test_the_leader_is_told_what_was_known_before_the_piece() -> None:
    piece = piece_of(four(0, flipped=True), sender=Sender.REPLICA, until=4)
    for floor in (0, 3, None):
        records = replace(piece.records, floor=floor)
        (found,) = results(decoder_of(), replace(piece, records=records))
        assert isinstance(found, ReadAtLeader)
        assert found.floor == (None if floor is None else EntryEnd(floor, "b1:1", 7))


@pytest.mark.parametrize(
    ("action", "rest"),
    [
        (Action.SKIP, [((4, 8), LossKind.CORRUPT, Action.SKIP), landed(8, 12)]),
        (Action.QUARANTINE, [((4, 8), LossKind.CORRUPT, Action.QUARANTINE), landed(8, 12)]),
        (Action.HOLD, [((4, 40), LossKind.CORRUPT, Action.HOLD)]),
    ],
)
def test_proven_damage_is_lost_by_policy_after_what_precedes_it(
    action: Action, rest: list[Any]
) -> None:
    found = results(decoder_of(corrupt=action), piece_of(*TORN, until=12))
    assert [short(one) for one in found] == [landed(0, 4), *rest]
    kept = [one.quarantined_bytes for one in found if isinstance(one, LostChunk)]
    assert [k.records for k in kept if isinstance(k, DamagedBytes)] == (
        [TORN[1]] if action is Action.QUARANTINE else []
    )


def test_damage_ends_the_run_without_a_policy() -> None:
    found = results(decoder_of(), piece_of(*TORN, until=12))
    assert short(found[-1]) is BadRecord


# --- decoders that find damage before they return what precedes it ------------------------------


class Scripted:
    """In place of a dialect: for each range that is decoded, what comes and in what order."""

    capabilities = Capabilities()

    def __init__(self, script: Mapping[tuple[int, int], Sequence[int | BadRecord | Gap]]) -> None:
        self.script = script
        self.decoded: list[tuple[int, int]] = []

    def decode_chunks(
        self, _fetched: FetchedRecords, at: int, until: int, *, reports_gaps: bool
    ) -> Iterator[DecodedChunk | Gap]:
        self.decoded.append((at, until))
        for found in self.script[at, until]:
            if isinstance(found, BadRecord):
                raise found
            yield (
                found
                if isinstance(found, Gap)
                else DecodedChunk(found, None, Counts(aborted=found - at))
            )
            at = found if isinstance(found, int) else found.next_offset


def bad(begin: int, end: int) -> BadRecord:
    return BadRecord("bad", why="torn", damage=Damage(begin, end))


def scripted(
    script: Mapping[tuple[int, int], Sequence[int | BadRecord | Gap]], **changed: Any
) -> tuple[list[PieceResult], list[tuple[int, int]]]:
    dialect = Scripted(script)
    decoder = decoder_of(cast(Dialect, dialect), corrupt=Action.SKIP, **changed)
    return results(decoder, piece_of(), COMPACTS), dialect.decoded


def skipped(begin: int, end: int) -> tuple[Any, ...]:
    return (begin, end), LossKind.CORRUPT, Action.SKIP


def aborted(begin: int, end: int) -> tuple[int, int, Counts]:
    return begin, end, Counts(aborted=end - begin)


def test_what_precedes_the_damage_is_decoded_first_by_itself() -> None:
    found, decoded = scripted({(0, 20): [bad(8, 12)], (0, 8): [4, 8], (12, 20): [20]})
    assert [short(one) for one in found] == [
        aborted(0, 4),
        aborted(4, 8),
        skipped(8, 12),
        aborted(12, 20),
    ]
    assert decoded == [(0, 20), (0, 8), (12, 20)]


def test_earlier_damage_in_what_precedes_it_is_lost_first() -> None:
    script = {
        (0, 20): [bad(12, 16)],
        (0, 12): [2, bad(4, 8)],
        (2, 4): [4],
        (8, 20): [bad(12, 16)],
        (8, 12): [12],
        (16, 20): [20],
    }
    found, _ = scripted(script)
    assert [short(one) for one in found] == [
        aborted(0, 2),
        aborted(2, 4),
        skipped(4, 8),
        aborted(8, 12),
        skipped(12, 16),
        aborted(16, 20),
    ]


def test_a_gap_in_what_precedes_the_damage_is_explained_there() -> None:
    script = {(0, 20): [bad(8, 12)], (0, 8): [2, Gap(6)], (2, 8): [8], (12, 20): [20]}
    found, _ = scripted(script)
    assert [short(one) for one in found] == [
        aborted(0, 2),
        AskCleanup("t", "b1:1"),
        aborted(2, 8),
        skipped(8, 12),
        aborted(12, 20),
    ]


@pytest.mark.parametrize(
    "script",
    [
        {(0, 20): [bad(8, 12)], (0, 8): [4]},  # the decoder stops too early
        {(0, 20): [bad(8, 12)], (0, 8): [bad(10, 12)]},  # damage where it did not decode
    ],
)
def test_no_loss_goes_over_records_that_were_not_decoded(
    script: dict[tuple[int, int], list[int | BadRecord | Gap]],
) -> None:
    with pytest.raises(Bug, match="were not decoded"):
        scripted(script)
