"""Logs cut short by an unclean election, and topics created again, on real brokers, old and new.

Landed records that are gone are reported by offset, even if the log has grown past them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.errors import Conflict, RangeLost
from rangeland.fetch.read_settings import ReadSettings
from rangeland.landing.execution.final_log_check import FinalLogCheck, LogsBefore
from rangeland.loss import Action
from rangeland.model import Bounds, Counts, Earliest, FromCheckpoint, Isolation, Latest, Partition
from rangeland.planning.bound_resolution import RangeRequest
from rangeland.planning.coverage import Coverage
from rangeland.planning.incarnation import LogMark
from rangeland.planning.job_position import JobPosition
from rangeland.planning.log_identity import (
    Changed,
    Deleted,
    FinalJudgement,
    Fingerprints,
    OtherBytes,
    Unchanged,
)
from rangeland.planning.plan import Plan
from rangeland.planning.plan_builder import PlanTerms, draft_new
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.policy import Policy
from rangeland.planning.run_limits import Limits
from rangeland.planning.slice_receipt import Receipt
from rangeland.planning.slices import Slicing
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import (
    create_topic,
    delete_topic,
    leader_of,
    numbered_records,
    produce,
    wait_for_leader,
)
from tests.brokers.reading import log_of, look, read, settings_of
from tests.fakes.planning import unless_failing
from tests.spark.landings import job_of

pytestmark = pytest.mark.brokers

TOPIC = "lived"
P = Partition(TOPIC, 0)
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
Cluster = KafkaCluster | KafkaZooKeeperCluster


@pytest.fixture(scope="module")
def old() -> Iterator[KafkaZooKeeperCluster]:
    """One broker that has leader epochs and no topic ids."""
    with KafkaZooKeeperCluster(heap_mb=128, properties={"delete.topic.enable": "true"}) as cluster:
        yield cluster


def make(cluster: Cluster) -> None:
    """Also right after one of that name was deleted: ZooKeeper may still have it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            create_topic(cluster.bootstrap, TOPIC)
        except Conflict:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return


def planned(
    settings: ClusterSettings, checkpoint: Mapping[Partition, LogMark], **skips: Action
) -> PlanDraft:
    """The next plan of a job that goes on from a checkpoint, as a run makes it."""
    known = frozenset(p.topic for p in checkpoint)
    survey = look(settings, topics=(TOPIC,), checkpoint=checkpoint, known=known)
    request = RangeRequest(
        Bounds(FromCheckpoint()), Bounds(Latest()), Earliest(), Policy(**skips), topics=(TOPIC,)
    )
    terms = PlanTerms(
        "j", "j", "kafka", Isolation.READ_COMMITTED, request, Limits(), Slicing(), PlanKind.RUN
    )
    return unless_failing(draft_new(terms, survey, JobPosition(checkpoint, Coverage(), 1)))


def lost(
    settings: ClusterSettings, checkpoint: Mapping[Partition, LogMark]
) -> tuple[str, int, int]:
    with pytest.raises(RangeLost) as caught:
        planned(settings, checkpoint)
    (loss,) = caught.value.facts["losses"]
    return loss["verdict"], loss["from_offset"], loss["until_offset"]


def log_check_of(cluster: Cluster) -> FinalLogCheck:
    settings = ReadSettings(settings_of(cluster.bootstrap))
    return FinalLogCheck(job_of(cluster.bootstrap, "lake/lived", TOPIC), lambda plan: settings, set)


def seen_before(cluster: Cluster, plan: Plan) -> Fingerprints:
    settings = ReadSettings(settings_of(cluster.bootstrap))
    return log_check_of(cluster).logs_before(settings, plan).fingerprints


def judgement_on(cluster: Cluster, plan: Plan, seen: Fingerprints) -> FinalJudgement:
    """Whether the logs have changed since all of a plan was read."""
    receipts = [
        Receipt(s.index, s.partition, s.from_offset, s.until_offset, Counts(landed=s.width))
        for s in plan.slices
    ]
    settings = ReadSettings(settings_of(cluster.bootstrap))
    return log_check_of(cluster).judge(settings, LogsBefore(plan, seen), receipts)


def changed_since(cluster: Cluster, plan: Plan, seen: Fingerprints) -> list[tuple[str, int, int]]:
    """The losses since all of a plan was read."""
    judgement = judgement_on(cluster, plan, seen)
    assert isinstance(judgement, Changed)
    return [(loss.kind.value, loss.from_offset, loss.until_offset) for loss in judgement.losses]


@pytest.mark.parametrize(
    "started",
    [
        pytest.param(lambda: KafkaZooKeeperCluster(brokers=2, heap_mb=128), id="0.11"),
        # Three, since two nodes of which one is down could elect nobody.
        pytest.param(
            lambda: KafkaCluster(brokers=3, heap_mb=160), id="4.1", marks=pytest.mark.slow
        ),
    ],
)
@pytest.mark.slow
def test_records_that_an_unclean_election_took_are_truncated_though_the_log_has_grown_past_them(
    started: Callable[[], Cluster],
) -> None:
    with started() as cluster:
        create_topic(cluster.bootstrap, TOPIC, replicas=2, config=UNCLEAN)
        produce(cluster.bootstrap, TOPIC, numbered_records(10))
        settings = settings_of(cluster.bootstrap)
        leader = leader_of(cluster.bootstrap, TOPIC)
        ids = log_of(settings, TOPIC).leader.replica_ids
        (follower,) = set(ids) - {leader}
        cluster.kill(follower)
        produce(cluster.bootstrap, TOPIC, numbered_records(20, start=10))
        before = planned(settings, {})
        assert before.plan.ranges == (replace(before.plan.ranges[0], until_offset=30),)
        seen = seen_before(cluster, before.plan)
        assert judgement_on(cluster, before.plan, seen) == Unchanged()
        cluster.kill(leader)
        cluster.restart(follower)
        assert wait_for_leader(cluster.bootstrap, TOPIC, other_than=leader) == follower
        produce(cluster.bootstrap, TOPIC, numbered_records(40, start=100))
        checkpoint = before.plan.checkpoint
        assert lost(settings, checkpoint) == ("truncated", 10, 30)
        # What was read of it meanwhile is not of one log.
        assert changed_since(cluster, before.plan, seen) == [("truncated", 10, 30)]
        after = planned(settings, checkpoint, truncated=Action.SKIP)
        (went_on,) = after.plan.ranges
        assert (went_on.from_offset, went_on.until_offset) == (30, 50)
        assert [(x.from_offset, x.until_offset) for x in after.skipped_losses] == [(10, 30)]
        found = read(after.plan.slices, settings)
        assert [row.offset for row in found.rows] == list(range(30, 50))
        later = planned(settings, after.plan.checkpoint)
        assert (later.is_empty, later.skipped_losses) == (True, ())


@pytest.mark.parametrize(("count", "longer"), [(5, False), (50, True)])
@pytest.mark.slow
def test_a_topic_created_again_on_brokers_without_topic_ids_is_recreated(
    old: KafkaZooKeeperCluster, count: int, longer: bool
) -> None:
    settings = settings_of(old.bootstrap)
    make(old)
    if longer:
        # A topic that has had one leader only looks like its next life, once that is longer.
        have_another_leader(old, settings)
    produce(old.bootstrap, TOPIC, numbered_records(20))
    plan = planned(settings, {}).plan
    checkpoint = plan.checkpoint
    seen = seen_before(old, plan)
    count += checkpoint[P].until_offset - 20
    assert checkpoint[P].topic_id is None
    assert checkpoint[P].epoch is not None
    assert planned(settings, checkpoint).is_empty
    delete_topic(old.bootstrap, TOPIC)
    make(old)
    produce(old.bootstrap, TOPIC, numbered_records(count))
    try:
        at = checkpoint[P].until_offset
        assert lost(settings, checkpoint) == ("recreated", at, at)
        assert changed_since(old, plan, seen) == [("recreated", at, at)]
    finally:
        delete_topic(old.bootstrap, TOPIC)


def test_a_log_without_id_and_elections_is_known_by_its_bytes(old: KafkaZooKeeperCluster) -> None:
    make(old)
    produce(old.bootstrap, TOPIC, numbered_records(20))
    plan = planned(settings_of(old.bootstrap), {}).plan
    seen = seen_before(old, plan)
    assert set(seen) == {P}
    produce(old.bootstrap, TOPIC, numbered_records(5))
    try:
        assert judgement_on(old, plan, seen) == Unchanged()
        delete_topic(old.bootstrap, TOPIC)
        make(old)
        produce(old.bootstrap, TOPIC, numbered_records(30))
        assert judgement_on(old, plan, seen) == OtherBytes(P)
        delete_topic(old.bootstrap, TOPIC)
        assert judgement_on(old, plan, seen) == Deleted(P)
    finally:
        make(old)
        delete_topic(old.bootstrap, TOPIC)


def have_another_leader(old: KafkaZooKeeperCluster, settings: ClusterSettings) -> None:
    """An election for the topic. A broker that restarts may be its leader as before, if its
    controller finds it alive already; a record in the log tells."""
    for _ in range(6):
        old.restart(1)
        wait_for_leader(old.bootstrap, TOPIC)
        produce(old.bootstrap, TOPIC, numbered_records(1))
        if log_of(settings, TOPIC).leader.epoch:
            return
    pytest.fail("the topic has always had the same leader")


def test_what_only_has_grown_is_not_a_loss(old: KafkaZooKeeperCluster) -> None:
    settings = settings_of(old.bootstrap)
    make(old)
    produce(old.bootstrap, TOPIC, numbered_records(20))
    checkpoint = planned(settings, {}).plan.checkpoint
    old.restart(1)
    wait_for_leader(old.bootstrap, TOPIC)
    produce(old.bootstrap, TOPIC, numbered_records(5))
    try:
        (grown,) = planned(settings, checkpoint).plan.ranges
        assert (grown.from_offset, grown.until_offset) == (20, 25)
    finally:
        delete_topic(old.bootstrap, TOPIC)
