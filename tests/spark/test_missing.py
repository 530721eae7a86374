"""Whole runs over logs with unavailable offsets, on one real broker: slow remote storage, a
segment deleted from the disk, a log cut short under a plan. Nothing is called compacted without
evidence.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rangeland
from rangeland.api import FrozenPlan
from rangeland.errors import RangeLost, Unreachable
from rangeland.job import Job
from rangeland.jvm.jars import class_path
from rangeland.jvm.java import find_java
from rangeland.loss import LossKind
from rangeland.model import Counts, Partition
from rangeland.progress_events import NoProgress
from rangeland.queries import verify_and_find
from rangeland.query_results import FindState
from rangeland.testing.broker_jars import BROKER_JARS
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import WHOLE_BATCHES_MS, Record, create_topic, produce
from tests.spark.damage import checkpoints, is_proved, losses
from tests.spark.landings import QUICK, expected, job_of, offsets_in, offsets_of

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

SEGMENT = 10
"""Records of one segment."""
SEGMENTS = 4
WIDTH = SEGMENT * SEGMENTS
ROLLING = {"segment.ms": 100}
TIERED = ROLLING | {
    "remote.storage.enable": "true",
    "local.retention.ms": 1,
    "local.retention.bytes": 1,
    "retention.ms": -1,
}


@contextmanager
def cold_broker(directory: Path) -> Iterator[KafkaCluster]:
    """A broker with tiered storage, whose remote part is in the folder ``remote``."""
    remote, classes = directory / "remote", directory / "classes"
    remote.mkdir()
    classes.mkdir()
    (remote / "delay_ms").write_text("0")
    source = Path(__file__).with_name("ColdStorage.java")
    javac = str(Path(find_java()).with_name("javac"))
    jars = class_path(BROKER_JARS["kafka-4.1.0"])
    subprocess.run(
        [javac, "-cp", jars, "-d", str(classes), str(source)], check=True, timeout=PATIENCE_S
    )
    properties = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "ColdStorage",
        "remote.log.storage.manager.class.path": f"{classes}/",
        "rsm.config.folder": remote,
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
        "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
        "remote.log.manager.task.interval.ms": 500,
        "log.retention.check.interval.ms": 500,
        "log.initial.task.delay.ms": 500,
    }
    with KafkaCluster(properties=properties, directory=directory / "kafka") as cluster:
        yield cluster


def fill(kafka: KafkaCluster, topic: str, config: dict[str, object]) -> None:
    """One partition, a batch in each segment, and a last segment with one record."""
    create_topic(kafka.bootstrap, topic, config=config)
    for number in range(SEGMENTS):
        records = [Record(b"%d" % (SEGMENT * number + i), b"key-%d" % i) for i in range(SEGMENT)]
        produce(kafka.bootstrap, topic, records, batch_records=SEGMENT, linger_ms=WHOLE_BATCHES_MS)
        time.sleep(0.15)  # the next append rolls the segment
    produce(kafka.bootstrap, topic, [Record(b"last", b"last")])


def segments(kafka: KafkaCluster, topic: str) -> list[Path]:
    return sorted(kafka.directory.glob(f"data/kafka-*/{topic}-0/*.log"))


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with cold_broker(tmp_path_factory.mktemp("cold")) as cluster:
        yield cluster


def delay(cold: KafkaCluster, milliseconds: int) -> None:
    (cold.directory.parent / "remote" / "delay_ms").write_text(str(milliseconds))


def job(kafka: KafkaCluster, table: str, topic: str, **source: Any) -> Job:
    policy = source.pop("policy", {})
    return job_of(kafka.bootstrap, table, topic, source=source, policy=policy)


# --- remote storage that is slow ------------------------------------------------------------


@pytest.fixture(scope="module")
def tiered(cold: KafkaCluster) -> str:
    """A topic all of whose closed segments are in remote storage, and only there."""
    fill(cold, "tiered", TIERED)
    wait_until_cold(cold, "tiered")
    return "tiered"


def wait_until_cold(cold: KafkaCluster, topic: str) -> None:
    """Until no closed segment is on the broker's own disk."""
    deadline = time.monotonic() + PATIENCE_S
    while int((found := segments(cold, topic))[0].stem) < WIDTH:
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def test_what_slow_remote_storage_has_is_waited_for_and_never_called_compacted(
    cold: KafkaCluster, tiered: str, spark: Any, table: str
) -> None:
    delay(cold, 60_000)
    lenient = dict.fromkeys(("expired", "truncated", "missing"), "skip")
    with pytest.raises(Unreachable, match="answered without records") as caught:
        rangeland.land(job(cold, table, tiered, policy=lenient), spark)
    assert caught.value.exit_code == 75

    delay(cold, 0)  # what has been asked for has thawed by now
    result = rangeland.land(job(cold, table, tiered), spark)
    assert result.counts == Counts(landed=WIDTH + 1)
    assert offsets_in(table) == expected(p0=range(WIDTH + 1))


@pytest.mark.slow
def test_remote_storage_that_takes_longer_than_the_broker_waits_gives_all_records(
    cold: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    fill(cold, topic, TIERED)
    wait_until_cold(cold, topic)
    delay(cold, 1_500)  # for each segment; the broker waits for half a second
    patient = {"timeouts": QUICK | {"no_progress_ms": 60_000}}
    result = rangeland.land(job(cold, table, topic, **patient), spark)
    assert result.counts == Counts(landed=WIDTH + 1)


# --- a segment that is gone, and a log that is cut short --------------------------------------


@pytest.fixture(scope="module")
def harmed(cold: KafkaCluster, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """While the broker is down, ``hole`` and ``tidied`` lose their second and third segment,
    and ``cut`` all but its first, for which there is a plan."""
    fill(cold, "hole", ROLLING)
    fill(cold, "tidied", ROLLING | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 1})
    fill(cold, "cut", ROLLING)
    table = str(tmp_path_factory.mktemp("cut") / "table")
    plan = rangeland.plan(job(cold, table, "cut"), spark)
    cold.kill()
    for topic, gone in (("hole", (1, 2)), ("tidied", (1, 2)), ("cut", (1, 2, 3, 4))):
        found = segments(cold, topic)
        assert len(found) == SEGMENTS + 1, found
        for number in gone:
            for path in found[number].parent.glob(f"{found[number].stem}.*"):
                path.unlink()
    cold.restart()
    return plan


@pytest.mark.usefixtures("harmed")
def test_a_lost_segment_is_missing_and_a_policy_is_asked(
    cold: KafkaCluster, spark: Any, table: str
) -> None:
    with pytest.raises(RangeLost) as caught:
        rangeland.land(job(cold, table, "hole"), spark)
    error = caught.value
    assert error.exit_code == 66
    (loss,) = error.facts["losses"]
    assert (loss["verdict"], loss["from_offset"], loss["until_offset"]) == ("missing", 10, 30)
    assert "its cleanup.policy is delete" in str(error)
    assert "policy: {missing: skip}" in error.do

    held = rangeland.land(job(cold, table, "hole", policy={"missing": "hold"}), spark)
    assert (held.state, held.counts) == ("landed", Counts(landed=10))
    assert losses(spark, table)[-1][-2:] == ("missing", "hold")
    holding = job(cold, table, "hole", policy={"missing": "hold"})
    assert checkpoints(spark, holding) == {0: 10}
    assert rangeland.land(holding, spark).state == "nothing"

    skipping = job(cold, table, "hole", policy={"missing": "skip"})
    skipped = rangeland.land(skipping, spark)
    assert skipped.counts == Counts(landed=11, lost=20)
    assert ("hole", 0, 10, 30, 20, "missing", "skip") in losses(spark, table)
    assert offsets_in(table) == expected(p0=[*range(10), *range(30, WIDTH + 1)])
    assert rangeland.land(job(cold, table, "hole"), spark).state == "nothing"


@pytest.mark.usefixtures("harmed")
@pytest.mark.parametrize(("first", "until"), [(5, 15), (10, 30), (15, 25), (25, 35)])
@pytest.mark.slow
def test_a_range_that_begins_or_ends_in_a_gap_has_lost_what_lies_in_it(
    cold: KafkaCluster, spark: Any, first: int, until: int
) -> None:
    skipping = job_of(
        cold.bootstrap,
        "none",
        "hole",
        range={"from": {"hole": {0: first}}, "until": {"hole": {0: until}}},
        policy={"missing": "skip"},
    )
    left = [n for n in range(first, until) if not 10 <= n < 30]
    frame = rangeland.plan(skipping, spark).read(spark)
    assert offsets_of(frame) == expected(p0=left)


@pytest.mark.slow
@pytest.mark.usefixtures("harmed")
def test_the_same_gap_is_compacted_where_the_topic_or_the_job_says_so(
    cold: KafkaCluster, spark: Any, table: str
) -> None:
    result = rangeland.land(job(cold, table, "tidied"), spark)
    assert result.counts == Counts(landed=21, compacted=20)
    declared = job(cold, f"{table} declared", "hole", compacted=["ho.*"])
    assert rangeland.land(declared, spark).counts == Counts(landed=21, compacted=20)


def test_a_log_cut_short_under_a_plan_is_truncated_and_a_policy_is_asked_promptly(
    cold: KafkaCluster, spark: Any, harmed: FrozenPlan
) -> None:
    table = harmed.job.sink.table
    with pytest.raises(RangeLost) as caught:
        harmed.apply(spark)
    (loss,) = caught.value.facts["losses"]
    seen = (loss["verdict"], loss["from_offset"], loss["until_offset"])
    assert seen == (LossKind.TRUNCATED, 10, WIDTH + 1)

    # The plan is entered now, and a run finishes it first, long before its patience ends.
    found = verify_and_find.find(harmed.job, spark, Partition("cut", 0), 10, NoProgress())
    assert (found.state, found.why[:7]) == (FindState.NOT_LANDED, "plan 1 ")
    patient = {"timeouts": QUICK | {"no_progress_ms": 300_000}}
    started = time.monotonic()
    with pytest.raises(RangeLost, match="truncated"):
        rangeland.land(job(cold, table, "cut", **patient), spark)
    lenient = {"truncated": "skip"}
    result = rangeland.land(job(cold, table, "cut", policy=lenient, **patient), spark)
    assert time.monotonic() - started < 200
    assert (result.counts.landed, result.counts.lost) == (10, WIDTH + 1 - 10)
    assert offsets_in(table) == expected(p0=range(10))

    # What the log gets at these offsets later are records that have never been landed.
    strict = job(cold, table, "cut", **patient)
    assert checkpoints(spark, strict) == {0: 10}
    assert rangeland.land(strict, spark).state == "nothing"
    produce(cold.bootstrap, "cut", [Record(b"new-%d" % i, b"new") for i in range(3)])
    assert rangeland.land(strict, spark).counts == Counts(landed=3)
    assert offsets_in(table) == expected(p0=range(13))
    assert is_proved(spark, strict)
