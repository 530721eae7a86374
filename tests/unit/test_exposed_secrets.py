"""Secrets that a job sends in clear text: reported by ``check``, ``plan`` and ``run``."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rangeland.errors import EngineFailed, JobFileError, Unreachable
from rangeland.job.connection_settings import plaintext_secret_warnings, tls_files
from rangeland.landing import landing_steps
from rangeland.landing.landing_steps import LandingSteps
from rangeland.model import Isolation
from rangeland.planning.plan import Plan
from rangeland.planning.plan_draft import PlanDraft
from rangeland.progress_events import NoProgress
from rangeland.queries import job_check
from tests.fakes.landing import landing_context
from tests.unit.test_job_security import NAMED, bearer, job_of


def scram() -> dict[str, Any]:
    return {"sasl": {**NAMED, "mechanism": "SCRAM-SHA-512"}}


def plain() -> dict[str, Any]:
    return {"sasl": dict(NAMED)}


@pytest.mark.parametrize(
    ("security", "servers", "says"),
    [
        (plain(), ["b:1"], "the password of .* the clear: PLAIN without"),
        (bearer(file="t"), ["b:1"], "the token of .* the clear: OAUTHBEARER without"),
        (plain(), ["localhost:1", "b:1"], "the password"),
        (plain(), ["localhost:1", "127.0.0.1:2", "[::1]:3"], None),
        ({**plain(), "tls": True}, ["b:1"], None),
        ({**plain(), "tls": {"verify_hostname": False}}, ["b:1"], None),
        (scram(), ["b:1"], None),
        ({}, ["b:1"], None),
    ],
)
def test_only_a_secret_that_others_can_read_is_said(
    security: dict[str, Any], servers: list[str], says: str | None
) -> None:
    import re

    told = plaintext_secret_warnings(job_of(security, servers=servers))
    assert bool(told) == (says is not None)
    assert says is None or re.search(says, told[0])


@pytest.mark.parametrize(
    ("zookeeper", "more", "is_said"),
    [
        ("zk:2181/kafka", {}, True),
        ("127.0.0.1,zk", {}, True),
        ("127.0.0.1:2181,[::1]:2182/kafka", {}, False),
        ("zk:2181", {"scheme": "sasl"}, False),
        ("zk:2181", {"tls": True}, False),
    ],
)
def test_a_password_for_a_zookeeper_in_the_clear_is_said(
    zookeeper: str, more: dict[str, Any], is_said: bool
) -> None:
    user = {"username": "me", "password": "${env:X}", "scheme": more.get("scheme", "digest")}
    chosen = {"login": user, "tls": more.get("tls", False)}
    job = job_of({"zookeeper": chosen}, servers=["b:1"], zookeeper=zookeeper)
    told = plaintext_secret_warnings(job)
    assert bool(told) == is_said
    assert not told or "source.security.zookeeper.login" in told[0]


def test_the_files_for_a_zookeeper_are_shipped_to_the_driver() -> None:
    tls = {"ca": "/z.pem", "key": "/k.pem"}
    job = job_of({"zookeeper": {"tls": tls}}, servers=["b:1"], zookeeper="zk")
    assert tls_files(job) == {
        "source.security.zookeeper.tls.ca": Path("/z.pem"),
        "source.security.zookeeper.tls.key": Path("/k.pem"),
    }


def test_security_of_a_zookeeper_needs_one() -> None:
    with pytest.raises(JobFileError, match=r"remove it: there is no source\.zookeeper"):
        job_of({"zookeeper": {"tls": True}}, servers=["b:1"])


def test_check_says_it_and_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> str:
        raise Unreachable("away")

    def no_spark() -> object:
        raise EngineFailed("no Spark")

    monkeypatch.setattr(job_check, "survey_of", away)
    found = job_check.check(job_of(plain()), no_spark, NoProgress())
    (finding,) = [x for x in found.findings if x.what == "security"]
    assert finding.is_well
    assert finding.seen.startswith("warning: the password of source.security.sasl")
    found = job_check.check(job_of(scram()), no_spark, NoProgress())
    assert not [x for x in found.findings if x.what == "security"]


def test_plan_and_run_say_it(monkeypatch: pytest.MonkeyPatch) -> None:
    delta = SimpleNamespace(wait_for_maintenance=tuple)
    table = SimpleNamespace(location=SimpleNamespace(delta=delta))
    history = SimpleNamespace(position=lambda _: None)
    context = landing_context(SimpleNamespace(table=table, history=history), job_of(plain()))
    steps = LandingSteps(context)
    planner: Any = steps._planner
    plan = Plan("orders", "rangeland/orders", 1, "kafka", Isolation.READ_COMMITTED, (), ())
    monkeypatch.setattr(planner, "_draft_new", lambda _: PlanDraft(plan=plan, requested=()))
    (note,) = planner.draft().notes
    assert "sent to the brokers in the clear" in note

    def stop(*_: object) -> None:
        raise EngineFailed("enough")

    monkeypatch.setattr(landing_steps, "result_of_plans", stop)
    with pytest.raises(EngineFailed, match="enough"):
        steps.result(None)
    assert context.warnings == [note]
