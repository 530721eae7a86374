"""A real YARN on this machine, in one JVM: a resource manager and a node that runs containers.

Containers run in processes and folders of their own, without the environment of the submitter.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway

from rangeland.jvm.jars import class_path
from rangeland.jvm.java import SMALL_JVM, find_java
from rangeland.testing.context_managers import Closing
from tests.jar_sets import TEST_JARS
from tests.servers.process_sessions import temporary_files_in
from tests.servers.sparkcluster import SPARK_HOME

END_S = 20
FIFO = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
SETTINGS = {
    "yarn.resourcemanager.scheduler.class": FIFO,
    "yarn.scheduler.minimum-allocation-mb": "256",
    "yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.vmem-check-enabled": "false",
    # A disk that is nearly full is a test machine's own affair.
    "yarn.nodemanager.disk-health-checker.enable": "false",
    # Logs of containers stay until the test has read them.
    "yarn.nodemanager.log.retain-seconds": "3600",
}


class YarnCluster(Closing):
    """Started by the constructor; all its files are in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logs, self._site = folder / "data", folder / "conf"
        for path in (self._logs, self._site, folder / "tmp"):
            path.mkdir(parents=True)
        (jar,) = (SPARK_HOME / "jars").glob("py4j*.jar")
        options = [f"-Djava.io.tmpdir={folder / 'tmp'}", f"-Dtest.build.data={self._logs}"]
        self._log = (folder / "yarn.log").open("w")
        jars = class_path(TEST_JARS["hadoop-minicluster-3.5.0"])
        self._gateway = JavaGateway.launch_gateway(
            jarpath=str(jar),
            classpath=f"{jars}:{SPARK_HOME / 'jars'}/*",
            javaopts=["-Xmx512m", *SMALL_JVM, *options],
            java_path=find_java(),
            die_on_exit=True,  # with this process, however that ends
            redirect_stdout=self._log,
            redirect_stderr=self._log,
        )
        try:
            self._yarn = self._started(self._gateway.jvm)
        except BaseException:
            self._end()
            raise

    def _started(self, jvm: Any) -> Any:
        conf = jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
        for name, value in SETTINGS.items():
            conf.set(name, value)
        yarn = jvm.org.apache.hadoop.yarn.server.MiniYARNCluster("rangeland", 1, 1, 1)
        yarn.init(conf)
        yarn.start()
        file = jvm.java.io.FileOutputStream(str(self._site / "yarn-site.xml"))
        yarn.getConfig().writeXml(file)
        file.close()
        return yarn

    def submit_environment(self, folder: Path) -> dict[str, str]:
        """For a process that submits to this cluster."""
        return {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "HADOOP_CONF_DIR": str(self._site),
            **temporary_files_in(folder / "tmp"),
        }

    def settings(self) -> dict[str, str]:
        """Spark's, for this machine: what it has itself is not copied for each container."""
        java = str(Path(find_java()).resolve().parents[1])
        inside = {"JAVA_HOME": java, "SPARK_LOCAL_IP": "127.0.0.1"}
        return {
            "spark.yarn.jars": f"local:{SPARK_HOME / 'jars'}/*",
            "spark.yarn.stagingDir": (self._folder / "staging").as_uri(),
            "spark.executor.instances": "1",
            **{f"spark.yarn.appMasterEnv.{name}": value for name, value in inside.items()},
            **{f"spark.executorEnv.{name}": value for name, value in inside.items()},
        }

    def driver_outputs(self) -> list[str]:
        """The stdout of all drivers so far, the oldest first."""
        found = sorted(self._logs.glob("**/container_*_01_000001/stdout"), key=lambda p: p.parent)
        return [path.read_text() for path in found]

    def close(self) -> None:
        """Ends all that runs in it."""
        try:
            self._yarn.stop()
        finally:
            self._end()

    def _end(self) -> None:
        """When it returns nobody writes into the folder any more."""
        self._gateway.shutdown()
        java = self._gateway.java_process
        java.stdin.close()
        try:
            java.wait(END_S)
        except subprocess.TimeoutExpired:
            java.kill()
            java.wait()
        self._log.close()
