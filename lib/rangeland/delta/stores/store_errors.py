"""Turns the failures of a store into errors of this library, without secrets. Pure.

Arrow repeats URLs in its messages, and on Azure they contain the SAS token. Such a message is
therefore neither shown nor kept as the cause of an error, which a traceback would print.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from rangeland.errors import (
    WITH_ROOM,
    JobFileError,
    RangelandError,
    StorageFailed,
    TableRefused,
)

_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_MAY_WRITE = "are right and may read and write the table's folder"
_REFUSED_BY_STORE = {
    r"\b(ACCESS_DENIED|SIGNATURE_DOES_NOT_MATCH|INVALID_(ACCESS_KEY_ID|CLIENT_TOKEN_ID|SIGNATURE)"
    r"|EXPIRED_TOKEN|ExpiredToken|InvalidToken|HTTP status 403)\b": "Check that the keys in "
    f"fs.s3a.* {_MAY_WRITE}",
    r"Azure Error: \[(Authentication|Authorization)\w*\]|\bBase64 encoded string"
    r"|\b(PERMISSION_DENIED|UNAUTHENTICATED)\b": "Check that the credentials in fs.azure.* or "
    f"fs.gs.* {_MAY_WRITE}",
    "ContainerNotFound": "Check the container's name, and create it if there is none",
    "NO_SUCH_BUCKET": "Check that the bucket exists and that fs.s3a.endpoint is its store",
}
"""What to do about an error, by patterns that match Arrow's messages: errors of object stores have
no number."""
NO_FOLDER = (errno.ENOTDIR, errno.ENAMETOOLONG, errno.EISDIR, errno.ELOOP)
"""The error numbers for a path that leads through a file, or that has too long a name or too many
links."""

_QUERY = re.compile(r"(https?://[^\s?'\"]*)\?[^\s'\"]*")
_SIGNATURE = re.compile(r"\bsig=[^\s&'\"]*")


@contextmanager
def as_own_errors(path: str, size_bytes: int = 0) -> Iterator[None]:
    """Raises the failures of a store as ``store_error`` does."""
    try:
        with as_os_errors():
            yield
    except OSError as error:
        raise store_error(error, path, size_bytes) from error


@contextmanager
def as_os_errors() -> Iterator[None]:
    """Raises the failures of a store as OSError, without secrets. Arrow's Azure client also raises
    a plain ArrowException for some, such as wrong credentials and responses that it cannot parse;
    the subclasses of ArrowException are about data."""
    try:
        yield
    except OSError as error:
        shown = masked_error(error)
        if shown is error:
            raise
        raise shown from None
    except pa.ArrowException as error:
        if type(error) is not pa.ArrowException:
            raise
        raise OSError(_mask(str(error))) from None


def masked_error(error: Exception) -> Exception:
    """The error itself if its text contains no secrets, otherwise a masked one of the same
    class."""
    text = str(error)
    if _mask(text) == text:
        return error
    if isinstance(error, OSError) and error.errno is not None:
        return type(error)(error.errno, _mask(str(error.strerror)))
    return type(error)(_mask(text))


def _mask(text: str) -> str:
    """The text without the query strings of its URLs, and without Azure signatures anywhere
    else."""
    return _SIGNATURE.sub("sig=***", _QUERY.sub(r"\1", text))


def impossible_path_error(error: OSError, path: str) -> JobFileError:
    """The error for a path at which there can never be a table, however often it is tried."""
    do = "name a folder in sink.table in which a table can be created"
    if error.errno == errno.ENAMETOOLONG:
        do += ", and in sink.partition_by no column whose values are too long for a folder name"
    return JobFileError(f"{path} cannot be written", why=_mask(str(error)), do=do)


def store_error(error: OSError, path: str, size_bytes: int = 0) -> RangelandError:
    """The error to raise when a store fails to write ``size_bytes`` to ``path``."""
    what = f"could not write {path}"
    reason = _mask(str(error))
    facts = {"path": path, "bytes": size_bytes, "errno": error.errno}
    if error.errno in NO_FOLDER:
        return impossible_path_error(error, path)
    remedies = (do for pattern, do in _REFUSED_BY_STORE.items() if re.search(pattern, reason))
    do = next(remedies, "")
    if error.errno in _DENIED:
        do = "grant write permission on the table's folder"
    if do:
        return TableRefused(what, why=reason, do=do, **facts)
    if error.errno == errno.ENOSPC:
        why = f"no room for the next {size_bytes} bytes on the table's store"
        failure = StorageFailed(what, why=why, do="make room and run again", **facts)
        return failure.with_answers(retry=WITH_ROOM)
    return StorageFailed(
        what, why=reason, do="check that the table's store is up, then run again", **facts
    )
