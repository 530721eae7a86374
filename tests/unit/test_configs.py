"""The job files that are shipped as examples."""

from __future__ import annotations

from pathlib import Path

import pytest

from rangeland.job import Job

EXAMPLES = sorted(Path(__file__).parents[2].joinpath("configs").glob("*.yaml"))


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_a_job_file_named_after_its_job(path: Path) -> None:
    assert Job.load(path).job == path.stem
