"""The command that starts brokers to experiment with."""

from __future__ import annotations

from typing import Any

import pytest

from rangeland.errors import Unreachable
from rangeland.testing import __main__ as command
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.rocketmq import RocketmqCluster


@pytest.mark.parametrize(
    ("cluster", "left"), [(RocketmqCluster(), ["namesrv-1"]), (KafkaCluster(brokers=2), [])]
)
def test_it_ends_when_no_broker_is_left(
    monkeypatch: pytest.MonkeyPatch, cluster: Any, left: list[str]
) -> None:
    moments = iter([cluster.names, cluster.names, left])
    monkeypatch.setattr(type(cluster), "running", property(lambda _: next(moments)))
    monkeypatch.setattr(command.time, "sleep", lambda _: None)
    with pytest.raises(Unreachable, match="No broker is left"):
        command._keep(cluster)
