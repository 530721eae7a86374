"""Finds and loads the compiled kernel. Never compiles anything.

The library is next to this file and named after its platform. The operating system cannot load it
out of a zip (``spark-submit --py-files``), so in that case it is extracted once per machine and
user: into a folder that only this user can enter, under a name that contains the hash of its
content, by an atomic rename. Any number of workers may do this at once.

Nothing that another user could have written is ever loaded: a folder that others can enter is not
used. A library for another platform or from another version of this package is refused.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import sys
import tempfile
from pathlib import Path

from rangeland.errors import CLUSTER_OPERATOR, MissingRequirement, StorageFailed

KERNEL_ABI = 14
"""The same number as in ``kernel.c``; it is increased with every change to its structs or
functions."""

_USABLE_FOLDER = (
    "give the workers a temporary folder in which they can write and run programs: set "
    "spark.executorEnv.TMPDIR"
)


def library_name() -> str:
    suffix = {"win32": "dll", "darwin": "dylib"}.get(sys.platform, "so")
    return f"_kernel-{sys.platform}-{platform.machine().lower()}.{suffix}"


def load_library() -> ctypes.CDLL:
    """The library for this platform. Raises MissingRequirement if there is none or it may not be
    loaded, and StorageFailed if it is in an archive and cannot be extracted."""
    # Not a Path: an executor's archive is at /a/./b.zip, and its loader does not recognise
    # /a/b.zip.
    beside = os.path.join(os.path.dirname(__file__), library_name())
    if os.path.exists(beside):
        return _load(Path(beside))
    content = _read_from_archive(beside)
    try:
        path = extract(content, library_name())
    except OSError as error:
        raise _not_extracted_error(str(error)) from None
    try:
        return _load(path)
    except MissingRequirement as error:
        if _forbids_programs(path):
            raise _no_programs_error(path.parent) from error
        raise
    finally:
        if path.parent.name != _shared_name():  # made for this process, which has now loaded it
            shutil.rmtree(path.parent, ignore_errors=True)


def _no_kernel_error(why: str) -> MissingRequirement:
    return MissingRequirement(
        f"the compiled decode kernel cannot be loaded on {platform.node()}",
        why=why,
        do="install rangeland with pip on this platform (it compiles its kernel), "
        "or add the library for this platform to the archive that is sent to the workers",
        library=library_name(),
    )


def _not_extracted_error(why: str) -> StorageFailed:
    return StorageFailed(
        f"the decode kernel cannot be extracted from its archive on {platform.node()}",
        why=why,
        do=_USABLE_FOLDER,
        host=platform.node(),
    ).with_answers(retry="yes, once that folder can be written", acts=CLUSTER_OPERATOR)


def _no_programs_error(folder: Path) -> MissingRequirement:
    return MissingRequirement(
        f"the decode kernel cannot be used on {platform.node()}",
        why=f"it is in an archive, and {folder}, to which it is extracted, is mounted noexec",
        do=_USABLE_FOLDER,
        host=platform.node(),
    )


def _forbids_programs(path: Path) -> bool:
    if not hasattr(os, "statvfs") or not hasattr(os, "ST_NOEXEC"):
        return False
    return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)


def _load(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
        abi = library.rangeland_kernel_abi()
    except (OSError, AttributeError) as error:
        raise _no_kernel_error(f"{path} cannot be loaded: {error}") from None
    if abi != KERNEL_ABI:
        raise _no_kernel_error(f"{path} is a different version (interface {abi}, not {KERNEL_ABI})")
    return library


def _read_from_archive(path: str) -> bytes:
    loader = getattr(__spec__, "loader", None)
    try:
        return bytes(loader.get_data(path))  # type: ignore[union-attr]
    except (AttributeError, OSError):
        raise _no_kernel_error(f"this installation has no {os.path.basename(path)}") from None


def extract(content: bytes, name: str) -> Path:
    """A file with exactly this content in this user's own cache folder. Raises OSError."""
    stem, suffix = os.path.splitext(name)
    folder = private_folder()
    target = folder / f"{stem}-{hashlib.sha256(content).hexdigest()[:32]}{suffix}"
    if _has_content(target, content):
        return target
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o700)
        os.replace(temporary, target)
    except OSError:
        if _has_content(target, content):  # Windows refuses to replace a library that is loaded
            return target
        raise
    finally:
        Path(temporary).unlink(missing_ok=True)
    return target


def _has_content(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def private_folder() -> Path:
    """A folder that only this user can enter, created if needed. It is the same for all processes
    of the user, unless another user owns that name: then it is a new one, for this process
    alone."""
    folder = Path(tempfile.gettempdir()) / _shared_name()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:  # a file, or a dangling link
        return Path(tempfile.mkdtemp(prefix="rangeland-"))
    return folder if _is_private(folder) else Path(tempfile.mkdtemp(prefix="rangeland-"))


def _shared_name() -> str:
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    return f"rangeland-{user}"


def _is_private(folder: Path) -> bool:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        return False
    if not hasattr(os, "getuid"):  # Windows: each user has a temporary folder of their own
        return True
    return status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) & 0o077 == 0
