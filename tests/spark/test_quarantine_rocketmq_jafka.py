"""Damage in the logs of RocketMQ and Jafka, in whole runs: held, quarantined while the rest
lands, and landed from quarantine once it is repaired.

A byte is flipped in the broker's own file, so it serves damaged bytes without noticing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import rangeland
from rangeland import run
from rangeland.model import Counts
from rangeland.progress_events import NoProgress
from rangeland.testing.jafka import JafkaCluster
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.rocketmq_clients import produce
from tests.rocketmq_messages import INNER_BATCH, NEED_UNWRAP, inner, properties_of
from tests.spark import jafka_landings, rocketmq_landings
from tests.spark.damage import is_proved, losses, plans
from tests.spark.landings import job_of, stored_rows, table_of

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

HOLD, QUARANTINE = {"corrupt": "hold"}, {"corrupt": "quarantine"}


@pytest.fixture(scope="module")
def rocketmq() -> Iterator[RocketmqCluster]:
    """One master. Its log is harmed in messages of topics that have a test of their own."""
    with RocketmqCluster() as cluster:
        yield cluster


def flip(files: Iterable[Path], text: bytes) -> bytes:
    """A bit of the one place where the text stands in a broker's files; how it reads then."""
    wrong = bytes([text[0] ^ 0x10]) + text[1:]
    (file,) = [file for file in files if text in file.read_bytes()]
    data = file.read_bytes()
    assert data.count(text) == 1
    with file.open("r+b") as open_file:
        open_file.seek(data.index(text))
        open_file.write(wrong[:1])
    return wrong


def mend(spark: Any, table: str, wrong: bytes, right: bytes) -> None:
    """Puts back in the quarantine what was flipped in the log."""
    path = f"{table}/_rangeland/quarantine"
    (row,) = table_of(spark, path).select("records").collect()
    assert row["records"].count(wrong) == 1
    mended = bytes(row["records"]).replace(wrong, right)
    spark.sql(f"UPDATE delta.`{path}` SET records = unhex('{mended.hex()}')")


def redriven(spark: Any, job: Any) -> Counts:
    """What landing the quarantine's bytes came to; nothing may be left."""
    found = run.redrive(job, spark, NoProgress())
    assert found.done is not None
    assert (found.done.state, found.still_quarantined) == ("landed", ())
    assert run.redrive(job, spark, NoProgress()).to_json()["state"] == "nothing"
    assert rangeland.land(job, spark).state == "nothing"
    return found.done.counts


@pytest.mark.slow
def test_a_damaged_message_of_rocketmq_is_held_quarantined_and_landed_once_mended(
    rocketmq: RocketmqCluster, topic: str, spark: Any, table: str
) -> None:
    written = rocketmq_landings.Written(rocketmq, topic)
    written.fill("v", 20)
    right = b"v-broker-a-1-00007"
    wrong = flip((rocketmq.store() / "commitlog").iterdir(), right)
    holding = rocketmq_landings.rocketmq_job(written, table, policy=HOLD)
    held = rangeland.land(holding, spark)
    assert (held.counts, [x.loss.action for x in held.losses]) == (Counts(landed=27), ["hold"])
    before = [row for row in written.rows if row[1] == 0 or row[2] < 7]
    assert rocketmq_landings.landed_rows(table) == sorted(before)
    assert losses(spark, table) == [(topic, 1, 7, 20, 13, "corrupt", "hold")]
    again = rangeland.land(holding, spark)
    assert (again.state, len(again.held), plans(spark, table)) == ("nothing", 1, 1)

    job = rocketmq_landings.rocketmq_job(written, table, policy=QUARANTINE)
    assert rangeland.land(job, spark).counts == Counts(landed=12, quarantined=1)
    whole = [row for row in written.rows if row[1:3] != (1, 7)]
    assert rocketmq_landings.landed_rows(table) == sorted(whole)
    assert (topic, 1, 7, 8, 1, "corrupt", "quarantine") in losses(spark, table)
    assert rangeland.land(job, spark).state == "nothing"
    assert is_proved(spark, job)

    (left,) = run.redrive(job, spark, NoProgress(), dry_run=True).still_quarantined
    assert (left.decodes, left.why) == (False, "the checksum of its body is wrong")
    mend(spark, table, wrong, right)
    assert redriven(spark, job) == Counts(landed=1)
    assert rocketmq_landings.landed_rows(table) == sorted(written.rows)
    assert is_proved(spark, job)


@pytest.mark.slow
def test_a_damaged_batch_of_rocketmq_is_kept_whole_and_landed_by_the_tags_of_its_job(
    rocketmq: RocketmqCluster, topic: str, spark: Any, table: str
) -> None:
    rocketmq.create_topic(topic, 1, attributes="+queue.type=BatchCQ")
    named = [properties_of(("TAGS", tag)) for tag in "ABA"]
    for name in ("one", "two", "three"):
        held = [inner(f"{topic}-{name}-{n}".encode(), tags) for n, tags in enumerate(named)]
        told = {"INNER_NUM": "3", "UNIQ_KEY": name}
        flags = INNER_BATCH | NEED_UNWRAP
        produce(rocketmq.address(), topic, [b"".join(held)], properties=told, sys_flag=flags)
    right = f"{topic}-two-2".encode()
    wrong = flip((rocketmq.store() / "commitlog").iterdir(), right)
    source = {"dialect": "rocketmq", "tags": ["A"]}
    job = job_of(rocketmq.servers, table, topic, source=source, policy=QUARANTINE)
    counts = Counts(landed=4, filtered=2, quarantined=3)
    assert rangeland.land(job, spark).counts == counts
    assert offsets_of(spark, table) == [0, 2, 6, 8]
    assert losses(spark, table) == [(topic, 0, 3, 6, 3, "corrupt", "quarantine")]
    assert rangeland.land(job, spark).state == "nothing"
    assert is_proved(spark, job)
    mend(spark, table, wrong, right)
    assert redriven(spark, job) == Counts(landed=2, filtered=1)
    assert offsets_of(spark, table) == [0, 2, 3, 5, 6, 8]
    assert is_proved(spark, job)


def offsets_of(spark: Any, table: str) -> Sequence[int]:
    return sorted(row.offset for row in table_of(spark, table).select("offset").collect())


@pytest.mark.slow
def test_a_damaged_entry_of_jafka_is_held_quarantined_and_landed_once_mended(
    topic: str, spark: Any, table: str
) -> None:
    with JafkaCluster(partitions=2) as jafka:
        written = jafka_landings.Written(jafka, topic)
        written.add("1-0", jafka_landings.values_of("v", 20))
        written.add("1-1", jafka_landings.values_of("w", 20))
        right = b"w-00007"
        bad, behind = written.offsets("1-1")[7:9]
        end = written.ends["1-1"]
        wrong = flip(jafka.segments(topic, 1), right)
        holding = jafka_landings.jafka_job(jafka, table, topic, policy=HOLD)
        held = rangeland.land(holding, spark)
        assert (held.counts, [x.loss.action for x in held.losses]) == (Counts(landed=27), ["hold"])
        before = [row for row in written.rows if row[1] == 0 or row[2] < bad]
        assert jafka_landings.landed_rows(table) == sorted(before)
        assert losses(spark, table) == [(topic, 1, bad, end, end - bad, "corrupt", "hold")]
        again = rangeland.land(holding, spark)
        assert (again.state, len(again.held), plans(spark, table)) == ("nothing", 1, 1)

        job = jafka_landings.jafka_job(jafka, table, topic, policy=QUARANTINE)
        counts = Counts(landed=12, quarantined=behind - bad)
        assert rangeland.land(job, spark).counts == counts
        whole = [row for row in written.rows if row[1:3] != (1, bad)]
        assert jafka_landings.landed_rows(table) == sorted(whole)
        kept = (topic, 1, bad, behind, behind - bad, "corrupt", "quarantine")
        assert kept in losses(spark, table)
        assert rangeland.land(job, spark).state == "nothing"
        assert is_proved(spark, job)

        (left,) = run.redrive(job, spark, NoProgress(), dry_run=True).still_quarantined
        assert not left.decodes
        assert "checksum" in left.why
        mend(spark, table, wrong, right)
        assert redriven(spark, job) == Counts(landed=1)
        assert jafka_landings.landed_rows(table) == sorted(written.rows)
        assert is_proved(spark, job)

        typed_topic, typed_table = f"{topic}-typed", f"{table}-typed"
        written = jafka_landings.Written(jafka, typed_topic)
        for packed in (False, True):
            written.add("1-0", [b'{"id": 1}', b'{"name": "x"}', b'{"id": 3}'], packed=packed)
        strict, lax = (
            jafka_landings.jafka_job(
                jafka,
                typed_table,
                typed_topic,
                decode={"value": {"format": "json", "schema": f"{first}, name STRING"}},
                policy={"undecodable": "quarantine"},
            )
            for first in ("id BIGINT NOT NULL", "id BIGINT")
        )
        # An entry with a bad record is kept whole: its records have one offset.
        assert rangeland.land(strict, spark).landed == 2
        assert is_proved(spark, strict)
        assert redriven(spark, lax) == Counts(landed=4)
        found = [(row["offset"], row["position"]) for row in stored_rows(typed_table)]
        assert sorted(found) == sorted(row[2:4] for row in written.rows)
        assert is_proved(spark, lax)
