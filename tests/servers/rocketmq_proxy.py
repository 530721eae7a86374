"""A proxy of RocketMQ, which forwards what clients send by gRPC, and such a client.

The client is our own, since upstream's Java client does not compress: it sends what upstream's C++
client sends.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from rangeland.jvm.jars import class_path
from rangeland.jvm.java import SMALL_JVM, find_java
from rangeland.testing.ports import free_ports
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.server_command import java_command
from tests.jar_sets import TEST_JARS
from tests.servers.local_server import LocalServer

JARS = TEST_JARS["rocketmq-proxy-5.5.0"]
CLIENT = Path(__file__).with_name("RocketmqProxyClient.java")
CLUSTER_NAME = "testing"


class RocketmqProxy(LocalServer):
    """Started by ``start`` or ``with``."""

    kind = "RocketMQ-proxy"
    start_timeout_s = 60

    def __init__(self, cluster: RocketmqCluster) -> None:
        super().__init__(JARS)
        self._cluster = cluster

    def _command(self, folder: Path) -> list[str]:
        (other_port,) = free_ports(1)
        settings = {
            "rocketMQClusterName": CLUSTER_NAME,
            "namesrvAddr": ";".join(self._cluster.servers),
            "grpcServerPort": self.port,
            "remotingListenPort": other_port,
        }
        path = folder / "proxy.json"
        path.write_text(json.dumps(settings))
        return java_command(
            JARS,
            192,
            "org.apache.rocketmq.proxy.ProxyStartup",
            *("-pm", "cluster", "-pc", str(path)),
            properties={
                "user.home": folder,
                "rocketmq.home.dir": folder,
                "com.rocketmq.proxy.home": folder,
                "java.io.tmpdir": folder,
                "tls.server.mode": "disabled",  # it needs native libraries that are not in its jars
            },
            options=("-XX:MaxDirectMemorySize=64m",),
        )

    def produce(self, topic: str, *bodies: str) -> None:
        """Sends these bodies to a topic, each compressed with gzip."""
        command = [find_java(), "-Xmx96m", *SMALL_JVM, "-cp", class_path(JARS), str(CLIENT)]
        done = subprocess.run(
            [*command, str(self.port), topic, *bodies],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
