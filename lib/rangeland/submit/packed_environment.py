"""Packs a Python environment for a cluster, as an archive (``--archives``).

It is meant for workers that have nothing but a Python of the same version at the same path, as a
virtual environment requires. It contains this package and the installed distributions, according to
their own lists of files.
"""

from __future__ import annotations

import gzip
import io
import platform
import sys
import tarfile
from collections.abc import Collection, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from rangeland.errors import UsageError
from rangeland.submit.shipped_files import package_files, place_file

ENVIRONMENT = "environment"
SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
# Spark has its own PySpark and py4j, which take 500 MB; this package is added separately.
LEFT_OUT = frozenset(["pyspark", "py4j", "delta-spark", "pip", "setuptools", "wheel", "rangeland"])


def pack_environment(folder: Path, only: Collection[str] | None = None) -> Path:
    """Packs ``folder/environment.tar.gz``: this package and the installed distributions (or, if
    ``only`` is given, just those) as a virtual environment, without the ones that Spark provides.

    Its ``bin/python`` is a link to the path of this machine's Python. Raises UsageError for a
    distribution whose files are elsewhere, such as one installed in editable mode.
    """
    target = folder / f"{ENVIRONMENT}.tar.gz"
    selection = _choose_distributions(only)
    own_files = package_files()
    with (
        place_file(target) as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=1, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w") as archive,
    ):
        _add_python(archive)
        for distribution in selection:
            for path, name in _files_of(distribution):
                archive.add(path, f"{SITE}/{name}", recursive=False)
        for path, name in own_files:
            archive.add(path, f"{SITE}/{name}", recursive=False)
    return target


def _choose_distributions(only: Collection[str] | None) -> list[Distribution]:
    installed = {_plain(d.metadata["Name"]): d for d in reversed(list(distributions()))}
    if only is None:
        return [installed[name] for name in sorted(installed) if name not in LEFT_OUT]
    if unknown := sorted(_plain(name) for name in only if _plain(name) not in installed):
        raise UsageError(
            f"package {unknown[0]} is not installed", do=f"install it: pip install {unknown[0]}"
        )
    return [installed[name] for name in sorted(map(_plain, only))]


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _files_of(distribution: Distribution) -> Iterator[tuple[Path, str]]:
    """The files of a distribution in its site folder, from its own list."""
    name = distribution.metadata["Name"]
    if distribution.files is None or '"editable": true' in (
        distribution.read_text("direct_url.json") or ""
    ):
        raise UsageError(
            f"package {name} cannot be packed",
            why="it is installed in editable mode, or has no list of its files",
            do="install it with pip without -e, in its own environment",
        )
    for file in distribution.files:
        path = Path(str(distribution.locate_file(file)))
        if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
            yield path.resolve(), file.as_posix()


def _add_python(archive: tarfile.TarFile) -> None:
    """Adds what makes it a virtual environment: links to a Python, and a file that names this
    Python."""
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    for name in ("python", "python3", f"python{platform.python_version().rpartition('.')[0]}"):
        link = tarfile.TarInfo(f"bin/{name}")
        link.type = tarfile.SYMTYPE
        link.linkname = str(base)
        link.mode = 0o777
        archive.addfile(link)
    text = (
        f"home = {base.parent}\ninclude-system-site-packages = false\n"
        f"version = {platform.python_version()}\n"
    ).encode()
    config = tarfile.TarInfo("pyvenv.cfg")
    config.size = len(text)
    archive.addfile(config, io.BytesIO(text))
