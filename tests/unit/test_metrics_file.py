"""The option ``--metrics``: the file is written however a command ends, and never changes how."""

from __future__ import annotations

import json
import re
import stat
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

import rangeland
from rangeland.cli import command_line, many_jobs
from rangeland.cluster_access import broker_check
from rangeland.errors import Conflict, RangeLost, Unreachable, UsageError
from rangeland.fleet import fleet_run, topic_jobs
from rangeland.fleet.fleet_result import FleetResult, JobResult
from rangeland.fleet.fleet_run import Fleet
from rangeland.fleet.table_job import TableJob
from rangeland.monitoring import metrics_file
from rangeland.results import RunResult
from rangeland.submit import entry_point
from tests import docs
from tests import sample_results as made

EARLIER = "# HELP rangeland_run_success From an earlier run.\n"
Samples = dict[tuple[str, str, str], float]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return write_job(tmp_path, "orders")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "orders.prom"


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_jobs, "spark_for", lambda *_, **__: None)
    monkeypatch.setattr(many_jobs, "_session", lambda *_: None)
    monkeypatch.setattr(broker_check, "find_unreachable", lambda jobs: [None] * len(jobs))


def write_job(folder: Path, name: str, table: str | None = None) -> Path:
    path = folder / f"{name}.yaml"
    text = made.JOB_YAML.replace("job: orders", f"job: {name}")
    path.write_text(text.replace("lake/orders", f"'{table or f'lake/{name}'}'"))
    return path


def samples(file: Path) -> Samples:
    """The samples without further labels, by name, job and table."""
    return {
        (s.name.removeprefix("rangeland_run_"), s.labels["job"], s.labels["table"]): s.value
        for family in text_string_to_metric_families(file.read_text())
        for s in family.samples
        if set(s.labels) == {"command", "job", "table"}
    }


def exit_codes(file: Path) -> dict[tuple[str, str], int]:
    return {
        (job, table): int(value)
        for (name, job, table), value in samples(file).items()
        if name == "exit_code"
    }


def raising(error: BaseException) -> Callable[..., Any]:
    def work(*_: object, **__: object) -> Any:
        raise error

    return work


# --- one table -------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run", "backfill"])
def test_a_command_that_succeeds_leaves_its_result(
    command: str, job: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rangeland.run, command, lambda *_, **__: made.a_result())  # type: ignore[attr-defined]
    bounds = ["--from", "earliest", "--until", "latest"]
    assert command_line.main([command, str(job), *bounds, "--metrics", str(file)]) == 0
    found = samples(file)
    assert found["success", "orders", "lake/orders"] == 1
    assert found["landed_records", "orders", "lake/orders"] == 33_985
    assert found["duration_seconds", "orders", "lake/orders"] == 2.0
    assert f'command="{command}"' in file.read_text()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unreachable("no broker answers"), 75),
        (Conflict("another driver is in the way"), 73),
        (ValueError("nobody expected that"), 70),
        (KeyboardInterrupt(), 130),
    ],
)
def test_a_command_that_fails_leaves_its_exit_code(
    error: BaseException, code: int, job: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(f'{EARLIER}rangeland_run_success{{job="orders"}} 1\n')
    monkeypatch.setattr(rangeland.run, "run", raising(error))  # type: ignore[attr-defined]
    assert command_line.main(["run", str(job), "--metrics", str(file)]) == code
    found = samples(file)
    assert found["success", "orders", "lake/orders"] == 0
    assert found["exit_code", "orders", "lake/orders"] == code
    assert "lag" not in file.read_text()


def test_a_lost_range_is_in_the_file_of_the_run_that_it_ends(
    job: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = RangeLost("offsets are gone", losses=[made.a_loss(0, 3, 10)])
    monkeypatch.setattr(rangeland.run, "run", raising(error))  # type: ignore[attr-defined]
    assert command_line.main(["run", str(job), "--metrics", str(file)]) == 66
    assert 'kind="expired"' in file.read_text()


def test_a_command_that_fails_before_spark_starts_worked_for_no_time(
    job: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_jobs, "spark_for", raising(Unreachable("no broker answers")))
    assert command_line.main(["run", str(job), "--metrics", str(file)]) == 75
    found = samples(file)
    assert found["exit_code", "orders", "lake/orders"] == 75
    assert ("duration_seconds", "orders", "lake/orders") not in found


def test_a_job_file_with_a_mistake_is_named_itself(job: Path, file: Path) -> None:
    job.write_text("job: [")
    assert command_line.main(["run", str(job), "--metrics", str(file)]) == 78
    assert exit_codes(file) == {(str(job), ""): 78}


def test_a_job_file_whose_path_is_not_text_has_a_label_that_is(
    tmp_path: Path, job: Path, file: Path
) -> None:
    odd = tmp_path / "caf\udce9.yaml"
    odd.write_text("job: [")
    assert command_line.main(["run", str(odd), "--metrics", str(file)]) == 78
    assert exit_codes(file) == {(str(tmp_path / "caf\\udce9.yaml"), ""): 78}


# --- many tables -----------------------------------------------------------------------------


def finish(result: RunResult, table_job: TableJob) -> JobResult[RunResult]:
    result = replace(result, job=table_job.job.name, table=table_job.table)
    return JobResult(table_job.job.name, table_job.table, result, None, 1.0)


def test_many_tables_are_in_one_file_whatever_became_of_them(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write_job(tmp_path, name) for name in ("a", "b", "c", "bad")]
    paths[-1].write_text("job: [")

    def run_all(fleet: Fleet, spark: Any, progress: Any, parallel: Any) -> Any:
        first, second = fleet.jobs
        failure = Conflict("in the way")
        results = [
            *(JobResult(f.job or f.name, f.table, None, f.error, 0.0) for f in fleet.failed),
            finish(made.a_result(), first),
            JobResult(second.job.name, second.table, None, failure, 3.0),
        ]
        for position, one in enumerate(results, 1):
            progress.job_done(one, position, len(results))
        with_warning = replace(made.a_result(), warnings=("not mirrored",))
        return FleetResult((*results[:-2], finish(with_warning, first), results[-1]), 4.0)

    monkeypatch.setattr(fleet_run, "run_all", run_all)
    gone = Unreachable("no broker answers")
    monkeypatch.setattr(broker_check, "find_unreachable", lambda jobs: [None, None, gone])
    assert command_line.main(["run", *map(str, paths), "--metrics", str(file)]) == 78
    assert exit_codes(file) == {
        ("a", "lake/a"): 0,
        ("b", "lake/b"): 73,
        ("c", "lake/c"): 75,
        (str(paths[-1]), ""): 78,
    }
    found = samples(file)
    assert found["warnings", "a", "lake/a"] == 1
    assert found["duration_seconds", "b", "lake/b"] == 3.0
    assert ("duration_seconds", "c", "lake/c") not in found


def test_unreachable_files_with_the_same_job_name_have_samples_of_their_own(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = [write_job(tmp_path, name) for name in ("a", "b")]
    for path in paths:
        path.write_text(re.sub("job: .*", "job: orders", path.read_text()))
    each = write_job(tmp_path, "each", "lake/{topic}")
    monkeypatch.setattr(topic_jobs, "topics_of", lambda job: ("x",))
    gone = Unreachable("no broker answers")
    monkeypatch.setattr(broker_check, "find_unreachable", lambda jobs: [gone for _ in jobs])
    words = ["run", *map(str, [*paths, each]), "--json", "--metrics", str(file)]
    assert command_line.main(words) == 75
    names = [("orders", "lake/a"), ("orders", "lake/b"), ("each", "")]
    assert exit_codes(file) == dict.fromkeys(names, 75)
    assert not {name for name, *_ in samples(file) if name.startswith("duration")}
    jobs = json.loads(capfd.readouterr().out)["jobs"]
    assert [(job["job"], job["table"] or "") for job in jobs] == names


def test_tables_that_an_interruption_has_stopped_are_told_from_those_that_were_done(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write_job(tmp_path, name) for name in ("a", "b")]

    def run_all(fleet: Fleet, spark: Any, progress: Any, parallel: Any) -> Any:
        progress.job_done(finish(made.a_result(), fleet.jobs[0]), 1, 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(fleet_run, "run_all", run_all)
    assert command_line.main(["run", *map(str, paths), "--metrics", str(file)]) == 130
    assert exit_codes(file) == {("a", "lake/a"): 0, ("b", "lake/b"): 130}
    # Whether the work on the second had begun is not known.
    durations = [table for name, _, table in samples(file) if name == "duration_seconds"]
    assert durations == ["lake/a"]


def test_one_table_that_an_interruption_has_stopped_was_worked_on_until_then(
    job: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rangeland.run, "run", raising(KeyboardInterrupt()))  # type: ignore[attr-defined]
    assert command_line.main(["run", str(job), "--metrics", str(file)]) == 130
    assert samples(file)["duration_seconds", "orders", "lake/orders"] > 0


def test_a_session_that_does_not_start_fails_all_jobs(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write_job(tmp_path, "a"), write_job(tmp_path, "each", "lake/{topic}")]
    monkeypatch.setattr(many_jobs, "_session", raising(UsageError("Java is missing")))
    assert command_line.main(["run", *map(str, paths), "--metrics", str(file)]) == 64
    assert exit_codes(file) == {("a", "lake/a"): 64, ("each", ""): 64}


# --- the file --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nowhere/a.prom", "", "job.yaml/a.prom", "--json", "n" * 300])
def test_a_file_that_cannot_be_written_is_refused_before_anything_starts(
    name: str,
    tmp_path: Path,
    job: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("a file")
    monkeypatch.setattr(many_jobs, "spark_for", raising(AssertionError("it started")))
    before = sorted(tmp_path.iterdir())
    assert command_line.main(["run", str(job), "--json", "--metrics", name]) == 64
    assert "cannot be written" in json.loads(capfd.readouterr().out)["message"]
    assert sorted(tmp_path.iterdir()) == before


def test_a_device_is_not_replaced_by_a_file(tmp_path: Path, job: Path) -> None:
    for path in ("/dev/null", str(tmp_path)):
        assert command_line.main(["run", str(job), "--metrics", path]) == 64
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_file_with_anything_else_is_not_replaced(
    tmp_path: Path, job: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As when the name of the metrics file is forgotten: the first job file is taken for it."""
    other = write_job(tmp_path, "other")
    before = job.read_text()
    assert command_line.main(["run", "--json", "--metrics", str(job), str(other)]) == 64
    message = json.loads(capfd.readouterr().out)["message"]
    assert "does not begin with `# HELP rangeland_`" in message
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff# HELP rangeland_")
    with pytest.raises(UsageError, match="does not begin with"):
        rangeland.write_metrics(binary, made.a_result())
    assert job.read_text() == before


def test_an_empty_file_is_replaced(file: Path) -> None:
    file.touch()
    for _ in range(2):
        rangeland.write_metrics(file, made.a_result())
    assert exit_codes(file) == {("orders", "lake/orders"): 0}


def test_a_folder_without_write_permission_is_refused(
    tmp_path: Path, job: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    denied = PermissionError(13, "Permission denied")
    monkeypatch.setattr(metrics_file.tempfile, "TemporaryFile", raising(denied))
    assert command_line.main(["run", str(job), "--metrics", str(tmp_path / "x.prom")]) == 64
    assert "Permission denied" in capfd.readouterr().err


class NoLibrary(MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        if name == "prometheus_client":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.fixture
def unloaded_library() -> Iterator[None]:
    """The library and what uses it, imported again by the test and once more after it."""

    def loaded() -> list[str]:
        names = ("prometheus_client", "rangeland.monitoring.run_metrics")
        return [x for x in sys.modules if x in names or x.startswith("prometheus_client.")]

    before = {name: sys.modules.pop(name) for name in loaded()}
    yield
    for name in loaded():
        del sys.modules[name]
    sys.modules.update(before)


@pytest.mark.usefixtures("unloaded_library")
@pytest.mark.parametrize("is_missing", [True, False])
def test_without_a_library_that_can_be_used_the_version_to_install_is_named(
    is_missing: bool,
    tmp_path: Path,
    job: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if is_missing:
        monkeypatch.setattr(sys, "meta_path", [NoLibrary(), *sys.meta_path])
    else:
        # As in 0.11, which has no registry.Collector.
        folder = tmp_path / "old/prometheus_client"
        folder.mkdir(parents=True)
        modules = {"__init__": "", "core": "GaugeMetricFamily = 0", "registry": ""}
        for module, text in modules.items():
            (folder / f"{module}.py").write_text(text)
        monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.setattr(many_jobs, "spark_for", raising(AssertionError("it started")))
    words = ["run", str(job), "--json", "--metrics", str(tmp_path / "x.prom")]
    assert command_line.main(words) == 64
    message = json.loads(capfd.readouterr().out)["message"]
    assert "pip install 'prometheus-client>=0.22'" in message
    assert ("is missing" if is_missing else "cannot import name 'Collector'") in message


def test_the_version_that_is_named_is_the_one_that_is_required() -> None:
    project = tomllib.loads((docs.ROOT / "pyproject.toml").read_text())["project"]
    assert metrics_file.REQUIREMENT in project["dependencies"]


@pytest.mark.parametrize("is_one", [True, False])
def test_a_failure_to_record_a_result_is_a_warning(
    is_one: bool,
    tmp_path: Path,
    job: Path,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def run_all(fleet: Fleet, spark: Any, progress: Any, parallel: Any) -> Any:
        done = [finish(made.a_result(), one) for one in fleet.jobs]
        for position, one in enumerate(done, 1):
            progress.job_done(one, position, len(done))
        return FleetResult(tuple(done), 4.0)

    monkeypatch.setattr(metrics_file, "table_run", raising(ValueError("nobody expected that")))
    monkeypatch.setattr(rangeland.run, "run", lambda *_: made.a_result())  # type: ignore[attr-defined]
    monkeypatch.setattr(fleet_run, "run_all", run_all)
    jobs = [job] if is_one else [job, write_job(tmp_path, "other")]
    assert command_line.main(["run", *map(str, jobs), "--metrics", str(file)]) == 0
    assert "nobody expected that" in capfd.readouterr().err
    assert set(exit_codes(file).values()) == {0}


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_disk_that_is_full_at_the_end_is_a_warning(
    log_format: str,
    job: Path,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    file.write_text(EARLIER)
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(prometheus_client, "write_to_textfile", raising(full))
    monkeypatch.setattr(rangeland.run, "run", lambda *_: made.a_result())  # type: ignore[attr-defined]
    words = ["run", str(job), "--metrics", str(file), "--json", "--quiet"]
    assert command_line.main([*words, "--log-format", log_format]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["landed"] == 33_985
    (warning,) = err.strip().replace("\n", " ").split("\r")
    assert "No space left on device" in warning
    assert log_format == "text" or json.loads(warning)["level"] == "warning"
    assert file.read_text() == EARLIER


def test_a_dry_run_has_no_metrics(job: Path, file: Path) -> None:
    words = ["backfill", str(job), "--from", "earliest", "--until", "latest", "--dry-run"]
    assert command_line.main([*words, "--metrics", str(file)]) == 64
    assert not file.exists()


# --- scripts and Python ----------------------------------------------------------------------


@pytest.mark.parametrize("is_done", [True, False])
def test_a_script_writes_the_file_as_its_command_does(is_done: bool, job: Path, file: Path) -> None:
    def work(entry: entry_point.ScriptEntry) -> RunResult:
        if is_done:
            return made.a_result()
        raise Unreachable("no broker answers")

    words = [str(job), "--metrics", str(file)]
    code = entry_point.main(work, "", arguments=words, command="backfill")
    assert code == (0 if is_done else 75)
    assert exit_codes(file) == {("orders", "lake/orders"): code}
    assert 'command="backfill"' in file.read_text()


def test_a_script_refuses_a_file_that_cannot_be_written(job: Path, tmp_path: Path) -> None:
    words = [str(job), "--metrics", str(tmp_path / "nowhere" / "a.prom")]
    work = raising(AssertionError("it started"))
    assert entry_point.main(work, "", arguments=words) == 64


def test_python_writes_the_same_file(file: Path) -> None:
    rangeland.write_metrics(file, made.a_result())
    assert samples(file)["landed_records", "orders", "lake/orders"] == 33_985
    failure = JobResult[RunResult]("clicks", None, None, Unreachable("no broker answers"), 0.0)
    done = JobResult("orders", "lake/orders", made.a_result(), None, 1.0)
    rangeland.write_metrics(str(file), FleetResult((failure, done), 1.0))
    assert exit_codes(file) == {("clicks", ""): 75, ("orders", "lake/orders"): 0}
    with pytest.raises(UsageError, match="cannot be written"):
        rangeland.write_metrics(file / "below", made.a_result())
