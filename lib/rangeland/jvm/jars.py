"""Named sets of jars, fetched once into a cache.

A set is a few Maven coordinates with their dependencies. The Ivy that comes with PySpark
fetches them, so Maven is not needed. Ivy gets a home, a cache and settings of its own, since
it would otherwise trust an incomplete local Maven repository.

A set is complete or absent: it is fetched to a temporary folder and renamed, under a file
lock, so that two processes do not fetch it twice. The ``ivy.xml`` of a set is kept in it; a set
whose coordinates have changed since is fetched again.
"""

from __future__ import annotations

import fcntl
import logging
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from rangeland.errors import StorageFailed, Unreachable, UsageError
from rangeland.jvm.java import SMALL_JVM, find_java

FETCH_TIMEOUT_S = 900
ARCHIVE = "tar.gz"
MAVEN_NAMES = ' xmlns:m="http://ant.apache.org/ivy/maven"'
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JarSet:
    """``coordinates`` and ``excludes`` are ``group:artifact:version`` and ``group:artifact``;
    an exclude may use ``*`` for the artifact. ``archive``: the classifier of a ``tar.gz`` that has
    all jars of a program, instead of its own jar and its dependencies."""

    coordinates: tuple[str, ...]
    excludes: tuple[str, ...] = ()
    archive: str = ""


_POSTGRES_CPU = "arm64v8" if platform.machine() == "aarch64" else "amd64"

# To support another server, add an entry. Comments explain what the server needs but does not
# list as a dependency.
JAR_SETS: dict[str, JarSet] = {
    # Without an SLF4J binding these brokers log nothing. Of 4.4.0 an artefact that only command
    # line tools need is in no repository.
    "kafka-4.4.0": JarSet(
        (
            "org.apache.kafka:kafka_2.13:4.4.0",
            "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
        ),
        excludes=("org.apache.kafka:kafka-tools-api",),
    ),
    "kafka-4.1.0": JarSet(
        (
            "org.apache.kafka:kafka_2.13:4.1.0",
            "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
        )
    ),
    "kafka-3.9.1": JarSet(
        ("org.apache.kafka:kafka_2.13:3.9.1", "org.slf4j:slf4j-reload4j:1.7.36"),
    ),
    # ZooKeeper 3.4 comes with these. JAXB left the JDK after 8; the cluster id needs it.
    "kafka-0.11.0.3": JarSet(
        ("org.apache.kafka:kafka_2.11:0.11.0.3", "javax.xml.bind:jaxb-api:2.3.1"),
    ),
    "kafka-0.10.2.2": JarSet(
        ("org.apache.kafka:kafka_2.11:0.10.2.2", "javax.xml.bind:jaxb-api:2.3.1"),
    ),
    "kafka-0.9.0.1": JarSet(("org.apache.kafka:kafka_2.11:0.9.0.1",)),
    "kafka-0.8.2.2": JarSet(("org.apache.kafka:kafka_2.11:0.8.2.2",)),
    # Console tools: from 4.0 on they are not among the broker's own jars.
    "kafka-tools-4.1.0": JarSet(
        (
            "org.apache.kafka:kafka-tools:4.1.0",
            "org.apache.kafka:kafka_2.13:4.1.0",
            "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
        )
    ),
    # Its own list of dependencies leaves out two that its server needs. Without an SLF4J
    # binding it logs nothing.
    "zookeeper-3.9.3": JarSet(
        (
            "org.apache.zookeeper:zookeeper:3.9.3",
            "io.dropwizard.metrics:metrics-core:4.1.12.1",
            "org.xerial.snappy:snappy-java:1.1.10.5",
            "org.slf4j:slf4j-reload4j:1.7.36",
        )
    ),
    # The client of ZooKeeper that it needs comes with it, and a binding for its log. Its console
    # tools need jopt-simple, which its own list leaves out.
    "jafka-3.0.6": JarSet(("io.jafka:jafka:3.0.6", "net.sf.jopt-simple:jopt-simple:4.3")),
    # Name server, broker and client; the broker's own list has an SLF4J of its own (shaded).
    "rocketmq-5.5.0": JarSet(
        (
            "org.apache.rocketmq:rocketmq-namesrv:5.5.0",
            "org.apache.rocketmq:rocketmq-broker:5.5.0",
            "org.apache.rocketmq:rocketmq-client:5.5.0",
        )
    ),
    # A schema registry with everything that it needs, which its own list does not name.
    "apicurio-2.6.13": JarSet(
        ("io.apicurio:apicurio-registry-app:2.6.13.Final",),
        archive="all",
    ),
    # For Spark's `spark.jars`: a session then starts without resolving anything.
    "delta-4.4.0": JarSet(
        ("io.delta:delta-spark_4.2_2.13:4.4.0",),
        excludes=("org.apache.spark:*", "org.scala-lang:*", "org.apache.hadoop:*"),
    ),
    # One that is refused, for a test: it comes without Delta Kernel.
    "delta-4.0.0": JarSet(
        ("io.delta:delta-spark_2.13:4.0.0",),
        excludes=("org.apache.spark:*", "org.scala-lang:*", "org.apache.hadoop:*"),
    ),
    # For tables on S3: what Spark's own Hadoop needs beside itself. Only those parts of
    # Amazon's SDK that it uses, since the bundle of all its parts is hundreds of megabytes.
    "hadoop-aws-3.5.0": JarSet(
        (
            "org.apache.hadoop:hadoop-aws:3.5.0",
            "software.amazon.awssdk:s3:2.35.4",
            "software.amazon.awssdk:s3-transfer-manager:2.35.4",
            "software.amazon.awssdk:sts:2.35.4",
        ),
        excludes=("software.amazon.awssdk:bundle", "io.netty:*", "org.slf4j:*"),
    ),
    # An S3 server for tests. Left out is what it needs for other backends than a folder, and
    # the web server, which is in its own jar.
    "s3proxy-4.1.0": JarSet(
        ("org.gaul:s3proxy:4.1.0", "jakarta.servlet:jakarta.servlet-api:6.0.0"),
        excludes=(
            "com.azure:*",
            "com.github.openstack4j.core:*",
            "com.github.openstack4j.core.connectors:*",
            "com.google.cloud:*",
            "io.grpc:*",
            "io.opentelemetry:*",
            "io.opentelemetry.semconv:*",
            "io.prometheus:*",
            "org.apache.sshd:*",
            "org.eclipse.jetty.ee10:*",
        ),
    ),
    # A YARN in one process, for tests; Spark's own Hadoop is what it needs besides. Left out of
    # its list of dependencies are those of its test classes, which it cannot do without.
    "hadoop-minicluster-3.5.0": JarSet(
        (
            "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
            "org.junit.jupiter:junit-jupiter-api:5.11.4",
            "org.bouncycastle:bcpkix-jdk18on:1.78.1",
        ),
        excludes=(
            "org.apache.hadoop:hadoop-client-api",
            "org.apache.hadoop:hadoop-client-runtime",
        ),
    ),
    # PostgreSQL itself, packed for Java's tests: the database of an Airflow.
    "postgres-17.5.0": JarSet(
        (f"io.zonky.test.postgres:embedded-postgres-binaries-linux-{_POSTGRES_CPU}:17.5.0",)
    ),
    # Spark's own Kafka source, for the benchmark to compare with. What PySpark brings is left
    # out. Its token provider cannot be had in its own version; that of 4.0.0 fits, and is a
    # set of its own, since one set would take the newer of the two that are asked for.
    "spark-kafka-4.2.0": JarSet(
        (
            "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
            "org.apache.kafka:kafka-clients:3.9.2",
            "org.apache.commons:commons-pool2:2.13.1",
        ),
        excludes=(
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13",
            "org.apache.spark:spark-sql_2.13",
            "org.apache.spark:spark-core_2.13",
            "org.apache.spark:spark-tags_2.13",
            "org.apache.hadoop:*",
            "org.scala-lang:*",
            "org.scala-lang.modules:*",
            "org.slf4j:*",
            "org.lz4:*",
            "at.yawk.lz4:*",
            "com.github.luben:*",
            "org.xerial.snappy:*",
            "com.google.code.findbugs:*",
        ),
    ),
    "spark-kafka-token-provider-4.0.0": JarSet(
        ("org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",),
        excludes=(
            "org.apache.spark:spark-core_2.13",
            "org.apache.spark:spark-tags_2.13",
            "org.apache.kafka:*",
            "org.apache.hadoop:*",
            "org.scala-lang:*",
            "org.scala-lang.modules:*",
            "org.slf4j:*",
        ),
    ),
    # Spark's own Avro functions, for the benchmark. They cannot be had in its own version; those of
    # 4.1.1 fit, since what decodes is in Spark SQL itself.
    "spark-avro-4.1.1": JarSet(
        ("org.apache.spark:spark-avro_2.13:4.1.1",),
        excludes=(
            "org.apache.spark:spark-sql_2.13",
            "org.apache.spark:spark-tags_2.13",
            "org.scala-lang:*",
            "org.scala-lang.modules:*",
        ),
    ),
}


def cache_directory() -> Path:
    """``$RANGELAND_CACHE``, or ``rangeland`` in the user's cache directory."""
    if chosen := os.environ.get("RANGELAND_CACHE"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "rangeland"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rangeland"


def fetch_jars(name: str) -> Path:
    """The directory with the jars of a set of ``JAR_SETS``, fetched if necessary.

    A first fetch takes about half a minute. Raises UsageError for an unknown set or a missing
    Java, Unreachable if the jars cannot be fetched, StorageFailed if they cannot be written."""
    if name not in JAR_SETS:
        known = ", ".join(sorted(JAR_SETS))
        raise UsageError(f"There is no set of jars named {name}", do=f"Use one of: {known}")
    module = ivy_module(name, JAR_SETS[name])
    target = cache_directory() / "jars" / name
    if _is_current(target, module):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.parent / f".{name}.lock"):
            if not _is_current(target, module):
                logger.info("Fetching the jars of %s", name)
                _fetch_into(target, name, module)
    except OSError as error:
        remedy = "Make room, or point RANGELAND_CACHE at another directory"
        why = f"{target} cannot be written: {error}"
        raise StorageFailed(f"The jars of {name} were not kept", why=why, do=remedy) from error
    return target


def jar_files(name: str) -> list[Path]:
    """The jars of a set, sorted, for options that take a list instead of a directory."""
    return sorted(fetch_jars(name).glob("*.jar"))


def class_path(name: str) -> str:
    """The jars of a set for the JVM's ``-cp``; not to be passed through a shell."""
    return str(fetch_jars(name) / "*")


def ivy_module(name: str, jars: JarSet) -> str:
    """The text of the ``ivy.xml`` for a set."""
    dependencies = "".join(
        f"    <dependency org={org} name={artifact} rev={revision} "
        + (_archived(artifact, jars.archive) if jars.archive else 'conf="default->default"/>\n')
        for org, artifact, revision in (map(quoteattr, c.split(":")) for c in jars.coordinates)
    )
    excludes = "".join(
        f"    <exclude org={org} module={artifact}/>\n"
        for org, artifact in (map(quoteattr, e.split(":")) for e in jars.excludes)
    )
    return (
        f'<ivy-module version="2.0"{MAVEN_NAMES if jars.archive else ""}>\n'
        f'  <info organisation="rangeland" module={quoteattr(name)}/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{dependencies}{excludes}  </dependencies>\n"
        "</ivy-module>\n"
    )


def _archived(artifact: str, classifier: str) -> str:
    return (
        'transitive="false" conf="default->default">\n'
        f'      <artifact name={artifact} type="{ARCHIVE}" ext="{ARCHIVE}"'
        f" m:classifier={quoteattr(classifier)}/>\n"
        "    </dependency>\n"
    )


def ivy_settings(home: Path) -> str:
    """Settings with one repository and nothing of the user's home. The repository is
    ``$RANGELAND_MAVEN`` (a URL), by default Ivy's public one."""
    mirror = os.environ.get("RANGELAND_MAVEN", "")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    return (
        "<ivysettings>\n"
        '  <settings defaultResolver="maven"/>\n'
        f"  <caches defaultCacheDir={quoteattr(str(home / 'cache'))}/>\n"
        f'  <resolvers><ibiblio name="maven" m2compatible="true"{root}/></resolvers>\n'
        "</ivysettings>\n"
    )


def _is_current(target: Path, module: str) -> bool:
    try:
        return (target / "ivy.xml").read_text() == module
    except FileNotFoundError:
        return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_into(target: Path, name: str, module: str) -> None:
    """Fetches next to ``target`` and renames; the caller holds the lock."""
    for leftover in target.parent.glob(f".{name}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    home = Path(tempfile.mkdtemp(prefix=f".{name}.partial-", dir=target.parent))
    try:
        jars = home / "jars"
        jars.mkdir()
        (home / "ivy.xml").write_text(module)
        (home / "settings.xml").write_text(ivy_settings(home))
        _run_ivy(name, home, jars)
        for archive in jars.glob(f"*.{ARCHIVE}"):
            _unpack_jars(archive)
        (jars / "ivy.xml").write_text(module)
        if target.exists():
            target.rename(home / "outdated")
        jars.rename(target)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _unpack_jars(archive: Path) -> None:
    """Replaces an archive by the jars in it, whatever folders they are in."""
    with tarfile.open(archive) as packed:
        for member in packed:
            content = packed.extractfile(member) if member.name.endswith(".jar") else None
            if content is not None:
                with content, (archive.parent / Path(member.name).name).open("wb") as jar:
                    shutil.copyfileobj(content, jar)
    archive.unlink()


def _run_ivy(name: str, home: Path, jars: Path) -> None:
    command = [find_java(), *SMALL_JVM, f"-Duser.home={home}", "-jar", str(find_ivy())]
    command += ["-settings", str(home / "settings.xml"), "-ivy", str(home / "ivy.xml")]
    command += ["-confs", "default", "-types", "jar", "bundle", ARCHIVE]
    command += ["-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]"]
    remedy = (
        "Try again; behind a proxy set JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=... "
        "-Dhttps.proxyPort=..., or set RANGELAND_MAVEN to the URL of a Maven repository"
    )
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        why = f"not done after {FETCH_TIMEOUT_S} s"
        raise Unreachable(f"The jars of {name} were not fetched", why=why, do=remedy) from error
    if done.returncode != 0 or not any(jars.iterdir()):
        why = _complaint(done.stdout + done.stderr)
        raise Unreachable(f"The jars of {name} were not fetched", why=why, do=remedy)


def _complaint(log: str) -> str:
    """The lines of Ivy's log that say what failed, without its table and repetitions."""
    words = ("not found", "NOT FOUND", "error", "ERROR", "FAILED", "timed out", "refused")
    lines = (line.strip(" \t:") for line in log.splitlines())
    found = dict.fromkeys(line for line in lines if any(word in line for word in words))
    return "; ".join(list(found)[:4]) or "Ivy said: " + " ".join(log.split()[-40:])


def find_ivy() -> Path:
    """The Ivy jar inside the installed PySpark, found without importing PySpark."""
    spec = find_spec("pyspark")
    folders = list(spec.submodule_search_locations or []) if spec else []
    for folder in folders:
        for jar in sorted(Path(folder, "jars").glob("ivy-*.jar")):
            return jar
    why = "no ivy-*.jar is in its jars directory" if folders else "PySpark is not installed"
    raise UsageError(
        "Ivy was not found", why=why, do="Install PySpark with pip: pip install pyspark"
    )
