"""Commits on S3 by its conditional writes: drivers that race, and responses that are lost.

A proxy loses the responses on purpose. A driver whose commit has an unknown end tries again, as a
run would; the log then says who has committed what."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from rangeland.delta.table_schema.schema_compatibility import new_table
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_snapshot import (
    AlreadyCommitted,
    CommitRequest,
    Committed,
    NotReady,
    Snapshot,
)
from rangeland.errors import StorageFailed, TableRefused
from rangeland.model import DataFile
from rangeland.testing.processes import PATIENCE_S
from tests.servers.lossy_s3 import Loss, LossyS3
from tests.servers.s3 import S3Server
from tests.servers.versitygw import VersityGateway
from tests.spark.buckets import IMPATIENT, Bucket
from tests.unit.test_delta_files import ROWS

pytestmark = [pytest.mark.spark]

# Hadoop tries twenty times after a 503.
HASTY = {**IMPATIENT, "retry.throttle.limit": "1", "retry.throttle.interval": "50ms"}
# The SDK then sends a request again by itself, and is refused because of its own first one.
STUBBORN = {**HASTY, "attempts.maximum": "3"}


@pytest.fixture
def lossy(s3: S3Server) -> Iterator[LossyS3]:
    with LossyS3(s3.port, seed=7) as proxy:
        yield proxy


@pytest.fixture
def far(bucket: Bucket, lossy: LossyS3) -> str:
    """The URI of a table whose requests go through the proxy."""
    return f"s3a://{bucket(settings={**HASTY, **by_way_of(lossy)})}/orders"


def by_way_of(proxy: LossyS3) -> dict[str, str]:
    return {"endpoint": f"http://127.0.0.1:{proxy.port}"}


def file_of(driver: str, number: int) -> DataFile:
    return DataFile(f"{driver}-{number}.parquet", 100, 1, "", 1_700_000_000_000)


def append(kernel: DeltaKernel, on: Snapshot, who: str, number: int, application: str) -> Any:
    return kernel.commit(on, CommitRequest(application, number, [file_of(who, number)]))


def create(kernel: DeltaKernel, uri: str) -> Snapshot:
    made = new_table(ROWS, ())
    return kernel.create(uri, made.schema_json, made.partition_columns)


def newest(kernel: DeltaKernel, uri: str) -> Snapshot:
    found = kernel.load(uri)
    assert found is not None
    return found


def entries(server: S3Server, uri: str) -> list[list[dict[str, Any]]]:
    """The log's commits, oldest first, as the server has them."""
    store = server.filesystem()
    keys = server.keys_in(f"{uri.removeprefix('s3a://')}/_delta_log")
    logs = sorted(key for key in keys if key.endswith(".json"))
    return [
        [json.loads(line) for line in store.open_input_file(key).read().splitlines()]
        for key in logs
    ]


def who_committed(commit: Sequence[dict[str, Any]]) -> str:
    (info,) = [action["commitInfo"] for action in commit if "commitInfo" in action]
    assert info["txnId"]  # so that no two commits have the same content
    return str(info["engineInfo"]).rpartition("/")[2]


# --- lost responses ----------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Loss.UNHEARD, Loss.CUT, Loss.FAILED])
def test_a_commit_whose_response_is_lost_is_ones_own(
    spark: Any, far: str, lossy: LossyS3, s3: S3Server, loss: Loss
) -> None:
    kernel = DeltaKernel(spark)
    base = create(kernel, far)
    kernel.wait_for_maintenance()
    lossy.losses, lossy.share = (loss,), 1.0
    done = append(kernel, base, "me", 1, "rangeland/a")
    lossy.share = 0.0
    assert lossy.done[loss.name]
    assert isinstance(done, Committed)
    assert done.version == 1
    assert [len(entries(s3, far)), newest(kernel, far).version] == [2, 1]


def test_anothers_commit_is_not_taken_for_ones_own(
    spark: Any, far: str, lossy: LossyS3, s3: S3Server
) -> None:
    mine, theirs = (DeltaKernel(spark, name) for name in ("mine", "theirs"))
    base = create(theirs, far)
    theirs.wait_for_maintenance()
    assert append(theirs, base, "theirs", 1, "rangeland/theirs") == Committed(1)
    theirs.wait_for_maintenance()
    lossy.losses, lossy.share = (Loss.CUT,), 1.0
    assert append(mine, base, "mine", 1, "rangeland/theirs") == AlreadyCommitted(1, 1)
    assert append(mine, base, "mine", 1, "rangeland/mine") == Committed(2)
    lossy.share = 0.0
    assert [who_committed(commit) for commit in entries(s3, far)] == ["theirs", "theirs", "mine"]


@pytest.mark.parametrize("loss", [Loss.REFUSED, Loss.CONFLICT])
def test_what_never_arrives_is_not_committed_and_may_be_tried_again(
    spark: Any, far: str, lossy: LossyS3, loss: Loss
) -> None:
    kernel = DeltaKernel(spark)
    base = create(kernel, far)
    kernel.wait_for_maintenance()
    lossy.losses, lossy.share = (loss,), 1.0
    with pytest.raises(StorageFailed) as failed:
        append(kernel, base, "me", 1, "rangeland/a")
    assert failed.value.exit_code == 75
    lossy.share = 0.0
    assert newest(kernel, far).version == 0
    assert append(kernel, base, "me", 1, "rangeland/a") == Committed(1)


@pytest.mark.slow
def test_a_commit_that_is_uploaded_in_parts_is_no_exception(spark: Any, bucket: Bucket) -> None:
    with VersityGateway() as server, LossyS3(server.port, seed=5) as proxy:
        parts = {"multipart.size": "5M", "multipart.threshold": "5M"}
        uri = f"s3a://{bucket(server, {**HASTY, **parts, **by_way_of(proxy)})}/orders"
        mine, theirs = (DeltaKernel(spark, name) for name in ("mine", "theirs"))
        base = create(mine, uri)
        mine.wait_for_maintenance()
        proxy.losses, proxy.share = (Loss.CUT,), 1.0
        for kernel, version, name in ((mine, 1, "mine"), (theirs, 2, "theirs")):
            many = [file_of(name, number) for number in range(60_000)]
            assert kernel.commit(base, CommitRequest(f"rangeland/{name}", 1, many)) == Committed(
                version
            )
            kernel.wait_for_maintenance()
        proxy.share = 0.0
        assert [who_committed(commit) for commit in entries(server, uri)[1:]] == ["mine", "theirs"]
        folder = uri.removeprefix("s3a://")
        logs = [f"{folder}/_delta_log/{version:020}.json" for version in (1, 2)]
        assert all(info.size > 5 << 20 for info in server.filesystem().get_file_info(logs))


# --- stores that cannot do it -----------------------------------------------------------------


def test_a_store_that_ignores_the_condition_is_refused_before_anything_is_committed(
    spark: Any, bucket: Bucket, far: str, lossy: LossyS3, s3: S3Server
) -> None:
    lossy.claims_all = True
    with pytest.raises(TableRefused, match="replaces objects") as refused:
        create(DeltaKernel(spark), far)
    assert "fs.s3a.create.conditional.enabled" in refused.value.do
    assert entries(s3, far) == []
    settings = {**HASTY, **by_way_of(lossy), "create.conditional.enabled": "false"}
    alone = f"s3a://{bucket(settings=settings)}/orders"
    assert create(DeltaKernel(spark), alone).version == 0
    assert len(entries(s3, alone)) == 1


def test_a_store_whose_objects_are_tidied_away_between_two_requests_is_not_refused(
    spark: Any, far: str, lossy: LossyS3, s3: S3Server
) -> None:
    """The object with a fixed name may be anybody's, so somebody may delete it."""
    store, deleted = s3.filesystem(), Counter[str]()

    def tidy(path: str) -> None:
        if path.endswith("/.rangeland-put-if-absent"):
            store.delete_file(path.lstrip("/"))
            deleted[path] += 1

    lossy.on_created = tidy
    assert create(DeltaKernel(spark), far).version == 0
    assert list(deleted.values()) == [2]
    left = s3.keys_in(f"{far.removeprefix('s3a://')}/_delta_log")
    assert not [key for key in left if "put-if-absent" in key]


@pytest.mark.parametrize("is_ignored", [False, True], ids=["heeded", "ignored"])
def test_drivers_that_make_sure_of_the_store_at_once_agree(
    spark: Any, far: str, lossy: LossyS3, s3: S3Server, is_ignored: bool
) -> None:
    """Each is a first driver: the JVM remembers only a store that has heeded the condition."""
    lossy.claims_all = is_ignored
    together = threading.Barrier(4)
    ends: list[object] = []

    def drive(name: str) -> None:
        kernel = DeltaKernel(spark, name)
        together.wait(PATIENCE_S)
        try:
            ends.append(create(kernel, f"{far}-{name}").version)
        except TableRefused as refused:
            ends.append(type(refused))

    drivers = [threading.Thread(target=drive, args=(name,)) for name in "abcd"]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(PATIENCE_S)
    assert ends == [TableRefused if is_ignored else 0] * 4


# --- races -------------------------------------------------------------------------------------


@dataclass
class Races:
    """What four drivers have seen in each race."""

    seen: Counter[str] = field(default_factory=Counter)
    winners: list[str] = field(default_factory=list)

    def run(self, drivers: dict[str, DeltaKernel], uri: str, count: int) -> None:
        """In each race all drivers append to the same version, with the same transaction."""
        base = newest(next(iter(drivers.values())), uri)
        for number in range(1, count + 1):
            base = self._race(drivers, base, number)

    def _race(self, drivers: dict[str, DeltaKernel], base: Snapshot, number: int) -> Snapshot:
        together = threading.Barrier(len(drivers))
        ends: dict[str, list[Any]] = {name: [] for name in drivers}

        def drive(name: str) -> None:
            together.wait(PATIENCE_S)
            while True:
                try:
                    ends[name].append(append(drivers[name], base, name, number, "rangeland/race"))
                    return
                except StorageFailed as unknown:
                    ends[name].append(unknown)

        threads = [threading.Thread(target=drive, args=(name,)) for name in drivers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in threads)
        self.seen.update(type(end).__name__ for each in ends.values() for end in each)
        assert not any(isinstance(end, NotReady) for each in ends.values() for end in each)
        won = [name for name, each in ends.items() if isinstance(each[-1], Committed)]
        # A commit of unknown end may have won: its driver then finds it, and says so.
        unsure = [name for name, each in ends.items() if isinstance(each[0], StorageFailed)]
        assert len(won) == 1 or (not won and unsure)
        self.winners.append(won[0] if won else "|".join(unsure))
        return newest(next(iter(drivers.values())), base.path)


def races(
    spark: Any, server: S3Server, bucket: Bucket, count: int, seed: int, patience: dict[str, str]
) -> tuple[Races, LossyS3]:
    """Four drivers, in threads of their own, on one table. Everything is counted afterwards: each
    race has one commit, of the driver that was told so, and its file alone is in the table."""
    with LossyS3(server.port, seed) as proxy:
        uri = f"s3a://{bucket(server, {**patience, **by_way_of(proxy)})}/orders"
        drivers = {f"driver-{n}": DeltaKernel(spark, f"driver-{n}") for n in range(4)}
        first = drivers["driver-0"]
        create(first, uri)
        proxy.share = 0.25
        found = Races()
        found.run(drivers, uri, count)
        for kernel in drivers.values():
            # a checkpoint or checksum may fail, as its response may be lost
            kernel.wait_for_maintenance()
        proxy.share = 0.0
        log = entries(server, uri)
        assert len(log) == 1 + count
        committed = [who_committed(commit) for commit in log[1:]]
        for number, (winner, told) in enumerate(zip(committed, found.winners, strict=True), 1):
            assert winner in told.split("|"), number
        last = newest(first, uri)
        assert last.transaction_version("rangeland/race") == count
        expected = {f"{winner}-{number}.parquet" for number, winner in enumerate(committed, 1)}
        assert {file.path for file in last.files()} == expected
        return found, proxy


def test_of_four_drivers_one_wins_whatever_responses_are_lost(
    spark: Any, s3: S3Server, bucket: Bucket
) -> None:
    found, proxy = races(spark, s3, bucket, 5, 11, HASTY)
    assert found.seen["Committed"] <= 5
    assert sum(proxy.done.values()) > 5


@pytest.mark.slow
@pytest.mark.parametrize("kind", [S3Server, VersityGateway])
@pytest.mark.parametrize("patience", [HASTY, STUBBORN], ids=["hasty", "stubborn"])
def test_races_of_four_drivers_have_one_winner_each(
    spark: Any, bucket: Bucket, kind: type[S3Server], patience: dict[str, str]
) -> None:
    """A quarter of the thousand."""
    chance = random.Random(f"{kind.kind} {patience}")
    seen: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    with kind() as server:
        for _ in range(5):
            found, proxy = races(spark, server, bucket, 50, chance.randrange(1 << 30), patience)
            seen += found.seen
            lost += proxy.done
    print(f"{kind.kind}, {patience['attempts.maximum']} attempts: {dict(seen)} {dict(lost)}")
    assert all(lost[loss.name] for loss in Loss)
    assert seen["Committed"] + seen["AlreadyCommitted"] == 4 * 250
