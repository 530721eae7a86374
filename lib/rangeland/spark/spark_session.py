"""A Spark session with Delta: the existing one, or a new one.

Under ``spark-submit`` and in notebooks, a session or its settings already exist and are used
unchanged. Otherwise a local session is started; commands start only those parts of it that they
need (``deferred_session``). A session with unsupported versions, or without Delta, is refused, and
the error says what to do.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rangeland.delta.stores.store_kinds import AZURE_SCHEMES, S3_SCHEMES, scheme_of
from rangeland.errors import EngineFailed, RangelandError, Unreachable, UsageError
from rangeland.jvm.class_archive import MAKING, ClassArchive
from rangeland.jvm.jar_sets import LIBRARY_JARS, JarSet
from rangeland.jvm.jars import jar_files
from rangeland.jvm.java import find_java
from rangeland.spark.deferred_session import DeferredSession, is_local_master
from rangeland.spark.gateway import JvmExited, JvmStart
from rangeland.spark.supported_versions import (
    CATALOG,
    EXTENSION,
    NEWEST,
    InstalledSpark,
    RuntimeVersions,
    check_delta_is_supported,
    check_versions_are_supported,
    installed_spark,
    require_supported_spark,
    versions_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

HADOOP_PACKAGES = {
    **dict.fromkeys(S3_SCHEMES, ("S3", "hadoop-aws")),
    **dict.fromkeys(AZURE_SCHEMES, ("Azure", "hadoop-azure")),
    "gs": ("Google storage", "hadoop-gcp"),
}
DEFAULTS = {
    "spark.sql.extensions": EXTENSION,
    "spark.sql.catalog.spark_catalog": CATALOG,
    "spark.ui.enabled": "false",
    # Spark's progress bar would write to the same stream as ours.
    "spark.ui.showConsoleProgress": "false",
}


def open_spark(
    app_name: str = "rangeland",
    settings: Mapping[str, str] | None = None,
    *,
    table: str = "",
    makes_archive: bool = False,
) -> SparkSession:
    """The active session, or a new one with ``settings`` on top of the defaults, and with the jars
    for the store of a ``table``. ``makes_archive``: its JVM may write an archive of its classes
    when it ends. Raises UsageError if Java or Delta is missing, and what ``jar_files`` raises if
    jars cannot be fetched."""
    session = open_deferred(app_name, settings, tables=[table], makes_archive=makes_archive)
    return session.session if isinstance(session, DeferredSession) else session


def open_deferred(
    app_name: str,
    settings: Mapping[str, str] | None = None,
    *,
    tables: Sequence[str] = (),
    meanwhile: Callable[[], object] = lambda: None,
    makes_archive: bool = False,
) -> SparkSession:
    """The same as ``open_spark``, but for many tables; and a new session, unless ``spark-submit``
    has set it up, is a ``DeferredSession``, which starts only what a command uses. The new JVM
    starts while ``meanwhile`` runs, and is ended if that fails."""
    active = _active_session()
    if active is not None:
        return with_delta(active)
    # Otherwise a local worker is the first python3 on the PATH, which may lack pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if _is_submitted():
        return _submitted_session(app_name)
    conf = {**local_settings(tables), **(settings or {})}
    class_path = _class_path(conf)
    options = _archive_options(conf, class_path, makes_archive)
    with JvmStart() as starting:
        starting.launch({"spark.app.name": app_name, **conf}, _home(), options, class_path)
        meanwhile()
        with _translate_start_errors():
            gateway = starting.connect()
            versions = versions_of(gateway.jvm)
    _check_versions_are_supported(versions)
    session = DeferredSession(
        gateway,
        versions.spark,
        lambda: _make_context(app_name, conf),
        lambda: _make_session(conf),
    )
    archives = any(MAKING in option for option in options)
    if archives or not is_local_master(conf["spark.master"]):
        # An archive must contain all classes, and a missing cluster must be noticed at once.
        _ = session.session
    return cast("SparkSession", session)


def _class_path(settings: dict[str, str]) -> list[str]:
    """The session's jars, if its own JVM does all the work. They are removed from the settings: as
    ``spark.jars`` they would be copied at each start, and their classes would never be archived."""
    if not is_local_master(settings["spark.master"]):
        return []
    return settings.pop("spark.jars").split(",")


def _archive_options(
    settings: Mapping[str, str], class_path: Sequence[str], makes_archive: bool
) -> list[str]:
    home = Path(_home())
    if any(_has_files(folder) for folder in _conf_folders(home)):
        return []  # A JVM with folders in its class path does not share classes.
    java = find_java(installed_spark().support.java)
    jars = [home / "jars", *map(Path, class_path)]
    archive = ClassArchive.of(java, jars, settings.get("spark.driver.extraJavaOptions", ""))
    if archive is None:
        return []
    return archive.options_to_use() or (archive.options_to_make() if makes_archive else [])


def _conf_folders(home: Path) -> list[Path]:
    """The configuration folders that Spark puts on its class path."""
    hadoop = [os.environ.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR")]
    conf = os.environ.get("SPARK_CONF_DIR") or home / "conf"
    return [Path(folder) for folder in (conf, *hadoop) if folder]


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _home() -> str:
    """Spark's home folder, found as PySpark would find it, but without importing PySpark."""
    return os.environ.get("SPARK_HOME") or installed_spark().home


def _active_session() -> SparkSession | None:
    """The active session. PySpark is used only if it has already been imported: importing it takes
    a while, during which the JVM could already be starting."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _submitted_session(app_name: str) -> SparkSession:
    with _translate_start_errors():
        _context(app_name, {})
        session = _make_session({})
    return with_delta(session)


def _make_context(app_name: str, settings: Mapping[str, str]) -> Any:
    with JvmStart() as starting, _translate_start_errors():
        context = _context(app_name, settings)
        starting.context_made()
        return context


def _context(app_name: str, settings: Mapping[str, str]) -> Any:
    from pyspark import SparkConf, SparkContext

    conf = SparkConf().setAppName(app_name).setAll([*settings.items()])
    context = SparkContext.getOrCreate(conf)
    context.setLogLevel("ERROR")
    return context


def _make_session(settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    with _translate_start_errors():
        return SparkSession.builder.config(map=dict(settings)).getOrCreate()


@contextmanager
def _translate_start_errors() -> Iterator[None]:
    """Turns failures to start Spark into errors that say what to do."""
    try:
        yield
    except RangelandError:
        raise
    except Exception as error:
        raise _version_error() or _start_error(error) from error


def _is_submitted() -> bool:
    """Whether spark-submit has already set master and packages."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def local_settings(tables: Sequence[str] = ()) -> dict[str, str]:
    """The settings for a local session: with Delta from our own cache of jars, so that nothing has
    to be resolved at the start, and with little logging by the JVM."""
    spark = installed_spark()
    find_java(spark.support.java)
    quiet = Path(__file__).with_name("log4j2.properties")
    options = f"-Dlog4j2.configurationFile={quiet.as_uri()}" if quiet.is_file() else ""
    sets = [spark.delta.jars, *_store_jars(tables, spark)]
    jars = {jar.name: jar for one in sets for jar in jar_files(one)}  # some are in several sets
    return {
        **DEFAULTS,
        "spark.master": os.environ.get("RANGELAND_MASTER", "local[*]"),
        "spark.driver.memory": os.environ.get("RANGELAND_DRIVER_MEMORY", "1g"),
        # The defaults, 200 and 50, are meant for clusters: here most partitions would be empty.
        "spark.sql.shuffle.partitions": str(max(8, 2 * (os.cpu_count() or 1))),
        "spark.databricks.delta.snapshotPartitions": "4",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": options,
        "spark.jars": ",".join(map(str, jars.values())),
    }


def _store_jars(tables: Sequence[str], spark: InstalledSpark) -> list[JarSet]:
    """The sets of jars with Hadoop's file systems for the stores of these tables, unless Spark
    ships them."""
    schemes = {scheme_of(table) for table in tables} & HADOOP_PACKAGES.keys()
    packages = sorted({HADOOP_PACKAGES[scheme] for scheme in schemes})
    return [_hadoop_jars(store, artifact, spark) for store, artifact in packages]


def _hadoop_jars(store: str, artifact: str, spark: InstalledSpark) -> JarSet:
    name = f"{artifact}-{spark.hadoop}"
    if name not in LIBRARY_JARS:
        older = " (from Hadoop 3.5 on; before, Google's gcs-connector)"
        raise UsageError(
            f"a local session of Spark {spark.version} has no jars for tables on {store}",
            why=f"Rangeland only knows those for Spark {NEWEST.spark}",
            do=f"start it with spark-submit --packages org.apache.hadoop:{artifact}:{spark.hadoop}"
            + (older if artifact == "hadoop-gcp" else ""),
        )
    return LIBRARY_JARS[name]


def with_delta(session: SparkSession) -> SparkSession:
    """The session, after checking that its Delta and Spark are supported."""
    _check_versions_are_supported(versions_of(session._jvm))
    return session


def _check_versions_are_supported(versions: RuntimeVersions) -> None:
    check_versions_are_supported(versions)
    fields = {"spark": versions.spark, "delta": versions.delta, "java": versions.java}
    logger.info("Spark and Delta are supported", extra=fields)


def _version_error() -> UsageError | None:
    """The error to report if no session started because Spark, Java or Delta is not supported; the
    original error at best names a missing method. None if the JVM has ended."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    if SparkContext._jvm is None:
        return None
    try:
        versions = versions_of(SparkContext._jvm)
        require_supported_spark(versions)
        check_delta_is_supported(versions)
    except UsageError as error:
        return error
    except (Py4JError, OSError):
        return None
    return None


def _start_error(error: Exception) -> Exception:
    text = str(error)
    if isinstance(error, JvmExited):
        return UsageError(
            "Spark could not be started",
            why="its JVM ended at once; its own output is above",
            do="check that JAVA_HOME names a JDK, 17 or newer, then try again",
        )
    if "stopped SparkContext" in text or "unresponsive" in text:
        return Unreachable(
            "the Spark cluster cannot be reached",
            why="its master did not answer, or has ended the application before it began",
            do="check that the URL of --master (or RANGELAND_MASTER) is right and its master is "
            f"up; a master that runs a Spark other than {_minor_of_pyspark()} looks the same, and "
            "its own log says InvalidClassException. Spark's own output is above",
        )
    return EngineFailed(
        "Spark could not be started", why=text[:300], do="read Spark's own output above"
    ).with_answers(data=RangelandError.data, retry="yes, later")


def _minor_of_pyspark() -> str:
    from pyspark import __version__

    return ".".join(__version__.split(".")[:2])
