"""A task as the parent of its command, with or without Airflow's OpenLineage provider."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from airflow_dags.rangeland_airflow.lineage import parent_variables

TASK = SimpleNamespace(dag_id="flow", task_id="land")
PLUGINS = "airflow.providers.openlineage.plugins"


def install_provider(monkeypatch: pytest.MonkeyPatch, macros: object) -> None:
    """As much of the provider as is asked for."""
    names = PLUGINS.split(".")
    for end in range(1, len(names) + 1):
        name = ".".join(names[:end])
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules[PLUGINS], "macros", macros, raising=False)


def test_the_provider_says_how_the_task_and_its_run_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    macros = SimpleNamespace(
        lineage_parent_id=lambda task: f"air/{task.dag_id}.{task.task_id}/1",
        lineage_root_parent_id=lambda task: f"air/{task.dag_id}/2",
    )
    install_provider(monkeypatch, macros)
    assert parent_variables(TASK) == {
        "OPENLINEAGE_PARENT_ID": "air/flow.land/1",
        "OPENLINEAGE_ROOT_PARENT_ID": "air/flow/2",
    }


def test_without_the_provider_there_is_no_parent() -> None:
    assert parent_variables(TASK) == {}


def test_a_provider_that_cannot_be_imported_does_not_fail_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    package = tmp_path / "airflow" / "providers" / "openlineage"
    package.mkdir(parents=True)
    # As providers do if Airflow is too old for them.
    (package / "__init__.py").write_text("raise RuntimeError('this needs another Airflow')")
    (tmp_path / "airflow" / "__init__.py").touch()
    for name in [name for name in sys.modules if name.split(".")[0] == "airflow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert parent_variables(TASK) == {}
    assert "will have no parent" in caplog.text


def test_a_provider_that_fails_does_not_fail_the_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install_provider(monkeypatch, SimpleNamespace())  # another version, without these macros
    assert parent_variables(TASK) == {}
    for variable in ("OPENLINEAGE_PARENT_ID", "OPENLINEAGE_ROOT_PARENT_ID"):
        assert f"will not have the variable {variable}" in caplog.text


def test_a_provider_that_does_not_know_the_root_still_names_the_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    macros = SimpleNamespace(lineage_parent_id=lambda task: f"air/{task.dag_id}/1")
    install_provider(monkeypatch, macros)
    assert parent_variables(TASK) == {"OPENLINEAGE_PARENT_ID": "air/flow/1"}
    assert "OPENLINEAGE_ROOT_PARENT_ID" in caplog.text
