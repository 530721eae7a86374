"""Hadoop's configuration as Kernel is to see it, and what it says of a table's store.

It begins as a copy of the Spark session's. Spark and Delta name some settings differently;
they are set in one place only, Spark's. What is read here for executors becomes a value in
``storage``, what concerns drivers that commit at once in ``stores``. Speaks py4j, in the driver.
"""

from __future__ import annotations

from typing import Any

from rangeland.delta.store_access import S3Keys, StoreSettings, store_settings
from rangeland.delta.store_kinds import scheme_of, store_facts
from rangeland.delta.table_metadata import StoreCapabilities

SOLE_WRITER_STORE = "io.delta.storage.LocalLogStore"
_LOCAL_STORE = "io.delta.kernel.logStore.file.impl"


class HadoopConf:
    """``java`` is Hadoop's own object, with the log stores that were set for Spark's Delta."""

    def __init__(self, context: Any) -> None:
        self._jvm = context._jvm
        self.java = self._copy_of(context._jsc.hadoopConfiguration())
        for name, value in context.getConf().getAll():
            if name.startswith("spark.delta.logStore.") and name.endswith(".impl"):
                self.java.set(name.replace("spark.delta.", "io.delta.kernel."), value)

    def _copy_of(self, conf: Any) -> Any:
        return self._jvm.org.apache.hadoop.conf.Configuration(conf)

    def of_sole_writer(self) -> Any | None:
        """A copy whose store for local paths does not look out for others; None where a store
        for them was set."""
        if self.java.get(_LOCAL_STORE):
            return None
        alone = self._copy_of(self.java)
        alone.set(_LOCAL_STORE, SOLE_WRITER_STORE)
        return alone

    def store(self, uri: str) -> StoreCapabilities:
        """What the store promises to several drivers; see ``stores``."""
        configured = self.java.get(f"io.delta.kernel.logStore.{scheme_of(uri)}.impl")
        return store_facts(uri, configured or "")

    def storage(self, uri: str) -> StoreSettings:
        """How to reach the store, as this session's Hadoop would; see ``storage``."""
        return store_settings(
            uri, lambda name: self.java.get(name), self._password, lambda: self._s3_keys(uri)
        )

    def _password(self, name: str) -> str | None:
        """A value that may be kept in a Hadoop credential store."""
        found = self.java.getPassword(name)
        return None if found is None else "".join(found)

    def _s3_keys(self, uri: str) -> S3Keys:
        """What Hadoop's own providers answer now."""
        s3a, where = self._jvm.org.apache.hadoop.fs.s3a, self._jvm.java.net.URI(uri)
        conf = s3a.S3AUtils.propagateBucketOptions(self.java, where.getHost())
        providers = s3a.auth.CredentialProviderListFactory
        found = providers.createAWSCredentialProviderList(where, conf).resolveCredentials()
        ends = "Session" in found.getClass().getSimpleName()
        token = str(found.sessionToken()) if ends else None
        return S3Keys(str(found.accessKeyId()), str(found.secretAccessKey()), token)
