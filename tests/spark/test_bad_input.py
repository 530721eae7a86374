"""What is wrong is said, with its exit code and its remedy, and nothing is landed for it.

Through the command line where that is how a person meets the mistake. A refusal leaves the
table as it was, file by file. A run that fails while it reads may leave files of its tasks
that had done well: no version of the table lists them, and VACUUM takes them away."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rangeland
from rangeland import Job
from rangeland.cli import command_line
from rangeland.errors import (
    BadRecord,
    RangeLost,
    StorageFailed,
    TableRefused,
    TransformFailed,
)
from rangeland.model import Counts
from rangeland.progress_events import NoProgress
from rangeland.queries import job_check
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.ports import free_ports
from rangeland.testing.producer import (
    CODECS,
    WHOLE_BATCHES_MS,
    Record,
    create_topic,
    delete_records,
    numbered_records,
    produce,
    wait_for_leader,
)
from tests.spark.landings import QUICK, between, expected, job_of, offsets_in, table_of

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

Called = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def called(spark: Any, capfd: pytest.CaptureFixture[str]) -> Called:
    """Runs a command with ``--json``: exit code, the answer, and all that was printed."""

    def call(*arguments: str) -> tuple[int, dict[str, Any], str]:
        capfd.readouterr()
        code = command_line.main([*arguments, "--json"])
        out, err = capfd.readouterr()
        return code, json.loads(out.splitlines()[-1]), out + err

    return call


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def files_of(table: str | Path) -> dict[str, tuple[int, int]]:
    """All files under a table's folder, the ledger's too, with size and time."""
    root = Path(table)
    return {
        str(path.relative_to(root)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


def log_of(files: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Those of the table's own log: if it is the same, so are version and listed files."""
    return {name: at for name, at in files.items() if name.startswith("_delta_log/")}


def visible(files: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Those of the table itself: its log and its data, without the ledger."""
    return {name: at for name, at in files.items() if not name.startswith("_rangeland/")}


def filled(kafka: KafkaCluster, topic: str, count: int = 10) -> str:
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(count), batch_records=4)
    return topic


# --- job files ------------------------------------------------------------------------------

JOB = """\
job: orders
source:
  servers: [127.0.0.1:9]
  topics: [orders]
range:
  from: earliest
  until: latest
limits:
  max_records: 10
sink:
  table: nowhere
"""

MISTAKES = {
    "unknown key": ("  topics: [orders]", "  topcis: [orders]", 4, "source.topcis"),
    "unknown section": ("limits:", "limit:", 8, "limit"),
    "wrong type": ("max_records: 10", "max_records: many", 9, "limits.max_records"),
    "negative": ("max_records: 10", "max_records: -1", 9, "limits.max_records"),
    "bad time": ("from: earliest", "from: 2026-13-01T00:00Z", 6, "range.from"),
    "bad word": ("until: latest", "until: newest", 7, "range.until"),
    "bad offset": ("from: earliest", "from: {orders: {0: -3}}", 6, "range.from"),
    "bad server": ("[127.0.0.1:9]", "[no-port]", 3, "source.servers"),
    "no topics": ("topics: [orders]", "topics: []", 2, "source"),
    "no table": ("  table: nowhere", "  compression: zstd", 10, "sink.table"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_job_file_is_reported_by_file_line_and_field(
    tmp_path: Path, called: Called, mistake: str
) -> None:
    right, wrong, line, field = MISTAKES[mistake]
    assert JOB.count(right) == 1
    path = written(tmp_path / "orders.yaml", JOB.replace(right, wrong))
    code, answer, _ = called("run", path)
    assert (code, answer["exit"], answer["error"]) == (78, 78, "JobFileError")
    assert f"{path}:{line}: {field}: " in answer["message"]
    assert (answer["facts"]["file"], answer["facts"]["line"]) == (path, line)


# --- what the cluster does not have ----------------------------------------------------------


def job_file(tmp_path: Path, job: Job, **source: Any) -> str:
    """A file for the command line that says what this job says of servers and table."""
    document = {
        "job": job.name,
        "source": {
            "servers": list(job.source.servers),
            "topics": list(job.source.topics),
            "timeouts": QUICK,
            **source,
        },
        "sink": {"table": job.sink.table},
    }
    return written(tmp_path / "job.yaml", json.dumps(document))


def test_a_topic_that_does_not_exist_is_an_error_and_no_empty_success(
    kafka: KafkaCluster, topic: str, table: str, tmp_path: Path, called: Called
) -> None:
    path = job_file(tmp_path, job_of(kafka.bootstrap, table, topic))
    for command in ("plan", "run"):
        code, answer, _ = called(command, path)
        assert code == 78
        assert f"There is no topic {topic}" in answer["message"]
    assert not Path(table).exists()


def test_a_partition_that_does_not_exist_is_an_error(
    kafka: KafkaCluster, topic: str, table: str, tmp_path: Path, called: Called
) -> None:
    filled(kafka, topic)
    job = job_of(kafka.bootstrap, table, topic)
    path = job_file(tmp_path, job, partitions={topic: [0, 7]})
    code, answer, _ = called("run", path)
    assert code == 78
    assert f"{topic} has no partition 7" in answer["message"]
    path = job_file(tmp_path, job)
    asked = json.dumps({topic: {"7": 0}}), json.dumps({topic: {"7": 5}})
    code, answer, _ = called("backfill", path, "--from", asked[0], "--until", asked[1])
    assert code == 78
    assert f"{topic}/7" in answer["message"]
    assert not Path(table).exists()


def test_a_range_that_begins_after_its_end_is_an_error(
    kafka: KafkaCluster, topic: str, table: str, tmp_path: Path, called: Called
) -> None:
    filled(kafka, topic)
    path = job_file(tmp_path, job_of(kafka.bootstrap, table, topic))
    pairs = [
        (json.dumps({topic: {"0": 7}}), json.dumps({topic: {"0": 3}})),
        ("2026-02-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("latest", "earliest"),
    ]
    for start, end in pairs:
        code, answer, _ = called("backfill", path, "--from", start, "--until", end)
        assert (code, answer["error"]) == (78, "JobFileError"), answer
        assert "begins" in answer["message"]
    assert not Path(table).exists()


def test_no_broker_is_reported_with_every_address_and_its_reason(
    table: str, tmp_path: Path, called: Called
) -> None:
    servers = [f"127.0.0.1:{port}" for port in free_ports(2)]
    path = job_file(tmp_path, job_of(servers, table, "orders"))
    code, answer, _ = called("run", path)
    assert (code, answer["error"]) == (75, "Unreachable")
    for server in servers:
        assert f"{server}: [Errno 111] Connection refused" in answer["message"]
    assert answer["retry"] == "yes, later"
    assert not Path(table).exists()


# --- offsets that the log does not have --------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "lost", "remedy"),
    [((2, 8), (2, 4), "policy: {expired: skip}"), ((6, 25), (10, 25), "wait until it has")],
    ids=["below its start", "above its end"],
)
def test_offsets_outside_the_log_are_lost_by_name_and_nothing_changes(
    kafka: KafkaCluster,
    spark: Any,
    topic: str,
    table: str,
    tmp_path: Path,
    called: Called,
    asked: tuple[int, int],
    lost: tuple[int, int],
    remedy: str,
) -> None:
    filled(kafka, topic)
    rangeland.backfill(
        job_of(kafka.bootstrap, table, topic, range=between(topic, p0=(0, 1))), spark
    )
    delete_records(kafka.bootstrap, topic, {0: 4})
    before = files_of(table)
    path = job_file(tmp_path, job_of(kafka.bootstrap, table, topic))
    start, end = (json.dumps({topic: {"0": offset}}) for offset in asked)
    code, answer, _ = called("backfill", path, "--from", start, "--until", end)
    assert (code, answer["error"]) == (66, "RangeLost")
    assert f"{topic}/0 [{lost[0]}, {lost[1]})" in answer["message"]
    assert remedy in answer["message"]
    assert files_of(table) == before


@pytest.mark.slow
def test_offsets_that_expire_under_a_plan_fail_it_and_a_policy_lets_it_go_on(
    kafka: KafkaCluster, spark: Any, topic: str, table: str, module: Callable[[str], str]
) -> None:
    """Reviewed only, it is refused before it is entered; entered by a run that its transform has
    ended, it is read."""
    filled(kafka, topic)
    job = job_of(kafka.bootstrap, table, topic)
    reviewed = rangeland.plan(job_of(kafka.bootstrap, f"{table} 2", topic), spark)
    broken = module('return df.where(F.raise_error(F.lit("no")).isNull())')
    with pytest.raises(TransformFailed):
        rangeland.land(job_of(kafka.bootstrap, table, topic, sink={"transform": broken}), spark)
    delete_records(kafka.bootstrap, topic, {0: 4})
    with pytest.raises(RangeLost, match=r"\[0, 4\) expired: the log begins at 4"):
        reviewed.apply(spark)
    with pytest.raises(RangeLost, match=r"\[0, 4\) expired.*nearest valid offset is 4"):
        rangeland.land(job, spark)
    assert table_of(spark, table).count() == 0
    skipping = job_of(kafka.bootstrap, table, topic, policy={"expired": "skip"})
    result = rangeland.land(skipping, spark)
    assert (result.recovered, result.counts) == ((1,), Counts(landed=6, lost=4))
    assert offsets_in(table) == expected(p0=range(4, 10))


# --- records that cannot be decoded ------------------------------------------------------------


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A broker on whose disk one byte of one value of each topic ``damaged-<codec>`` was
    changed; the broker itself does not look when it serves."""
    with KafkaCluster() as cluster:
        for codec in CODECS:
            create_topic(cluster.bootstrap, f"damaged-{codec}", partitions=2)
            for partition in (0, 1):
                for batch in range(3):
                    records = [Record(b"MARK" * 20), *numbered_records(10, start=10 * batch)]
                    produce(
                        cluster.bootstrap,
                        f"damaged-{codec}",
                        records,
                        codec=codec,
                        partition=partition,
                        linger_ms=WHOLE_BATCHES_MS,
                    )
        cluster.stop(1)
        for codec in CODECS:
            damage_second_batch(cluster, f"damaged-{codec}-1")
        cluster.restart(1)
        for codec in CODECS:
            wait_for_leader(cluster.bootstrap, f"damaged-{codec}")
        yield cluster


def damage_second_batch(cluster: KafkaCluster, folder: str) -> None:
    (segment,) = cluster.directory.glob(f"data/kafka-1/{folder}/*.log")
    data = bytearray(segment.read_bytes())
    second = 12 + int.from_bytes(data[8:12], "big")
    end = second + 12 + int.from_bytes(data[second + 8 : second + 12], "big")
    data[end - 20] ^= 0x01
    segment.write_bytes(data)


@pytest.mark.parametrize("codec", CODECS)
def test_a_damaged_batch_ends_the_run_and_nothing_of_it_is_landed(
    damaged: KafkaCluster, spark: Any, table: str, tmp_path: Path, called: Called, codec: str
) -> None:
    topic = f"damaged-{codec}"
    job = job_of(damaged.bootstrap, table, topic)
    good = job_of(damaged.bootstrap, table, topic, range=between(topic, p0=(0, 5)))
    rangeland.backfill(good, spark)
    before = files_of(table)
    code, answer, _ = called("run", job_file(tmp_path, job))
    assert (code, answer["error"]) == (65, "BadRecord")
    assert f"{topic}/1: the batch at offset 11 cannot be decoded" in answer["message"]
    assert f"codec {codec}" in answer["message"]
    facts = answer["facts"]
    assert (facts["topic"], facts["partition"], facts["base_offset"]) == (topic, 1, 11)
    assert facts["next_offset"] == 22
    assert facts["leader"] == damaged.bootstrap[0]
    assert log_of(files_of(table)) == log_of(before)
    assert offsets_in(table) == expected(p0=range(5))


def test_a_frame_of_a_damaged_log_fails_rather_than_ends_short(
    damaged: KafkaCluster, spark: Any, table: str
) -> None:
    plan = rangeland.plan(job_of(damaged.bootstrap, table, "damaged-lz4"), spark)
    with pytest.raises(Exception, match="its checksum is wrong"):
        plan.read(spark).collect()


def test_what_stands_beside_the_damage_can_be_landed(
    damaged: KafkaCluster, spark: Any, table: str
) -> None:
    topic = "damaged-zstd"
    around = between(topic, p0=(0, 33), p1=(22, 33))
    result = rangeland.backfill(job_of(damaged.bootstrap, table, topic, range=around), spark)
    assert result.counts == Counts(landed=44)
    inside = job_of(damaged.bootstrap, table, topic, range=between(topic, p1=(12, 13)))
    with pytest.raises(BadRecord):
        rangeland.backfill(inside, spark)


def test_a_run_that_met_the_damage_goes_on_after_it_when_the_policy_says_so(
    damaged: KafkaCluster, spark: Any, table: str
) -> None:
    topic = "damaged-lz4"
    with pytest.raises(BadRecord):
        rangeland.land(job_of(damaged.bootstrap, table, topic), spark)
    skipping = job_of(damaged.bootstrap, table, topic, policy={"corrupt": "skip"})
    result = rangeland.land(skipping, spark)
    assert (result.state, result.recovered) == ("landed", (1,))
    assert {o.range.partition.number: o.counts for o in result.ranges} == {
        0: Counts(landed=33),
        1: Counts(landed=22, lost=11),
    }
    kept = {0: range(33), 1: [*range(11), *range(22, 33)]}
    assert offsets_in(table) == expected(p0=kept[0], p1=kept[1])
    assert rangeland.land(skipping, spark).state == "nothing"


# --- tables -----------------------------------------------------------------------------------


def refused(spark: Any, job: Job, table: str) -> TableRefused:
    """The job is refused, as its plan is, and the table is as it was, with no ledger made beside
    it."""
    before = files_of(table)
    with pytest.raises(TableRefused) as planned:
        rangeland.plan(job, spark)
    with pytest.raises(TableRefused) as caught:
        rangeland.land(job, spark)
    assert caught.value.exit_code == 73
    assert files_of(table) == before
    assert caught.value.do
    assert str(planned.value) == str(caught.value)
    return caught.value


def test_a_folder_of_other_peoples_files_is_left_as_it_is(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(3))
    folder = Path(table)
    folder.mkdir(parents=True)
    folder.joinpath("theirs.csv").write_text("a,b\n")
    with pytest.raises(TableRefused, match=r"theirs\.csv"):
        rangeland.land(job_of(kafka.bootstrap, table, topic), spark)
    assert [path.name for path in folder.rglob("*")] == ["theirs.csv"]


COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (COLUMNS.replace("offset BIGINT", "offset STRING"), "offset"),
        ("id BIGINT, text STRING", "no column"),
        (f"{COLUMNS}, note STRING NOT NULL", "note"),
        pytest.param(
            f"{COLUMNS}, day DATE GENERATED ALWAYS AS (CAST(timestamp AS DATE))",
            "day",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["other type", "other columns", "not null", "generated"],
)
def test_a_table_that_cannot_take_the_rows_is_left_alone(
    kafka: KafkaCluster, spark: Any, topic: str, table: str, columns: str, said: str
) -> None:
    filled(kafka, topic)
    if "GENERATED" in columns:
        from delta.tables import DeltaTable

        maker = (
            DeltaTable.create(spark)
            .location(table)
            .addColumns(spark.createDataFrame([], COLUMNS).schema)
        )
        expression = "CAST(timestamp AS DATE)"
        maker.addColumn("day", "DATE", generatedAlwaysAs=expression).execute()
    else:
        spark.sql(f"CREATE TABLE delta.`{table}` ({columns}) USING delta")
    error = refused(spark, job_of(kafka.bootstrap, table, topic), table)
    assert said in str(error)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own of three MiB, which needs the rights to mount one."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(path)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def noise(count: int) -> list[Record]:
    draw = random.Random(1)
    return [Record(draw.randbytes(100_000)) for _ in range(count)]


def test_a_full_disk_fails_the_run_and_leaves_nothing_behind(
    kafka: KafkaCluster, spark: Any, topic: str, small_disk: Path
) -> None:
    table = small_disk / "table"
    filled(kafka, topic)
    job = job_of(kafka.bootstrap, table, topic)
    rangeland.land(job, spark)
    before = files_of(table)
    produce(kafka.bootstrap, topic, noise(60))
    with pytest.raises(StorageFailed, match="no room for the next") as caught:
        rangeland.land(job, spark)
    assert caught.value.exit_code == 75
    assert visible(files_of(table)) == visible(before)
    assert offsets_in(table) == expected(p0=range(10))
    subprocess.run(["mount", "-o", "remount,size=60m", str(small_disk)], check=True)
    assert rangeland.land(job, spark).counts == Counts(landed=60)
    assert offsets_in(table) == expected(p0=range(70))


@pytest.mark.parametrize("there_before", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_folder_that_must_not_be_written_is_refused(
    kafka: KafkaCluster, spark: Any, topic: str, small_disk: Path, there_before: bool
) -> None:
    table = small_disk / "table"
    filled(kafka, topic)
    job = job_of(kafka.bootstrap, table, topic)
    if there_before:
        rangeland.land(job, spark)
        produce(kafka.bootstrap, topic, numbered_records(5))
    before = files_of(table)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    try:
        with pytest.raises(TableRefused, match=r"[Rr]ead-only") as caught:
            rangeland.land(job, spark)
        assert caught.value.exit_code == 73
        checked = job_check.check(job, lambda: spark, NoProgress())
        (said,) = [x.seen for x in checked.findings if x.what == "table"]
        assert (checked.exit_code, "ead-only" in said) == (73, True)
        assert files_of(table) == before
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert job_check.check(job, lambda: spark, NoProgress()).is_well
    assert files_of(table) == before
    assert rangeland.land(job, spark).state == "landed"


# --- secrets ------------------------------------------------------------------------------------

SECRET = "hunter2-never-to-be-seen"

MISPLACED = {
    "the secret itself": "  security: {sasl: {username: u, password: %s}}",
    "a field that is not there": "  security: {password: %s}",
    "a list for a secret": "  security: {sasl: {username: u, password: [%s]}}",
    "tls": "  security: {tls: {key: k.pem, key_password: %s}}",
    "a reference that leads nowhere": "  security: {sasl: {username: u, password: '${env:%s'}}",
    "a server": "  servers: ['user:%s@127.0.0.1:9']",
    "not YAML": "  security: {sasl: {username: u, password: %s: :}",
}


@pytest.mark.parametrize("place", MISPLACED)
def test_a_secret_in_a_wrong_place_is_not_repeated(
    tmp_path: Path, called: Called, place: str
) -> None:
    line = MISPLACED[place] % SECRET
    text = JOB.replace("  servers: [127.0.0.1:9]", line) if "servers" in line else None
    text = text or JOB.replace("  topics: [orders]", f"  topics: [orders]\n{line}")
    path = written(tmp_path / "orders.yaml", text)
    for flags in ((), ("--debug",)):
        code, answer, printed = called("run", path, *flags)
        assert code == 78
        assert path in answer["message"]
        assert SECRET not in printed


class SecuredCluster(KafkaCluster):
    """With a second listener that wants a name and a password."""

    secured_port = 0

    def _write_config(self, node: int, settings: Any) -> None:
        (self.secured_port,) = free_ports(1)
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        extra = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "SECURED:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secured.plain.sasl.jaas.config": f'{login} user_alice="{SECRET}";',
        }
        for name in ("listeners", "advertised.listeners"):
            extra[name] = f"{settings[name]},SECURED://127.0.0.1:{self.secured_port}"
        super()._write_config(node, {**settings, **extra})


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredCluster]:
    with SecuredCluster() as cluster:
        yield cluster


def test_a_secret_that_opens_the_log_is_in_no_output_plan_or_ledger(
    secured: SecuredCluster,
    spark: Any,
    topic: str,
    table: str,
    tmp_path: Path,
    called: Called,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_topic(secured.bootstrap, topic)
    produce(secured.bootstrap, topic, numbered_records(10))
    monkeypatch.setenv("LOG_PASSWORD", SECRET)
    server = f"127.0.0.1:{secured.secured_port}"
    sasl = {"username": "alice", "password": "${env:LOG_PASSWORD}"}
    path = job_file(tmp_path, job_of([server], table, topic), security={"sasl": sasl})
    plan_file = tmp_path / "plan.json"
    everything = [
        called("plan", path, "--out", str(plan_file), "--debug"),
        called("run", path, "--debug"),
        called("status", path),
        called("check", path),
    ]
    assert [code for code, _, _ in everything] == [0, 0, 0, 0]
    assert everything[1][1]["landed"] == 10
    ledger = spark.read.format("delta").load(f"{table}/_rangeland/ledger")
    said = [str(row.asDict(recursive=True)) for row in ledger.collect()]
    assert len(said) >= 2
    texts = [printed for _, _, printed in everything] + said + [plan_file.read_text()]
    texts += [p.read_bytes().decode("latin-1") for p in Path(table).rglob("*") if p.is_file()]
    assert not [text for text in texts if SECRET in text]


@pytest.mark.slow
def test_a_wrong_password_is_reported_without_it(
    secured: SecuredCluster,
    topic: str,
    table: str,
    tmp_path: Path,
    called: Called,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = f"{SECRET}-but-wrong"
    monkeypatch.setenv("LOG_PASSWORD", wrong)
    server = f"127.0.0.1:{secured.secured_port}"
    sasl = {"username": "alice", "password": "${env:LOG_PASSWORD}"}
    path = job_file(tmp_path, job_of([server], table, topic), security={"sasl": sasl})
    code, answer, printed = called("run", path, "--debug")
    assert code == 78
    assert "alice" in answer["message"] or "SASL" in answer["message"]
    assert SECRET not in printed
