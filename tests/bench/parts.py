"""The parts of the benchmark. Each measures one thing and gives plain values for the JSON.

Sides go in turn, round by round, so that a disturbance hits all of them. What the last
landing has left to be written is written out before the next one's time begins.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rangeland import run
from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.connection.pool import ConnectionPool
from rangeland.spark.python_workers import MODULES, PACKAGES, import_probe
from rangeland.survey.cluster_survey import take_survey
from rangeland.survey.survey_request import SurveyRequest
from rangeland.testing.producer import Record, create_topic, fill, produce
from tests.bench.child import Order, measure_in_child
from tests.bench.competitors import SIDES, Ground, Side, job, measure
from tests.bench.measuring import load_average
from tests.bench.memory import WorkerMemory
from tests.bench.phases import Phases

Found = dict[str, Any]
MIB = 1 << 20
SURVEY_PARTITIONS = 1000
FIXED_ROUNDS = 5


@dataclass(frozen=True)
class Bench:
    """What the parts share. ``say`` tells a person what is being measured."""

    bootstrap: str
    folder: Path
    records: int
    rounds: int
    partitions: int
    say: Callable[[str], None]
    topics: dict[str, Ground] = field(default_factory=dict)

    @property
    def is_quick(self) -> bool:
        return self.records < 1_000_000

    def ground(self, codec: str, partitions: int = 0) -> Ground:
        """The topic of a codec, filled when it is first asked for."""
        count = partitions or self.partitions
        topic = f"views-{codec}-{count}"
        if topic not in self.topics:
            self.say(f"filling {topic} with {self.records:,} records")
            fill(self.bootstrap, topic, self.records, codec=codec, partitions=count)
            self.topics[topic] = Ground(self.bootstrap, topic, count, self.records)
        return self.topics[topic]


# --- landing, warm and cold -----------------------------------------------------------------


def warm(bench: Bench, ground: Ground, sides: Iterable[Side] = tuple(SIDES.values())) -> Found:
    """All sides in one session. Round 0 warms up and is dropped; it is counted like all."""
    found: Found = {"load": [load_average()]}
    found |= {"samples": {}, "cpu": {}, "bytes": {}, "phases": [], "peaks": []}
    for number in range(bench.rounds + 1):
        for side in sides:
            bench.say(f"warm {ground.topic}, round {number} of {bench.rounds}: {side.label}")
            _one_warm(bench, ground, side, number, found)
    found["load"].append(load_average())
    return found


def _one_warm(bench: Bench, ground: Ground, side: Side, number: int, found: Found) -> None:
    _wake_workers(ground.spark)
    os.sync()
    phases = Phases()
    with WorkerMemory() as memory:
        counted = side.is_cheap_to_count or number == 0
        if side.shows_phases:
            side = replace(side, land=_timed_by(phases, side))
        landing = measure(side, ground, bench.folder / "out", count=counted)
    if number == 0:
        return
    found["samples"].setdefault(side.name, []).append(round(landing.seconds, 3))
    found["cpu"].setdefault(side.name, []).append(round(landing.cpu_seconds, 3))
    found["bytes"][side.name] = landing.bytes_written
    if side.shows_phases:
        found["phases"].append(phases.taken)
        found["peaks"].append(memory.peak_bytes)


def _wake_workers(spark: Any) -> None:
    """PySpark ends a Python worker that was idle for a minute, which other sides may take: a warm
    landing finds workers that have imported what they need."""
    count = int(spark.sparkContext.defaultParallelism)
    probe = import_probe([*PACKAGES, *MODULES])
    spark.sparkContext.parallelize(range(count), count).mapPartitions(probe).collect()


def _timed_by(phases: Phases, side: Side) -> Callable[[Ground, Path], None]:
    def landing(ground: Ground, out: Path) -> None:
        phases.begin()
        side.land(ground, out, progress=phases)
        phases.end()

    return landing


def cold(bench: Bench, ground: Ground) -> Found:
    """A process for each landing. ``session``: from process start to a session with Delta;
    ``total``: to the end of the landing."""
    found: Found = {"load": [load_average()], "session": {}, "samples": {}, "total": {}}
    for number in range(bench.rounds):
        for name in ("rangeland", "spark", "stream"):
            bench.say(f"cold {ground.topic}, round {number + 1} of {bench.rounds}: {name}")
            os.sync()
            answer = measure_in_child(_order(bench, ground, name))
            total = answer.session_seconds + answer.seconds[0]
            found["session"].setdefault(name, []).append(round(answer.session_seconds, 3))
            found["samples"].setdefault(name, []).append(round(answer.seconds[0], 3))
            found["total"].setdefault(name, []).append(round(total, 3))
    found["load"].append(load_average())
    return found


def _order(bench: Bench, ground: Ground, side: str, **more: Any) -> Order:
    return Order(
        side,
        ground.bootstrap,
        ground.topic,
        ground.partitions,
        ground.records,
        str(bench.folder),
        **more,
    )


# --- one partition, cores and memory --------------------------------------------------------


def cores(bench: Bench, ground: Ground) -> Found:
    """One partition, landed with one and with two of this machine's cores: as Spark's slots
    (broker and helpers may use the other core) and with the whole Spark process, workers
    and all, pinned to one core. First landing of each process dropped."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    kinds: dict[str, dict[str, Any]] = {
        "two cores": {"master": "local[2]"},
        "one slot": {"master": "local[1]"},
    }
    if len(cpus) > 1:
        kinds["one core, pinned"] = {"master": "local[1]", "cpus": (cpus[0],)}
    found: Found = {"load": [load_average()], "samples": {}}
    for name, more in kinds.items():
        bench.say(f"one partition: {name}")
        order = _order(bench, ground, "rangeland", times=bench.rounds + 1, **more)
        found["samples"][name] = [round(s, 3) for s in measure_in_child(order).seconds[1:]]
    found["load"].append(load_average())
    return found


def memory(bench: Bench, ground: Ground) -> Found:
    """A worker's peak in a fresh process, by the size of its slices: one partition of plain
    bytes, so that a slice is as large as it says."""
    targets = [4 * MIB, 32 * MIB] if bench.is_quick else [64 * MIB, 128 * MIB, 512 * MIB]
    found: Found = {"load": [load_average()], "peaks": []}
    for target in targets:
        bench.say(f"memory: slices of {target // MIB} MiB")
        order = _order(bench, ground, "rangeland", times=2, target_bytes=target)
        answer = measure_in_child(order)
        found["peaks"].append(
            {
                "target_bytes": target,
                "slice_bytes": answer.slice_bytes,
                "peak_bytes": answer.peak_bytes,
            }
        )
    found["load"].append(load_average())
    return found


# --- what does not depend on the number of records -------------------------------------------


def fixed(bench: Bench, spark: Any) -> Found:
    """Runs that land one record, and runs that land nothing, in turn, in one table and a warm
    session; times of all phases in milliseconds. ``first`` makes the table."""
    topic = "fixed"
    create_topic(bench.bootstrap, topic, 4)
    ground = Ground(bench.bootstrap, topic, 4, 1, spark)
    out = bench.folder / "fixed"
    found: Found = {"load": [load_average()], "first": [], "one record": [], "nothing": []}
    for number in range(FIXED_ROUNDS + 1):
        bench.say(f"fixed cost, round {number} of {FIXED_ROUNDS}")
        produce(bench.bootstrap, topic, [Record(b"value", b"key")], partition=number % 4)
        one = _phases_of_run(ground, out, 1)
        nothing = _phases_of_run(ground, out, 0)
        if number == 0:
            found["first"].append(one)
        else:
            found["one record"].append(one)
            found["nothing"].append(nothing)
    found["load"].append(load_average())
    return found


def _phases_of_run(ground: Ground, out: Path, expected: int) -> dict[str, float]:
    phases = Phases()
    phases.begin()
    result = run.run(job(ground, out), ground.spark, phases)
    phases.end()
    if result.rows != expected:
        raise RuntimeError(f"a run landed {result.rows} rows, {expected} were there")
    taken = phases.taken
    return taken | {"total": round(sum(taken.values()), 1)}


def survey(bench: Bench, partitions: int = SURVEY_PARTITIONS) -> Found:
    """One look at a topic of many partitions: connection, leaders, both ends, sizes."""
    topic = "wide"
    bench.say(f"making a topic of {partitions} partitions")
    create_topic(bench.bootstrap, topic, partitions)
    ground = Ground(bench.bootstrap, topic, partitions, 0)
    settings = look_up_cluster(job(ground, bench.folder / "none"))
    found: Found = {"load": [load_average()], "partitions": partitions, "ms": []}
    for _ in range(bench.rounds + 1):
        started = time.perf_counter()
        with ConnectionPool(settings) as brokers:
            seen = take_survey(brokers, SurveyRequest(topics=(topic,)))
        found["ms"].append(round((time.perf_counter() - started) * 1000, 1))
        found["requests"] = seen.requests
        if len(seen.logs) != partitions:
            raise RuntimeError(f"the survey saw {len(seen.logs)} of {partitions} partitions")
    found["first_ms"] = found["ms"].pop(0)
    found["load"].append(load_average())
    return found


def by_codec(
    part: Callable[[Bench, Ground], Found], bench: Bench, codecs: Sequence[str], **more: Any
) -> Found:
    """A part for each codec's topic; ``more`` are fields of the ground."""
    measured = partial(part, bench)
    return {codec: measured(replace(bench.ground(codec), **more)) for codec in codecs}
