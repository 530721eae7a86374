"""How a Spark job ends, if not with an error of Spark's own."""

from __future__ import annotations

import pytest

from rangeland.spark.gateway import without_startup_lines
from rangeland.spark.spark_jobs import task_results


def test_what_is_not_spark_s_is_raised_as_it_is_and_is_not_its_own_cause() -> None:
    with pytest.raises(EOFError) as gone:
        task_results(EOFError("gone"))
    assert gone.value.__cause__ is None


def test_a_jvm_s_usual_words_are_left_out_and_all_others_kept() -> None:
    said = (
        b"WARNING: Using incubator modules: jdk.incubator.vector\n"
        b'Setting default log level to "WARN".\n'
        b'Exception in thread "main"\n\tat x\nError: half a li'
    )
    assert without_startup_lines(said) == (
        b'Exception in thread "main"\n\tat x\nError: half a li',
        b"",
    )
    assert without_startup_lines(b"a\r\n\nb") == (b"a\r\n\nb", b"")


@pytest.mark.parametrize("at", [1, 9, 36, 37])
def test_usual_words_that_come_in_parts_are_left_out_as_well(at: int) -> None:
    said = b'Setting default log level to "WARN".\n'
    passed, begun = without_startup_lines(said[:at])
    assert passed == b""
    assert without_startup_lines(begun + said[at:] + b"Setup failed") == (b"Setup failed", b"")
