"""The checkpoint is mirrored to the group once, and changes by other clients are reported."""

from __future__ import annotations

from rangeland.job_group.offset_mirror import MirroredOffsets, mirror, notices, offsets_to_commit
from rangeland.model import Address, Leader, LogState, Partition
from rangeland.planning.incarnation import LogMark
from tests.fakes.group_backend import InMemoryGroupBackend, InMemoryGroups

P0, P1, P2 = (Partition("t", n) for n in range(3))


def log(partition: Partition, topic_id: str | None = "life-2") -> LogState:
    return LogState(partition, Leader(Address("h", 1), topic_id=topic_id), 0, 100)


def test_only_logs_that_are_there_in_the_same_incarnation_have_a_position() -> None:
    checkpoint = {P0: LogMark(5, "life-2"), P1: LogMark(7, "life-1"), P2: LogMark(9, "life-2")}
    assert offsets_to_commit(checkpoint, {P0: log(P0), P1: log(P1)}) == {P0: 5}


def test_what_the_group_has_already_is_not_written_again() -> None:
    backend = InMemoryGroupBackend(InMemoryGroups(), "a")
    written: list[object] = []

    def commit(offsets: object) -> None:
        written.append(offsets)
        backend.commit("g", offsets)  # type: ignore[arg-type]

    first = mirror(backend, "g", {P0: 5, P1: 7}, commit)
    assert (first.before, first.after) == ({P0: None, P1: None}, {P0: 5, P1: 7})
    second = mirror(backend, "g", {P0: 5, P1: 8}, commit)
    third = mirror(backend, "g", {P0: 5, P1: 8}, commit)
    assert written == [{P0: 5, P1: 7}, {P1: 8}]
    assert (second.changed, third.changed, third.differing) == ((P1,), (), ())


def test_a_group_that_somebody_has_moved_is_named_with_where_it_stood() -> None:
    found = MirroredOffsets({P0: 10, P1: 20}, {P0: 99, P1: 15}, {P0: 10, P1: 20})
    assert list(notices("g", found, {(P1, 15)})) == [
        "group g was at 99 of t/0, an offset that none of the last 20 landings of this job has "
        "committed: it is at the checkpoint now, 10"
    ]


def test_what_is_read_back_otherwise_is_named() -> None:
    found = MirroredOffsets({P0: 10}, {P0: None}, {P0: 12})
    (text,) = notices("g", found, ())
    assert "is at 12 of t/0 after the checkpoint 10 was mirrored" in text


def test_nothing_is_said_of_what_an_earlier_run_could_not_mirror() -> None:
    found = MirroredOffsets({P0: 10}, {P0: 5}, {P0: 10})
    assert list(notices("g", found, {(P0, 5), (P0, 10)})) == []
