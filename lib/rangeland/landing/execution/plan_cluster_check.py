"""Checks that a plan is read from the cluster that it was made for: the same offsets are other
records elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from rangeland.connection.pool import ConnectionPool
from rangeland.errors import Conflict
from rangeland.fetch.read_settings import ReadSettings
from rangeland.job.source_section import Source
from rangeland.model import Cluster
from rangeland.planning.incarnation import LogMark
from rangeland.planning.plan import Plan
from rangeland.planning.read_options import with_known_addresses
from rangeland.survey.log_comparison import attempt_for_marks
from rangeland.survey.wanted_partitions import UnknownTopic

KnownClusters = Callable[[], Iterable[Cluster]]
"""Returns the clusters of earlier landings. It may read the whole ledger."""


def check_plan_is_of_source(
    plan: Plan, source: Source, settings: ReadSettings, known_clusters: KnownClusters = tuple
) -> None:
    """Asks the brokers of a source. Raises Conflict if the plan was made for another cluster."""
    marks = {r.partition: LogMark(r.until_offset, r.topic_id) for r in plan.ranges}
    if plan.cluster is None or not marks:
        return
    with ConnectionPool(settings.cluster) as brokers:
        attempt = attempt_for_marks(brokers, marks, settings.policy.tolerates_missing_leaders)
        with suppress(UnknownTopic):
            attempt.find_leaders()
        check_plan_is_of_cluster(plan, source.name_cluster(attempt.cluster()), known_clusters)


def check_plan_is_of_cluster(
    plan: Plan, cluster: Cluster | None, known_clusters: KnownClusters
) -> None:
    """Raises Conflict if a plan was made for another cluster than this one, which has the name that
    the job gives it."""
    planned_for = plan.cluster
    if cluster is None or planned_for is None or not cluster.is_other(planned_for):
        return
    if not with_known_addresses(cluster, [*known_clusters(), planned_for]).is_other(planned_for):
        return
    raise Conflict(
        f"the plan {plan.id} belongs to another cluster",
        why=f"it was made for the cluster {planned_for}, and source leads to {cluster} now",
        do="apply it to that cluster, or make a new plan; if it is the same cluster, say so "
        f"with `source.cluster: {planned_for.id or planned_for.addresses[0]}`",
    )
