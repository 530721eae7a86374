"""From Hadoop's settings for Azure, Google storage and HDFS to what executors open."""

from __future__ import annotations

import json
import os
import pickle
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from rangeland.delta.stores.azure_access import AzureSettings
from rangeland.delta.stores.google_access import GoogleSettings
from rangeland.delta.stores.hadoop_settings import HadoopSettings
from rangeland.delta.stores.hdfs_access import HdfsSettings
from rangeland.delta.stores.process_environment import environment_of
from rangeland.delta.stores.s3_access import S3Keys
from rangeland.delta.stores.store_access import Service, StoreSettings, has_folders, store_settings
from rangeland.delta.stores.store_errors import store_error
from rangeland.errors import JobFileError, MissingRequirement, StorageFailed, TableRefused

HOST = "acme.dfs.core.windows.net"
AZURE = f"abfss://lake@{HOST}/a b/orders"
KEY = "a2V5"
OAUTH = "fs.azure.account.oauth2"
LOGIN = "https://login.microsoftonline.com/tenant-1/oauth2/token"
PROVIDERS = "org.apache.hadoop.fs.azurebfs.oauth2"
GOOGLE = "gs://lake/orders"


def settings(conf: Mapping[str, str], uri: str) -> StoreSettings:
    def below(prefix: str) -> dict[str, str]:
        return {name: value for name, value in conf.items() if name.startswith(prefix)}

    def unasked() -> S3Keys:
        raise AssertionError

    return store_settings(uri, HadoopSettings(conf.get, conf.get, below), unasked)


def service(conf: Mapping[str, str], uri: str) -> Service:
    found = settings(conf, uri).service
    assert found is not None
    return found


def oauth(provider: str, **more: str) -> dict[str, str]:
    return {
        f"fs.azure.account.auth.type.{HOST}": "OAuth",
        f"fs.azure.account.oauth.provider.type.{HOST}": f"{PROVIDERS}.{provider}",
        **{f"{OAUTH}.{name.replace('_', '.')}.{HOST}": value for name, value in more.items()},
    }


# --- Azure ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({f"fs.azure.account.key.{HOST}": KEY}, AzureSettings("acme", account_key=KEY)),
        (
            {"fs.azure.account.key": "wrong", f"fs.azure.account.key.{HOST}": KEY},
            AzureSettings("acme", account_key=KEY),
        ),
        (
            {"fs.azure.account.auth.type": "SAS", "fs.azure.sas.fixed.token": "?sv=1&sig=s"},
            AzureSettings("acme", sas_token="?sv=1&sig=s"),
        ),
        (
            {
                f"fs.azure.account.auth.type.{HOST}": "SAS",
                f"fs.azure.sas.fixed.token.lake.{HOST}": "sig=own",
                f"fs.azure.sas.fixed.token.{HOST}": "sig=other",
            },
            AzureSettings("acme", sas_token="?sig=own"),
        ),
        (
            oauth(
                "ClientCredsTokenProvider", client_endpoint=LOGIN, client_id="i", client_secret="s"
            ),
            AzureSettings(
                "acme",
                tenant_id="tenant-1",
                client_id="i",
                client_secret="s",
                environment=(("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.com"),),
            ),
        ),
        (oauth("MsiTokenProvider", client_id="i"), AzureSettings("acme", client_id="i")),
        (oauth("MsiTokenProvider", msi_tenant="t"), AzureSettings("acme")),
        (
            oauth("WorkloadIdentityTokenProvider", client_id="i", msi_tenant="t", token_file="/f"),
            AzureSettings(
                "acme",
                environment=(
                    ("AZURE_TENANT_ID", "t"),
                    ("AZURE_CLIENT_ID", "i"),
                    ("AZURE_FEDERATED_TOKEN_FILE", "/f"),
                ),
            ),
        ),
    ],
)
def test_credentials_for_azure_are_those_that_hadoop_was_given(
    conf: Mapping[str, str], expected: AzureSettings
) -> None:
    assert service(conf, AZURE) == expected


def test_other_clouds_and_emulators_of_azure_are_found() -> None:
    conf = {"fs.azure.account.key": KEY}
    government = service(conf, "abfss://lake@acme.dfs.core.usgovcloudapi.net/t")
    assert isinstance(government, AzureSettings)
    assert government.blob == ".blob.core.usgovcloudapi.net"
    assert government.dfs == ".dfs.core.usgovcloudapi.net"
    emulated = {
        **conf,
        "fs.azure.abfs.endpoint": "127.0.0.1:1",
        "fs.azure.always.use.https": "false",
    }
    local = service(emulated, "abfs://lake@acme.dfs.core.windows.net/t")
    assert isinstance(local, AzureSettings)
    assert (local.scheme, local.blob, local.dfs) == ("http", "127.0.0.1:1", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("conf", "named"),
    [
        ({}, "fs.azure.account.key.acme.dfs.core.windows.net"),
        ({"fs.azure.account.auth.type": "Custom"}, "fs.azure.account.auth.type = Custom"),
        (oauth("UserPasswordTokenProvider"), "UserPasswordTokenProvider"),
        (oauth("ClientCredsTokenProvider", client_endpoint="https://x/"), "client.endpoint"),
        (oauth("MsiTokenProvider", msi_endpoint="http://proxy/"), "msi.endpoint = http://proxy/"),
        (
            {"fs.azure.account.auth.type": "SAS", "fs.azure.sas.token.provider.type": "a.B"},
            "fs.azure.sas.token.provider.type = a.B",
        ),
        (
            {"fs.azure.account.key": KEY, "fs.azure.account.keyprovider": "a.ShellKeyProvider"},
            "fs.azure.account.keyprovider",
        ),
        (
            {"fs.azure.encryption.encoded.client-provided-key": "sEcReT"},
            "fs.azure.encryption.encoded.client-provided-key",
        ),
    ],
)
def test_what_arrow_cannot_do_on_azure_is_refused_by_name(
    conf: Mapping[str, str], named: str
) -> None:
    with pytest.raises(TableRefused) as caught:
        service(conf, AZURE)
    text = f"{caught.value} {caught.value.why} {caught.value.do}"
    assert named in text
    assert "sEcReT" not in text


@pytest.mark.parametrize("uri", ["abfss://lake/t", "abfss://lake@acme/t", "abfss://l@a.x.y/t"])
def test_an_address_on_azure_names_container_and_account(uri: str) -> None:
    with pytest.raises(JobFileError, match="CONTAINER@ACCOUNT") as caught:
        settings({"fs.azure.account.key": KEY}, uri)
    assert "container" in caught.value.why


def test_a_store_on_azure_opens_with_its_path() -> None:
    store, path = settings({"fs.azure.account.key": KEY}, AZURE).open()
    assert isinstance(store, pafs.AzureFileSystem)
    assert path == "lake/a b/orders"
    assert not has_folders(store)


# --- Google --------------------------------------------------------------------------------


def key_file(folder: Path, **fields: str) -> str:
    path = folder / "key.json"
    path.write_text(json.dumps({"type": "service_account", "private_key": "sEcReT", **fields}))
    return str(path)


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({}, GoogleSettings()),
        ({"fs.gs.auth.type": "APPLICATION_DEFAULT"}, GoogleSettings()),
        ({"fs.gs.auth.type": "UNAUTHENTICATED"}, GoogleSettings(anonymous=True)),
        ({"google.cloud.auth.null.enable": "true"}, GoogleSettings(anonymous=True)),
        (
            {"fs.gs.auth.impersonation.service.account": "a@b"},
            GoogleSettings(account="a@b"),
        ),
        (
            {"fs.gs.storage.root.url": "http://127.0.0.1:1/"},
            GoogleSettings(endpoint="127.0.0.1:1", scheme="http"),
        ),
        ({"fs.gs.storage.root.url": "https://storage.googleapis.com"}, GoogleSettings()),
    ],
)
def test_settings_for_google_are_those_that_hadoop_was_given(
    conf: Mapping[str, str], expected: GoogleSettings
) -> None:
    assert service(conf, GOOGLE) == expected


def test_the_content_of_a_key_file_reaches_executors(tmp_path: Path) -> None:
    path = key_file(tmp_path)
    for name in ("fs.gs.auth.service.account.json.keyfile",) * 2:
        kinds: list[dict[str, str]] = [{}, {"fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE"}]
        for kind in kinds:
            found = service({name: path, "fs.gs.token.server.url": "http://t", **kind}, GOOGLE)
            assert isinstance(found, GoogleSettings)
            assert json.loads(found.credentials or "") == {
                "type": "service_account",
                "private_key": "sEcReT",
                "token_uri": "http://t",
            }
            assert "sEcReT" not in repr(found)


def test_credentials_without_a_file_are_written_as_google_reads_them() -> None:
    user = {
        "fs.gs.auth.type": "USER_CREDENTIALS",
        "fs.gs.auth.client.id": "i",
        "fs.gs.auth.client.secret": "s",
        "fs.gs.auth.refresh.token": "r",
    }
    account = {
        "google.cloud.auth.service.account.email": "a@b",
        "google.cloud.auth.service.account.private.key.id": "1",
        "google.cloud.auth.service.account.private.key": "k",
    }
    for conf, kind, fields in (
        (user, "authorized_user", "i s r"),
        (account, "service_account", "a@b 1 k"),
    ):
        found = service(conf, GOOGLE)
        assert isinstance(found, GoogleSettings)
        values = json.loads(found.credentials or "")
        assert values["type"] == kind
        assert set(fields.split()) <= set(values.values())


@pytest.mark.parametrize(
    ("conf", "named"),
    [
        ({"fs.gs.auth.type": "ACCESS_TOKEN_PROVIDER"}, "ACCESS_TOKEN_PROVIDER"),
        ({"fs.gs.auth.access.token.provider.impl": "a.B"}, "access.token.provider.impl"),
        ({"fs.gs.auth.service.account.keyfile": "/k.p12"}, "PKCS12"),
        ({"fs.gs.encryption.key": "sEcReT"}, "fs.gs.encryption.key"),
        ({"fs.gs.proxy.address": "proxy:1"}, "fs.gs.proxy.address"),
        ({"fs.gs.requester.pays.mode": "AUTO"}, "fs.gs.requester.pays.mode = AUTO"),
        ({"fs.gs.auth.impersonation.service.account.for.user.u": "a"}, "account.for.user.u"),
        ({"fs.gs.auth.type": "USER_CREDENTIALS"}, "fs.gs.auth.client.id"),
        ({"fs.gs.auth.service.account.json.keyfile": "/no/such"}, "No such file"),
        ({"fs.gs.auth.service.account.json.keyfile": os.devnull}, "not JSON"),
    ],
)
def test_what_arrow_cannot_do_on_google_is_refused_by_name(
    conf: Mapping[str, str], named: str
) -> None:
    with pytest.raises(TableRefused) as caught:
        service(conf, GOOGLE)
    text = f"{caught.value} {caught.value.why} {caught.value.do}"
    assert named in text
    assert "sEcReT" not in text


def test_google_credentials_are_on_disk_only_while_a_client_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    seen: list[tuple[Path, str, int]] = []

    def client(**given: Any) -> str:
        path = Path(os.environ["GOOGLE_APPLICATION_CREDENTIALS"])
        seen.append((path, path.read_text(), path.stat().st_mode & 0o777))
        return "client"

    monkeypatch.setattr(pafs, "GcsFileSystem", client)
    opened, path = StoreSettings(GOOGLE, GoogleSettings(credentials="{}")).open()
    ((file, text, mode),) = seen
    assert (opened, path, text, mode) == ("client", "lake/orders", "{}", 0o600)
    assert not file.exists()
    assert "GOOGLE_APPLICATION_CREDENTIALS" not in os.environ


@pytest.mark.parametrize(
    ("uri", "found", "client", "variable"),
    [
        (AZURE, AzureSettings("acme"), "AzureFileSystem", "AZURE_CLIENT_ID"),
        (GOOGLE, GoogleSettings(), "GcsFileSystem", "GOOGLE_APPLICATION_CREDENTIALS"),
    ],
)
def test_a_client_never_finds_the_credentials_of_another_in_its_environment(
    monkeypatch: pytest.MonkeyPatch, uri: str, found: Service, client: str, variable: str
) -> None:
    monkeypatch.delenv(variable, raising=False)
    seen: list[str | None] = []
    monkeypatch.setattr(pafs, client, lambda *_, **__: seen.append(os.environ.get(variable)))
    opening = threading.Thread(target=StoreSettings(uri, found).open)
    with environment_of([(variable, "of another store")]):
        opening.start()
        opening.join(0.2)  # it has to wait until this block ends
    opening.join()
    assert seen == [None]


# --- HDFS and others -----------------------------------------------------------------------


def test_hdfs_is_reached_by_the_names_that_hadoop_knows() -> None:
    conf = {
        "dfs.nameservices": "lake",
        "dfs.ha.namenodes.lake": "a,b",
        "dfs.namenode.rpc-address.lake.a": "one:8020",
        "dfs.namenode.name.dir": "/data",
        "fs.s3a.secret.key": "sEcReT",
    }
    found = service(conf, "hdfs://lake/orders")
    assert isinstance(found, HdfsSettings)
    assert [name for name, _ in found.settings] == [
        "dfs.ha.namenodes.lake",
        "dfs.namenode.rpc-address.lake.a",
        "dfs.nameservices",
    ]


def test_without_a_client_of_hdfs_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "hdfs_native.fsspec", None)
    with pytest.raises(MissingRequirement) as caught:
        settings({}, "hdfs://name:8020/orders").open()
    assert "rangeland[hdfs]" in caught.value.do


@pytest.mark.parametrize("scheme", ["wasb", "oss", "adl"])
def test_stores_without_a_client_are_refused_at_once(scheme: str) -> None:
    with pytest.raises(TableRefused, match=f"{scheme}://c/t") as caught:
        settings({}, f"{scheme}://c/t")
    assert ("abfss:// address" in caught.value.do) is (scheme == "wasb")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("UploadFrom failed. Azure Error: [AuthenticationFailed] 403 Server failed", TableRefused),
        ("Azure Error: [AuthorizationPermissionMismatch] 403", TableRefused),
        ("Azure Error: [ContainerNotFound] 404 The specified", TableRefused),
        ("google::cloud::Status(PERMISSION_DENIED: caller does not have", TableRefused),
        ("Azure Error: [ServerBusy] 503", StorageFailed),
    ],
)
def test_an_error_of_a_cloud_store_says_whether_it_may_pass(said: str, kind: type) -> None:
    assert type(store_error(OSError(said), "lake/t")) is kind


def test_no_setting_of_a_store_shows_its_secrets() -> None:
    azure = AzureSettings("a", account_key="sEcReT", sas_token="sEcReT", client_secret="sEcReT")
    for found in (azure, GoogleSettings(credentials="sEcReT")):
        table = StoreSettings("x://y/z", found)
        assert "sEcReT" not in repr(table)
        assert pickle.loads(pickle.dumps(table)) == table
