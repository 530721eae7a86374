"""How to reach the store of one table: a value that the driver makes and executors open.

Spark and Delta go through Hadoop's file systems, executors write through Arrow's. What a
person has set for the first (``fs.s3a.*``) is read here into a value for the second, so
that there is one place to set it. What Hadoop's defaults would do is done here, too.

Keys are in the value in the clear, since executors cannot look them up; they are kept out
of every ``repr`` and are never written to a plan, a ledger or a log. Pure but for ``open``:
the configuration comes in as a function.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow.fs as pafs

from rangeland.delta.store_kinds import S3_SCHEMES
from rangeland.delta.table_path import TablePath
from rangeland.errors import StorageFailed, TableRefused

Lookup = Callable[[str], str | None]

CONNECT_SECONDS = 10
# What Hadoop asks, in this order, where nothing is set.
_DEFAULT_PROVIDERS = (
    "TemporaryAWSCredentialsProvider,SimpleAWSCredentialsProvider,"
    "EnvironmentVariableCredentialsProvider,IAMInstanceCredentialsProvider"
)
# Whatever these find (environment, profile, web identity, container, instance), Arrow's own
# chain finds on the executor, and renews.
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
    """``session_token`` is there for keys that end by themselves."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class S3Settings:
    """``endpoint`` is ``host:port``, None for Amazon's own. Without ``keys`` requests are
    anonymous, or signed with what the executor finds around itself."""

    bucket: str
    endpoint: str | None = None
    scheme: str = "https"
    region: str | None = None
    virtual_hosts: bool = False
    anonymous: bool = False
    keys: S3Keys | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The URI of a table, and how its store is reached. ``s3`` is None for other stores,
    whose URI says all there is to know."""

    uri: str
    s3: S3Settings | None = None

    def open(self) -> tuple[pafs.FileSystem, str]:
        """The file system and the table's path in it. Plain paths are local."""
        try:
            where = TablePath.parse(self.uri)
            if self.s3 is not None:
                return _open_s3(self.s3), where.key
            return _open_path(where)
        except (OSError, ValueError) as error:  # pa.ArrowInvalid is a ValueError
            raise StorageFailed(f"opening {self.uri}", why=str(error)) from error


def open_store(table: StoreSettings | str) -> tuple[pafs.FileSystem, str]:
    """See ``StoreSettings.open``; a bare path or URI is one of which nothing else is known."""
    return (StoreSettings(table) if isinstance(table, str) else table).open()


def _open_path(where: TablePath) -> tuple[pafs.FileSystem, str]:
    if where.local is not None:
        return pafs.LocalFileSystem(), os.path.abspath(where.local)
    if where.scheme in S3_SCHEMES:
        where = replace(where, scheme="s3")
    store, path = pafs.FileSystem.from_uri(where.uri)
    return store, path.rstrip("/")


def _open_s3(s3: S3Settings) -> pafs.S3FileSystem:
    region = s3.region
    if region is None:
        region = "us-east-1" if s3.endpoint else pafs.resolve_s3_region(s3.bucket)
    keys: dict[str, Any] = {}
    if s3.keys is not None:
        keys = {
            "access_key": s3.keys.access_key,
            "secret_key": s3.keys.secret_key,
            "session_token": s3.keys.session_token,
        }
    return pafs.S3FileSystem(
        **keys,
        anonymous=s3.anonymous,
        endpoint_override=s3.endpoint,
        scheme=s3.scheme,
        region=region,
        force_virtual_addressing=s3.virtual_hosts,
        connect_timeout=CONNECT_SECONDS,
        # In the background a slow store would be handed more than it takes: all would wait
        # in memory.
        background_writes=False,
    )


# --- from Hadoop's configuration ----------------------------------------------------------


def store_settings(
    uri: str, look: Lookup, password: Lookup, resolve: Callable[[], S3Keys]
) -> StoreSettings:
    """The settings that Hadoop would use for a URI.

    ``look`` reads a name of the configuration, ``password`` one that may also be kept in a
    Hadoop credential store. ``resolve`` has Hadoop's own credential providers answer: it is
    asked only where one is configured that Arrow does not have. Raises TableRefused where
    files would not be encrypted as the configuration demands."""
    where = TablePath.parse(uri)
    if where.scheme not in S3_SCHEMES:
        return StoreSettings(uri)
    bucket = where.authority

    def of_bucket(reader: Lookup) -> Callable[[str], str]:
        def read(name: str) -> str:
            own = reader(f"fs.s3a.bucket.{bucket}.{name}")
            found = own if own is not None else reader(f"fs.s3a.{name}")
            return (found or "").strip()

        return read

    return StoreSettings(uri, _s3(uri, bucket, of_bucket(look), of_bucket(password), resolve))


def _s3(
    uri: str,
    bucket: str,
    look: Callable[[str], str],
    password: Callable[[str], str],
    resolve: Callable[[], S3Keys],
) -> S3Settings:
    _refuse_encryption(uri, look)
    secure = look("connection.ssl.enabled").lower() != "false"
    endpoint, scheme, region = _endpoint(look("endpoint"), secure)
    keys, anonymous = _keys(look("aws.credentials.provider"), password, resolve)
    path_style = look("path.style.access").lower() == "true"
    return S3Settings(
        bucket=bucket,
        endpoint=endpoint,
        scheme=scheme,
        region=look("endpoint.region") or region,
        virtual_hosts=endpoint is not None and not path_style and not _is_address(endpoint),
        anonymous=anonymous,
        keys=keys,
    )


def _endpoint(text: str, secure: bool) -> tuple[str | None, str, str | None]:
    """(``host:port``, scheme, region that the host names); no host where it is Amazon's."""
    scheme, named, host = text.rstrip("/").rpartition("://")
    if not named:
        scheme = "https" if secure else "http"
    own = _AMAZON.fullmatch(host)
    if not host or own:
        return None, scheme, own[1] if own else None
    region = _REGION.search(host) if ".amazonaws.com" in host else None
    return host, scheme, region[1] if region else None


def _is_address(host: str) -> bool:
    """No bucket can stand before the numbers of an address."""
    try:
        ipaddress.ip_address(host.rpartition(":")[0] or host)
    except ValueError:
        return False
    return True


def _keys(
    providers: str, password: Callable[[str], str], resolve: Callable[[], S3Keys]
) -> tuple[S3Keys | None, bool]:
    """The keys, and whether requests are anonymous. The first provider that has an answer
    counts, as for Hadoop; what the machine itself knows is left to the executor."""
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


def _refuse_encryption(uri: str, look: Callable[[str], str]) -> None:
    wanted = look("encryption.algorithm") or look("server-side-encryption-algorithm")
    if wanted in ("", "AES256"):  # what every bucket does by itself
        return
    raise TableRefused(
        f"the files of {uri} cannot be encrypted with {wanted}",
        why="executors leave encryption to the bucket's own default",
        do="Make it the bucket's default encryption and unset fs.s3a.encryption.algorithm",
        algorithm=wanted,
    )
