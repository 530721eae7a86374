"""Runs against a guarded broker: they land what is there, and no secret is to be seen anywhere."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rangeland.cli import command_line
from rangeland.connection import tokens
from rangeland.testing.producer import create_topic, numbered_records, produce
from tests.brokers.secured_broker import PASSWORD, USER, SecuredCluster, unsecured_token
from tests.certificates import Authority

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

COUNT = 50
Called = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    folder = tmp_path_factory.mktemp("secured")
    with SecuredCluster(folder, Authority(folder)) as cluster:
        for topic in ("orders", "tokens"):
            create_topic(cluster.bootstrap, topic, partitions=2)
            for partition in range(2):
                produce(cluster.bootstrap, topic, numbered_records(COUNT), partition=partition)
        cluster.add_users()
        yield cluster


@pytest.fixture
def called(spark: Any, capfd: pytest.CaptureFixture[str]) -> Called:
    """Runs a command with ``--json``: exit code, the response, and all that was printed."""

    def call(*arguments: str) -> tuple[int, dict[str, Any], str]:
        capfd.readouterr()
        code = command_line.main([*arguments, "--json"])
        out, err = capfd.readouterr()
        return code, json.loads(out.splitlines()[-1]), out + err

    return call


def written(
    folder: Path, server: str, topic: str, table: str, security: dict[str, Any], **more: Any
) -> str:
    document = {
        "job": topic,
        "source": {"servers": [server], "topics": [topic], "security": security},
        "sink": {"table": table},
        **more,
    }
    path = folder / "orders.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def all_that_is_kept(spark: Any, table: str) -> list[str]:
    ledger = spark.read.format("delta").load(f"{table}/_rangeland/ledger")
    said = [str(row.asDict(recursive=True)) for row in ledger.collect()]
    assert len(said) >= 2
    files = [path for path in Path(table).rglob("*") if path.is_file()]
    return said + [path.read_bytes().decode("latin-1") for path in files]


def test_a_job_over_tls_and_scram_lands_and_mirrors_without_a_secret_in_sight(
    secured: SecuredCluster,
    spark: Any,
    table: str,
    tmp_path: Path,
    called: Called,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOG_PASSWORD", PASSWORD)
    security = {
        "tls": {"ca": str(secured.authority.ca)},
        "sasl": {
            "mechanism": "SCRAM-SHA-512",
            "username": USER,
            "password": "${env:LOG_PASSWORD}",
        },
    }
    server = str(secured.at("SASLTLS"))
    path = written(tmp_path, server, "orders", table, security, group={"id": "orders"})
    plan_file = tmp_path / "plan.json"
    everything = [
        called("check", path, "--debug"),
        called("plan", path, "--out", str(plan_file), "--debug"),
        called("run", path, "--debug"),
        called("status", path, "--debug"),
    ]
    assert [code for code, _, _ in everything] == [0, 0, 0, 0]
    assert everything[2][1]["landed"] == 2 * COUNT
    assert {p["group_offset"] for p in everything[3][1]["partitions"]} == {COUNT}
    texts = [printed for _, _, printed in everything] + [plan_file.read_text()]
    assert not [text for text in texts + all_that_is_kept(spark, table) if PASSWORD in text]


def test_a_job_with_a_token_lands_and_says_what_is_wrong_without_it(
    secured: SecuredCluster,
    spark: Any,
    table: str,
    tmp_path: Path,
    called: Called,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    token = unsecured_token()
    program = tmp_path / "token.py"
    program.write_text(f"print({token!r})")
    sasl = {"mechanism": "OAUTHBEARER", "token": {"command": [sys.executable, str(program)]}}
    path = written(tmp_path, str(secured.at("SASL")), "tokens", table, {"sasl": sasl})
    code, response, printed = called("run", path, "--debug")
    assert code == 0
    assert response["landed"] == 2 * COUNT
    program.write_text(f"import sys; print({token!r}); sys.exit('no token: {token}')")
    produce(secured.bootstrap, "tokens", numbered_records(1), partition=0)
    monkeypatch.setattr(tokens, "_kept", {})
    code, response, failed = called("run", path, "--debug")
    assert code == 78
    assert response["error"] == "JobFileError"
    assert "source.security.sasl.token.command" in response["message"]
    # Only the driver gets one from here: a task says what it lacks, and where.
    program = tmp_path / "another.py"
    sasl["token"] = {"command": [sys.executable, str(program)]}
    path = written(tmp_path, str(secured.at("SASL")), "tokens", table, {"sasl": sasl})
    program.write_text(
        f"import os, sys\nif os.getppid() != {os.getpid()}:\n    sys.exit('not here')\n"
        f"print({token!r})"
    )
    code, response, elsewhere = called("run", path, "--debug")
    assert code == 78
    assert f"on {platform.node()}: not here" in response["message"]
    for text in (printed, failed, elsewhere, *all_that_is_kept(spark, table)):
        assert token not in text
