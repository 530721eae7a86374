"""Which landings count as the same request: clusters by id or address, isolation, tags."""

from __future__ import annotations

import pytest

from rangeland.errors import Conflict
from rangeland.model import Address, Cluster, Isolation, Leader, LogState, Partition, Range, Survey
from rangeland.planning.coverage import Coverage
from rangeland.planning.incarnation import LogMark
from rangeland.planning.job_position import JobPosition
from rangeland.planning.plan import PlanId
from rangeland.planning.read_options import (
    LandedRead,
    ReadOptions,
    check_checkpoint_is_of_cluster,
    check_checkpoint_options_are_same,
    check_landed_options_are_same,
    with_known_addresses,
)

COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED
R = Range(Partition("t", 0), 0, 9)


def at(*addresses: str, id: str = "") -> Cluster:
    return Cluster(id, addresses)


@pytest.mark.parametrize(
    ("then", "now", "is_other"),
    [
        (at("a", id="x"), at("b", id="x"), False),  # all brokers have moved
        (at("a", id="x"), at("a", id="y"), True),  # another cluster at the same address
        (at("a"), at("a", "b", id="x"), False),  # brokers that have an id by now
        (at("a", "b"), at("b", "c"), False),
        (at("a"), at("b"), True),
        (at("a"), at("b", id="a"), False),  # named by an address that it had
        (at("a"), at("b", id="x"), True),
    ],
)
def test_clusters_are_distinguished(then: Cluster, now: Cluster, is_other: bool) -> None:
    assert now.is_other(then) is is_other
    assert then.is_other(now) is is_other


def test_a_cluster_whose_brokers_moved_one_by_one_is_the_same() -> None:
    before = [at("a"), at("a", "b"), at("b", "c")]
    assert with_known_addresses(at("c", "d"), before).is_other(at("a")) is False
    assert with_known_addresses(at("d"), before).is_other(at("a")) is True
    # An address that two clusters with ids have had makes them no one cluster.
    shared = [at("a", id="x"), at("a", id="y"), at("b", id="y")]
    assert with_known_addresses(at("a", id="x"), shared).is_other(at("b", id="y")) is True


@pytest.mark.parametrize(
    ("then", "now", "named"),
    [
        (ReadOptions(COMMITTED, frozenset("A"), None), ReadOptions(COMMITTED, frozenset("B"), None),
         "the tags were A and are B now"),
        (ReadOptions(COMMITTED, frozenset(), None), ReadOptions(COMMITTED, frozenset("BA"), None),
         "the tags were all and are A, B now"),
        (ReadOptions(COMMITTED, frozenset(), None), ReadOptions(UNCOMMITTED, frozenset(), None),
         "the isolation was read_committed and is read_uncommitted now"),
        (ReadOptions(None, frozenset(), at("a", id="x")),
         ReadOptions(None, frozenset(), at("a", id="y")), "the cluster was x and is y"),
    ],
)  # fmt: skip
def test_a_difference_is_named_with_what_to_do(
    then: ReadOptions, now: ReadOptions, named: str
) -> None:
    with pytest.raises(Conflict) as caught:
        check_landed_options_are_same(
            "lake/t", [LandedRead(R, then, PlanId("rangeland/job", 7))], now
        )
    assert f"{R} has landed in lake/t" in str(caught.value)
    assert named in caught.value.why
    assert "another table" in caught.value.do


def test_what_an_earlier_version_did_not_write_down_is_not_a_difference() -> None:
    then, now = (
        ReadOptions(None, frozenset(), None),
        ReadOptions(COMMITTED, frozenset(), at("a", id="x")),
    )
    check_landed_options_are_same("lake/t", [LandedRead(R, then, PlanId("rangeland/job", 1))], now)
    check_landed_options_are_same("lake/t", [LandedRead(R, now, PlanId("rangeland/job", 1))], then)


def test_a_checkpoint_that_was_reached_with_other_options_is_a_conflict() -> None:
    then = ReadOptions(COMMITTED, frozenset({"A"}), None)
    check_checkpoint_options_are_same("lake/t", then, then)
    with pytest.raises(Conflict, match="the checkpoint in lake/t was reached with") as caught:
        check_checkpoint_options_are_same(
            "lake/t", then, ReadOptions(COMMITTED, frozenset("AB"), None)
        )
    assert caught.value.why.startswith("the tags were A and are A, B now; ")
    for remedy in ("another table", "adopt JOB.yaml", "backfill JOB.yaml --replace"):
        assert remedy in caught.value.do


def test_a_topic_of_another_cluster_was_not_deleted_and_created_again() -> None:
    partition, now = Partition("t", 0), at("b", id="y")
    log = LogState(partition, Leader(Address("b", 9092), 0, "new-id"), 0, 20)
    survey = Survey(0, {partition: log}, cluster=now)
    marks = {partition: LogMark(9, "old-id", 0)}
    position = JobPosition(marks, Coverage(), 2, cluster=at("a", id="x"))
    with pytest.raises(Conflict, match=r"the checkpoint of t/0 .* belongs to another cluster"):
        check_checkpoint_is_of_cluster("lake/t", position, survey, now)
    check_checkpoint_is_of_cluster(
        "lake/t", JobPosition(marks, Coverage(), 2, cluster=now), survey, now
    )
    elsewhere = {Partition("u", 0): LogMark(9, "old-id", 0)}
    others = JobPosition(elsewhere, Coverage(), 2, cluster=at("a", id="x"))
    check_checkpoint_is_of_cluster("lake/t", others, survey, now)
