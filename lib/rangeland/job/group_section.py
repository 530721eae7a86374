"""The section `group`: the consumer group of a job."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rangeland.job.section import MisplacedKey, Section
from rangeland.job.value_parsers import Milliseconds


class Group(Section):
    """A consumer group for the job. Exactly-once delivery never depends on it."""

    id: str = Field(
        min_length=1,
        description="Drivers that run the job at the same time share its partitions as members "
        "of this group; after a landing the checkpoint is committed as the group's offsets.",
    )
    assignment: Literal["range", "roundrobin", "sticky"] = Field(
        default="range",
        description="How members share partitions. Groups in ZooKeeper always use range, which "
        "is also the name here for RocketMQ's average allocation.",
    )
    session_ms: Milliseconds = Field(
        default=30_000,
        description="A driver that sends no heartbeat for this long loses its partitions, in ms.",
    )
    rebalance_ms: Milliseconds = Field(
        default=60_000,
        description="How long to wait for the other members in a rebalance, in ms. It must be "
        "longer than `session_ms`, since a driver that was killed keeps its partitions for that "
        "long.",
    )

    @model_validator(mode="after")
    def _outlasts(self) -> Group:
        if self.rebalance_ms <= self.session_ms:
            expected = f"more than group.session_ms, which is {self.session_ms}"
            raise MisplacedKey(expected, "rebalance_ms")
        return self
