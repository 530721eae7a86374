"""The options with which ranges were landed, and checks that the present options are the same.

An offset counts as landed only for the same cluster, isolation and tags: with another isolation or
other tags, rows would have landed that are not in the table. Options that earlier versions did not
record are assumed to agree. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rangeland.errors import Conflict
from rangeland.model import Cluster, Isolation, Range, Survey
from rangeland.planning.incarnation import LogMark
from rangeland.planning.job_position import JobPosition
from rangeland.planning.plan import PlanId

_ELSEWHERE = "land it into another table"
_INSTEAD = "replace the rows in the table with `rangeland backfill JOB.yaml --replace`"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a landing that determine which records its offsets have."""

    isolation: Isolation | None
    """The isolation; None if it makes no difference."""
    tags: frozenset[str]
    cluster: Cluster | None

    def differences(self, now: ReadOptions) -> list[str]:
        """The differences between the present options and these, as sentences."""
        differences = []
        if self.cluster and now.cluster and now.cluster.is_other(self.cluster):
            differences.append(f"the cluster was {self.cluster} and is {now.cluster} now")
        if None not in (self.isolation, now.isolation) and self.isolation != now.isolation:
            differences.append(f"the isolation was {self.isolation} and is {now.isolation} now")
        if self.tags != now.tags:
            differences.append(
                f"the tags were {_list_tags(self.tags)} and are {_list_tags(now.tags)} now"
            )
        return differences


@dataclass(frozen=True, slots=True)
class LandedRead:
    """A range in the table, with details of the landing that it came from."""

    range: Range
    options: ReadOptions
    """The read options that the range was landed with."""
    plan_id: PlanId
    mark: LogMark | None = None
    """The offset up to which the plan has landed the partition, and the leader epoch at that time,
    if known."""


def with_known_addresses(cluster: Cluster, known: Iterable[Cluster]) -> Cluster:
    """The cluster with all its known addresses, including those of clusters that share an address
    with it, directly or through others, since brokers move to new addresses one at a time. A
    cluster with another id is never included."""
    candidates = set(known)
    while matching := {c for c in candidates if not cluster.is_other(c)}:
        candidates -= matching
        ids = {c.id for c in matching} - {""}
        addresses = {address for c in (cluster, *matching) for address in c.addresses}
        cluster = Cluster(cluster.id or min(ids, default=""), tuple(sorted(addresses)))
    return cluster


def check_landed_options_are_same(
    table: str, landed: Sequence[LandedRead], wanted: ReadOptions
) -> None:
    """Raises Conflict if a range was landed with options other than the present ones."""
    for read in landed:
        differences = read.options.differences(wanted)
        if not differences:
            continue
        raise Conflict(
            f"{read.range} has landed in {table}, but with different options from this job's",
            why=f"when {read.plan_id} landed it, {'; '.join(differences)}",
            do=_remedy(f"{_ELSEWHERE}, or {_INSTEAD}", read.options.cluster, wanted.cluster),
            range=str(read.range),
            differences=differences,
            application=read.plan_id.application,
            sequence=read.plan_id.sequence,
        )


def check_checkpoint_options_are_same(table: str, landed: ReadOptions, wanted: ReadOptions) -> None:
    """Raises Conflict if a checkpoint was reached with other options: records that the former
    options left out would never land."""
    differences = landed.differences(wanted)
    if differences:
        raise Conflict(
            f"the checkpoint in {table} was reached with different options from this job's",
            why=f"{'; '.join(differences)}; a run would continue from the checkpoint, and what "
            "the old options left out before it would never land",
            do=f"{_ELSEWHERE}; or accept what has landed with `rangeland adopt JOB.yaml`, after "
            f"which runs continue from the checkpoint; then you may {_INSTEAD}",
            differences=differences,
        )


def check_checkpoint_is_of_cluster(
    table: str, position: JobPosition, survey: Survey, cluster: Cluster
) -> None:
    """Raises Conflict if the checkpoint belongs to a different cluster: its offsets mean nothing in
    these logs, and a topic that has another id there was not recreated."""
    planned_from = position.cluster
    if planned_from is None or not cluster.is_other(planned_from):
        return
    for partition, mark in sorted(position.checkpoint.items()):
        if partition not in survey.logs:
            continue
        raise Conflict(
            f"the checkpoint of {partition} in {table} belongs to another cluster",
            why=f"offset {mark.until_offset} was reached in the cluster {planned_from}, and this "
            f"is the cluster {survey.cluster}",
            do=_remedy("", planned_from, cluster),
            partition=str(partition),
        )


def _remedy(do: str, planned_from: Cluster | None, cluster: Cluster | None) -> str:
    if planned_from is None or cluster is None or not cluster.is_other(planned_from):
        return do
    name = planned_from.id or planned_from.addresses[0]
    return f"{_ELSEWHERE}, or if it is the same cluster, say so with `source.cluster: {name}`"


def _list_tags(tags: frozenset[str]) -> str:
    return ", ".join(sorted(tags)) or "all"
