"""Where the groups of a job are kept."""

from __future__ import annotations

from typing import Any

import pytest

from rangeland.cluster_access.backend_choice import open_backend
from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.job import Job
from rangeland.job.connection_settings import groups_in_zookeeper

JOB = """
job: orders
source: {dialect: %s, servers: ["%s"], topics: [orders]%s}
sink: {table: lake/orders}
"""


@pytest.mark.parametrize(
    ("dialect", "server", "zookeeper", "is_in_zookeeper"),
    [
        ("jafka", "1:b:9092", True, True),
        ("kafka", "b:9092", True, True),
        ("kafka", "b:9092", False, False),
        ("rocketmq", "b:9876", True, False),
        ("rocketmq", "b:9876", False, False),
    ],
)
def test_groups_are_in_zookeeper_where_their_consumers_look_for_them(
    dialect: str, server: str, *, zookeeper: bool, is_in_zookeeper: bool
) -> None:
    named = ', zookeeper: "zk:2181"' if zookeeper else ""
    job = Job.parse(JOB % (dialect, server, named), "job.yaml")
    assert groups_in_zookeeper(job) is is_in_zookeeper


@pytest.mark.parametrize(("dialect", "server"), [("kafka", "b:9092"), ("rocketmq", "b:9876")])
def test_a_backend_at_brokers_knows_whose_drivers_are_ours(dialect: str, server: str) -> None:
    job = Job.parse(JOB % (dialect, server, ""), "job.yaml")
    backend: Any = open_backend(job, look_up_cluster(job))
    assert backend._job == "orders"
    backend.close()
