"""The text about many jobs: a line for each, then each error with the table that it is about."""

from __future__ import annotations

from typing import Any

from rangeland.errors import RangelandError, Unreachable
from rangeland.fleet.fleet_result import FleetResult, JobResult
from rangeland.render.fleet_view import job_line, render_fleet
from tests import sample_results as made
from tests.unit.test_render import lines_with, rendered


def a_job_result(table: str | None, result: Any, error: RangelandError | None = None) -> Any:
    return JobResult("shop", table, result, error, 1.25)


LANDED = a_job_result("lake/orders", made.a_result())
NOTHING = a_job_result("lake/clicks", made.a_result([], state="nothing"))
FAILED = a_job_result(None, None, Unreachable("no broker could be reached"))


def test_each_table_has_a_line_and_each_error_a_name() -> None:
    text = rendered(render_fleet(FleetResult((LANDED, NOTHING, FAILED), 2.5)))
    assert "3 tables: 1 landed, 1 nothing new, 1 failed (2.5 s)" in text
    assert lines_with(text, "lake/orders")[0] == ["shop", "lake/orders", "landed", "33,985", "1.2"]
    assert lines_with(text, "lake/clicks")[0][2:4] == ["nothing", "new"]
    before, _, error = text.partition("shop:\n")
    assert "Unreachable, exit 75" in before
    assert "No broker could be reached." in error
    assert "other tables are not affected" in error


def test_a_job_that_is_done_is_one_line() -> None:
    status = a_job_result("lake/orders", made.a_status())
    lines = [job_line(one, 1, 4) for one in (LANDED, NOTHING, status, FAILED)]
    assert lines[0] == "1 of 4: lake/orders: landed 33,985 records (1.2 s)"
    assert lines[1] == "1 of 4: lake/clicks: nothing new (1.2 s)"
    assert lines[2].startswith("1 of 4: lake/orders: behind, ")
    assert lines[3] == "1 of 4: shop: Unreachable, exit 75 (1.2 s)"
