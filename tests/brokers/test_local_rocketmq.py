"""The RocketMQ clusters that tests start: what they promise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.errors import Unreachable, UsageError
from rangeland.job import Job
from rangeland.testing.ports import is_listening
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.rocketmq_clients import RocketmqClient, produce
from tests.brokers.surveys import look

pytestmark = pytest.mark.brokers


@pytest.mark.slow
def test_nothing_is_left_when_a_cluster_is_closed(topic: str) -> None:
    with RocketmqCluster() as cluster:
        pids = [cluster.process(name).pid for name in cluster.names]
        folder, ports = cluster.directory, list(cluster.ports.values())
        assert cluster.running == ["namesrv-1", "broker-a"]
        cluster.create_topic(topic, 1)
        assert produce(cluster.address(), topic, [b"a", b"b"]) == [0, 1]
        with pytest.raises(Unreachable, match="TOPIC_NOT_EXIST"):
            produce(cluster.address(), f"{topic}-none", [b"v"])
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not folder.exists()
    assert not any(is_listening(port) for port in ports)


@pytest.mark.slow
def test_a_broker_goes_on_where_it_was_after_a_crash(topic: str, tmp_path: Path) -> None:
    with RocketmqCluster(directory=tmp_path / "r") as cluster:
        cluster.create_topic(topic, 1)
        produce(cluster.address(), topic, [b"a"])
        cluster.kill()
        with pytest.raises(Unreachable):
            RocketmqClient(cluster.address())
        cluster.restart()
        assert produce(cluster.address(), topic, [b"b"]) == [1]
    assert "boot success" in (tmp_path / "r" / "logs" / "broker-a.log").read_text()
    assert not (tmp_path / "r" / "data").exists()


@pytest.mark.slow
def test_a_broker_that_cannot_start_says_what_it_said() -> None:
    cluster = RocketmqCluster(properties={"brokerRole": "SLAVE"})
    with pytest.raises(Unreachable, match="Slave's brokerId"):
        cluster.start()
    assert cluster.running == []


def test_a_cluster_of_none_and_an_unknown_version_are_refused() -> None:
    with pytest.raises(UsageError, match="needs brokers and name servers"):
        RocketmqCluster(brokers=0)
    with pytest.raises(UsageError, match=r"Use one of: 5\.5\.0"):
        RocketmqCluster("1.0")


@pytest.mark.slow
def test_the_command_line_fills_a_topic_and_shows_a_job_file_for_it(topic: str) -> None:
    command = [sys.executable, "-m", "rangeland.testing", "rocketmq"]
    command += ["--topic", topic, "--records", "10", "--queues", "2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        server = process.stdout.readline().strip()
        said = ""
        while "Ctrl-C" not in said:
            said += (line := process.stderr.readline())
            assert line, said
        job = Job.parse(said.partition("yaml:\n\n")[2].partition("\n\nand then")[0])
        assert (job.source.dialect, job.source.servers) == ("rocketmq", (server,))
        ends = {log.end_offset for log in look(look_up_cluster(job), topics=(topic,)).logs.values()}
        assert ends == {5}
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_S) == 0
    with pytest.raises(Unreachable):
        RocketmqClient(server)
