"""What Airflow tries again, with stand-ins for the few names of Airflow that are imported."""

from __future__ import annotations

import asyncio
import importlib
import logging
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

PACKAGE = "airflow_dags.rangeland_airflow"
UNREACHABLE = """echo '{"error": "Unreachable", "message": "no broker"}'; exit 75"""


class Task:
    """Stands for BaseOperator and BaseTrigger."""

    log = logging.getLogger("airflow.task")

    def __init__(self, **_: object) -> None:
        self.outlets: list[object] = []


class TryAgain(Exception):
    """Stands for AirflowException."""


class GiveUp(TryAgain):
    """Stands for AirflowFailException, which no retry follows."""


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Airflow's variables, in an Airflow without anything else."""
    found = {"rangeland_directory": str(tmp_path)}
    variable = SimpleNamespace(get=lambda name, default: found.get(name, default))
    modules: dict[str, dict[str, Any]] = {
        "airflow": {},
        "airflow.sdk": {
            "Asset": object,
            "AssetAlias": object,
            "BaseOperator": Task,
            "Variable": variable,
        },
        "airflow.sdk.exceptions": {"AirflowException": TryAgain, "AirflowFailException": GiveUp},
        "airflow.triggers": {},
        "airflow.triggers.base": {"BaseTrigger": Task, "TriggerEvent": object},
    }
    for name, names in modules.items():
        module = ModuleType(name)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, name, module)
    yield found
    for name in ("operators", "triggers"):
        sys.modules.pop(f"{PACKAGE}.{name}", None)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (UNREACHABLE, TryAgain),
        ("kill -9 $$", TryAgain),
        ("kill -TERM $$", TryAgain),
        ("exit 130", TryAgain),
        ("exit 137", TryAgain),
        ("exit 143", TryAgain),
        ("exit 1", GiveUp),
        ("exit 66", GiveUp),
        ("exit 78", GiveUp),
    ],
)
def test_a_landing_is_tried_again_if_it_was_killed_or_says_so(
    variables: dict[str, str], script: str, error: type[Exception]
) -> None:
    variables["rangeland_backfill_command"] = shlex.join(["sh", "-c", script, "rangeland"])
    operators = importlib.import_module(f"{PACKAGE}.operators")
    task = operators.RangelandBackfillOperator(job_file="o.yaml", from_bound="0", until_bound="1")
    with pytest.raises(TryAgain) as raised:
        task.execute({"ti": None})
    assert type(raised.value) is error


def test_the_file_for_metrics_is_passed_on(variables: dict[str, str], tmp_path: Path) -> None:
    script = 'printf "%s " "$@" >asked; exit 78'
    variables["rangeland_backfill_command"] = shlex.join(["sh", "-c", script, "rangeland"])
    operators = importlib.import_module(f"{PACKAGE}.operators")
    task = operators.RangelandBackfillOperator(
        job_file="o.yaml", from_bound="0", until_bound="1", metrics="o.prom"
    )
    assert "metrics" in task.template_fields
    with pytest.raises(GiveUp):
        task.execute({"ti": None})
    assert "--metrics o.prom" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize(
    ("script", "state", "text"),
    [
        ("kill -9 $$", "waiting", "ended by signal 9"),
        ("echo Killed >&2; exit 137", "waiting", "exit code 137 and printed no result"),
        ("echo Broken >&2; exit 1", "failed", "its output is above. Broken"),
        ("true", "failed", "exit code 0 and printed no result"),
    ],
)
def test_a_killed_check_does_not_end_a_wait(
    variables: dict[str, str], tmp_path: Path, script: str, state: str, text: str
) -> None:
    triggers = importlib.import_module(f"{PACKAGE}.triggers")
    trigger = triggers.LogReachedTrigger(["sh", "-c", script], str(tmp_path))
    judged = asyncio.run(trigger._check())
    assert judged["state"] == state
    assert text in judged["text"]
