"""Which model a history plays on, and its job."""

from __future__ import annotations

from functools import cache

from rangeland.job import Job
from tests.simulation.clusters import SimulatedCluster
from tests.simulation.group_model import GROUP
from tests.simulation.happenings import Setup
from tests.simulation.jafka import JafkaCluster
from tests.simulation.kafka import AGES, Cluster
from tests.simulation.rocketmq import RocketmqCluster
from tests.simulation.world import World

TABLE = "mem://lake/orders"
TOPIC = "orders"
RECORD_BYTES = 30
MODELS: dict[str, type[SimulatedCluster]] = {
    found.dialect: found for found in (JafkaCluster, RocketmqCluster)
}


def cluster_of(setup: Setup, world: World) -> SimulatedCluster:
    if setup.age in AGES:
        return Cluster(world, setup.age, per_response=setup.per_response)
    return MODELS[setup.age](world, per_response=setup.per_response)


def job_of(setup: Setup, policy: tuple[tuple[str, str], ...]) -> Job:
    return _parsed(policy, setup.slice_bytes, _source_of(setup), _limits_of(setup), setup.has_group)


@cache
def _parsed(
    policy: tuple[tuple[str, str], ...],
    slice_bytes: int,
    source: tuple[str, ...],
    limits: str,
    has_group: bool,
) -> Job:
    rules = "".join(f"  {kind}: {action}\n" for kind, action in policy)
    return Job.parse(
        "job: orders\n"
        "source:\n"
        f"  topics: [{TOPIC}]\n" + "".join(f"  {line}\n" for line in source) + ""
        f"policy:\n{rules}limits: {{{limits}}}\n"
        f"slices: {{target_bytes: {slice_bytes}}}\n"
        f"sink: {{table: '{TABLE}'}}\n" + (f"group: {{id: {GROUP}}}\n" if has_group else "")
    )


def _source_of(setup: Setup) -> tuple[str, ...]:
    """Lines of the job file."""
    model = MODELS.get(setup.age, Cluster)
    lines = (f"dialect: {model.dialect}", f"servers: [{model.servers}]")
    if setup.reads_uncommitted:
        return (*lines, "isolation: read_uncommitted")
    return (*lines, "tags: [a]") if setup.transactions and model is RocketmqCluster else lines


def _limits_of(setup: Setup) -> str:
    """How many records lie between two bytes is not known before they are read."""
    if setup.max_records is None:
        return ""
    if setup.age == JafkaCluster.dialect:
        return f"max_bytes: {RECORD_BYTES * setup.max_records}"
    return f"max_records: {setup.max_records}"
