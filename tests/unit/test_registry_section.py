"""The section of a job file that names a schema registry, and the settings made from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from rangeland.cluster_settings import TlsSettings
from rangeland.errors import JobFileError
from rangeland.job import Job
from rangeland.job.connection_settings import (
    plaintext_secret_warnings,
    schema_registry_settings,
    schema_registry_warnings,
    tls_files,
)
from rangeland.job.registry_section import SchemaRegistry
from rangeland.schema_registry.registry_settings import RegistrySettings
from rangeland.schema_registry.subject_names import SubjectNameStrategy

SECRET = "hunter2-never-to-be-seen"
REF = "${env:RANGELAND_TEST_SECRET}"
URL = "http://registry:8081"
JOB = """
job: orders
source: {servers: [b:1], topics: [orders], timeouts: {connect_ms: 11, no_progress_ms: 13}}
sink: {table: lake/orders}
"""


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANGELAND_TEST_SECRET", SECRET)


def section(**fields: Any) -> SchemaRegistry:
    return SchemaRegistry.model_validate({"url": URL, **fields})


def test_one_url_or_several() -> None:
    assert section().url == (URL,)
    assert section(url=[URL, "https://two/apis/ccompat/v7"]).url[1] == "https://two/apis/ccompat/v7"


WRONG_URLS: list[Any] = [
    "",
    "registry:8081",
    "ftp://registry",
    f"http://me:{SECRET}@registry",
    f"http://registry/?token={SECRET}",
    "http://registry/#top",
    "http://re gistry",
    "http://registry:99999",
    "http://registry:port",
    "http://:8081",
    "http://r\u00e9gistre",
    [],
    [URL, 7],
    {"a": "b"},
    7,
    None,
]


@pytest.mark.parametrize("url", WRONG_URLS)
def test_a_wrong_url_is_refused_and_not_repeated(url: Any) -> None:
    with pytest.raises(ValidationError) as raised:
        section(url=url)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"username": "me"}, "there is a username"),
        ({"password": REF}, "there is a password"),
        ({"username": "me", "password": REF, "token": REF}, "there is a username"),
        ({"username": "a:b", "password": REF}, "without a colon"),
        ({"username": "me", "password": SECRET}, "never the secret itself"),
        ({"token": SECRET}, "never the secret itself"),
        ({"tls": True}, "no url begins with https"),
        ({"subject_name_strategy": "Topic"}, "TopicNameStrategy"),
        ({"pasword": REF}, "Extra inputs"),
    ],
)
def test_what_does_not_go_together(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named) as raised:
        section(**fields)
    assert SECRET not in str(raised.value)


def test_the_settings_have_the_secrets_and_the_timeouts_of_the_source() -> None:
    made = section(
        url="https://registry",
        username="me",
        password=REF,
        tls={"ca": "/ca.pem", "verify_hostname": False},
        subject_name_strategy="RecordNameStrategy",
    )
    assert made.subject_name_strategy is SubjectNameStrategy.RECORD
    assert schema_registry_settings(Job.parse(JOB), made) == RegistrySettings(
        ("https://registry",),
        "me",
        SECRET,
        tls=TlsSettings(ca="/ca.pem", verify_hostname=False),
        connect_ms=11,
        no_progress_ms=13,
    )
    assert SECRET not in repr(made)


def test_a_bearer_token() -> None:
    assert schema_registry_settings(Job.parse(JOB), section(token=REF)).token == SECRET


def test_a_secret_that_is_not_set_is_named() -> None:
    with pytest.raises(JobFileError, match="NOWHERE_TO_BE_FOUND"):
        schema_registry_settings(Job.parse(JOB), section(token="${env:NOWHERE_TO_BE_FOUND}"))


def test_a_secret_in_the_clear_is_a_warning() -> None:
    assert schema_registry_warnings(section()) == ()
    assert schema_registry_warnings(section(url="http://127.0.0.1:1", token=REF)) == ()
    assert schema_registry_warnings(section(url="http://localhost:1", token=REF)) == ()
    assert schema_registry_warnings(section(url="https://registry", token=REF)) == ()
    (warned,) = schema_registry_warnings(
        section(url=["https://x", URL], username="me", password=REF)
    )
    assert warned == (
        "the password of decode.registry is sent to registry:8081 in the clear: use https"
    )


def test_a_job_warns_of_it_and_ships_the_files_of_both_connections() -> None:
    document = {
        "job": Job.parse(JOB).name,
        "source": {"servers": ["b:1"], "topics": ["t"], "security": {"tls": {"ca": "/b.pem"}}},
        "sink": {"table": "t"},
        "decode": {
            "value": {"format": "avro"},
            "registry": {"url": [URL, "https://x"], "token": REF, "tls": {"ca": "/r.pem"}},
        },
    }
    job = Job.parse(json.dumps(document))
    (warned,) = plaintext_secret_warnings(job)
    assert warned.startswith("the token of decode.registry is sent to registry:8081")
    assert tls_files(job) == {
        "source.security.tls.ca": Path("/b.pem"),
        "decode.registry.tls.ca": Path("/r.pem"),
    }


def test_the_json_schema_agrees_with_the_parser() -> None:
    schema = SchemaRegistry.model_json_schema()
    for url in (URL, [URL], [URL, "https://two/x"]):
        jsonschema.validate({"url": url}, schema)
    for url in ("", "registry:8081", f"http://me:{SECRET}@registry", [], [URL, 7], 7):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"url": url}, schema)
