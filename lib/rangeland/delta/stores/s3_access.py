"""Lets executors reach a table on S3: translates Hadoop's ``fs.s3a.*`` for Arrow's file system.

Pure, apart from ``S3Settings.open``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow.fs as pafs

from rangeland.delta.stores.hadoop_settings import HadoopSettings, Lookup
from rangeland.delta.stores.table_path import TablePath
from rangeland.errors import TableRefused

CONNECT_S = 10
# Hadoop's defaults, in this order.
_DEFAULT_PROVIDERS = (
    "TemporaryAWSCredentialsProvider,SimpleAWSCredentialsProvider,"
    "EnvironmentVariableCredentialsProvider,IAMInstanceCredentialsProvider"
)
# Arrow's own chain on the executor finds the same credentials as these providers (environment,
# profile, web identity, container, instance), and renews them.
_CHAIN = frozenset(
    [
        "EnvironmentVariableCredentialsProvider",
        "ProfileCredentialsProvider",
        "WebIdentityTokenFileCredentialsProvider",
        "WebIdentityTokenCredentialsProvider",
        "ContainerCredentialsProvider",
        "EC2ContainerCredentialsProviderWrapper",
        "InstanceProfileCredentialsProvider",
        "IAMInstanceCredentialsProvider",
        "DefaultCredentialsProvider",
        "DefaultAWSCredentialsProviderChain",
    ]
)
_AMAZON = re.compile(r"s3(?:[.-]([a-z]{2}(?:-[a-z]+)+-\d+))?\.amazonaws\.com(?:\.cn)?")
_REGION = re.compile(r"\b([a-z]{2}(?:-[a-z]+)+-\d+)\.")


@dataclass(frozen=True, slots=True)
class S3Keys:
    """The keys with which requests to S3 are signed. Temporary keys have a ``session_token``."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class S3Settings:
    """The settings with which executors reach a store on S3. ``endpoint`` is ``host:port``, or None
    for Amazon's own. Without ``keys``, requests are anonymous or are signed with credentials from
    the executor's environment."""

    bucket: str
    endpoint: str | None = None
    scheme: str = "https"
    region: str | None = None
    virtual_hosts: bool = False
    anonymous: bool = False
    keys: S3Keys | None = field(default=None, repr=False)

    def open(self, where: TablePath) -> tuple[pafs.FileSystem, str]:
        region = self.region
        if region is None:
            region = "us-east-1" if self.endpoint else pafs.resolve_s3_region(self.bucket)
        keys: dict[str, Any] = {}
        if self.keys is not None:
            keys = {
                "access_key": self.keys.access_key,
                "secret_key": self.keys.secret_key,
                "session_token": self.keys.session_token,
            }
        store = pafs.S3FileSystem(
            **keys,
            anonymous=self.anonymous,
            endpoint_override=self.endpoint,
            scheme=self.scheme,
            region=region,
            force_virtual_addressing=self.virtual_hosts,
            connect_timeout=CONNECT_S,
            # With background writes, data would pile up in memory if the store is slow.
            background_writes=False,
        )
        return store, where.key


def s3_settings(
    where: TablePath, conf: HadoopSettings, resolve: Callable[[], S3Keys]
) -> S3Settings:
    """Translates Hadoop's settings for a path. ``resolve`` gets keys from Hadoop's own credential
    providers; it is called only if Arrow has no counterpart for a configured provider. Raises
    TableRefused if files would not be encrypted as the configuration demands."""
    bucket = where.authority

    def of_bucket(reader: Lookup) -> Callable[[str], str]:
        def read(name: str) -> str:
            value = reader(f"fs.s3a.bucket.{bucket}.{name}")
            if value is None:
                value = reader(f"fs.s3a.{name}")
            return (value or "").strip()

        return read

    lookup = of_bucket(conf.lookup)
    password = of_bucket(conf.password)
    _check_encryption_is_default(str(where), lookup)
    secure = lookup("connection.ssl.enabled").lower() != "false"
    endpoint, scheme, region = _endpoint(lookup("endpoint"), secure)
    keys, anonymous = _keys(lookup("aws.credentials.provider"), password, resolve)
    path_style = lookup("path.style.access").lower() == "true"
    return S3Settings(
        bucket=bucket,
        endpoint=endpoint,
        scheme=scheme,
        region=lookup("endpoint.region") or region,
        virtual_hosts=endpoint is not None and not path_style and not _is_address(endpoint),
        anonymous=anonymous,
        keys=keys,
    )


def _endpoint(text: str, secure: bool) -> tuple[str | None, str, str | None]:
    """(``host:port``, scheme, region taken from the host name); the host is None for Amazon's
    own."""
    scheme, separator, host = text.rstrip("/").rpartition("://")
    if not separator:
        scheme = "https" if secure else "http"
    amazon = _AMAZON.fullmatch(host)
    if not host or amazon:
        return None, scheme, amazon[1] if amazon else None
    region = _REGION.search(host) if ".amazonaws.com" in host else None
    return host, scheme, region[1] if region else None


def _is_address(host: str) -> bool:
    """Whether the host is an IP address, which cannot be prefixed with a bucket name."""
    try:
        ipaddress.ip_address(host.rpartition(":")[0] or host)
    except ValueError:
        return False
    return True


def _keys(
    providers: str, password: Callable[[str], str], resolve: Callable[[], S3Keys]
) -> tuple[S3Keys | None, bool]:
    """The keys, and whether requests are anonymous. As in Hadoop, the first provider that has keys
    wins; finding credentials in the environment is left to the executor."""
    access, secret = password("access.key"), password("secret.key")
    token = password("session.token")
    for name in (providers or _DEFAULT_PROVIDERS).split(","):
        provider = name.strip().rpartition(".")[2]
        if provider == "TemporaryAWSCredentialsProvider":
            if access and secret and token:
                return S3Keys(access, secret, token), False
        elif provider == "SimpleAWSCredentialsProvider":
            if access and secret:
                return S3Keys(access, secret), False
        elif provider == "AnonymousAWSCredentialsProvider":
            return None, True
        elif provider in _CHAIN:
            return None, False
        elif provider:
            return resolve(), False
    return None, False


def _check_encryption_is_default(uri: str, lookup: Callable[[str], str]) -> None:
    algorithm = lookup("encryption.algorithm") or lookup("server-side-encryption-algorithm")
    if algorithm in ("", "AES256"):  # every bucket does this by default
        return
    raise TableRefused(
        f"the files of {uri} cannot be encrypted with {algorithm}",
        why="executors leave encryption to the bucket's own default",
        do="make it the bucket's default encryption and unset fs.s3a.encryption.algorithm",
        algorithm=algorithm,
    )
