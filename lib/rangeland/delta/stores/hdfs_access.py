"""Lets executors reach a table on HDFS, through ``hdfs-native`` (the extra ``hdfs``).

That package needs neither Java nor Hadoop on the machine where a task runs. It logs in as the
executor's user, or with a Kerberos ticket that it finds there. Pure, apart from
``HdfsSettings.open``.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow.fs as pafs

from rangeland.delta.stores.hadoop_settings import HadoopSettings
from rangeland.delta.stores.table_path import TablePath
from rangeland.errors import MissingRequirement

# The settings that a client needs in order to reach a cluster; the servers tell it the rest.
_SETTINGS = (
    "dfs.nameservices",
    "dfs.ha.namenodes.",
    "dfs.namenode.rpc-address.",
    "dfs.client.failover.",
    "dfs.client.block.write.",
    "dfs.client.use.datanode.hostname",
    "dfs.data.transfer.protection",
    "fs.defaultFS",
    "fs.viewfs.mounttable.",
    "hadoop.security.authentication",
)
_DENIED = ("AccessControlException", "AuthorizationException")


@dataclass(frozen=True, slots=True)
class HdfsSettings:
    """The settings with which executors reach an HDFS cluster. ``settings`` are Hadoop's own."""

    settings: tuple[tuple[str, str], ...] = ()

    def open(self, where: TablePath) -> tuple[pafs.FileSystem, str]:
        try:
            from hdfs_native.fsspec import HdfsFileSystem, ViewfsFileSystem
        except ImportError as error:
            raise MissingRequirement(
                f"executors cannot write to {where}",
                why=f"they have no HDFS client ({error})",
                do="install rangeland[hdfs] where the driver and the executors run",
            ) from error
        kind = HdfsFileSystem if where.scheme == "hdfs" else ViewfsFileSystem
        host, _, port = where.authority.partition(":")
        client = kind(host, int(port) if port else None, **dict(self.settings))
        return pafs.PyFileSystem(pafs.FSSpecHandler(_WithOsErrors(client))), where.path


def hdfs_settings(conf: HadoopSettings) -> HdfsSettings:
    settings: dict[str, str] = {}
    for prefix in _SETTINGS:
        settings |= conf.below(prefix)
    return HdfsSettings(tuple(sorted(settings.items())))


class _WithOsErrors:
    """A file system, or an open file, of ``hdfs-native``, which raises RuntimeError for every
    failure of a server."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        return self._guard(attribute) if callable(attribute) else attribute

    def _guard(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                result = call(*args, **kwargs)
            except RuntimeError as error:
                text = str(error).partition("\\n\\tat")[0]  # without Java's stack trace
                denied = any(name in text for name in _DENIED)
                raise OSError(errno.EACCES if denied else errno.EIO, text) from error
            return _WithOsErrors(result) if call.__name__ == "open" else result

        return guarded
