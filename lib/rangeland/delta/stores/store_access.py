"""Access to the store of one table: a value that the driver makes and executors open.

Spark and Delta use Hadoop's file systems, but executors write through Arrow's. Hadoop's settings
are translated for Arrow, so that users set them only once; each kind of store has its own module
(``s3_access``, ``azure_access``, ``google_access``, ``hdfs_access``). Settings for location,
credentials and encryption are either translated or refused by name; buffers, retries and the like
are each client's own affair.

The value contains keys in clear text, since executors cannot look them up; they are kept out of
every ``repr`` and are never written to a plan, a ledger or a log. Pure, apart from ``open``: the
configuration is passed in as functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.fs as pafs

from rangeland.delta.stores.azure_access import AzureSettings, azure_settings
from rangeland.delta.stores.google_access import GoogleSettings, google_settings
from rangeland.delta.stores.hadoop_settings import HadoopSettings
from rangeland.delta.stores.hdfs_access import HdfsSettings, hdfs_settings
from rangeland.delta.stores.s3_access import S3Keys, S3Settings, s3_settings
from rangeland.delta.stores.store_errors import masked_error
from rangeland.delta.stores.store_kinds import AZURE_SCHEMES, HDFS_SCHEMES, S3_SCHEMES
from rangeland.delta.stores.table_path import TablePath
from rangeland.errors import StorageFailed, TableRefused

Service = S3Settings | AzureSettings | GoogleSettings | HdfsSettings


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The URI of a table, and the settings to reach its store. ``service`` is None for the local
    disk, and wherever the URI is enough."""

    uri: str
    service: Service | None = None

    def open(self) -> tuple[pafs.FileSystem, str]:
        """The file system and the table's path in it. Plain paths are local."""
        try:
            where = TablePath.parse(self.uri)
            if self.service is not None:
                return self.service.open(where)
            return _open_path(where)
        except (OSError, ValueError, pa.ArrowException) as error:
            shown = masked_error(error)
            raise StorageFailed(
                f"could not open {self.uri}",
                why=str(shown),
                do="check that the path is right and its store is up, then run again",
            ) from shown


def has_folders(store: pafs.FileSystem) -> bool:
    """Whether a folder must exist before files can be put in it, and whether files can be
    renamed."""
    return getattr(store, "type_name", "") not in ("s3", "abfs", "gcs")


def _open_path(where: TablePath) -> tuple[pafs.FileSystem, str]:
    if where.local is not None:
        return pafs.LocalFileSystem(), os.path.abspath(where.local)
    store, path = pafs.FileSystem.from_uri(where.uri)
    return store, path.rstrip("/")


def store_settings(uri: str, conf: HadoopSettings, resolve: Callable[[], S3Keys]) -> StoreSettings:
    """The settings that Hadoop would use for a URI. For ``resolve``, see ``s3_settings``. Raises
    TableRefused, naming the setting, if executors cannot follow the configuration."""
    where = TablePath.parse(uri)
    if where.is_local:
        return StoreSettings(uri)
    if where.scheme in S3_SCHEMES:
        return StoreSettings(uri, s3_settings(where, conf, resolve))
    if where.scheme in AZURE_SCHEMES:
        return StoreSettings(uri, azure_settings(where, conf))
    if where.scheme == "gs":
        return StoreSettings(uri, google_settings(where, conf))
    if where.scheme in HDFS_SCHEMES:
        return StoreSettings(uri, hdfs_settings(conf))
    raise TableRefused(
        f"executors cannot write to {uri}",
        why=f"they have no client for {where.scheme}",
        do="put the table on a local or shared disk, s3a, abfss, gs or hdfs"
        + ("; the same container has an abfss:// address" if where.scheme[:4] == "wasb" else ""),
    )


def sync_file(store: pafs.FileSystem, path: str) -> None:
    """Flushes a local file or folder to disk: no commit may name files that a power cut then
    destroys. Other stores keep everything that they have acknowledged."""
    if not isinstance(store, pafs.LocalFileSystem):
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
