"""The Python interface refuses what the command line refuses."""

from __future__ import annotations

from typing import Any, cast

import pytest

import rangeland
from rangeland.errors import UsageError
from rangeland.job import Job
from rangeland.job.job_text import parse_job_text
from tests import sample_results as made

NO_SPARK = cast(Any, None)


@pytest.mark.parametrize("replace", [False, True])
def test_a_backfill_does_not_follow_the_checkpoint(replace: bool) -> None:
    job = Job.of(parse_job_text(made.JOB_YAML, "orders.yaml"))
    with pytest.raises(UsageError, match="a backfill does not follow the checkpoint"):
        rangeland.backfill(job, NO_SPARK, replace=replace)


def test_missing_rows_and_a_replaced_range_are_two_backfills() -> None:
    job = Job.of(parse_job_text(made.JOB_YAML, "orders.yaml"))
    with pytest.raises(UsageError, match="not both"):
        rangeland.backfill(job, NO_SPARK, missing=True, replace=True)


def test_all_public_names_are_listed_and_can_be_loaded() -> None:
    assert set(rangeland.__all__) <= set(dir(rangeland))
    assert all(getattr(rangeland, name) is not None for name in rangeland.__all__)
