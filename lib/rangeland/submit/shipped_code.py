"""Packs this package for a cluster, in one of two ways.

A zip of the package (``--py-files``) is for workers whose Python has the few packages that tasks
import; each host extracts the kernel from it. A Python environment as an archive is for workers
that only have a Python of the same version at the same path, as a virtual environment needs.

The zip has the files of a wheel, and the same bytes each time. An environment is made of the
installed distributions, by their own lists of files. Both are written to a temporary file and
renamed.
"""

from __future__ import annotations

import gzip
import io
import os
import platform
import re
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import IO

import rangeland
from rangeland import __version__
from rangeland.decode.native.native_library import library_name
from rangeland.errors import JobFileError, StorageFailed, UsageError

MODULE_SUFFIXES = (".py", ".so", ".dylib", ".dll", ".properties", ".java")
ENVIRONMENT = "environment"
SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
# Spark has its own PySpark and py4j, 500 MB of them; this package is added separately.
LEFT_OUT = frozenset(["pyspark", "py4j", "delta-spark", "pip", "setuptools", "wheel", "rangeland"])
# With a fixed date, a zip of the same files has the same bytes, which helps Spark's caches.
_DATE = (1980, 1, 1, 0, 0, 0)


# --- the package ------------------------------------------------------------------------

NATIVE_FOLDER = "decode/native"


def make_zip(folder: Path) -> Path:
    """``folder/rangeland-VERSION.zip`` with the package and its kernels for this and all other
    platforms that are installed. Raises UsageError if there is none for this platform."""
    target = folder / f"rangeland-{__version__}.zip"
    files = package_files()
    with _placed(target) as file:
        write_zip(file, files)
    return target


def package_files() -> list[tuple[Path, str]]:
    """The files of this package with their names in an archive. Test servers stay at home."""
    package = _package_folder()
    if not (package / NATIVE_FOLDER / library_name()).is_file():
        raise UsageError(
            f"this installation has no compiled kernel ({library_name()})",
            why="workers cannot decode records without it",
            do="Install the package with pip, or run lib/kernel_build.py in a checkout",
        )
    testing = package / "testing"
    found = [
        (path, name)
        for path, name in files_below(package, "rangeland")
        if not path.is_relative_to(testing)
    ]
    source = package.with_name("pyspark_rangeland.py")
    return [*found, *([(source, source.name)] if source.is_file() else [])]


def kernel_platforms() -> list[str]:
    """The platforms whose kernels are shipped, such as ``linux-x86_64``."""
    names = (_package_folder() / NATIVE_FOLDER).glob("_kernel-*")
    return sorted(path.stem.removeprefix("_kernel-") for path in names)


def files_below(folder: Path, name: str) -> list[tuple[Path, str]]:
    """The modules, libraries and settings of a package's folder, sorted."""
    return [
        (path, f"{name}/{path.relative_to(folder).as_posix()}")
        for path in sorted(folder.rglob("*"))
        if path.suffix in MODULE_SUFFIXES and "__pycache__" not in path.parts
    ]


def write_zip(file: IO[bytes], files: Sequence[tuple[Path, str]]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, name in files:
            archive.writestr(zipfile.ZipInfo(name, _DATE), path.read_bytes(), zipfile.ZIP_DEFLATED)


def _package_folder() -> Path:
    folder = Path(rangeland.__file__).parent
    if not folder.is_dir():
        raise UsageError(
            "this package is running from an archive",
            why=str(folder),
            do="Build the command on a machine where it is installed",
        )
    return folder


def jars_beyond(spark_jars: Path, jars: Sequence[Path]) -> list[Path]:
    """The jars that a Spark with ``spark_jars`` lacks in any version. The others, Hadoop among
    them, would be sent to every executor and be there twice."""
    has = {_artifact(jar) for jar in spark_jars.glob("*.jar")}
    return [jar for jar in jars if _artifact(jar) not in has]


def _artifact(jar: Path) -> str:
    """``delta-spark_4.2_2.13`` of ``delta-spark_4.2_2.13-4.4.0.jar``."""
    return re.sub(r"-\d.*", "", jar.stem)


def make_kernel_zip(folder: Path, name: str, jars: Sequence[Path]) -> Path:
    """``folder/NAME.zip`` with these jars, for drivers in a cluster."""
    target = folder / f"{name}.zip"
    with _placed(target) as file:
        write_zip(file, [(jar, jar.name) for jar in jars])
    return target


# --- a transform ------------------------------------------------------------------------


def transform_files(name: str, beside: Sequence[Path], folder: Path) -> list[Path]:
    """The file to ship so that ``module:function`` can be imported on a worker: the module,
    or a zip of its package made in ``folder``; nothing if it is installed.

    It is searched for in ``beside``, then on the path, and is not imported."""
    top = name.partition(":")[0].partition(".")[0]
    found = PathFinder.find_spec(top, [*map(str, beside), *sys.path])
    origin = Path(found.origin) if found is not None and found.origin else None
    if origin is None or not origin.is_file():
        raise JobFileError(
            f"the module {top} of the transform {name} was not found",
            why=f"it is neither in {', '.join(map(str, beside))} nor on the Python path",
            do="put it in the folder of the job file, or in the working directory",
        )
    if "site-packages" in origin.parts or "dist-packages" in origin.parts:
        return []
    if origin.name != "__init__.py":
        return [origin]
    target = folder / f"{top}.zip"
    with _placed(target) as file:
        write_zip(file, files_below(origin.parent, top))
    return [target]


# --- an environment ---------------------------------------------------------------------


def pack_environment(folder: Path, only: Collection[str] | None = None) -> Path:
    """``folder/environment.tar.gz``: this package and the installed distributions (or ``only``
    these) as a virtual environment, without those that Spark provides.

    Its ``bin/python`` is a link to the path of this machine's Python. Raises UsageError for a
    distribution whose files are elsewhere, such as one in editable mode."""
    target = folder / f"{ENVIRONMENT}.tar.gz"
    chosen, ours = _chosen(only), package_files()
    with (
        _placed(target) as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=1, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        _add_python(archive)
        for distribution in chosen:
            for path, name in _files_of(distribution):
                archive.add(path, f"{SITE}/{name}", recursive=False)
        for path, name in ours:
            archive.add(path, f"{SITE}/{name}", recursive=False)
    return target


def _chosen(only: Collection[str] | None) -> list[Distribution]:
    found = {_plain(d.metadata["Name"]): d for d in reversed(list(distributions()))}
    if only is None:
        return [found[name] for name in sorted(found) if name not in LEFT_OUT]
    if missing := sorted(_plain(name) for name in only if _plain(name) not in found):
        raise UsageError(f"{missing[0]} is not installed here", do=f"pip install {missing[0]}")
    return [found[name] for name in sorted(map(_plain, only))]


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _files_of(distribution: Distribution) -> Iterator[tuple[Path, str]]:
    """The files in a distribution's site folder, from its own list."""
    name = distribution.metadata["Name"]
    if distribution.files is None or '"editable": true' in (
        distribution.read_text("direct_url.json") or ""
    ):
        raise UsageError(
            f"{name} cannot be packed",
            why="it is in editable mode, or has no list of its files",
            do=f"pip install {name} without -e, in its own environment",
        )
    for file in distribution.files:
        path = Path(str(distribution.locate_file(file)))
        if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
            yield path.resolve(), file.as_posix()


def _add_python(archive: tarfile.TarFile) -> None:
    """What makes a folder a virtual environment: links to a Python, and a file that names it."""
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    for name in ("python", "python3", f"python{platform.python_version().rpartition('.')[0]}"):
        link = tarfile.TarInfo(f"bin/{name}")
        link.type, link.linkname, link.mode = tarfile.SYMTYPE, str(base), 0o777
        archive.addfile(link)
    text = (
        f"home = {base.parent}\ninclude-system-site-packages = false\n"
        f"version = {platform.python_version()}\n"
    ).encode()
    says = tarfile.TarInfo("pyvenv.cfg")
    says.size = len(text)
    archive.addfile(says, io.BytesIO(text))


def write_text(target: Path, text: str) -> Path:
    """Writes a small text file next to what is shipped."""
    with _placed(target) as file:
        file.write(text.encode())
    return target


@contextmanager
def _placed(target: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name once it is complete. Raises StorageFailed."""
    temporary = ""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(temporary, 0o644)  # Executors may run as another user.
        os.replace(temporary, target)
    except OSError as error:
        raise StorageFailed(
            f"{target} was not written", why=str(error), do="Name another folder with --out"
        ) from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
