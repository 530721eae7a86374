"""RocketMQ 5.0.0, which only tests start."""

from __future__ import annotations

from rangeland.jvm.jar_sets import JarSet
from rangeland.testing.processes import Process
from rangeland.testing.rocketmq import RocketmqCluster
from tests.jar_sets import TEST_JARS

VERSION = "5.0.0"
LOGBACK = "<configuration/>"


class OldRocketmqCluster(RocketmqCluster):
    """Name servers and brokers of 5.0.0, which do not start without files for their logs."""

    versions = (VERSION,)

    def __init__(self) -> None:
        super().__init__(VERSION)

    @property
    def _jars(self) -> JarSet:
        return TEST_JARS[f"rocketmq-{VERSION}"]

    def _start_one(self, name: str) -> Process:
        folder = self.directory / "homes" / name / "conf"
        folder.mkdir(parents=True, exist_ok=True)
        for server in ("namesrv", "broker"):
            (folder / f"logback_{server}.xml").write_text(LOGBACK)
        return super()._start_one(name)
