"""The JSON of every command and the bytes of a plan file are as they were captured."""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.golden.capture_answers import ANSWERS, FOLDER, answer, plan_file


@pytest.mark.parametrize("name", ANSWERS)
def test_the_json_of_a_command_has_the_same_fields_in_the_same_order(name: str) -> None:
    assert answer(name) == (FOLDER / f"{name}.json").read_text(encoding="utf-8")


def test_the_same_plan_gives_the_same_file() -> None:
    captured = (FOLDER / "plan-file.json").read_text(encoding="utf-8")
    assert plan_file() == captured
    plan = json.loads(captured)["plan"]
    canonical = json.dumps(plan, sort_keys=True, separators=(",", ":"))
    assert json.loads(captured)["hash"] == hashlib.sha256(canonical.encode()).hexdigest()
