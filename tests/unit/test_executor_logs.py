"""Loggers that several jobs of one process silence at the same time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from rangeland.spark.executor_logs import SharedSilence, quiet_executors

PYSPARK = logging.getLogger("SQLQueryContextLogger")
CLUSTER: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://host:7077"))


@pytest.fixture(autouse=True)
def own_level() -> Iterator[None]:
    before = PYSPARK.level
    PYSPARK.setLevel(logging.INFO)
    yield
    PYSPARK.setLevel(before)


@pytest.mark.parametrize("first_to_leave", [0, 1])
def test_the_last_user_restores_the_levels_that_the_first_has_found(first_to_leave: int) -> None:
    stacks = [ExitStack(), ExitStack()]
    for stack in stacks:
        stack.enter_context(quiet_executors(CLUSTER))
    stacks[first_to_leave].close()
    assert PYSPARK.level == logging.CRITICAL
    stacks[1 - first_to_leave].close()
    assert PYSPARK.level == logging.INFO


def test_levels_are_restored_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), quiet_executors(CLUSTER):
        _ = 1 / 0
    assert PYSPARK.level == logging.INFO


def test_a_second_silence_keeps_the_levels_of_its_own_time() -> None:
    level = "info"
    silence = SharedSilence()

    def silenced() -> Callable[[], None]:
        nonlocal level
        found = level
        level = "off"

        def restore() -> None:
            nonlocal level
            level = found

        return restore

    with silence.held(silenced), silence.held(silenced):
        assert level == "off"
    level = "debug"  # its owner's decision
    with silence.held(silenced):
        assert level == "off"
    assert level == "debug"
