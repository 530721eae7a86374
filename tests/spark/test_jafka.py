"""Jafka's logs in Delta tables: real brokers, a real ZooKeeper, each record once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rangeland
from rangeland.cluster_access.backend_choice import open_backend
from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.errors import JobFileError, UsageError
from rangeland.job import Job
from rangeland.landing.target.landing_target import open_target
from rangeland.model import Counts, Partition
from rangeland.planning.plan_kind import PlanKind
from rangeland.progress_events import NoProgress
from rangeland.queries import job_status, verify_and_find
from rangeland.run import preview
from rangeland.testing.jafka import JafkaCluster
from tests.record_values import values_of
from tests.servers.jafka_console import console_consume
from tests.servers.zookeeper_server import ZooKeeperServer
from tests.spark.jafka_landings import Written, jafka_job, landed_rows
from tests.spark.landings import table_of

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

SEGMENT_BYTES = 4096
PARTITIONS = [("1", 0), ("2", 0), ("1", 1), ("2", 1)]
Sql = Callable[[str], list[Any]]


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(chroots=("/jafka",)) as server:
        yield server


@pytest.fixture(scope="module")
def jafka(zookeeper: ZooKeeperServer) -> Iterator[JafkaCluster]:
    """Two brokers with two partitions of each topic and small segments. Do not harm them."""
    chroot = f"{zookeeper.address}/jafka"
    with JafkaCluster(brokers=2, zookeeper=chroot, segment_bytes=SEGMENT_BYTES) as cluster:
        yield cluster


@pytest.fixture
def written(jafka: JafkaCluster, topic: str) -> Written:
    """A topic with plain and packed entries in several segments of all partitions."""
    made = Written(jafka, topic)
    made.fill()
    return made


# --- what lands ---------------------------------------------------------------------------------


def test_what_was_produced_is_landed_and_no_more(
    jafka: JafkaCluster, written: Written, spark: Any, table: str
) -> None:
    job = jafka_job(jafka, table, written.topic)
    first = rangeland.land(job, spark)
    assert landed_rows(table) == sorted(written.rows)
    assert first.counts == Counts(landed=len(written.rows))
    answer = json.loads(json.dumps(first.to_json()))
    none = dict.fromkeys(("control", "aborted", "compacted", "filtered", "quarantined", "lost"), 0)
    assert answer["partitions"] == [
        {
            "topic": written.topic,
            "partition": number,
            "broker": broker,
            "from_offset": 0,
            "until_offset": written.ends[f"{broker}-{number}"],
            "landed": len(written.of(f"{broker}-{number}")),
            **none,
        }
        for broker, number in PARTITIONS
    ]
    assert (answer["state"], answer["landed"]) == ("landed", len(written.rows))

    assert rangeland.land(job, spark).state == "nothing"
    written.add("2-1", values_of("more", 30))
    written.add("1-0", values_of("more", 30), packed=True)
    assert rangeland.land(job, spark).counts == Counts(landed=60)
    assert landed_rows(table) == sorted(written.rows)


def test_servers_by_name_and_zookeeper_are_the_same_source(
    jafka: JafkaCluster, written: Written, spark: Any, table: str
) -> None:
    named = jafka_job(jafka, table, written.topic, source={"servers": jafka.servers})
    found = jafka_job(jafka, table, written.topic)
    assert (named.source.zookeeper, found.source.servers) == (None, ())
    assert rangeland.land(named, spark).counts.landed == len(written.rows)
    assert rangeland.land(found, spark).state == "nothing"
    written.add("2-0", values_of("more", 5))
    assert rangeland.land(found, spark).counts.landed == 5
    assert rangeland.land(named, spark).state == "nothing"
    assert landed_rows(table) == sorted(written.rows)


def test_topics_of_a_pattern_are_found_in_zookeeper(
    jafka: JafkaCluster, spark: Any, topic: str, table: str
) -> None:
    topics = [Written(jafka, f"{topic}-{name}") for name in ("a", "b", "other")]
    for made in topics:
        made.add("2-1", values_of(made.topic, 20))
        made.wait_for_registration(1)
    source = {"topics": [], "topic_pattern": f"{topic}-."}
    job = jafka_job(jafka, table, topic, source=source)
    assert rangeland.land(job, spark).counts.landed == 40
    landed = {row["topic"] for row in table_of(spark, table).collect()}
    assert landed == {made.topic for made in topics[:2]}


def only_even_positions(frame: Any) -> Any:
    return frame.where("position % 2 = 0")


@pytest.mark.slow
def test_a_transform_makes_rows_of_messages_inside_entries(
    jafka: JafkaCluster, written: Written, spark: Any, table: str
) -> None:
    transform = "tests.spark.test_jafka:only_even_positions"
    sink = {"transform": transform, "partition_by": ["broker"]}
    result = rangeland.land(jafka_job(jafka, table, written.topic, sink=sink), spark)
    kept = sorted(row for row in written.rows if row[3] % 2 == 0)
    assert landed_rows(table) == kept
    assert result.counts == Counts(landed=len(kept), filtered=len(written.rows) - len(kept))
    assert verify_and_find.verify(
        jafka_job(jafka, table, written.topic), spark, NoProgress()
    ).is_well


def test_a_frame_is_read_without_a_landing(
    jafka: JafkaCluster, written: Written, spark: Any, table: str
) -> None:
    found = rangeland.plan(jafka_job(jafka, table, written.topic), spark).read(spark).collect()
    rows = [(r["broker"], r["partition"], r["offset"], r["position"], r["value"]) for r in found]
    assert sorted((*row[:4], bytes(row[4])) for row in rows) == sorted(written.rows)


@pytest.mark.parametrize("by", ["date(timestamp)", "hour( timestamp )", "timestamp"])
def test_a_layout_by_the_time_that_messages_have_not_is_refused(
    jafka: JafkaCluster, table: str, by: str
) -> None:
    with pytest.raises(JobFileError, match=r"sink\.partition_by.*no timestamp"):
        jafka_job(jafka, table, "orders", sink={"partition_by": ["topic", by]})
    transformed = {"partition_by": [by], "transform": "a_module:with_time"}
    assert jafka_job(jafka, table, "orders", sink=transformed).sink.partition_by == (by,)


# --- what is asked for --------------------------------------------------------------------------


def between(topic: str, which: str, start: int, end: int) -> dict[str, Any]:
    return {"from": {topic: {which: start}}, "until": {topic: {which: end}}}


def test_a_backfill_lands_whole_entries_of_one_broker_s_partition(
    jafka: JafkaCluster, written: Written, spark: Any, table: str
) -> None:
    starts = written.offsets("1-0")
    low, high = starts[100], starts[-3]
    part = jafka_job(jafka, table, written.topic, range=between(written.topic, "1-0", low, high))
    result = rangeland.backfill(part, spark)
    wanted = [row for row in written.of("1-0") if low <= row[2] < high]
    assert {row[3] for row in wanted} > {0, 1}
    assert landed_rows(table) == wanted
    assert result.counts.landed == len(wanted)
    assert rangeland.backfill(part, spark).state == "already-landed"
    # What a backfill has landed is left out of the runs, and theirs is whole.
    rangeland.land(jafka_job(jafka, table, written.topic), spark)
    assert landed_rows(table) == sorted(written.rows)


@pytest.mark.parametrize("side", ["from", "until"])
def test_an_offset_inside_an_entry_is_refused_with_those_beside_it(
    jafka: JafkaCluster, written: Written, spark: Any, table: str, side: str
) -> None:
    starts = written.offsets("2-1")
    at = starts.index(max(row[2] for row in written.of("2-1") if row[3] > 0))
    before, behind = starts[at], starts[at + 1]
    bounds = {"from": starts[10], "until": starts[-1], side: before + 7}
    asked = between(written.topic, "2-1", bounds["from"], bounds["until"])
    with pytest.raises(JobFileError, match=f"Use {before} or {behind}") as caught:
        rangeland.backfill(jafka_job(jafka, table, written.topic, range=asked), spark)
    assert caught.value.exit_code == 78
    assert caught.value.facts["nearest"] == [before, behind]


def test_runs_under_a_limit_end_where_segments_do_and_land_all(
    jafka: JafkaCluster, written: Written, spark: Any, table: str
) -> None:
    limits = {"max_bytes": 3 * SEGMENT_BYTES * len(PARTITIONS) // 2}
    job = jafka_job(jafka, table, written.topic, limits=limits)
    borders = {
        which: {int(path.stem) for path in jafka.segments(written.topic, number, int(broker))}
        for broker, number in PARTITIONS
        for which in (f"{broker}-{number}",)
    }
    runs = []
    while (result := rangeland.land(job, spark)).state == "landed":
        runs.append(result)
        for entry in result.ranges:
            which = str(entry.range.partition).rpartition("/")[2]
            end = entry.range.until_offset
            assert end == written.ends[which] or end in borders[which]
    assert len(runs) > 1
    assert landed_rows(table) == sorted(written.rows)


def test_a_limit_in_records_is_refused(
    jafka: JafkaCluster, written: Written, spark: Any, table: str
) -> None:
    job = jafka_job(jafka, table, written.topic, limits={"max_records": 10})
    with pytest.raises(JobFileError, match="max_bytes"):
        rangeland.land(job, spark)


def test_a_time_is_said_to_be_approximate(
    jafka: JafkaCluster, written: Written, spark: Any, table: str
) -> None:
    job = jafka_job(jafka, table, written.topic, range={"from": "2026-01-01T00:00:00Z"})
    notes = preview(job, spark, NoProgress(), PlanKind.BACKFILL).draft.notes
    assert len(notes) == len(PARTITIONS)
    assert all("at or before the time" in note for note in notes)
    assert rangeland.backfill(job, spark).counts.landed == len(written.rows)


# --- what the table proves ----------------------------------------------------------------------


@pytest.fixture
def landed(jafka: JafkaCluster, written: Written, spark: Any, table: str) -> Job:
    """All of the topic, in two landings."""
    job = jafka_job(jafka, table, written.topic)
    rangeland.land(job, spark)
    written.add("1-1", values_of("second", 40), packed=True)
    rangeland.land(job, spark)
    return job


def verified(job: Job, spark: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        json.dumps(verify_and_find.verify(job, spark, NoProgress()).to_json())
    )
    return found


def places(ranges: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [
        (f"{r['broker']}-{r['partition']}", r["from_offset"], r["until_offset"]) for r in ranges
    ]


@pytest.mark.slow
def test_a_message_that_is_missing_is_noticed_and_landed_again(
    landed: Job, written: Written, spark: Any, table: str, sql: Sql
) -> None:
    found = verified(landed, spark)
    assert (found["ok"], found["holes"], found["duplicates"]) == (True, [], [])
    inside = next(row for row in written.of("1-1") if row[3] == 7)
    alone = written.of("2-0")[50]
    for broker, number, offset, position, _ in (inside, alone):
        sql(
            f"DELETE FROM delta.`{table}` WHERE broker = '{broker}' AND partition = {number} "
            f"AND offset = {offset} AND position = {position}"
        )
    torn = verified(landed, spark)
    first_end = next(row[2] for row in written.of("1-1") if row[4] == b"second-00000")
    assert not torn["ok"]
    assert places(torn["holes"]) == [("2-0", 0, written.ends["2-0"]), ("1-1", 0, first_end)]
    mended = rangeland.backfill(landed, spark, missing=True)
    assert (mended.state, mended.counts.lost) == ("landed", 0)
    assert landed_rows(table) == sorted(written.rows)
    assert verified(landed, spark)["ok"]
    assert rangeland.backfill(landed, spark, missing=True).state == "nothing"
    assert rangeland.land(landed, spark).state == "nothing"


@pytest.mark.slow
def test_rows_that_others_have_added_are_distinguished(
    landed: Job, written: Written, spark: Any, table: str, sql: Sql
) -> None:
    inside = next(row for row in written.of("2-1") if row[3] == 3)
    whole = f"SELECT * FROM delta.`{table}` WHERE broker = '2' AND partition = 1"
    sql(f"INSERT INTO delta.`{table}` {whole} AND offset = {inside[2]} AND position = 3")
    found = verified(landed, spark)
    assert not found["ok"]
    assert places(found["duplicates"]) == [("2-1", inside[2], inside[2] + 1)]
    assert found["holes"] == []


@pytest.mark.slow
def test_a_replaced_range_is_the_log_s_again(
    jafka: JafkaCluster, landed: Job, written: Written, spark: Any, table: str, sql: Sql
) -> None:
    sql(f"UPDATE delta.`{table}` SET value = CAST('x' AS BINARY) WHERE broker = '1'")
    asked = {"from": {written.topic: {"1-0": 0}}, "until": {written.topic: {"1-0": "latest"}}}
    part = jafka_job(jafka, table, written.topic, range=asked)
    result = rangeland.backfill(part, spark, replace=True)
    assert result.counts.landed == len(written.of("1-0"))
    rows = landed_rows(table)
    assert [row for row in rows if row[:2] == ("1", 0)] == written.of("1-0")
    assert {row[4] for row in rows if row[:2] == ("1", 1)} == {b"x"}
    assert verified(landed, spark)["ok"]


def test_an_offset_is_found_by_its_broker(
    landed: Job, written: Written, spark: Any, table: str
) -> None:
    starts = written.offsets("1-1")
    last = next(row[2] for row in written.of("1-1") if row[4] == b"second-00000")

    def find(offset: int, broker: str = "1") -> dict[str, Any]:
        partition = Partition(written.topic, 1, broker)
        found = verify_and_find.find(landed, spark, partition, offset, NoProgress())
        return found.to_json()

    found = find(last)
    assert (found["state"], found["sequence"], found["broker"]) == ("landed", 2, "1")
    assert found["leader"] == written.cluster.address(1)
    assert find(starts[0])["sequence"] == 1
    assert find(last + 3)["state"] == "no-row"
    assert find(1 << 40)["state"] == "not-landed"
    assert find(starts[0], "3")["state"] == "not-landed"
    with pytest.raises(UsageError, match=r"1-1, .*2-1"):
        find(last, "")


# --- groups -------------------------------------------------------------------------------------


def lines(name: str, count: int) -> list[str]:
    return [value.decode() for value in values_of(name, count)]


def test_a_run_goes_on_where_upstream_s_consumer_stopped_and_the_other_way_round(
    jafka: JafkaCluster, spark: Any, topic: str, table: str
) -> None:
    assert jafka.zookeeper is not None
    written = Written(jafka, topic)
    for which in ("1-0", "1-1", "2-0", "2-1"):
        written.add(which, values_of(f"theirs-{which}", 20))
        written.add(which, values_of(f"packed-{which}", 40), packed=True)
    written.wait_for_registration()
    theirs = sorted(row[4].decode() for row in written.rows)
    group = f"group-of-{topic}"
    job = jafka_job(jafka, table, topic, group={"id": group}, range={"first_run": f"group:{group}"})
    home = open_backend(job, look_up_cluster(job))
    home.commit(group, {Partition(topic, n, b): 0 for b, n in PARTITIONS})
    home.close()
    assert sorted(console_consume(jafka.zookeeper, topic, group, idle_ms=1500)) == theirs

    written.rows.clear()
    for which in ("1-0", "2-1"):
        written.add(which, values_of(f"ours-{which}", 40), packed=True)
        written.add(which, values_of(f"plain-{which}", 15))
    result = rangeland.land(job, spark)
    assert result.warnings == ()
    assert landed_rows(table) == sorted(written.rows)

    written.add("1-0", values_of("last", 10), packed=True)
    written.add("2-0", values_of("last", 3))
    again = sorted(lines("last", 10) + lines("last", 3))
    assert sorted(console_consume(jafka.zookeeper, topic, group, idle_ms=1500)) == again


def test_the_checkpoint_is_of_entries_that_are_landed(
    landed: Job, written: Written, spark: Any
) -> None:
    shown = job_status.status(landed, spark, NoProgress()).to_json()
    seen = {f"{p['broker']}-{p['partition']}": p for p in shown["partitions"]}
    assert {which: p["checkpoint"] for which, p in seen.items()} == written.ends
    written.add("2-0", values_of("later", 4))
    lag = {
        f"{p['broker']}-{p['partition']}": p["lag"]
        for p in job_status.status(landed, spark, NoProgress()).to_json()["partitions"]
    }
    assert lag == {**dict.fromkeys(seen, 0), "2-0": 4 * (10 + len(b"later-00000"))}
    assert open_target(spark, landed).history.position(landed.application).topics == {written.topic}
