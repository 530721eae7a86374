"""The Hadoop configuration for Delta Kernel, and what it says about a table's store.

The configuration is a copy of the one that the Spark session gives to Delta, plus all of the
session's settings, since log stores read settings of their own. Where Delta for Spark and Delta
Kernel name a setting differently, users set it for Spark only. ``store_access`` describes how
executors reach a store, ``store_kinds`` whether several drivers may commit to it. Runs in the
driver, over py4j.
"""

from __future__ import annotations

from typing import Any

from rangeland.delta.stores.hadoop_settings import HadoopSettings
from rangeland.delta.stores.s3_access import S3Keys
from rangeland.delta.stores.store_access import StoreSettings, store_settings
from rangeland.delta.stores.store_kinds import (
    LOCAL_SCHEME,
    S3_SCHEMES,
    StoreCapabilities,
    is_replaceable_log_store,
    scheme_of,
    store_capabilities,
)
from rangeland.errors import MissingRequirement, UsageError
from rangeland.jvm.spark_jvm import SparkJvm

# If both are set, the second wins, as in Delta for Spark.
_LOG_STORES = ("delta.logStore.", "spark.delta.logStore.")
# These names are defined in ``ExclusiveFiles.java``.
_EXCLUSIVE = "rangeland.exclusive."
_CONDITION = "fs.option.create.conditional.overwrite"


class HadoopConf:
    """The Hadoop configuration that Delta Kernel works with. ``java`` is Hadoop's own object, with
    the log stores that are configured for Delta on Spark. For ``facade``, see
    ``load_delta_kernel``. Raises UsageError for a log store that cannot be passed on to Delta
    Kernel."""

    def __init__(self, jvm: SparkJvm, facade: Any) -> None:
        self._jvm = jvm.classes
        if jvm.has_session:
            self.java = self._jvm.org.apache.hadoop.conf.Configuration(jvm.hadoop)
        else:
            self.java = facade.withSettings(jvm.hadoop, jvm.settings)
        for name, log_store in _log_stores(jvm.settings).items():
            if name.endswith(".impl"):
                self.java.set(f"io.delta.kernel.logStore.{name}", log_store)
        for scheme in (*S3_SCHEMES, LOCAL_SCHEME):
            self.java.setBoolean(
                _EXCLUSIVE + scheme, is_replaceable_log_store(self._log_store(scheme))
            )

    def store(self, uri: str) -> StoreCapabilities:
        """The guarantees that the store gives to concurrent drivers; see ``store_kinds``."""
        scheme = scheme_of(uri)
        return store_capabilities(
            uri, self._log_store(scheme), has_conditions=scheme in S3_SCHEMES and self._asks(uri)
        )

    def _log_store(self, scheme: str) -> str:
        return self.java.get(f"io.delta.kernel.logStore.{scheme}.impl") or ""

    def _asks(self, uri: str) -> bool:
        """Whether Hadoop's file system for this URI can ask the store not to replace an existing
        object."""
        path = self._jvm.org.apache.hadoop.fs.Path(uri)
        return bool(path.getFileSystem(self.java).hasPathCapability(path, _CONDITION))

    def storage(self, uri: str) -> StoreSettings:
        """The settings to reach the store as this session's Hadoop does; see ``store_access``."""
        conf = HadoopSettings(lambda name: self.java.get(name), self._password, self._below)
        return store_settings(uri, conf, lambda: self._s3_keys(uri))

    def _below(self, prefix: str) -> dict[str, str]:
        """All settings whose names begin with ``prefix``."""
        properties = self.java.getPropsWithPrefix(prefix)
        return {f"{prefix}{name}": str(value) for name, value in properties.items()}

    def _password(self, name: str) -> str | None:
        """A value that may be in a Hadoop credential store."""
        characters = self.java.getPassword(name)
        return None if characters is None else "".join(characters)

    def _s3_keys(self, uri: str) -> S3Keys:
        """The keys that Hadoop's own providers return now."""
        version = str(self._jvm.org.apache.hadoop.util.VersionInfo.getVersion())
        if version.startswith(("2.", "3.0.", "3.1.", "3.2.", "3.3.")):
            raise MissingRequirement(
                f"executors cannot be given the keys to {uri}",
                why=f"Hadoop {version}, which this Spark has, stores them differently",
                do="use a Spark with Hadoop 3.4 or later, such as Spark 4",
            )
        s3a = self._jvm.org.apache.hadoop.fs.s3a
        where = self._jvm.java.net.URI(uri)
        conf = s3a.S3AUtils.propagateBucketOptions(self.java, where.getHost())
        providers = s3a.auth.CredentialProviderListFactory
        credentials = providers.createAWSCredentialProviderList(where, conf).resolveCredentials()
        ends = "Session" in credentials.getClass().getSimpleName()
        token = str(credentials.sessionToken()) if ends else None
        return S3Keys(str(credentials.accessKeyId()), str(credentials.secretAccessKey()), token)


def _log_stores(settings: Any) -> dict[str, str]:
    """The log stores that a SparkConf sets, keyed by the part of the setting's name after the
    prefix."""
    found: dict[str, str] = {}
    for prefix in _LOG_STORES:
        found |= {pair._1(): pair._2() for pair in settings.getAllWithPrefix(prefix)}
    if not is_replaceable_log_store(of_all := found.get("class", "")):
        raise UsageError(
            f"spark.delta.logStore.class = {of_all} cannot be honoured",
            why="Delta Kernel, which makes the commits, has a log store for each scheme, so it "
            "would not exclude the writers that use this one",
            do="set spark.delta.logStore.SCHEME.impl to that class instead, for the scheme of the "
            "table (such as s3a), for all writers of the table",
            setting="spark.delta.logStore.class",
        )
    return found
