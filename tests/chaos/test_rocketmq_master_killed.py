"""The master is killed in the middle of a whole run, which finishes from its slave; when the
master is back the group gets its offsets, and upstream's own consumer goes on from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rangeland import run as commands
from rangeland.job import Job
from rangeland.model import Counts
from rangeland.progress_events import NoProgress
from rangeland.queries.verify_and_find import find
from rangeland.testing.rocketmq import RocketmqCluster
from tests.brokers.rocketmq import run_clients
from tests.chaos.rocketmq_drivers import offsets, wait_for_slaves, write_job
from tests.chaos.test_leader_killed import Harming
from tests.record_values import values_of
from tests.spark.rocketmq_landings import Written, landed_rows

pytestmark = pytest.mark.slow
COUNT, MORE = 40_000, 5
TIMEOUTS = {"connect_ms": 1_000, "request_ms": 3_000, "survey_ms": 20_000, "no_progress_ms": 60_000}


@pytest.fixture(scope="module")
def pair() -> Iterator[RocketmqCluster]:
    """A master with its slave, to be harmed. A slave that comes late begins with the last file
    of the master's log, so it has to be there before there are several."""
    with RocketmqCluster(slaves=True) as cluster:
        early = Written(cluster, "early", 1)
        early.fill("early", 1)
        wait_for_slaves(early)
        yield cluster


def test_a_run_whose_master_is_killed_is_finished_from_the_slave_and_mirrored_later(
    pair: RocketmqCluster, topic: str, folder: Path, spark: Any
) -> None:
    written = Written(pair, topic, 2)
    written.fill("first", COUNT)
    wait_for_slaves(written)
    path = write_job(written, folder, timeouts=TIMEOUTS)
    job = Job.load(path)

    progress = Harming(lambda _: pair.kill())
    result = commands.run(job, spark, progress)
    assert progress.harmed is not None, "reading was over before the master could be killed"
    assert pair.running == ["namesrv-1", "broker-a-slave"]
    assert (result.state, result.counts) == ("landed", Counts(landed=2 * COUNT))
    assert any("is not mirrored" in warning for warning in result.warnings)
    assert landed_rows(folder / "table") == sorted(written.rows)
    last = find(job, spark, progress.harmed, COUNT - 1, NoProgress()).to_json()
    assert last["leader"] == pair.address("broker-a-slave")

    # The slave goes on being read while the master is gone, and has nothing new.
    assert commands.run(job, spark, NoProgress()).state == "nothing"
    pair.restart()
    repaired = commands.run(job, spark, NoProgress())
    assert (repaired.state, repaired.warnings) == ("nothing", ())
    assert offsets(path, written) == dict.fromkeys(written.queues, COUNT)
    for queue in written.queues:
        written.add("broker-a", queue.number, values_of(f"after-{queue.number}", MORE))
    came = run_clients("consume", pair.servers[0], topic, f"group-of-{topic}", str(2 * MORE))
    assert sorted((int(queue), int(at)) for queue, at, *_ in came) == [
        (queue.number, COUNT + n) for queue in written.queues for n in range(MORE)
    ]
