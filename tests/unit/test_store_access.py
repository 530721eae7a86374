"""From Hadoop's settings to what executors open: which endpoint, which keys, which secrets."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Mapping
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from rangeland.delta.java_bridge.java_errors import translate
from rangeland.delta.stores.hadoop_settings import HadoopSettings
from rangeland.delta.stores.s3_access import S3Keys, S3Settings
from rangeland.delta.stores.store_access import StoreSettings, store_settings
from rangeland.delta.stores.store_errors import store_error
from rangeland.errors import JobFileError, RangelandError, StorageFailed, TableRefused, UsageError

TABLE = "s3a://lake/orders"
KEYS = {"fs.s3a.access.key": "AKIDEXAMPLE", "fs.s3a.secret.key": "sEcReT"}
ASKED = S3Keys("resolved", "by-hadoop", "for-an-hour")


def settings(conf: Mapping[str, str], uri: str = TABLE) -> StoreSettings:
    return store_settings(uri, hadoop(conf), lambda: ASKED)


def hadoop(conf: Mapping[str, str]) -> HadoopSettings:
    def below(prefix: str) -> dict[str, str]:
        return {name: value for name, value in conf.items() if name.startswith(prefix)}

    return HadoopSettings(conf.get, conf.get, below)


def s3(conf: Mapping[str, str], uri: str = TABLE) -> S3Settings:
    found = settings(conf, uri).service
    assert isinstance(found, S3Settings)
    return found


@pytest.mark.parametrize(
    ("endpoint", "ssl", "expected"),
    [
        ("", "true", (None, "https", None)),
        ("s3.amazonaws.com", "true", (None, "https", None)),
        ("https://s3.eu-west-1.amazonaws.com", "true", (None, "https", "eu-west-1")),
        ("s3-us-gov-west-1.amazonaws.com", "true", (None, "https", "us-gov-west-1")),
        ("s3.cn-north-1.amazonaws.com.cn", "true", (None, "https", "cn-north-1")),
        (
            "lake.vpce-1.s3.us-east-2.vpce.amazonaws.com",
            "true",
            ("lake.vpce-1.s3.us-east-2.vpce.amazonaws.com", "https", "us-east-2"),
        ),
        ("minio:9000", "true", ("minio:9000", "https", None)),
        ("minio:9000", "false", ("minio:9000", "http", None)),
        ("http://minio:9000/", "true", ("minio:9000", "http", None)),
        ("https://minio:9000", "false", ("minio:9000", "https", None)),
    ],
)
def test_an_endpoint_says_host_scheme_and_region(
    endpoint: str, ssl: str, expected: tuple[str | None, str, str | None]
) -> None:
    found = s3({"fs.s3a.endpoint": endpoint, "fs.s3a.connection.ssl.enabled": ssl})
    assert (found.endpoint, found.scheme, found.region) == expected


def test_a_configured_region_wins_over_that_of_the_endpoint() -> None:
    conf = {"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com", "fs.s3a.endpoint.region": "eu-west-2"}
    assert s3(conf).region == "eu-west-2"


@pytest.mark.parametrize(
    ("endpoint", "path_style", "virtual"),
    [
        ("minio:9000", "true", False),
        ("minio:9000", "false", True),
        ("127.0.0.1:9000", "false", False),
        ("", "false", False),
    ],
)
def test_buckets_stand_before_the_host_as_for_hadoop(
    endpoint: str, path_style: str, virtual: bool
) -> None:
    conf = {"fs.s3a.endpoint": endpoint, "fs.s3a.path.style.access": path_style}
    assert s3(conf).virtual_hosts is virtual


def test_what_is_set_for_the_bucket_wins() -> None:
    conf = {
        **KEYS,
        "fs.s3a.endpoint": "http://everywhere:1",
        "fs.s3a.bucket.lake.endpoint": "http://lake:2",
        "fs.s3a.bucket.lake.secret.key": "of-the-lake",
        "fs.s3a.bucket.sea.endpoint": "http://sea:3",
    }
    lake, pond = s3(conf), s3(conf, "s3a://pond/orders")
    assert lake.endpoint == "lake:2"
    assert lake.keys == S3Keys("AKIDEXAMPLE", "of-the-lake")
    assert (pond.endpoint, pond.keys) == ("everywhere:1", S3Keys("AKIDEXAMPLE", "sEcReT"))


@pytest.mark.parametrize(
    ("providers", "extra", "keys", "anonymous"),
    [
        ("", {}, S3Keys("AKIDEXAMPLE", "sEcReT"), False),
        ("", {"fs.s3a.session.token": "t"}, S3Keys("AKIDEXAMPLE", "sEcReT", "t"), False),
        ("", {"fs.s3a.secret.key": ""}, None, False),
        ("org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider", {}, None, True),
        ("org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider", {}, None, False),
        ("org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider", {}, KEYS, False),
        (
            "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider,\n"
            "  org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
            {},
            None,
            False,
        ),
        ("org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider", {}, ASKED, False),
        ("com.example.OurVault", {}, ASKED, False),
    ],
)
def test_the_first_credentials_provider_with_an_answer_counts(
    providers: str, extra: dict[str, str], keys: object, anonymous: bool
) -> None:
    found = s3({**KEYS, **extra, "fs.s3a.aws.credentials.provider": providers})
    expected = S3Keys(*KEYS.values()) if keys is KEYS else keys
    assert (found.keys, found.anonymous) == (expected, anonymous)


def test_keys_are_in_no_repr_and_survive_pickling() -> None:
    found = settings({**KEYS, "fs.s3a.session.token": "tOkEn"})
    assert isinstance(found.service, S3Settings)
    for shown in (repr(found), str(found.service), repr(found.service.keys)):
        assert not any(secret in shown for secret in ("AKIDEXAMPLE", "sEcReT", "tOkEn"))
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("algorithm", ["SSE-KMS", "SSE-C", "CSE-KMS"])
def test_encryption_that_executors_cannot_do_is_refused(algorithm: str) -> None:
    with pytest.raises(TableRefused, match=algorithm):
        settings({"fs.s3a.encryption.algorithm": algorithm})
    assert s3({"fs.s3a.encryption.algorithm": "AES256"})


def test_other_stores_are_what_their_uri_says(tmp_path: Path) -> None:
    assert settings(KEYS, "/lake/t").service is None
    store, path = StoreSettings(f"file:{tmp_path}/a%20b").open()
    assert isinstance(store, pafs.LocalFileSystem)
    assert path == f"{tmp_path}/a%20b"
    with pytest.raises(StorageFailed, match="could not open nowhere"):
        StoreSettings("nowhere://x/y").open()


def test_an_s3_store_opens_with_its_path() -> None:
    conf = {**KEYS, "fs.s3a.endpoint": "http://127.0.0.1:9"}
    store, path = settings(conf, "s3a://lake/a b/orders/").open()
    assert isinstance(store, pafs.S3FileSystem)
    assert (path, store.region) == ("lake/a b/orders", "us-east-1")


@pytest.mark.parametrize(
    ("chain", "kind", "do"),
    [
        ([("java.nio.file.AccessDeniedException", "no")], TableRefused, "grant write"),
        (
            [
                ("java.nio.file.AccessDeniedException", "s3a://lake"),
                ("software.amazon.awssdk.services.s3.model.S3Exception", "signature"),
            ],
            TableRefused,
            "keys in fs.s3a",
        ),
        (
            [("org.apache.hadoop.fs.s3a.UnknownStoreException", "s3a://lake/: no bucket")],
            TableRefused,
            "bucket exists",
        ),
        (
            [
                (
                    "java.lang.RuntimeException",
                    "java.lang.ClassNotFoundException: Class "
                    "org.apache.hadoop.fs.s3a.S3AFileSystem not found",
                ),
            ],
            UsageError,
            "hadoop-aws",
        ),
    ],
)
def test_what_java_says_of_a_store_becomes_an_error_with_a_remedy(
    chain: list[tuple[str, str]], kind: type[RangelandError], do: str
) -> None:
    found = translate("reading", chain)
    assert isinstance(found, kind)
    assert do in found.do


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("AWS Error ACCESS_DENIED during HeadObject operation", TableRefused),
        ("AWS Error UNKNOWN (HTTP status 403) during PutObject operation", TableRefused),
        ("AWS Error UNKNOWN (HTTP status 400): ExpiredToken, ask anew", TableRefused),
        ("AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation", TableRefused),
        ("AWS Error NETWORK_CONNECTION during PutObject operation", StorageFailed),
        ("AWS Error SLOW_DOWN during PutObject operation: not ACCESS_DENIED_AT_ALL", StorageFailed),
    ],
)
def test_what_arrow_says_of_a_bucket_becomes_an_error(
    said: str, kind: type[RangelandError]
) -> None:
    found = store_error(OSError(said), "lake/orders/part-0.parquet", 100)
    assert type(found) is kind
    assert found.facts["path"] == "lake/orders/part-0.parquet"


def test_a_name_that_is_too_long_may_be_that_of_a_partition() -> None:
    error = OSError(errno.ENAMETOOLONG, "File name too long")
    found = store_error(error, f"lake/orders/name={'x' * 300}/part-0.parquet", 100)
    assert isinstance(found, JobFileError)
    assert "sink.table" in found.do
    assert "sink.partition_by" in found.do
