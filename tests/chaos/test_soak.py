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

import pytest

from rangeland import run as commands
from rangeland.job import Job
from rangeland.progress_events import NoProgress
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import create_topic
from tests.chaos.conftest import Start
from tests.chaos.driver import MOMENTS
from tests.chaos.drivers import Driver, command_of, kill_all
from tests.chaos.invariants import add_records, judge, judge_ledger, write_job

ROUNDS = int(os.environ.get("RANGELAND_ROUNDS", "12"))
PARTITIONS = 3


def harm(draw: random.Random, driver: Driver, path: Path) -> str:
    """Has the driver run the job and kills it on the way: at a moment, or a little after.
    What was done to it."""
    moment = draw.choice(MOMENTS)
    itself = draw.random() < 0.3
    who, delay_s = draw.choice(("all", "python", "java")), draw.random()
    driver.give(path, **{moment: "kill" if itself else "tell"})
    deadline = time.monotonic() + PATIENCE_S
    while driver.process.running and not driver.is_done and not driver.has_reached(moment):
        assert time.monotonic() < deadline, f"{moment} was never reached"
        time.sleep(0.01)
    if itself and not driver.is_done:
        driver.wait_until_killed()
        return f"itself at {moment}"
    time.sleep(delay_s)
    kill(who, driver)
    return f"{who} {delay_s:.2f} s after {moment}"


def kill(who: str, driver: Driver) -> None:
    """Ends all of the driver at once, or only its Python, or its JVM first."""
    members = driver.members()
    if who == "java":
        members = [m for m in members if "SparkSubmit" in command_of(m)]
    if who == "python":
        members = [m for m in members if m.pid == driver.process.pid]
    kill_all(members)
    if who == "java":
        # Without its JVM it can only say that this went wrong, if it was not done before.
        driver.result()
        driver.process.kill()
    driver.process.wait_for_end()
    driver.check_is_clean()


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
    for number in range(ROUNDS):
        more = draw.randrange(1, 20_000)
        add_records(kafka.bootstrap, topic, PARTITIONS, more, end)
        end += more
        driver = start()
        driver.wait_until_ready()
        how = harm(draw, driver, path)
        print(f"round {number}: {PARTITIONS * more} records, killed {how}", flush=True)
        if draw.random() < 0.5:
            commands.run(Job.load(path), spark, NoProgress())
    job = Job.load(path)
    commands.run(job, spark, NoProgress())
    assert commands.run(job, spark, NoProgress()).state == "nothing"
    judge(spark, table, dict.fromkeys(range(PARTITIONS), end))
    judge_ledger(spark, table)
