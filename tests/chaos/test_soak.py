"""Kills at random moments, again and again, while records keep coming.

The seed is printed; ``RANGELAND_SEED`` repeats its choices (though not the machine's
timing), ``RANGELAND_ROUNDS`` makes it longer. Run it with ``pytest -m slow tests/chaos``.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from rangeland import run as commands
from rangeland.job import Job
from rangeland.results import Silent
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producing import create_topic
from tests.chaos.conftest import Start
from tests.chaos.driver import MOMENTS
from tests.chaos.drivers import Driver
from tests.chaos.judging import add_records, judge, judge_ledger, write_job

ROUNDS = int(os.environ.get("RANGELAND_ROUNDS", "12"))
PARTITIONS = 3


def kill(draw: random.Random, driver: Driver) -> str:
    """Ends all of the driver at once, or only its Python, or only its JVM."""
    what = draw.choice(("all", "python", "java"))
    if what == "java":
        for member in driver.members():
            if "org.apache.spark.deploy.SparkSubmit" in " ".join(member.cmdline()):
                member.kill()
    if what == "python":
        psutil.Process(driver.process.pid).kill()
    if what != "all":
        driver.process.wait_until(lambda: _over(driver), "its end", 90) if what == "java" else None
    driver.process.kill()
    driver.refuse_leftovers()
    return what


def _over(driver: Driver) -> bool:
    """A driver without its JVM tells an error, or ends."""
    return driver.is_done


@pytest.mark.slow
def test_each_record_lands_once_whatever_is_killed_whenever(
    kafka: KafkaCluster, topic: str, folder: Path, start: Start, spark: Any
) -> None:
    seed = int(os.environ.get("RANGELAND_SEED", random.randrange(1 << 32)))
    print(f"RANGELAND_SEED={seed} RANGELAND_ROUNDS={ROUNDS}")
    draw = random.Random(seed)
    create_topic(kafka.bootstrap, topic, PARTITIONS)
    table, end = folder / "table", 0
    path = write_job(folder / "job.yaml", kafka.bootstrap, topic, table)
    driver = start()
    for number in range(ROUNDS):
        more = draw.randrange(1, 20_000)
        add_records(kafka.bootstrap, topic, PARTITIONS, more, end)
        end += more
        driver.wait_until_ready()
        moment = draw.choice((*MOMENTS, None, None, None, None))
        delay_s = draw.random() * 3
        driver.give(path, **({moment: "kill"} if moment else {}))
        if moment is None:
            time.sleep(delay_s)
            how = f"{kill(draw, driver)} after {delay_s:.2f} s"
        else:
            driver.wait_until_killed()
            how = f"at the moment {moment}"
        print(f"round {number}: {PARTITIONS * more} records, killed {how}", flush=True)
        if draw.random() < 0.5:
            commands.run(Job.load(path), spark, Silent())
        driver = start()
    job = Job.load(path)
    commands.run(job, spark, Silent())
    assert commands.run(job, spark, Silent()).state == "nothing"
    judge(spark, table, dict.fromkeys(range(PARTITIONS), end))
    judge_ledger(spark, table)
