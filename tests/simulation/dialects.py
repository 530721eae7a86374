"""Which model a history plays on, and how a job names its servers."""

from __future__ import annotations

from tests.simulation.clusters import SimulatedCluster
from tests.simulation.jafka import JafkaCluster
from tests.simulation.kafka import AGES, Cluster
from tests.simulation.rocketmq import RocketmqCluster
from tests.simulation.scenario import Setup
from tests.simulation.world import World

RECORD_BYTES = 30
MODELS: dict[str, type[SimulatedCluster]] = {
    found.dialect: found for found in (JafkaCluster, RocketmqCluster)
}


def cluster_of(setup: Setup, world: World) -> SimulatedCluster:
    if setup.age in AGES:
        return Cluster(world, setup.age, per_answer=setup.per_answer)
    return MODELS[setup.age](world, per_answer=setup.per_answer)


def source_of(setup: Setup) -> tuple[str, ...]:
    """Lines of the job file."""
    model = MODELS.get(setup.age, Cluster)
    lines = (f"dialect: {model.dialect}", f"servers: [{model.servers}]")
    return (*lines, "tags: [a]") if setup.transactions and model is RocketmqCluster else lines


def limits_of(setup: Setup) -> str:
    """How many records lie between two bytes is not known before they are read."""
    if setup.max_records is None:
        return ""
    if setup.age == JafkaCluster.dialect:
        return f"max_bytes: {RECORD_BYTES * setup.max_records}"
    return f"max_records: {setup.max_records}"
