"""Turns the failures of a store into errors of this library. Pure."""

from __future__ import annotations

import errno
import re

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
    r"Azure Error: \[(Authentication|Authorization)\w*\]"
    r"|\b(PERMISSION_DENIED|UNAUTHENTICATED)\b": "Check that the credentials in fs.azure.* or "
    f"fs.gs.* {_MAY_WRITE}",
    "ContainerNotFound": "Check the container's name, and create it if there is none",
    "NO_SUCH_BUCKET": "Check that the bucket exists and that fs.s3a.endpoint is its store",
}
"""The remedies, by patterns of Arrow's messages: errors of object stores have no number."""
NO_FOLDER = (errno.ENOTDIR, errno.ENAMETOOLONG, errno.EISDIR, errno.ELOOP)
"""The numbers of errors for a path that goes through a file, or has too long a name or too many
links."""


def impossible_path_error(error: OSError, path: str) -> JobFileError:
    """The error for a path at which there can never be a table, however often it is tried."""
    do = "name a folder in sink.table that a table can be made in"
    if error.errno == errno.ENAMETOOLONG:
        do += ", and in sink.partition_by no column with values too long for the name of a folder"
    return JobFileError(f"{path} cannot be written", why=str(error), do=do)


def store_error(error: OSError, path: str, size_bytes: int = 0) -> RangelandError:
    """The error to raise when a store fails to write ``size_bytes`` to ``path``."""
    what = f"could not write {path}"
    reason = str(error)
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
