"""What ``check`` reports of the first thing that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rangeland.connection.failures import ConnectionLost
from rangeland.errors import EngineFailed, TableRefused
from rangeland.job import Job
from rangeland.job.decode_section import Decode
from rangeland.model import Survey
from rangeland.progress_events import NoProgress
from rangeland.queries import job_check
from rangeland.query_results import CheckResult
from tests.unit.test_job_security import job_of


def test_an_error_is_named_by_its_public_class(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> str:
        raise ConnectionLost("no response")

    def no_spark() -> object:
        raise EngineFailed("no Spark")

    monkeypatch.setattr(job_check, "survey_of", away)
    found = job_check.check(job_of({}), no_spark, NoProgress())
    assert (found.exit_code, found.error) == (75, "Unreachable")
    assert {x.what: x.is_well for x in found.findings if x.what in ("brokers", "spark")} == {
        "brokers": False,
        "spark": False,
    }


def checked(monkeypatch: pytest.MonkeyPatch, opened: Callable[..., Any]) -> CheckResult:
    """What ``check`` says of a job whose brokers answer and whose table is opened like this."""
    monkeypatch.setattr(job_check, "survey_of", lambda *about: Survey(0, {}))
    monkeypatch.setattr(job_check, "_table", lambda context: f"the table of {context}")
    monkeypatch.setattr(job_check, "_plan", lambda context: f"the plan of {context}")
    monkeypatch.setattr(job_check, "open_landing", opened)
    spark: Any = SimpleNamespace(sparkContext=None, version="4")
    return job_check.check(job_of({}), lambda: spark, NoProgress())


def test_the_table_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    def open_landing(job: Job, *about: Any) -> str:
        opened.append(about)
        return job.name

    found = checked(monkeypatch, open_landing)
    assert len(opened) == 1
    seen = {x.what: x.seen for x in found.findings}
    assert (seen["table"], seen["plan"]) == ("the table of orders", "the plan of orders")


def test_each_item_that_needs_a_table_which_cannot_be_opened_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def open_landing(*about: Any) -> Any:
        raise TableRefused("it has no ledger")

    found = checked(monkeypatch, open_landing)
    wrong = {x.what: x.seen for x in found.findings if not x.is_well}
    assert {what: "it has no ledger" in seen for what, seen in wrong.items()} == {
        "table": True,
        "plan": True,
    }


def test_schema_ids_are_looked_for_in_the_survey_of_the_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[Survey] = []
    used: list[Survey] = []

    def survey_of(*about: object) -> Survey:
        taken.append(Survey(len(taken), {}))
        return taken[-1]

    def no_spark() -> object:
        raise EngineFailed("no Spark")

    monkeypatch.setattr(job_check, "survey_of", survey_of)
    monkeypatch.setattr(job_check, "schema_ids_in_logs", lambda job, survey: used.append(survey))
    monkeypatch.setattr(job_check, "look_up_row_format", lambda job, ids: None)
    decode = {"value": {"format": "avro"}, "registry": {"url": "http://r"}}
    job = job_of({}).model_copy(update={"decode": Decode.model_validate(decode)})
    job_check.check(job, no_spark, NoProgress())
    assert len(taken) == 1
    assert used == taken
