"""The files of a plan have the rows that its receipts count, each once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from rangeland.errors import ProofFailed
from rangeland.loss import Action, Loss, LossKind
from rangeland.model import Counts, DataFile, Isolation, Partition, Range, Slice
from rangeland.planning.file_proof import prove_files
from rangeland.planning.plan import Plan
from rangeland.planning.slice_receipt import Receipt, WrittenFile

P0, P1 = Partition("orders", 0), Partition("orders", 1)
SLICES = (
    Slice(0, P0, 0, 10, topic_id="A"),
    Slice(1, P0, 10, 20, topic_id="A"),
    Slice(2, P1, 0, 5, topic_id="A"),
    Slice(3, P1, 5, 9, topic_id="A"),
)
PLAN = Plan(
    job="orders",
    application="rangeland/orders",
    sequence=1,
    dialect="kafka",
    isolation=Isolation.READ_COMMITTED,
    ranges=(Range(P0, 0, 20, "A"), Range(P1, 0, 9, "A")),
    slices=SLICES,
)
RECEIPTS = {
    s.index: Receipt(s.index, s.partition, *s.interval, Counts(landed=s.width)) for s in SLICES
}


def data_file(path: str, rows: int) -> DataFile:
    return DataFile(path, 100, rows, "{}", 1)


def of_slice(index: int, path: str, rows: int) -> WrittenFile:
    s = SLICES[index]
    return WrittenFile(data_file(path, rows), Range(s.partition, *s.interval, s.topic_id))


def of_many(path: str, rows: int) -> WrittenFile:
    return WrittenFile(data_file(path, rows))


ALONE = (of_slice(0, "0a", 4), of_slice(0, "0b", 6), of_slice(1, "1", 10))
"""The files of two tasks with one slice each. A third task has the other slices."""
TOGETHER = (of_many("2a", 7), of_many("2b", 2))


def test_rows_that_are_counted_and_in_files_are_proved() -> None:
    prove_files(PLAN, RECEIPTS, (*ALONE, *TOGETHER))
    prove_files(PLAN, RECEIPTS, (of_many("all", 29),))
    prove_files(PLAN, {}, ())


def test_a_slice_without_rows_needs_no_file() -> None:
    rowless = {2: replace(RECEIPTS[2], counts=Counts(compacted=5))}
    prove_files(PLAN, RECEIPTS | rowless, (*ALONE, of_many("2", 4)))


def test_a_slice_that_is_held_has_the_rows_up_to_there() -> None:
    held = {1: replace(RECEIPTS[1], until_offset=13, counts=Counts(landed=3))}
    prove_files(PLAN, RECEIPTS | held, (*ALONE[:2], of_slice(1, "1", 3), *TOGETHER))


def test_a_part_is_proved_by_its_own_receipts() -> None:
    prove_files(PLAN, {0: RECEIPTS[0]}, ALONE[:2])
    with pytest.raises(ProofFailed):
        prove_files(PLAN, {0: RECEIPTS[0]}, ALONE)


LOST_OR_DOUBLED: Mapping[str, Sequence[WrittenFile]] = {
    "no file at all": (),
    "one of two files of a slice is lost": (*ALONE[1:], *TOGETHER),
    "the only file of a slice is lost": (*ALONE[:2], *TOGETHER),
    "a file of several slices is lost": (*ALONE, TOGETHER[0]),
    "a file is there twice": (*ALONE, *TOGETHER, TOGETHER[1]),
    "a file is there in place of another": (*ALONE[:2], of_slice(0, "1", 10), *TOGETHER),
    "the same rows are in two files": (*ALONE, of_slice(1, "again", 10), *TOGETHER),
    "a file has one row too few": (*ALONE[:2], of_slice(1, "1", 9), *TOGETHER),
    "rows are with another slice": (of_slice(0, "0", 9), of_slice(1, "1", 11), *TOGETHER),
}


@pytest.mark.parametrize("case", LOST_OR_DOUBLED)
def test_files_that_are_lost_or_doubled_are_never_committed(case: str) -> None:
    with pytest.raises(ProofFailed) as caught:
        prove_files(PLAN, RECEIPTS, LOST_OR_DOUBLED[case])
    assert "nothing was committed" in caught.value.do


def test_a_transform_may_make_any_number_of_rows() -> None:
    prove_files(PLAN, RECEIPTS, (of_many("a", 1), of_many("b", 1000)), are_transformed=True)
    prove_files(PLAN, RECEIPTS, (), are_transformed=True)


def test_a_file_is_named_twice_after_a_transform() -> None:
    twice = (of_many("a", 15), of_many("a", 14))
    for are_transformed in (False, True):
        with pytest.raises(ProofFailed, match="a is named twice"):
            prove_files(PLAN, RECEIPTS, twice, are_transformed=are_transformed)


def test_files_of_two_incarnations_at_the_same_offsets_are_told_apart() -> None:
    both = (Slice(0, P0, 0, 10, topic_id="A"), Slice(1, P0, 0, 10, topic_id="B"))
    plan = replace(PLAN, ranges=tuple(Range(P0, 0, 10, s.topic_id) for s in both), slices=both)
    receipts = {s.index: Receipt(s.index, P0, 0, 10, Counts(landed=10)) for s in both}
    of_a = WrittenFile(data_file("a", 10), plan.ranges[0])
    of_b = WrittenFile(data_file("b", 10), plan.ranges[1])
    prove_files(plan, receipts, (of_a, of_b))
    prove_files(plan, receipts, (of_a, of_many("b", 10)))
    for wrong in (
        (of_a,),
        (of_a, WrittenFile(data_file("b", 10), plan.ranges[0])),
        (replace(of_a, file=data_file("a", 9)), replace(of_b, file=data_file("b", 11))),
    ):
        with pytest.raises(ProofFailed):
            prove_files(plan, receipts, wrong)


# --- the quarantine ---------------------------------------------------------------------


def quarantined(*files: DataFile) -> dict[int, Receipt]:
    losses = [
        Loss(P0, first, first + 2, LossKind.CORRUPT, "").with_action(Action.QUARANTINE)
        for first in (0, 2)
    ]
    counts = Counts(landed=6, quarantined=4)
    kept = replace(RECEIPTS[0], counts=counts, losses=tuple(losses), quarantine_files=files)
    return RECEIPTS | {0: kept}


@pytest.mark.parametrize("are_transformed", [False, True])
def test_each_quarantined_batch_has_its_bytes(are_transformed: bool) -> None:
    files = (of_slice(0, "0", 6), ALONE[2], *TOGETHER)
    for kept in ([data_file("q", 2)], [data_file("q", 1), data_file("r", 1)]):
        prove_files(PLAN, quarantined(*kept), files, are_transformed=are_transformed)
    for wrong in (
        [],
        [data_file("q", 1)],
        [data_file("q", 3)],
        [data_file("q", 1), data_file("q", 1)],
    ):
        with pytest.raises(ProofFailed):
            prove_files(PLAN, quarantined(*wrong), files, are_transformed=are_transformed)
