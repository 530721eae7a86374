"""What ``check`` reports of the first thing that is wrong."""

from __future__ import annotations

import pytest

from rangeland.connection.failures import ConnectionLost
from rangeland.errors import EngineFailed
from rangeland.progress_events import NoProgress
from rangeland.queries import job_check
from tests.unit.test_job_security import job_of


def test_an_error_is_named_by_its_public_class(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> str:
        raise ConnectionLost("no response")

    def no_spark() -> object:
        raise EngineFailed("no Spark")

    monkeypatch.setattr(job_check, "_brokers", away)
    found = job_check.check(job_of({}), no_spark, NoProgress())
    assert (found.exit_code, found.error) == (75, "Unreachable")
    assert {x.what: x.is_well for x in found.findings if x.what in ("brokers", "spark")} == {
        "brokers": False,
        "spark": False,
    }
