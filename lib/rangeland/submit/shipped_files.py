"""Makes zips of this package, of a transform and of jars, for a cluster (``--py-files``).

A zip of the package contains the files of a wheel, and has the same bytes each time. It is meant
for workers whose Python has the few packages that tasks import; each host extracts the kernel from
it. A file gets its name only once it is complete.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from typing import IO

import rangeland
from rangeland import __version__
from rangeland.decode.native.native_library import library_name
from rangeland.errors import JobFileError, StorageFailed, UsageError

MODULE_SUFFIXES = (".py", ".so", ".dylib", ".dll", ".properties", ".java")
# With a fixed date, a zip of the same files always has the same bytes, which helps Spark's caches.
_DATE = (1980, 1, 1, 0, 0, 0)


NATIVE_FOLDER = "decode/native"


def make_zip(folder: Path) -> Path:
    """``folder/rangeland-VERSION.zip`` with the package and its kernels, for this platform and all
    others that are installed. Raises UsageError if there is no kernel for this platform."""
    return _write_zip(folder / f"rangeland-{__version__}.zip", package_files())


def package_files() -> list[tuple[Path, str]]:
    """The files of this package with their names in an archive; the test servers are left out."""
    package = _package_folder()
    if not (package / NATIVE_FOLDER / library_name()).is_file():
        raise UsageError(
            f"this installation has no compiled kernel ({library_name()})",
            why="workers cannot decode records without it",
            do="install the package with pip, or run lib/kernel_build.py in a checkout",
        )
    testing = package / "testing"
    files = [
        (path, name)
        for path, name in files_below(package, "rangeland")
        if not path.is_relative_to(testing)
    ]
    source = package.with_name("pyspark_rangeland.py")
    return [*files, *([(source, source.name)] if source.is_file() else [])]


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


def _write_zip(target: Path, files: Sequence[tuple[Path, str]]) -> Path:
    with (
        place_file(target) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for path, name in files:
            archive.writestr(zipfile.ZipInfo(name, _DATE), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return target


def _package_folder() -> Path:
    folder = Path(rangeland.__file__).parent
    if not folder.is_dir():
        raise UsageError(
            "this package is running from an archive",
            why=str(folder),
            do="build the command on a machine where it is installed",
        )
    return folder


def jars_beyond(spark_jars: Path, jars: Sequence[Path]) -> list[Path]:
    """The jars that a Spark with ``spark_jars`` does not have in any version. The others, such as
    Hadoop, would otherwise be sent to every executor a second time."""
    has = {_artifact(jar) for jar in spark_jars.glob("*.jar")}
    return [jar for jar in jars if _artifact(jar) not in has]


def _artifact(jar: Path) -> str:
    """``delta-spark_4.2_2.13`` for ``delta-spark_4.2_2.13-4.4.0.jar``."""
    return re.sub(r"-\d.*", "", jar.stem)


def zip_jars(folder: Path, name: str, jars: Sequence[Path]) -> Path:
    """``folder/NAME.zip`` with these jars, for drivers in a cluster."""
    return _write_zip(folder / f"{name}.zip", [(jar, jar.name) for jar in jars])


def transform_files(name: str, folders: Sequence[Path], folder: Path) -> list[Path]:
    """What to ship so that ``module:function`` can be imported on a worker: the module, or a zip of
    its package made in ``folder``; nothing if it is installed.

    The module is looked up in ``folders``, then on the path, and is not imported.
    """
    top = name.partition(":")[0].partition(".")[0]
    spec = PathFinder.find_spec(top, [*map(str, folders), *sys.path])
    origin = Path(spec.origin) if spec is not None and spec.origin else None
    if origin is None or not origin.is_file():
        raise JobFileError(
            f"the module {top} of the transform {name} was not found",
            why=f"it is neither in {', '.join(map(str, folders))} nor on the Python path",
            do="put it in the folder of the job file, or in the working directory",
        )
    if "site-packages" in origin.parts or "dist-packages" in origin.parts:
        return []
    if origin.name != "__init__.py":
        return [origin]
    return [_write_zip(folder / f"{top}.zip", files_below(origin.parent, top))]


def write_text(target: Path, text: str) -> Path:
    """Writes a small text file to ship."""
    return write_bytes(target, text.encode())


def write_bytes(target: Path, content: bytes) -> Path:
    """Writes a small file to ship."""
    with place_file(target) as file:
        file.write(content)
    return target


@contextmanager
def place_file(target: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name only once it is complete. Raises StorageFailed."""
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
            f"{target} was not written", why=str(error), do="name another folder with --out"
        ) from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
