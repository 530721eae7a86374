"""Turns what a store fails to write into an error of this library. Pure."""

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
# Arrow gives the errors of object stores no number, only their names.
_DENIED_BY_S3 = re.compile(
    r"\b(ACCESS_DENIED|SIGNATURE_DOES_NOT_MATCH|INVALID_(ACCESS_KEY_ID|CLIENT_TOKEN_ID|SIGNATURE)"
    r"|EXPIRED_TOKEN|ExpiredToken|InvalidToken|HTTP status 403)\b"
)
_DENIED_ELSEWHERE = re.compile(
    r"Azure Error: \[(Authentication|Authorization)\w*\]|\b(PERMISSION_DENIED|UNAUTHENTICATED)\b"
)
_NO_BUCKET = "NO_SUCH_BUCKET"
_NO_CONTAINER = "ContainerNotFound"
NO_FOLDER = (errno.ENOTDIR, errno.ENAMETOOLONG, errno.EISDIR, errno.ELOOP)
"""A file is in the way, or a name is too long."""


def impossible_path(error: OSError, path: str) -> JobFileError:
    """For a path at which there can never be a table, however often it is tried."""
    do = "name a folder in sink.table that a table can be made in"
    if error.errno == errno.ENAMETOOLONG:
        do += ", and in sink.partition_by no column with values too long for the name of a folder"
    return JobFileError(f"{path} cannot be written", why=str(error), do=do)


def store_error(error: OSError, path: str, size_bytes: int = 0) -> RangelandError:
    """The error to raise when a store fails to write ``size_bytes`` to ``path``."""
    what = f"could not write {path}"
    facts = {"path": path, "bytes": size_bytes, "errno": error.errno}
    if error.errno in NO_FOLDER:
        return impossible_path(error, path)
    if error.errno in _DENIED:
        return TableRefused(
            what, why=str(error), do="Grant write permission on the table's folder", **facts
        )
    reason = str(error)
    if _DENIED_BY_S3.search(reason):
        do = "Check that the keys in fs.s3a.* are right and may read and write the table's folder"
        return TableRefused(what, why=reason, do=do, **facts)
    if _DENIED_ELSEWHERE.search(reason):
        do = "Check that the credentials in fs.azure.* or fs.gs.* are right and may read and write "
        return TableRefused(what, why=reason, do=do + "the table's folder", **facts)
    if _NO_CONTAINER in reason:
        do = "Check the container's name, and create it if there is none"
        return TableRefused(what, why=reason, do=do, **facts)
    if _NO_BUCKET in reason:
        do = "Check that the bucket exists and that fs.s3a.endpoint is its store"
        return TableRefused(what, why=reason, do=do, **facts)
    if error.errno == errno.ENOSPC:
        why = f"no room for the next {size_bytes} bytes on the table's store"
        full = StorageFailed(what, why=why, do="Make room and run again", **facts)
        return full.answering(retry=WITH_ROOM)
    return StorageFailed(
        what, why=str(error), do="Check that the table's store is up, then run again", **facts
    )
