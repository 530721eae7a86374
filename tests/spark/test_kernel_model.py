"""The simulation's model of Delta Kernel and of what Spark commits, against the real ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from tests.spark.kernel_histories import KernelHistory

pytestmark = pytest.mark.spark
FEW, MANY, WITH_SPARK = 4, 300, 60
STEPS = 25
FIRST = int(os.environ.get("RANGELAND_SEED", "0"))


def test_a_few_histories_on_the_model_are_those_of_kernel(
    kernel: DeltaKernel, tmp_path: Path
) -> None:
    for seed in range(FEW):
        KernelHistory(seed, kernel, tmp_path).play(STEPS)


@pytest.mark.slow
def test_many_histories_on_the_model_are_those_of_kernel(
    kernel: DeltaKernel, tmp_path: Path
) -> None:
    for seed in range(FIRST, FIRST + MANY):
        KernelHistory(seed, kernel, tmp_path).play(STEPS)


@pytest.mark.slow
def test_histories_in_which_spark_changes_the_table_are_those_of_the_model(
    kernel: DeltaKernel, tmp_path: Path, spark: Any
) -> None:
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    for seed in range(FIRST, FIRST + WITH_SPARK):
        KernelHistory(seed, kernel, tmp_path, spark).play(STEPS)
