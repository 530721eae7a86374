"""The error for a transform that fails: the exception, the author's line, the records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from pyspark.errors import PySparkException

from rangeland.cluster_settings import ClusterSettings
from rangeland.errors import JobFileError, TransformFailed
from rangeland.fetch.read_settings import ReadSettings
from rangeland.loss import Action, LossKind
from rangeland.model import Counts, Partition, Slice
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.policy import Policy
from rangeland.planning.slice_receipt import Receipt
from rangeland.spark.failing_records import (
    NotAttributable,
    RecordSearch,
    Trials,
    located_error,
    narrow_slices,
)
from rangeland.spark.omitted_records import OmittedRecords
from rangeland.spark.transform import RaisedByTransform, load_transform, raised_in, raised_of

ORDERS = Partition("orders", 0)
SPARK_4 = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback:
  File "/home/ada/my_module.py", line 5, in <lambda>
    f = F.udf(lambda v: {}['orders'], 'string')
                        ~~^^^^^^^^^^
KeyError: 'orders'
 SQLSTATE: 38000"""
SPARK_3 = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/home/ada/my_module.py", line 9, in change
    return frame.apply(parse)
  File "/usr/lib/python3/site-packages/pandas/core/frame.py", line 10374, in apply
    return op.apply().__finalize__(self, method="apply")
my_module.Unreadable: two
lines
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SPARK_4, "KeyError: 'orders' (my_module.py:5)"),
        (SPARK_3, "my_module.Unreadable: two lines (my_module.py:9)"),
        (
            'Traceback\n  File "a.py", line 1, in f\n    x\nStopIteration\n',
            "StopIteration (a.py:1)",
        ),
        ("no traceback at all", "PythonException: no traceback at all"),
    ],
)
def test_the_exception_and_the_author_s_line_are_found_in_what_spark_says(
    text: str, said: str
) -> None:
    assert str(raised_in(text)) == said


def test_an_error_of_ours_is_not_the_transform_s() -> None:
    """The tasks that read and write beside the transform name theirs by its class."""

    class PythonException(PySparkException):
        pass

    ours = SPARK_4.replace("KeyError: 'orders'", "rangeland.errors.Bug: a task failed.")
    assert raised_of(PythonException(ours)) is None
    assert str(raised_of(PythonException(SPARK_4))) == "KeyError: 'orders' (my_module.py:5)"
    assert raised_of(KeyError("orders")) is None


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("absent_module:change", None, "No module named"),
        ("broken:change", "def change(df:\n", r"SyntaxError: .*\(broken.py, line 1\)"),
        ("broken:change", "1 / 0\n", r"ZeroDivisionError: division by zero \(broken.py:1\)"),
        ("broken:change", "import sys\nsys.exit(3)\n", "SystemExit: 3"),
        ("broken:change", "", "has no attribute 'change'"),
        ("broken:change", "change = 3\n", "change is not a function but int"),
    ],
)
def test_a_module_that_cannot_be_used_is_a_mistake_in_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str | None, words: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "broken", raising=False)
    if text is not None:
        (tmp_path / "broken.py").write_text(text)
    with pytest.raises(JobFileError, match=words):
        load_transform(name)


def slice_(index: int, start: int, end: int) -> Slice:
    return Slice(index, ORDERS, start, end, 0, None)


class Failing:
    """Fails for slices that hold this offset."""

    def __init__(self, offset: int) -> None:
        self.offset, self.asked = offset, 0

    def __call__(self, slices: Sequence[Slice]) -> bool:
        self.asked += 1
        return any(s.from_offset <= self.offset < s.until_offset for s in slices)


@pytest.mark.parametrize("offset", [0, 999, 1000, 1234, 2999])
def test_the_record_is_found_by_halves(offset: int) -> None:
    fails = Failing(offset)
    slices = [slice_(i, i * 1000, (i + 1) * 1000) for i in range(3)]
    (found,) = narrow_slices(slices, fails)
    assert (found.from_offset, found.until_offset) == (offset, offset + 1)
    assert fails.asked <= 15


def test_what_does_not_fail_again_is_not_named() -> None:
    assert narrow_slices([slice_(0, 0, 100)], lambda _: False) == []


def test_only_what_was_seen_to_fail_is_named() -> None:
    """Here it takes both halves."""
    whole = [slice_(0, 0, 100)]
    assert narrow_slices(whole, lambda slices: sum(s.width for s in slices) == 100) == whole


def test_a_search_that_meets_other_trouble_ends_with_what_it_has() -> None:
    whole = [slice_(0, 0, 100)]

    def fails(slices: Sequence[Slice]) -> bool:
        if slices[0].width < 50:
            raise OSError("gone")
        return slices[0].from_offset == 0

    (found,) = narrow_slices(whole, fails)
    assert (found.from_offset, found.until_offset) == (0, 50)


def test_positions_in_bytes_are_not_cut() -> None:
    whole = [slice_(0, 0, 100)]
    assert narrow_slices(whole, Failing(3), can_cut=False) == whole


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([slice_(0, 7, 8)], "failed on orders/0 offset 7"),
        ([slice_(0, 5, 8)], r"failed on a record of orders/0 \[5, 8\)"),
        ([], r"on a record of orders/0 \[0, 10\) or orders/0 \[10, 20\)\W"),
    ],
)
def test_the_error_names_the_records(found: list[Slice], words: str) -> None:
    error = TransformFailed("the transform m:f failed", why="KeyError: 'x'", exception="KeyError")
    said = located_error(error, found, [slice_(0, 0, 10), slice_(1, 10, 20)])
    with pytest.raises(TransformFailed, match=words):
        raise said
    assert said.facts["exception"] == "KeyError"
    many = [slice_(i, i * 10, i * 10 + 10) for i in range(5)]
    assert "or orders/0 [20, 30) or 2 more slices:" in str(located_error(error, [], many))
    assert (said.facts["topic"], said.facts["partition"]) == ("orders", 0)


# --- records that are left out ----------------------------------------------------------------

RAISED = RaisedByTransform("KeyError", "'x'")


class FailingOn:
    """Fails for slices that hold one of these offsets; ``together`` for those that hold all."""

    def __init__(self, *offsets: int, together: bool = False) -> None:
        self.offsets, self.asked = offsets, 0
        self.quorum = all if together else any

    def __call__(self, slices: Sequence[Slice]) -> RaisedByTransform | None:
        self.asked += 1
        held = (any(s.from_offset <= o < s.until_offset for s in slices) for o in self.offsets)
        return RAISED if self.quorum(held) else None


def search_of(fails: FailingOn, most: int = 100, seconds: float = 10) -> RecordSearch:
    return RecordSearch(fails, most=most, seconds=seconds)


SLICES = [slice_(i, i * 1000, (i + 1) * 1000) for i in range(3)]


@pytest.mark.parametrize("offsets", [(0,), (1234,), (999, 1000), (5, 6, 7, 1500, 2999)])
def test_all_records_that_fail_by_themselves_are_found(offsets: tuple[int, ...]) -> None:
    fails = FailingOn(*offsets)
    found = search_of(fails).search(SLICES)
    assert [(one.slice.from_offset, one.slice.width) for one in found] == [
        (offset, 1) for offset in offsets
    ]
    assert [one.slice.index for one in found] == [offset // 1000 for offset in offsets]
    assert {one.raised for one in found} == {RAISED}
    assert fails.asked <= 30 * len(offsets)


@pytest.mark.parametrize(
    ("fails", "why"),
    [
        (FailingOn(3, 2000, together=True), "on several records together"),
        (FailingOn(*range(3000)), "on each of the first 20"),
        (FailingOn(*range(0, 3000, 2)), "on more than 50 of them"),
    ],
)
def test_other_failures_are_not_those_of_single_records(fails: FailingOn, why: str) -> None:
    with pytest.raises(NotAttributable, match=why):
        search_of(fails, most=50).search(SLICES)
    assert fails.asked < 1000


def test_a_search_for_all_records_ends_in_time() -> None:
    with pytest.raises(NotAttributable, match="not all found in"):
        search_of(FailingOn(3), seconds=-0.1).search(SLICES)


class Session:
    """In place of trials with Spark."""

    def __init__(self, fails: FailingOn) -> None:
        self.try_slices = fails


def blaming(
    action: Action, dialect: str = "kafka", kind: PlanKind = PlanKind.RUN
) -> OmittedRecords:
    settings = ReadSettings(ClusterSettings(dialect, ()), policy=Policy(undecodable=action))
    return OmittedRecords("m:f", settings, kind)


FAILED = TransformFailed("the transform m:f failed", why="KeyError: 'x'", do="correct it")


def omit(omitted: OmittedRecords, fails: FailingOn) -> TransformFailed | None:
    return omitted.omit_or_error(SLICES, cast(Trials, Session(fails)), FAILED)


def test_records_that_fail_are_omitted_from_then_on_with_the_reason() -> None:
    omitted = blaming(Action.QUARANTINE)
    assert omit(omitted, FailingOn(7, 1500)) is None
    assert omit(omitted, FailingOn(8)) is None
    reason = "KeyError: 'x'"
    assert omitted.settings.omitted == {0: {7: reason, 8: reason}, 1: {1500: reason}}
    assert omitted.trial.policy.of(LossKind.UNDECODABLE, "orders") is Action.SKIP
    assert omitted.trial.omitted == omitted.settings.omitted


@pytest.mark.parametrize(
    "omitted",
    [
        blaming(Action.FAIL),
        blaming(Action.HOLD),
        blaming(Action.SKIP, "jafka"),
        blaming(Action.SKIP, kind=PlanKind.REPLACE),
    ],
)
def test_where_no_record_may_be_omitted_none_is_searched(omitted: OmittedRecords) -> None:
    fails = FailingOn(7)
    assert omit(omitted, fails) is FAILED
    assert fails.asked == 0


def test_an_error_says_why_no_record_is_omitted() -> None:
    for fails, why in (
        (FailingOn(3, 2000, together=True), "several records together"),
        (FailingOn(), "it did not fail when they were read again"),
    ):
        omitted = blaming(Action.SKIP)
        error = omit(omitted, fails)
        assert error is not None
        assert "KeyError: 'x'; `policy.undecodable` only leaves out single records" in error.why
        assert why in error.why
        assert omitted.settings.omitted == {}


def receipt(**counts: int) -> Receipt:
    return Receipt(0, ORDERS, 0, 1000, Counts(**counts))


def test_a_transform_that_fails_on_all_there_is_is_to_blame_itself() -> None:
    omitted = blaming(Action.SKIP)
    omit(omitted, FailingOn(7, 8))
    with pytest.raises(TransformFailed, match="on each of the 2 records that it got") as caught:
        omitted.check_some_pass([receipt(lost=2, compacted=998)])
    assert "correct it, then run again" in caught.value.do
    omitted.check_some_pass([receipt(lost=2, landed=1)])
    omitted.check_some_pass([receipt(lost=2, filtered=1)])
    one = blaming(Action.SKIP)
    omit(one, FailingOn(7))
    one.check_some_pass([receipt(lost=1)])
    again = blaming(Action.QUARANTINE, kind=PlanKind.REDRIVE)
    omit(again, FailingOn(7))
    again.check_some_pass([receipt(quarantined=1, landed=1)])
    with pytest.raises(TransformFailed, match="on each of the 1 record that it got"):
        again.check_some_pass([receipt(quarantined=1)])
