"""Lets executors reach a table on Google storage: translates ``fs.gs.*`` for Arrow's file system.

Google's connector for Hadoop (versions 2 to 4) and Hadoop's own connector use these names;
credentials may also be set under ``google.cloud.*``. Arrow takes credentials only from a file named
by an environment variable, so their text is sent to executors, which write it to a temporary file
while Arrow reads it. Pure, apart from ``GoogleSettings.open``.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from rangeland.delta.stores.hadoop_settings import HadoopSettings, untranslatable_error
from rangeland.delta.stores.process_environment import environment_of
from rangeland.delta.stores.table_path import TablePath
from rangeland.errors import TableRefused
from rangeland.untrusted import Unreadable, parse_json

_TOKEN_SERVER = "https://oauth2.googleapis.com/token"
_IMPERSONATED = "fs.gs.auth.impersonation.service.account"
_REFUSED = (
    "fs.gs.encryption.key",
    "fs.gs.encryption.algorithm",
    "fs.gs.auth.access.token.provider",
    "fs.gs.auth.access.token.provider.impl",
    "google.cloud.auth.access.token.provider",
    "google.cloud.auth.access.token.provider.impl",
    "fs.gs.delegation.token.binding",
    "fs.gs.storage.service.path",
    "fs.gs.config.override.file",
)
_SUPPORTED = (
    "use fs.gs.auth.type COMPUTE_ENGINE, APPLICATION_DEFAULT, SERVICE_ACCOUNT_JSON_KEYFILE, "
    "USER_CREDENTIALS, WORKLOAD_IDENTITY_FEDERATION_CREDENTIAL_CONFIG_FILE or UNAUTHENTICATED"
)


@dataclass(frozen=True, slots=True)
class GoogleSettings:
    """The settings with which executors reach a store on Google Cloud Storage."""

    endpoint: str | None = None
    """``host:port``, if not Google's own."""
    scheme: str = "https"
    anonymous: bool = False
    credentials: str | None = field(default=None, repr=False)
    """The text of a credentials file for Google's libraries. If it is missing and the access is not
    ``anonymous``, an executor finds its own: ``GOOGLE_APPLICATION_CREDENTIALS``, or its machine's
    account."""
    account: str | None = None
    """The service account to impersonate with these credentials."""

    def open(self, where: TablePath) -> tuple[pafs.FileSystem, str]:
        if self.credentials is None:
            with environment_of([]):
                return self._open_gcs(), where.key
        with tempfile.NamedTemporaryFile("w", prefix="rangeland-", suffix=".json") as file:
            file.write(self.credentials)  # only this user can read the file
            file.flush()
            with environment_of([("GOOGLE_APPLICATION_CREDENTIALS", file.name)]):
                return self._open_gcs(), where.key

    def _open_gcs(self) -> pafs.FileSystem:
        return pafs.GcsFileSystem(
            anonymous=self.anonymous,
            scheme=self.scheme,
            endpoint_override=self.endpoint,
            target_service_account=self.account,
        )


def google_settings(where: TablePath, conf: HadoopSettings) -> GoogleSettings:
    """Translates Hadoop's settings. Raises TableRefused for settings that Arrow lacks."""
    uri = str(where)
    for name in _REFUSED:
        if conf.text(name):
            raise untranslatable_error(uri, name, do=f"unset it. {_SUPPORTED}")
    _check_others_are_unset(uri, conf)
    scheme, _, endpoint = conf.text("fs.gs.storage.root.url").rstrip("/").rpartition("://")
    reached = GoogleSettings(
        endpoint=None if endpoint in ("", "storage.googleapis.com") else endpoint,
        scheme=scheme or "https",
        account=conf.text(_IMPERSONATED) or None,
    )
    kind = _kind(conf)
    if kind == "UNAUTHENTICATED":
        return replace(reached, anonymous=True)
    if kind in ("COMPUTE_ENGINE", "APPLICATION_DEFAULT"):
        return reached
    return replace(reached, credentials=json.dumps(_credentials(uri, kind, conf)))


def _check_others_are_unset(uri: str, conf: HadoopSettings) -> None:
    """Raises TableRefused for settings that Arrow lacks and whose names or values cannot be known
    in advance."""
    for name in sorted(conf.below(f"{_IMPERSONATED}.for.")):
        raise untranslatable_error(uri, name, do=f"set {_IMPERSONATED} instead")
    for name in sorted(conf.below("fs.gs.storage.http.headers.")):
        raise untranslatable_error(uri, name, do="unset it")
    if conf.text("fs.gs.proxy.address"):
        raise untranslatable_error(
            uri, "fs.gs.proxy.address", do="unset it, and set https_proxy where executors run"
        )
    payer = conf.text("fs.gs.requester.pays.mode")
    if payer.upper() not in ("", "DISABLED"):
        raise untranslatable_error(uri, "fs.gs.requester.pays.mode", payer, do="unset it")


def _both(name: str) -> tuple[str, str]:
    return f"fs.gs.{name}", f"google.cloud.{name}"


def _kind(conf: HadoopSettings) -> str:
    """The kind of credentials; version 2 of the connector has no setting for it."""
    if kind := conf.text(*_both("auth.type")):
        return kind.upper()
    if conf.flag(*_both("auth.null.enable"), default=False):
        return "UNAUTHENTICATED"
    if conf.text(*_both("auth.service.account.json.keyfile")):
        return "SERVICE_ACCOUNT_JSON_KEYFILE"
    if conf.text(*_both("auth.service.account.keyfile")):
        return "a PKCS12 key"
    if conf.secret(*_both("auth.service.account.private.key")):
        return "SERVICE_ACCOUNT_KEY"
    if not conf.flag(*_both("auth.service.account.enable"), default=True):
        return "USER_CREDENTIALS"
    return "COMPUTE_ENGINE"


def _credentials(uri: str, kind: str, conf: HadoopSettings) -> dict[str, Any]:
    if kind == "SERVICE_ACCOUNT_JSON_KEYFILE":
        credentials = _read(uri, "auth.service.account.json.keyfile", conf)
    elif kind == "WORKLOAD_IDENTITY_FEDERATION_CREDENTIAL_CONFIG_FILE":
        credentials = _read(uri, "auth.workload.identity.federation.credential.config.file", conf)
    elif kind == "USER_CREDENTIALS":
        credentials = {
            "type": "authorized_user",
            "client_id": _require(uri, "auth.client.id", conf),
            "client_secret": _require(uri, "auth.client.secret", conf),
            "refresh_token": _require(uri, "auth.refresh.token", conf),
        }
    elif kind == "SERVICE_ACCOUNT_KEY":
        credentials = {
            "type": "service_account",
            "client_email": _require(uri, "auth.service.account.email", conf),
            "private_key_id": _require(uri, "auth.service.account.private.key.id", conf),
            "private_key": _require(uri, "auth.service.account.private.key", conf),
            "token_uri": _TOKEN_SERVER,
        }
    else:
        raise untranslatable_error(uri, "fs.gs.auth.type", kind, do=_SUPPORTED)
    server = conf.text(*_both("token.server.url"))
    return {**credentials, "token_uri": server} if server else credentials


def _require(uri: str, name: str, conf: HadoopSettings) -> str:
    if secret := conf.secret(*_both(name)):
        return secret
    raise TableRefused(
        f"executors have no credentials for {uri}",
        why=f"fs.gs.{name} is not set in Spark's Hadoop configuration",
        do=f"set spark.hadoop.fs.gs.{name}",
        setting=f"fs.gs.{name}",
    )


def _read(uri: str, name: str, conf: HadoopSettings) -> dict[str, Any]:
    """The content of a credentials file on this machine."""
    path = _require(uri, name, conf)
    try:
        content = parse_json(Path(os.path.expanduser(path.removeprefix("file://"))).read_bytes())
    except OSError as error:
        why = error.strerror or type(error).__name__
    except Unreadable:
        why = "it is not JSON"
    else:
        if isinstance(content, dict):
            return content
        why = "it is not a JSON object"
    # Raised without its cause, which may quote the file.
    raise TableRefused(
        f"the credentials for {uri} cannot be read",
        why=f"{path}: {why}",
        do=f"correct fs.gs.{name}; the driver needs the file, executors get its content",
        setting=f"fs.gs.{name}",
    )
