"""What came of a Spark job, where it is no error of Spark's."""

from __future__ import annotations

import pytest

from rangeland.spark.jobs import settled


def test_what_is_not_spark_s_is_raised_as_it_is_and_is_not_its_own_cause() -> None:
    with pytest.raises(EOFError) as gone:
        settled(EOFError("gone"))
    assert gone.value.__cause__ is None
