"""The error for a transform that fails: the exception, the author's line, the records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from rangeland.errors import JobFileError, TransformFailed
from rangeland.model import Partition, Slice
from rangeland.spark.failing_records import located, narrowed
from rangeland.spark.transform import load_transform, raised_in, raised_of

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


def piece(index: int, start: int, end: int) -> Slice:
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
    slices = [piece(i, i * 1000, (i + 1) * 1000) for i in range(3)]
    (found,) = narrowed(slices, fails)
    assert (found.from_offset, found.until_offset) == (offset, offset + 1)
    assert fails.asked <= 15


def test_what_does_not_fail_again_is_not_named() -> None:
    assert narrowed([piece(0, 0, 100)], lambda _: False) == []


def test_only_what_was_seen_to_fail_is_named() -> None:
    """Here it takes both halves."""
    whole = [piece(0, 0, 100)]
    assert narrowed(whole, lambda slices: sum(s.width for s in slices) == 100) == whole


def test_a_search_that_meets_other_trouble_ends_with_what_it_has() -> None:
    whole = [piece(0, 0, 100)]

    def fails(slices: Sequence[Slice]) -> bool:
        if slices[0].width < 50:
            raise OSError("gone")
        return slices[0].from_offset == 0

    (found,) = narrowed(whole, fails)
    assert (found.from_offset, found.until_offset) == (0, 50)


def test_positions_in_bytes_are_not_cut() -> None:
    whole = [piece(0, 0, 100)]
    assert narrowed(whole, Failing(3), can_cut=False) == whole


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([piece(0, 7, 8)], "failed on orders/0 offset 7"),
        ([piece(0, 5, 8)], r"failed on a record of orders/0 \[5, 8\)"),
        ([], r"on a record of orders/0 \[0, 10\) or orders/0 \[10, 20\)\W"),
    ],
)
def test_the_error_names_the_records(found: list[Slice], words: str) -> None:
    error = TransformFailed("the transform m:f failed", why="KeyError: 'x'", exception="KeyError")
    said = located(error, found, [piece(0, 0, 10), piece(1, 10, 20)])
    with pytest.raises(TransformFailed, match=words):
        raise said
    assert said.facts["exception"] == "KeyError"
    many = [piece(i, i * 10, i * 10 + 10) for i in range(5)]
    assert "or orders/0 [20, 30) or 2 more slices:" in str(located(error, [], many))
    assert (said.facts["topic"], said.facts["partition"]) == ("orders", 0)
