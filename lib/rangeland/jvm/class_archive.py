"""An archive of the classes of a session's JVM: later JVMs map it into memory instead of loading
and checking each class (class-data sharing).

The JVM of a command that lands writes the archive when it exits, after Python has ended, so nobody
waits for it. It is written to a temporary file, which the next session renames once it is complete.
There is one archive for each combination of a Java and a list of jars, in the cache of jars; the
few most recently used are kept. Nothing depends on it: an archive that cannot be written, is
incomplete, or was made for another JVM or other jars is ignored, in the last resort by the JVM
itself.

``RANGELAND_CLASS_ARCHIVE``: with ``off``, no archive is made or used; with ``wait``, a command that
makes one waits until it is written, for building images that contain one.
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
"""The first Java for which archives are made: older versions do not write one on exit."""
MAX_KEPT = 4
"""How many archives are kept, of about 200 MB each. One is enough for one set of jars and one Java,
and few hosts use more than four."""
NEEDED_BYTES = 1 << 30
"""If less space than this is free, no archive is made; an archive takes about 200 MB."""
GIVEN_UP_S = 3600.0
"""The age after which an incomplete file must belong to a JVM that was killed."""
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
    """What the user has chosen; an unknown value counts as none."""
    try:
        return ArchiveUse(os.environ.get("RANGELAND_CLASS_ARCHIVE", "auto").lower())
    except ValueError:
        return ArchiveUse.AUTO


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive for one Java and one list of jars, whether or not it exists. The name of its file
    contains the file's size, because a JVM that maps a truncated archive would crash."""

    key: str
    folder: Path

    @classmethod
    def of(cls, java: str, jars: Iterable[Path], options: str = "") -> ClassArchive | None:
        """The archive for a JVM; None if there can be none. ``jars``: files, and folders of files.
        ``options``: the JVM's options, which must be the same for all JVMs that share an
        archive."""
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
        """Its file, if it exists."""
        whole = (p for p in self.folder.glob(f"{self.key}-*.jsa") if p.name == _name(self.key, p))
        return next(whole, None)

    def options_to_use(self) -> list[str]:
        """The options with which the JVM maps the archive; empty if there is no archive, or the JVM
        has one of its own."""
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
        """The options with which the JVM writes the archive when it exits; empty if the archive
        exists, if another JVM is about to write it, or if there is not enough space."""
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
        """Files that a JVM may still be writing; older ones are removed."""
        now_s = time.time()
        files = sorted(self.folder.glob(f"{self.key}.*.new"))
        recent = [path for path in files if now_s - path.stat().st_mtime <= GIVEN_UP_S]
        for path in files:
            if path not in recent:
                path.unlink(missing_ok=True)
        return recent


def take_complete(folder: Path) -> None:
    """Renames the archives that JVMs have finished writing to their final names."""
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
    """A text that changes whenever the file, or a file in the folder, changes."""
    stat = path.stat()
    if not path.is_dir():
        return f"{path} {stat.st_mtime_ns} {stat.st_size}"
    files: Sequence[os.DirEntry[str]] = sorted(os.scandir(path), key=lambda entry: entry.name)
    inside = (f"{e.name} {e.stat().st_mtime_ns} {e.stat().st_size}" for e in files)
    return "\n".join([str(path), *inside])
