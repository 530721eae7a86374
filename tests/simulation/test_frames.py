"""Data frames on the models: all of their records are from the planned logs, or they fail."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rangeland.dataframe.frozen_plan import freeze, tasks_of_frame
from rangeland.errors import RangeLost, Unreachable
from rangeland.landing.execution.slice_tasks import SliceTasks
from rangeland.model import Slice
from rangeland.spark import frame_log_check
from rangeland.spark.frame_log_check import check_logs_are_planned
from rangeland.spark.plan_frames import checked_batches
from tests.simulation import rocketmq
from tests.simulation.kafka import Cluster
from tests.simulation.logs import Log
from tests.simulation.replaced import Stage, simulated
from tests.simulation.typed_lake import TypedLake, as_json

ROWS = as_json([{"id": n} for n in range(4)])
OTHERS = as_json([{"id": 10 + n} for n in range(4)])


@pytest.fixture
def stage() -> Iterator[Stage]:
    with simulated() as stage:
        yield stage


class Frame:
    """A frame of four records, in Kafka with a task for each, whose tasks are run one by one."""

    def __init__(self, stage: Stage, dialect: str = "kafka", age: str = "4") -> None:
        self.lake = TypedLake(stage, dialect=dialect)
        if dialect == "kafka":
            cluster = Cluster(self.lake.world, age, per_response=2)
            stage.cluster = self.lake.cluster = cluster
        self.lake.produce("orders", ROWS)
        job = self.lake.job("id BIGINT", range={"from": "earliest"})
        self.plan, self.settings = freeze(job, min_tasks=4)
        self.tasks = tasks_of_frame(self.plan, 4, is_limited=False)
        if dialect == "kafka":
            ((whole,),) = self.tasks
            self.tasks = [
                [replace(whole, index=n, from_offset=n, until_offset=n + 1)] for n in range(4)
            ]

    @property
    def log(self) -> Log:
        return self.lake.cluster.topics["orders"].logs[0]

    @property
    def slices(self) -> list[Slice]:
        return [one for task in self.tasks for one in task]

    def read(self, *tasks: int) -> list[int]:
        """The ids in the records of these tasks."""
        batches = (
            batch
            for task in tasks
            for batch in checked_batches(self.plan, self.tasks[task], self.settings)
        )
        return [row["id"] for batch in batches for row in batch.column("value").to_pylist()]

    def elect_one_without(self, count: int, values: Sequence[bytes]) -> None:
        """An unclean election: the new leader lacks the last entries, and gets other ones."""
        self.log.truncate(count)
        self.lake.cluster.elect(self.log, Calm(), clean=False)
        self.lake.produce("orders", values)


class Calm(random.Random):
    """Elections that all brokers know of at once."""

    def random(self) -> float:
        return 1.0


@pytest.mark.parametrize("dialect", ["kafka", "jafka", "rocketmq"])
def test_a_frame_has_all_records_of_logs_that_do_not_change(stage: Stage, dialect: str) -> None:
    frame = Frame(stage, dialect)
    assert sorted(frame.read(*range(len(frame.tasks)))) == [0, 1, 2, 3]


@pytest.mark.parametrize("age", ["4", "2.4"])
def test_a_frame_has_no_records_that_an_unclean_election_has_put_in_place_of_others(
    stage: Stage, age: str
) -> None:
    frame = Frame(stage, age=age)
    assert frame.read(0) == [0]
    frame.elect_one_without(2, OTHERS)
    assert frame.read(1) == [1]  # the new log begins with the same records
    with pytest.raises(RangeLost) as raised:
        frame.read(2)
    assert "orders/0 [2, 3) truncated" in raised.value.what
    assert "load the frame again" in raised.value.do


@pytest.mark.parametrize("age", ["4", "2.4"])
@pytest.mark.parametrize("unaware", [1, 2, 3])
def test_a_broker_that_still_names_the_planned_leader_confirms_no_log_that_another_has_changed(
    stage: Stage, unaware: int, age: str
) -> None:
    frame = Frame(stage, age=age)
    cluster = frame.lake.cluster
    assert frame.read(0, 1) == [0, 1]
    before = cluster.leaders()
    frame.elect_one_without(2, OTHERS)
    cluster.stale[unaware] = (frame.lake.world.now_ms + 10_000_000, before)
    with pytest.raises((RangeLost, Unreachable)):
        frame.read(2, 3)


@pytest.mark.parametrize("unaware", [1, 2, 3])
def test_a_landing_is_not_confirmed_by_a_broker_that_still_names_the_planned_leader(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, unaware: int
) -> None:
    frame = Frame(stage)
    cluster, world = frame.lake.cluster, frame.lake.world
    read_all = SliceTasks.read_all

    def elect_first(tasks: SliceTasks, *arguments: Any, **more: Any) -> Any:
        before = cluster.leaders()
        frame.elect_one_without(2, OTHERS)
        cluster.stale[unaware] = (world.now_ms + 10_000_000, before)
        return read_all(tasks, *arguments, **more)

    monkeypatch.setattr(SliceTasks, "read_all", elect_first)
    (result,) = frame.lake.land(frame.lake.job("id BIGINT", range={"from": "earliest"}))
    assert isinstance(result, RangeLost)
    assert not frame.lake.versions or frame.lake.rows() == []


def test_a_leader_that_has_all_records_changes_nothing(stage: Stage) -> None:
    frame = Frame(stage)
    assert frame.read(0, 1) == [0, 1]
    frame.elect_one_without(0, OTHERS)
    assert frame.read(2, 3) == [2, 3]


def test_a_topic_that_is_created_again_while_a_task_reads_it_is_noticed(
    stage: Stage,
) -> None:
    frame = Frame(stage)
    batches = checked_batches(frame.plan, frame.slices, frame.settings)
    first = next(batches)
    assert first.num_rows < len(ROWS)
    frame.lake.cluster.recreate("orders")
    frame.lake.produce("orders", OTHERS)
    with pytest.raises(RangeLost, match="recreated"):
        list(batches)


def check_while(
    monkeypatch: pytest.MonkeyPatch, frame: Frame, trouble: Callable[[], None]
) -> list[int]:
    """All ids of the frame, if this trouble begins once everything was read."""

    def check(*arguments: Any) -> None:
        trouble()
        check_logs_are_planned(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(frame_log_check, "check_logs_are_planned", check)
        batches = list(checked_batches(frame.plan, frame.slices, frame.settings))
    return sorted(row["id"] for batch in batches for row in batch.column("value").to_pylist())


@pytest.mark.parametrize(
    ("dialect", "seconds"), [("kafka", 15), ("kafka", 45), ("jafka", 45), ("rocketmq", 3)]
)
def test_the_logs_are_checked_once_brokers_that_restart_are_up_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, dialect: str, seconds: int
) -> None:
    frame = Frame(stage, dialect)
    cluster = frame.lake.cluster

    def stop_brokers() -> None:
        nodes = range(10) if dialect != "rocketmq" else (rocketmq.MASTER, rocketmq.SLAVE)
        cluster.down = dict.fromkeys(nodes, frame.lake.world.now_ms + seconds * 1000)

    assert check_while(monkeypatch, frame, stop_brokers) == [0, 1, 2, 3]


@pytest.mark.parametrize("catches_up", [False, True])
def test_a_replica_confirms_a_frame_only_once_it_has_what_was_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, catches_up: bool
) -> None:
    frame = Frame(stage, "rocketmq")
    world = frame.lake.world
    for_long_ms = world.now_ms + 10_000_000

    def stop_master() -> None:
        frame.lake.cluster.down[rocketmq.MASTER] = for_long_ms
        for log in frame.lake.cluster.topics["orders"].logs:
            log.lags = (log.start, world.now_ms + 8_000 if catches_up else for_long_ms)

    if catches_up:
        assert check_while(monkeypatch, frame, stop_master) == [0, 1, 2, 3]
        return
    with pytest.raises(Unreachable, match="the replica may lag"):
        check_while(monkeypatch, frame, stop_master)


@pytest.mark.parametrize("dialect", ["kafka", "rocketmq"])
def test_a_topic_that_brokers_do_not_know_yet_is_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    frame = Frame(stage, dialect)
    cluster, world = frame.lake.cluster, frame.lake.world
    topics = dict(cluster.topics)

    def hide_topics() -> None:
        cluster.topics.clear()
        sleep = world.sleep
        known_at = world.now_ms + 2000

        def sleep_until_known(seconds: float) -> None:
            sleep(seconds)
            if world.now_ms >= known_at:
                cluster.topics.update(topics)

        monkeypatch.setattr(world, "sleep", sleep_until_known)

    assert check_while(monkeypatch, frame, hide_topics) == [0, 1, 2, 3]


def test_a_topic_that_stays_unknown_ends_the_frame_once_reading_would_give_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = Frame(stage)
    world = frame.lake.world
    start_ms = world.now_ms
    with pytest.raises(Unreachable, match="no longer exists"):
        check_while(monkeypatch, frame, frame.lake.cluster.topics.clear)
    no_progress_ms = frame.settings.cluster.no_progress_ms
    assert no_progress_ms < world.now_ms - start_ms < no_progress_ms + 15_000


def test_a_log_that_nobody_confirms_is_not_taken_for_unchanged(stage: Stage) -> None:
    frame = Frame(stage)
    batches = checked_batches(frame.plan, frame.slices, frame.settings)
    next(batches)
    frame.lake.cluster.down = dict.fromkeys(range(10), frame.lake.world.now_ms + 10_000_000)
    with pytest.raises(Unreachable):
        list(batches)
