"""An archive of the classes of a session's JVM: later JVMs map it instead of loading and checking
each class (class-data sharing).

The JVM of a command that lands writes the archive as it ends, after Python has ended, so nobody
waits for it. It is written to a temporary file, which the next session renames once it is complete.
There is one archive for each Java and each list of jars, in the cache of jars; the few that were
used last are kept. Nothing depends on it: an archive that cannot be written, is incomplete, or was
made for another JVM or other jars is ignored, in the end by the JVM itself.

``RANGELAND_CLASS_ARCHIVE``: ``off`` neither makes nor uses one; with ``wait`` a command that makes
one waits until it is written, for images that are built with one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from uuid import uuid4

from rangeland.jvm.jars import cache_directory
from rangeland.jvm.java import java_version

FIRST_JAVA = 17
"""The first Java for which archives are made: older ones write none when they end."""
MAX_KEPT = 4
"""How many archives are kept, of about 200 MB each. One serves one set of jars and one Java, and
few hosts use more than four."""
NEEDED_BYTES = 1 << 30
"""With less free space than this no archive is made; one has about 200 MB."""
GIVEN_UP_S = 3600.0
"""The age after which an incomplete file belongs to a JVM that was killed."""
MAKING = "-XX:ArchiveClassesAtExit"
QUIET = (
    "-Xshare:auto",
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
    "-Xlog:class+path=off",
    "-XX:+IgnoreUnrecognizedVMOptions",
)
OPTIONS_OF_JVMS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
logger = logging.getLogger(__name__)


class ArchiveUse(StrEnum):
    """The values of ``RANGELAND_CLASS_ARCHIVE``."""

    AUTO = "auto"
    OFF = "off"
    WAIT = "wait"


def archive_use() -> ArchiveUse:
    """The use that the user has chosen; an unknown value counts as none."""
    try:
        return ArchiveUse(os.environ.get("RANGELAND_CLASS_ARCHIVE", "auto").lower())
    except ValueError:
        return ArchiveUse.AUTO


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive for one Java and one list of jars, whether it exists or not. The name of its file
    contains the file's size: a JVM that maps a truncated archive would crash."""

    key: str
    folder: Path

    @classmethod
    def of(cls, java: str, jars: Iterable[Path], options: str = "") -> ClassArchive | None:
        """The archive for a JVM; None if there can be none. ``jars``: files, and folders of
        files; ``options`` of the JVM, which must be the same for all that share an archive."""
        if archive_use() is ArchiveUse.OFF or sys.platform == "win32":
            return None
        try:
            if java_version(java) < FIRST_JAVA:
                return None
            parts = [options, *map(_identity, [Path(java).resolve(), *jars])]
        except OSError:
            return None
        key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
        return cls(key, cached_archives())

    @property
    def path(self) -> Path | None:
        """Its file, if there is one."""
        whole = (p for p in self.folder.glob(f"{self.key}-*.jsa") if p.name == _name(self.key, p))
        return next(whole, None)

    def options_to_use(self) -> list[str]:
        """The options with which the JVM maps the archive; none if there is no archive, or the JVM
        has its own."""
        if any("SharedArchiveFile" in os.environ.get(name, "") for name in OPTIONS_OF_JVMS):
            return []
        with suppress(OSError):  # The cache may be read-only.
            take_complete(self.folder)
        try:
            path = self.path
        except OSError:
            return []
        if path is None:
            return []
        with suppress(OSError):
            os.utime(path)
        return [f"-XX:SharedArchiveFile={path}", *QUIET]

    def options_to_make(self) -> list[str]:
        """The options with which the JVM writes the archive when it ends; none if the archive
        exists, another JVM is about to write it, or there is no room."""
        if any(os.environ.get(name) for name in OPTIONS_OF_JVMS):
            return []  # Others would get an archive that their JVM refuses.
        try:
            folder = self.folder
            folder.mkdir(parents=True, exist_ok=True)
            if self.path is not None or self._unfinished_files():
                return []
            if shutil.disk_usage(folder).free < NEEDED_BYTES:
                return []
            new = folder / f"{self.key}.{uuid4().hex[:8]}.new"
            new.touch()
        except OSError:
            return []
        logger.info("The JVM will write an archive of its classes when it ends")
        return [f"{MAKING}={new}", *QUIET]

    def _unfinished_files(self) -> list[Path]:
        """Files that a JVM may still write; older ones are removed."""
        now_s = time.time()
        files = sorted(self.folder.glob(f"{self.key}.*.new"))
        recent = [path for path in files if now_s - path.stat().st_mtime <= GIVEN_UP_S]
        for path in files:
            if path not in recent:
                path.unlink(missing_ok=True)
        return recent


def take_complete(folder: Path) -> None:
    """Gives their final names to the archives that JVMs have finished writing."""
    for path in sorted(folder.glob("*.new")):
        # Another process may be doing the same.
        with suppress(FileNotFoundError), path.open("rb") as file:
            if not any(file.read(4)):
                continue  # The JVM writes the beginning of the file last.
            os.fsync(file.fileno())
            archive = path.replace(path.with_name(_name(path.name.partition(".")[0], path)))
            logger.info("An archive of classes is ready: %s", archive)
            _remove_oldest(folder)


def _name(key: str, path: Path) -> str:
    return f"{key}-{path.stat().st_size}.jsa"


def cached_archives() -> Path:
    return cache_directory() / "classes"


def _remove_oldest(folder: Path) -> None:
    archives = sorted(folder.glob("*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in archives[MAX_KEPT:]:
        path.unlink(missing_ok=True)


def _identity(path: Path) -> str:
    """A text that changes whenever the file, or one in the folder, does."""
    stat = path.stat()
    if not path.is_dir():
        return f"{path} {stat.st_mtime_ns} {stat.st_size}"
    files: Sequence[os.DirEntry[str]] = sorted(os.scandir(path), key=lambda entry: entry.name)
    inside = (f"{e.name} {e.stat().st_mtime_ns} {e.stat().st_size}" for e in files)
    return "\n".join([str(path), *inside])
