"""Lets executors reach a table on Azure: translates ``fs.azure.*`` for Arrow's file system.

Pure, apart from ``AzureSettings.open``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import pyarrow.fs as pafs

from rangeland.delta.stores.hadoop_settings import HadoopSettings, untranslatable_error
from rangeland.delta.stores.process_environment import environment_of
from rangeland.delta.stores.table_path import TablePath
from rangeland.errors import JobFileError, MissingRequirement, TableRefused

_AUTH = "fs.azure.account.auth.type"
_KEY = "fs.azure.account.key"
_OAUTH = "fs.azure.account.oauth2"
_PROVIDER = "fs.azure.account.oauth.provider.type"
_SAS = "fs.azure.sas.fixed.token"
_MSI_ENDPOINT = "http://169.254.169.254/metadata/identity/oauth2/token"
_TOKEN_FILE = "/var/run/secrets/azure/tokens/azure-identity-token"
# https://<authority>/<tenant>/oauth2/token, also /oauth2/v2.0/token
_LOGIN = re.compile(r"(https://[^/]+)/([^/]+)/oauth2/(?:v2\.0/)?token/?")
_REFUSED = (
    "fs.azure.encryption.context.provider.type",
    "fs.azure.encryption.encoded.client-provided-key",
    "fs.azure.delegation.token.provider.type",
    "fs.azure.account.oauth2.client.assertion.provider.type",
)
_SUPPORTED = (
    "use an account key, a fixed SAS token, or OAuth with client credentials, a managed identity "
    "or a workload identity"
)


@dataclass(frozen=True, slots=True)
class AzureSettings:
    """The settings with which executors reach a store on Azure. If no credentials are given here,
    Azure's own library looks for some: environment, workload or managed identity."""

    account: str
    scheme: str = "https"
    blob: str = ".blob.core.windows.net"
    """The authority of the blob service: a suffix for account names, or ``host:port``."""
    dfs: str = ".dfs.core.windows.net"
    """The authority of the data lake service, in the same form."""
    account_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)
    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    environment: tuple[tuple[str, str], ...] = ()
    """The variables that Azure's own library reads when a client is made."""

    def open(self, where: TablePath) -> tuple[pafs.FileSystem, str]:
        credentials = {
            "account_key": self.account_key,
            "sas_token": self.sas_token,
            "tenant_id": self.tenant_id,
            "client_id": self.client_id,
            "client_secret": self.client_secret,
        }
        container = where.authority.partition("@")[0]
        try:
            with environment_of(self.environment):
                store = pafs.AzureFileSystem(
                    self.account,
                    blob_storage_authority=self.blob,
                    dfs_storage_authority=self.dfs,
                    blob_storage_scheme=self.scheme,
                    dfs_storage_scheme=self.scheme,
                    **{name: value for name, value in credentials.items() if value},
                )
        except (AttributeError, TypeError) as error:
            raise MissingRequirement(
                f"executors cannot write to {where}",
                why=f"their pyarrow has no Azure client that can do this ({error})",
                do="give them pyarrow 22 or later",
            ) from error
        return store, f"{container}{where.path}".rstrip("/")


def azure_settings(where: TablePath, conf: HadoopSettings) -> AzureSettings:
    """Translates Hadoop's settings for a path. Raises TableRefused for settings that Arrow lacks,
    and JobFileError for a URI that does not belong to Azure."""
    container, at, host = where.authority.partition("@")
    account, _, suffix = host.partition(".")
    service, dot, domain = suffix.partition(".")
    if not (container and at and account and dot) or service not in ("dfs", "blob"):
        raise JobFileError(
            f"{where} is not the address of a folder on Azure",
            why="it does not name container, account and service",
            do="write sink.table as abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER",
        )
    return _Translation(str(where), container, host, conf).settings(account, domain, where.scheme)


@dataclass(frozen=True, slots=True)
class _Translation:
    """Translates the settings for one path, each of which may apply to a container, an account or
    everything."""

    uri: str
    container: str
    host: str
    conf: HadoopSettings

    def settings(self, account: str, domain: str, scheme: str) -> AzureSettings:
        for name in _REFUSED:
            if self._text(name):
                raise untranslatable_error(self.uri, name, do=f"unset it. {_SUPPORTED}")
        endpoint = self._text("fs.azure.abfs.endpoint")
        secure = scheme == "abfss" or self.conf.flag("fs.azure.always.use.https", default=True)
        reached = AzureSettings(
            account,
            scheme="https" if secure else "http",
            blob=endpoint or f".blob.{domain}",
            dfs=endpoint or f".dfs.{domain}",
        )
        kind = self._text(_AUTH) or "SharedKey"
        if kind == "SharedKey":
            return self._with_key(reached)
        if kind == "SAS":
            return self._with_sas(reached)
        if kind == "OAuth":
            return self._with_oauth(reached)
        raise untranslatable_error(self.uri, _AUTH, kind, do=_SUPPORTED)

    def _with_key(self, reached: AzureSettings) -> AzureSettings:
        provider = self._text("fs.azure.account.keyprovider")
        if provider and not provider.endswith(".SimpleKeyProvider"):
            raise untranslatable_error(
                self.uri, "fs.azure.account.keyprovider", provider, do=_SUPPORTED
            )
        return replace(reached, account_key=self._secret(_KEY))

    def _with_sas(self, reached: AzureSettings) -> AzureSettings:
        name = "fs.azure.sas.token.provider.type"
        provider = self._text(name)
        if provider and not provider.endswith(".FixedSASTokenProvider"):
            raise untranslatable_error(self.uri, name, provider, do=f"set {_SAS} instead")
        # Arrow appends the token to a URL, so it has to be a query string.
        return replace(reached, sas_token="?" + self._secret(_SAS).removeprefix("?"))

    def _with_oauth(self, reached: AzureSettings) -> AzureSettings:
        provider = self._text(_PROVIDER)
        kind = provider.rpartition(".")[2]
        if kind == "ClientCredsTokenProvider":
            authority, tenant = self._login()
            return replace(
                reached,
                tenant_id=tenant,
                client_id=self._secret(f"{_OAUTH}.client.id"),
                client_secret=self._secret(f"{_OAUTH}.client.secret"),
                environment=(("AZURE_AUTHORITY_HOST", authority),),
            )
        if kind == "MsiTokenProvider":
            return self._with_managed_identity(reached)
        if kind == "WorkloadIdentityTokenProvider":
            return self._with_workload_identity(reached)
        raise untranslatable_error(self.uri, _PROVIDER, provider, do=_SUPPORTED)

    def _with_managed_identity(self, reached: AzureSettings) -> AzureSettings:
        # A managed identity belongs to one tenant and authority, so Arrow need not be told them.
        name = f"{_OAUTH}.msi.endpoint"
        endpoint = self._text(name)
        if endpoint and endpoint.rstrip("/") != _MSI_ENDPOINT:
            raise untranslatable_error(self.uri, name, endpoint, do="unset it")
        return replace(reached, client_id=self._secret_if_set(f"{_OAUTH}.client.id") or None)

    def _with_workload_identity(self, reached: AzureSettings) -> AzureSettings:
        authority = self._text(f"{_OAUTH}.msi.authority")
        environment = {
            "AZURE_TENANT_ID": self._secret(f"{_OAUTH}.msi.tenant"),
            "AZURE_CLIENT_ID": self._secret(f"{_OAUTH}.client.id"),
            "AZURE_FEDERATED_TOKEN_FILE": self._text(f"{_OAUTH}.token.file") or _TOKEN_FILE,
            **({"AZURE_AUTHORITY_HOST": authority} if authority else {}),
        }
        return replace(reached, environment=tuple(environment.items()))

    def _login(self) -> tuple[str, str]:
        """The authority and tenant of the token endpoint."""
        name = f"{_OAUTH}.client.endpoint"
        match = _LOGIN.fullmatch(self._secret(name))
        if match is None:
            raise untranslatable_error(
                self.uri,
                name,
                do="write it as https://login.microsoftonline.com/TENANT/oauth2/token",
            )
        return match[1], match[2]

    def _names(self, name: str) -> tuple[str, str, str]:
        return f"{name}.{self.container}.{self.host}", f"{name}.{self.host}", name

    def _text(self, name: str) -> str:
        return self.conf.text(*self._names(name))

    def _secret_if_set(self, name: str) -> str:
        return self.conf.secret(*self._names(name))

    def _secret(self, name: str) -> str:
        if secret := self._secret_if_set(name):
            return secret
        raise TableRefused(
            f"executors have no credentials for {self.uri}",
            why=f"neither {name}.{self.host} nor {name} is set in Spark's Hadoop configuration",
            do=f"set spark.hadoop.{name}.{self.host}, or {_AUTH} to the intended kind",
            setting=name,
        )
