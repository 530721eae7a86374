"""Sets of jars, fetched once into a cache.

A set is given by a few Maven coordinates, and includes their dependencies. It is fetched by the Ivy
that comes with PySpark, so Maven is not needed. Ivy gets a home, cache and settings of its own,
because it would otherwise trust an incomplete local Maven repository.

A set is either complete or absent: it is fetched to a temporary folder and renamed, under a file
lock, so that two processes do not fetch it twice. A set keeps its ``ivy.xml``; if its coordinates
have changed since, it is fetched again.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from rangeland.errors import StorageFailed, Unreachable, UsageError
from rangeland.jvm.jar_sets import JarSet
from rangeland.jvm.java import OLDEST_JAVA, SMALL_JVM, find_java

FETCH_TIMEOUT_S = 900
ARCHIVE = "tar.gz"
MAVEN_NAMES = ' xmlns:m="http://ant.apache.org/ivy/maven"'
logger = logging.getLogger(__name__)


def cache_directory() -> Path:
    """``$RANGELAND_CACHE``, or ``rangeland`` in the user's cache directory."""
    if directory := os.environ.get("RANGELAND_CACHE"):
        return Path(directory).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "rangeland"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rangeland"


def fetch_jars(jars: JarSet) -> Path:
    """The directory with the jars of a set, which is fetched if necessary.

    The first fetch takes about half a minute. Raises UsageError if Java is missing, Unreachable if
    the jars cannot be fetched, and StorageFailed if they cannot be written.
    """
    name = jars.name
    module = ivy_module(jars)
    target = cache_directory() / "jars" / name
    if _is_current(target, module):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _hold_lock(target.parent / f".{name}.lock"):
            if not _is_current(target, module):
                logger.info("Fetching the jars of %s", name)
                _fetch_into(target, name, module)
    except OSError as error:
        do = "make room, or point RANGELAND_CACHE at another directory"
        reason = f"{target} cannot be written: {error}"
        raise StorageFailed(f"The jars of {name} could not be stored", why=reason, do=do) from error
    return target


def jar_files(jars: JarSet) -> list[Path]:
    """The jars of a set, sorted, for options that take a list instead of a directory."""
    return sorted(fetch_jars(jars).glob("*.jar"))


def class_path(jars: JarSet) -> str:
    """The jars of a set for the JVM's ``-cp``; must not be passed through a shell."""
    return str(fetch_jars(jars) / "*")


def ivy_module(jars: JarSet) -> str:
    """The text of a set's ``ivy.xml``."""
    alone = "" if jars.transitive else 'transitive="false" '
    dependencies = "".join(
        f"    <dependency org={org} name={artifact} rev={revision} "
        + (_one_file(artifact, jars) if jars.classifier else f'{alone}conf="default->default"/>\n')
        for org, artifact, revision in (map(quoteattr, c.split(":")) for c in jars.coordinates)
    )
    excludes = "".join(
        f"    <exclude org={org} module={artifact}/>\n"
        for org, artifact in (map(quoteattr, e.split(":")) for e in jars.excludes)
    )
    return (
        f'<ivy-module version="2.0"{MAVEN_NAMES if jars.classifier else ""}>\n'
        f'  <info organisation="rangeland" module={quoteattr(jars.name)}/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{dependencies}{excludes}  </dependencies>\n"
        "</ivy-module>\n"
    )


def _one_file(artifact: str, jars: JarSet) -> str:
    return (
        'transitive="false" conf="default->default">\n'
        f"      <artifact name={artifact} type={quoteattr(jars.packaging)}"
        f" ext={quoteattr(jars.packaging)} m:classifier={quoteattr(jars.classifier)}/>\n"
        "    </dependency>\n"
    )


def ivy_settings(home: Path) -> str:
    """Settings with a single repository and nothing from the user's home. The repository is
    ``$RANGELAND_MAVEN`` (a URL); the default is Ivy's public one."""
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
def _hold_lock(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_into(target: Path, name: str, module: str) -> None:
    """Fetches the set next to ``target`` and renames it; the caller must hold the lock."""
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
    """Replaces an archive with the jars inside it, whatever folders they are in."""
    with tarfile.open(archive) as archive_file:
        for member in archive_file:
            content = archive_file.extractfile(member) if member.name.endswith(".jar") else None
            if content is not None:
                with content, (archive.parent / Path(member.name).name).open("wb") as jar:
                    shutil.copyfileobj(content, jar)
    archive.unlink()


def _run_ivy(name: str, home: Path, jars: Path) -> None:
    command = [find_java(OLDEST_JAVA), *SMALL_JVM, f"-Duser.home={home}", "-jar", str(find_ivy())]
    command += ["-settings", str(home / "settings.xml"), "-ivy", str(home / "ivy.xml")]
    command += ["-confs", "default", "-types", "jar", "bundle", ARCHIVE]
    command += ["-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]"]
    remedy = (
        "try again; behind a proxy set JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=... "
        "-Dhttps.proxyPort=..., or set RANGELAND_MAVEN to the URL of a Maven repository"
    )
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        reason = f"Ivy was still running after {FETCH_TIMEOUT_S} s"
        raise Unreachable(f"The jars of {name} were not fetched", why=reason, do=remedy) from error
    if process.returncode != 0 or not any(jars.iterdir()):
        reason = _complaint(process.stdout + process.stderr)
        raise Unreachable(f"The jars of {name} were not fetched", why=reason, do=remedy)


def _complaint(log: str) -> str:
    """The lines of Ivy's log that say what failed, without its table and its repetitions."""
    words = ("not found", "NOT FOUND", "error", "ERROR", "FAILED", "timed out", "refused")
    lines = (line.strip(" \t:") for line in log.splitlines())
    errors = dict.fromkeys(line for line in lines if any(word in line for word in words))
    return "; ".join(list(errors)[:4]) or "Ivy said: " + " ".join(log.split()[-40:])


def spark_jar_folders() -> list[Path]:
    """The folders with Spark's own jars: first the one in ``SPARK_HOME``, then the one in the
    installed PySpark. They are found without importing PySpark."""
    home = os.environ.get("SPARK_HOME", "")
    spec = find_spec("pyspark")
    packages = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    # In a Spark distribution, the package is in the folder python/.
    folders = [parent / "jars" for package in packages for parent in (package, package.parents[1])]
    folders = [*([Path(home, "jars")] if home else []), *folders]
    return [folder for folder in folders if folder.is_dir()]


def find_ivy() -> Path:
    """The Ivy jar that comes with Spark."""
    folders = spark_jar_folders()
    for folder in folders:
        for jar in sorted(folder.glob("ivy-*.jar")):
            return jar
    reason = f"no ivy-*.jar is in {folders[0]}" if folders else "PySpark is not installed"
    raise UsageError(
        "Ivy was not found", why=reason, do="install PySpark with pip: pip install pyspark"
    )
