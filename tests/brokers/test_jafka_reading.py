"""Logs of real Jafka brokers: what is found, what is read, and what is refused."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchOptions, PartitionFetch
from rangeland.dialects.jafka import messages
from rangeland.dialects.jafka.log_entries import scan
from rangeland.dialects.jafka.requests import read_records, records_requests
from rangeland.errors import BadRecord, JobFileError, RangeLost, Unreachable
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.read_settings import ReadSettings
from rangeland.loss import Action
from rangeland.model import Address, AtOffset, Bounds, Isolation, Latest, Partition, Slice
from rangeland.planning.policy import Policy
from rangeland.testing.jafka import JafkaCluster
from rangeland.testing.jafka_clients import JafkaClient, message, message_set, produce
from rangeland.testing.ports import free_ports
from rangeland.testing.processes import PATIENCE_S
from tests.brokers.jafka import log_of, read, settings_of
from tests.brokers.surveys import look, slice_of, slices_of
from tests.record_values import values_of

pytestmark = pytest.mark.brokers

SEGMENT_BYTES = 4096


@pytest.fixture(scope="module")
def jafka() -> Iterator[JafkaCluster]:
    """Two brokers with two partitions of each topic and small segments. Do not harm them."""
    with JafkaCluster(brokers=2, segment_bytes=SEGMENT_BYTES) as cluster:
        yield cluster


@pytest.fixture
def harmed() -> Iterator[JafkaCluster]:
    """One broker for one test, to be harmed."""
    with JafkaCluster(partitions=1, segment_bytes=SEGMENT_BYTES) as cluster:
        yield cluster


def starts_of(values: list[bytes], at: int = 0) -> list[int]:
    """Where plain messages begin that are written one behind the other."""
    return [at + sum(len(message(value)) for value in values[:i]) for i in range(len(values))]


# --- what is found ----------------------------------------------------------------------


def test_partitions_of_all_brokers_are_found_where_the_topic_is(
    jafka: JafkaCluster, topic: str
) -> None:
    for broker in jafka.ids:
        produce(jafka.address(broker), topic, [b"v"] * broker)
    only_second = f"{topic}-2"
    produce(jafka.address(2), only_second, [b"v"])
    survey = look(settings_of(jafka), topics=(topic, only_second))
    size = len(message(b"v"))
    ends = {(p.topic, p.broker, p.number): log.end_offset for p, log in survey.logs.items()}
    assert ends == {
        (topic, "1", 0): size,
        (topic, "1", 1): 0,
        (topic, "2", 0): 2 * size,
        (topic, "2", 1): 0,
        (only_second, "2", 0): size,
        (only_second, "2", 1): 0,
    }


def test_more_partitions_than_are_asked_for_at_first_are_all_found(topic: str) -> None:
    with JafkaCluster(partitions=11) as cluster:
        produce(cluster.address(), topic, [b"v"], partition=7)
        survey = look(settings_of(cluster), topics=(topic,))
    assert sorted(p.number for p in survey.logs) == list(range(11))


def test_a_topic_that_is_not_there_is_refused_and_not_made(jafka: JafkaCluster, topic: str) -> None:
    with pytest.raises(JobFileError, match=topic):
        look(settings_of(jafka), topics=(topic,))
    assert not any(path.name.startswith(topic) for path in jafka.directory.glob("data/*/*"))


def test_borders_are_where_segments_begin_and_the_log_ends(jafka: JafkaCluster, topic: str) -> None:
    end = produce(jafka.address(), topic, values_of("v", 600), batch=20)
    log = log_of(settings_of(jafka), topic)
    segments = [int(path.stem) for path in jafka.segments(topic)]
    assert len(segments) > 2
    assert log.borders == (*segments, end)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (0, end, end)


def test_a_time_is_looked_up_at_or_before_it(jafka: JafkaCluster, topic: str) -> None:
    end = produce(jafka.address(), topic, values_of("v", 600), batch=20)
    now_ms = time.time_ns() // 1_000_000
    times = (1_000, now_ms, now_ms + 3_600_000)
    survey = look(settings_of(jafka), topics=(topic,), times_ms=times)
    partition = Partition(topic, 0, "1")
    found = [survey.lookups.for_times[partition, t] for t in times]
    borders = survey.logs[partition].borders or ()
    assert found[0] == 0
    assert all(offset in borders and offset < end for offset in found)
    assert {(partition, t) for t in times} <= survey.lookups.inexact_times


def test_a_silent_broker_is_named(harmed: JafkaCluster, topic: str) -> None:
    produce(harmed.address(), topic, [b"v"])
    harmed.pause()
    with pytest.raises(Unreachable, match=harmed.address()):
        look(settings_of(harmed, request_ms=500, survey_ms=500), topics=(topic,))
    harmed.kill()
    with pytest.raises(Unreachable, match="refused"):
        look(settings_of(harmed, survey_ms=500), topics=(topic,))


def test_a_broker_whose_partitions_nobody_asks_for_may_be_away(
    jafka: JafkaCluster, topic: str
) -> None:
    produce(jafka.address(), topic, [b"v"])
    away = ("3", Address("127.0.0.1", free_ports(1)[0]))
    base = settings_of(jafka, survey_ms=500)
    settings = replace(base, named_brokers=(*base.named_brokers, away))
    survey = look(settings, topics=(topic,), partitions={topic: ["1-0", "1-1"]})
    assert {p.number for p in survey.logs} == {0, 1}
    assert "3" not in survey.absent.answered_brokers
    for partitions in ({topic: ["1-0", "3-0"]}, {topic: [0]}, {}):
        with pytest.raises(Unreachable, match="broker 3"):
            look(settings, topics=(topic,), partitions=partitions)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_a_mark_is_named_only_where_no_entry_begins(
    jafka: JafkaCluster, topic: str, packed: bool
) -> None:
    values = values_of("v", 400)
    end = produce(jafka.address(), topic, values, batch=40, packed=packed)
    settings, partition = settings_of(jafka), Partition(topic, 0, "1")
    size = len(message_set(values[:40], packed=True)) if packed else len(message(values[0]))
    for offset in (0, size, end, end + 9):
        assert look(settings, topics=(topic,), marks=((partition, offset),)).lookups.entries == {}
    place = (partition, size + 3)
    (found,) = look(settings, topics=(topic,), marks=(place,)).lookups.entries.items()
    assert (found[0], found[1][0]) == (place, size)


# --- what is read -----------------------------------------------------------------------


def test_plain_and_packed_messages_of_all_brokers_are_read_over_segments(
    jafka: JafkaCluster, topic: str
) -> None:
    wanted = []
    for broker in jafka.ids:
        for number in (0, 1):
            plain = values_of(f"plain-{broker}-{number}", 300)
            packed = values_of(f"packed-{broker}-{number}", 50)
            behind = values_of("behind", 10)
            at = produce(jafka.address(broker), topic, plain, number, batch=20)
            produce(jafka.address(broker), topic, packed, number, packed=True)
            end = at + len(message_set(packed, packed=True))
            produce(jafka.address(broker), topic, behind, number)
            where = (str(broker), number)
            wanted += [(*where, o, 0, v) for o, v in zip(starts_of(plain), plain, strict=True)]
            wanted += [(*where, at, i, v) for i, v in enumerate(packed)]
            wanted += [
                (*where, o, 0, v) for o, v in zip(starts_of(behind, end), behind, strict=True)
            ]
    settings = settings_of(jafka)
    survey = look(settings, topics=(topic,))
    found = read(slices_of(survey), settings)
    assert found.rows == sorted(wanted)
    assert found.counts.landed == found.counts.total == len(wanted)
    assert sum(r.offsets for r in found.receipts) == sum(
        log.end_offset for log in survey.logs.values()
    )


def test_a_range_of_whole_entries_is_read_and_no_other(jafka: JafkaCluster, topic: str) -> None:
    values = values_of("v", 300)
    produce(jafka.address(), topic, values, batch=20)
    settings = settings_of(jafka)
    log = log_of(settings, topic)
    starts = starts_of(values)
    found = read([slice_of(log, starts[100], starts[250])], settings)
    assert found.values == values[100:250]
    with pytest.raises(BadRecord, match=rf"occupies \[{starts[250]}, {starts[251]}\)") as caught:
        read([slice_of(log, 0, starts[250] + 3)], settings)
    assert caught.value.facts["base_offset"] == starts[250]


def test_the_entry_that_an_offset_is_in_is_found_from_the_nearest_segment(
    jafka: JafkaCluster, topic: str
) -> None:
    values = values_of("v", 600)
    produce(jafka.address(), topic, values, batch=20)
    starts, partition = starts_of(values), Partition(topic, 0, "1")
    wanted = ((partition, starts[450]), (partition, starts[450] + 5))
    bounds = tuple(Bounds(Latest(), {p: AtOffset(at)}) for p, at in wanted)
    survey = look(settings_of(jafka), topics=(topic,), bounds=bounds)
    assert survey.lookups.entries[wanted[0]] == (starts[450], starts[451])
    assert survey.lookups.entries[wanted[1]] == (starts[450], starts[451])


def test_a_range_that_begins_inside_an_entry_is_reported_as_such(
    jafka: JafkaCluster, topic: str
) -> None:
    produce(jafka.address(), topic, values_of("v", 20))
    settings = settings_of(jafka)
    with pytest.raises(BadRecord, match="inside an entry") as caught:
        read([slice_of(log_of(settings, topic), from_offset=3)], settings)
    assert caught.value.facts["base_offset"] == 3


def test_entries_larger_than_a_fetch_are_read(jafka: JafkaCluster, topic: str) -> None:
    values = [b"a", b"b" * 100_000, b"c", b"d" * 300_000]
    produce(jafka.address(), topic, values)
    settings = settings_of(jafka)
    patience = FetchLimits(fetch_bytes=512, smallest_fetch_bytes=512, no_progress_ms=4_000)
    found = read([slice_of(log_of(settings, topic))], settings, patience)
    assert found.values == values


def test_a_fetch_ends_with_its_segment(jafka: JafkaCluster, topic: str) -> None:
    end = produce(jafka.address(), topic, values_of("v", 600), batch=20)
    segments = [int(path.stem) for path in jafka.segments(topic)]
    partition, at, seen = Partition(topic, 0, "1"), 0, []
    terms = FetchOptions(Isolation.READ_COMMITTED, 0, 1 << 20)
    with JafkaClient(jafka.address()) as client:
        while at < end:
            asked = [PartitionFetch(partition, None, None, at, 1 << 20)]
            response = client.ask(records_requests(asked, terms)[0].message)
            (part,) = read_records([response], asked, Isolation.READ_COMMITTED).partitions
            behind = scan(part.records).next_offset
            assert behind is not None
            assert behind == at + len(part.records)
            at = behind
            seen.append(at)
    assert seen == [*segments[1:], *([end] if segments[-1] != end else [])]


def test_a_broker_is_found_where_it_is_now_and_no_other_responses_for_it(
    jafka: JafkaCluster, topic: str
) -> None:
    """Its former address, which a plan may still name, may be another's by now."""
    for broker in jafka.ids:
        produce(jafka.address(broker), topic, [b"of broker %d" % broker])
    settings = settings_of(jafka)
    first, second = log_of(settings, topic), log_of(settings, topic, broker="2")
    misled = replace(slice_of(first), leader=second.leader.address)
    assert read([misled], settings).values == [b"of broker 1"]
    named_brokers, seeds = settings.named_brokers[1:], settings.seeds[1:]
    alone = replace(settings, named_brokers=named_brokers, seeds=seeds, no_progress_ms=500)
    with pytest.raises(Unreachable, match=f"{topic}/1-0") as caught:
        read([misled], alone)
    assert "no broker of that name is registered" in caught.value.why


WITHOUT_KAZOO = """
import pickle, sys
sys.modules["kazoo"] = None
from rangeland.spark import executor_tasks
from rangeland.fetch.receipt_builder import ReceiptBuilder
slices, settings = pickle.load(sys.stdin.buffer)
tally = ReceiptBuilder(slices)
for chunk in executor_tasks.read_slices(slices, settings):
    tally.add(chunk)
print(sum(receipt.counts.landed for receipt in tally.receipts()))
"""


def test_executors_need_no_client_of_zookeeper(jafka: JafkaCluster, topic: str) -> None:
    produce(jafka.address(), topic, values_of("v", 600), batch=20)
    settings = settings_of(jafka)
    task = pickle.dumps((slices_of(look(settings, topics=(topic,))), ReadSettings(settings)))
    command = [sys.executable, "-c", WITHOUT_KAZOO]
    done = subprocess.run(command, input=task, capture_output=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout.split()) == (0, [b"600"]), done.stderr.decode()


def test_many_slices_of_a_broker_are_asked_for_at_once(jafka: JafkaCluster, topic: str) -> None:
    asked = []
    for number in (0, 1):
        produce(jafka.address(), topic, [b"v"], number)
        asked.append(PartitionFetch(Partition(topic, number, "1"), None, None, 0, 1024))
    asked.append(PartitionFetch(Partition(topic, 9, "1"), None, None, 0, 1024))
    asked.append(PartitionFetch(Partition(topic, 0, "1"), None, None, 1 << 40, 1024))
    terms = FetchOptions(Isolation.READ_COMMITTED, 0, 1 << 20)
    with JafkaClient(jafka.address()) as client:
        response = client.ask(records_requests(asked, terms)[0].message)
    parts = read_records([response], asked, Isolation.READ_COMMITTED).partitions
    assert [part.meaning for part in parts] == [
        ErrorMeaning.OK,
        ErrorMeaning.OK,
        ErrorMeaning.FIND_LEADER,
        ErrorMeaning.OUT_OF_RANGE,
    ]
    assert [bytes(part.records.data) for part in parts[:2]] == [message(b"v")] * 2


# --- what is refused, and what is lost --------------------------------------------------


def test_a_partition_that_is_not_there_is_never_called_empty(
    jafka: JafkaCluster, topic: str
) -> None:
    produce(jafka.address(), topic, [b"v"])
    settings = settings_of(jafka, no_progress_ms=500)
    leader = log_of(settings, topic).leader.address
    missing = Slice(0, Partition(topic, 9, "1"), 0, 10, 0, None, leader)
    with pytest.raises((RangeLost, Unreachable), match=f"{topic}/1-9"):
        read([missing], settings)


def test_asking_for_the_end_of_a_partition_that_is_not_there_ends_the_connection(
    jafka: JafkaCluster, topic: str
) -> None:
    produce(jafka.address(), topic, [b"v"])
    with JafkaClient(jafka.address()) as client:
        assert client.end_offset(topic, 1) == 0
        with pytest.raises(Unreachable, match="closed"):
            client.end_offset(topic, 9)


def test_a_write_that_is_refused_is_an_error(jafka: JafkaCluster, topic: str) -> None:
    with JafkaClient(jafka.address()) as client:
        bad = memoryview(message(b"v")[:-1] + b"w")
        client.send(messages.ProduceRequest(topic=topic, partition=0, messages=bad))
        with pytest.raises(Unreachable, match=jafka.address()):
            client.end_offset(topic)


def test_a_log_goes_on_where_it_was_after_a_crash(harmed: JafkaCluster, topic: str) -> None:
    first, second = values_of("first", 300), values_of("second", 300)
    produce(harmed.address(), topic, first, batch=20)
    settings = settings_of(harmed)
    before = log_of(settings, topic)
    harmed.kill()
    harmed.restart()
    assert log_of(settings, topic) == before
    end = produce(harmed.address(), topic, second, batch=20)
    found = read([slice_of(log_of(settings, topic))], settings)
    assert found.values == first + second
    assert [r.until_offset for r in found.receipts] == [end]


def test_a_reading_goes_on_when_its_broker_comes_back(harmed: JafkaCluster, topic: str) -> None:
    values = values_of("v", 300)
    produce(harmed.address(), topic, values, batch=20)
    settings = settings_of(harmed, no_progress_ms=30_000)
    log = log_of(settings, topic)
    harmed.kill()
    harmed.restart(wait=False)
    found = read([slice_of(log)], settings)
    assert found.values == values


def test_bytes_that_retention_took_are_lost_and_said_so(harmed: JafkaCluster, topic: str) -> None:
    values = values_of("v", 600)
    produce(harmed.address(), topic, values, batch=20)
    settings = settings_of(harmed)
    before = log_of(settings, topic)
    harmed.stop()
    first, second, *_ = harmed.segments(topic)
    first.unlink()
    harmed.restart()
    log = log_of(settings, topic)
    assert log.start_offset == int(second.stem)
    with pytest.raises(RangeLost, match=str(log.start_offset)):
        read([slice_of(before)], settings)
    found = read([slice_of(before)], settings_of(harmed), policy=Policy(expired=Action.SKIP))
    assert found.values == values[-len(found.values) :]
    assert found.counts.lost == log.start_offset


def test_a_log_that_ends_before_a_range_is_lost_and_said_so(
    harmed: JafkaCluster, topic: str
) -> None:
    end = produce(harmed.address(), topic, values_of("v", 20))
    settings = settings_of(harmed, no_progress_ms=5_000)
    log = log_of(settings, topic)
    with pytest.raises(RangeLost, match=str(end)):
        read([slice_of(log, end + 10, end + 20)], settings)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_a_damaged_entry_is_refused_or_gone_around(
    harmed: JafkaCluster, topic: str, packed: bool
) -> None:
    values = values_of("v", 30)
    for start in (0, 10, 20):
        produce(harmed.address(), topic, values[start : start + 10], packed=packed)
    settings = settings_of(harmed)
    log = log_of(settings, topic)
    (file,) = harmed.segments(topic)
    data = bytearray(file.read_bytes())
    bad = len(message_set(values[:10], packed=packed))
    end = bad + len(message_set(values[10:20], packed=True) if packed else message(values[10]))
    data[end - 1] ^= 0x10
    file.write_bytes(data)
    with pytest.raises(BadRecord, match="checksum") as caught:
        read([slice_of(log)], settings)
    assert (caught.value.facts["base_offset"], caught.value.facts["next_offset"]) == (bad, end)
    found = read([slice_of(log)], settings_of(harmed), policy=Policy(corrupt=Action.SKIP))
    assert found.values == values[:10] + values[20 if packed else 11 :]
    assert found.counts.lost == end - bad
    assert found.counts.landed == len(found.values)
