"""The contract of the command line: one JSON line, separate streams, exit codes, clear errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rangeland import errors
from rangeland import run as commands
from rangeland.cli import command_line
from rangeland.job import Job
from rangeland.planning.plan import Plan
from rangeland.planning.plan_kind import PlanKind
from rangeland.results import RedriveResult
from rangeland.testing.processes import PATIENCE_S
from tests import sample_results as made


class Runs:
    """Stands for the commands in ``rangeland.run`` and the modules of ``rangeland.queries``: it
    returns sample values, and records what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Job]] = []
        self.plan: Plan | None = None
        self.raises: BaseException | None = None
        self.sparks = 0
        self.well = True
        self.kind: PlanKind | None = None
        self.redriven: tuple[bool, bool] | None = None
        self.location: str | None = None

    def _answer(self, name: str, job: Job, progress: Any, value: Any) -> Any:
        self.asked.append((name, job))
        progress.step("asking 3 brokers")
        if self.raises is not None:
            raise self.raises
        return value

    def preview(self, job: Job, spark: object, progress: Any, kind: PlanKind | None = None) -> Any:
        self.kind = kind
        answer = replace(made.a_preview(), location=self.location)
        return self._answer("preview", job, progress, answer)

    def run(self, job: Job, spark: object, progress: Any) -> Any:
        os.write(1, b"a JVM says hello\n")  # Past Python, as a child process would.
        print("a transform says hello")
        return self._answer("run", job, progress, made.a_result())

    def apply(self, job: Job, plan: Plan, beside: Any, spark: object, progress: Any) -> Any:
        self.plan, self.beside = plan, beside
        return self._answer("apply", job, progress, made.a_result())

    def backfill(self, job: Job, spark: object, progress: Any, kind: PlanKind | None = None) -> Any:
        self.kind = kind
        result = made.a_result([], state="already-landed")
        return self._answer("backfill", job, progress, result)

    def redrive(
        self, job: Job, spark: object, progress: Any, *, from_log: bool, dry_run: bool
    ) -> Any:
        self.redriven = (from_log, dry_run)
        done = None if dry_run else made.a_result()
        result = RedriveResult(job.name, job.sink.table, (), 1.5, done)
        return self._answer("redrive", job, progress, result)

    def status(self, job: Job, spark: object, progress: Any, template: Job | None) -> Any:
        return self._answer("status", job, progress, made.a_status())

    def check(self, job: Job, spark_factory: Callable[[], object], progress: Any) -> Any:
        spark_factory()
        return self._answer("check", job, progress, made.a_check(self.well))

    def open_deferred(self, app_name: str, **_: str) -> str:
        self.sparks += 1
        return app_name


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    fake = Runs()
    for name in ("preview", "run", "apply", "backfill", "redrive"):
        monkeypatch.setattr(commands, name, getattr(fake, name))
    for name in ("job_check", "job_status", "verify_and_find"):
        monkeypatch.setitem(sys.modules, f"rangeland.queries.{name}", fake)  # type: ignore[arg-type]
    reachable = SimpleNamespace(check_brokers_answer=lambda job: None)
    monkeypatch.setitem(sys.modules, "rangeland.cluster_access.broker_check", reachable)  # type: ignore[arg-type]
    session = SimpleNamespace(open_deferred=fake.open_deferred)
    monkeypatch.setitem(sys.modules, "rangeland.spark.spark_session", session)  # type: ignore[arg-type]
    return fake


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "orders.yaml"
    path.write_text(made.JOB_YAML)
    return str(path)


@pytest.fixture
def called(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = command_line.main(arguments)
        sys.stdout.flush()
        return code, *capfd.readouterr()

    return call


Called = Callable[..., tuple[int, str, str]]
BOUNDS = ("--from", "2026-01-30", "--until", "2026-01-31")


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        (BOUNDS, PlanKind.BACKFILL),
        ((*BOUNDS, "--replace"), PlanKind.REPLACE),
        (("--missing",), PlanKind.HOLES),
        (("--missing", "--dry-run"), PlanKind.HOLES),
    ],
)
def test_a_backfill_is_asked_for_in_three_ways(
    runs: Runs, called: Called, job: str, more: tuple[str, ...], kind: PlanKind
) -> None:
    assert called("backfill", job, *more)[0] == 0
    assert runs.kind is kind


@pytest.mark.parametrize(
    ("more", "redriven"),
    [
        ((), (False, False)),
        (("--dry-run",), (False, True)),
        (("--from-log",), (True, False)),
    ],
)
def test_a_redrive_is_asked_for_from_what_was_kept_or_the_log_and_may_only_look(
    runs: Runs, called: Called, job: str, more: tuple[str, ...], redriven: object
) -> None:
    code, out, _ = called("redrive", job, *more)
    assert (code, runs.redriven) == (0, redriven)
    assert "Nothing is in quarantine" in out
    assert ("34,000 offsets" in out) == ("--dry-run" not in more)


def test_a_dry_run_says_nothing_of_the_log(runs: Runs, called: Called, job: str) -> None:
    code, _, said = called("redrive", job, "--from-log", "--dry-run")
    assert (code, runs.redriven) == (64, None)
    assert "Omit one of the two" in said


@pytest.mark.parametrize("more", [BOUNDS, ("--replace",), ("--until", "latest")])
def test_what_is_missing_is_not_a_matter_of_bounds(
    runs: Runs, called: Called, job: str, more: tuple[str, ...]
) -> None:
    code, _, said = called("backfill", job, "--missing", *more)
    assert (code, runs.asked) == (64, [])
    assert "--missing" in said


@pytest.mark.parametrize(
    ("command", "asked", "key"),
    [
        (("plan",), "preview", "hash"),
        (("run",), "run", "table_version"),
        (("backfill", *BOUNDS), "backfill", "already_landed"),
        (("backfill", *BOUNDS, "--dry-run"), "preview", "hash"),
        (("backfill", *BOUNDS, "--replace"), "backfill", "replaced"),
        (("backfill", "--missing"), "backfill", "already_landed"),
        (("redrive",), "redrive", "quarantine"),
        (("redrive", "--dry-run"), "redrive", "quarantine"),
        (("status",), "status", "live_plans"),
        (("check",), "check", "findings"),
    ],
)
def test_json_is_all_there_is_on_stdout(
    runs: Runs, job: str, called: Called, command: tuple[str, ...], asked: str, key: str
) -> None:
    code, out, err = called(command[0], job, *command[1:], "--json")
    assert code == 0
    assert out.count("\n") == 1
    assert key in json.loads(out)
    assert [name for name, _ in runs.asked] == [asked]
    assert runs.sparks == 1
    assert "asking 3 brokers" in err


def test_what_others_print_goes_to_stderr_under_json(runs: Runs, job: str, called: Called) -> None:
    _, out, err = called("run", job, "--json")
    assert json.loads(out)["landed"] == 33_985
    assert "a JVM says hello" in err
    assert "a transform says hello" in err


def test_without_json_the_picture_is_on_stdout_and_progress_is_not(
    runs: Runs, job: str, called: Called
) -> None:
    code, out, err = called("run", job)
    assert code == 0
    assert "34,000 offsets = 33,985 landed + 5 control + 10 aborted" in out
    assert "asking 3 brokers" in err
    assert "asking" not in out


def test_quiet_says_nothing_on_the_way(runs: Runs, job: str, called: Called) -> None:
    assert called("status", job, "-q")[2] == ""


def test_flags_reach_the_job(runs: Runs, job: str, called: Called) -> None:
    called("run", job, "--until", "2026-01-31", "--set", "limits.max_records=7", "--json")
    asked = runs.asked[0][1]
    assert asked.limits.max_records == 7
    assert asked.range.until.default.time_ms == 1_769_817_600_000


OUR_ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.RangelandError)
]


@pytest.mark.parametrize("kind", OUR_ERRORS)
def test_every_error_of_ours_ends_with_its_exit_code_and_json(
    runs: Runs, job: str, called: Called, kind: type[errors.RangelandError]
) -> None:
    runs.raises = kind("orders/7 is\ngone", why="a cause", do="Do this", offset=3)
    code, out, _ = called("run", job, "--json")
    answer = json.loads(out.splitlines()[-1])
    assert code == answer["exit"] == kind.exit_code
    assert answer["error"] == kind.__name__
    assert answer["message"] == runs.raises.message
    assert (answer["data"], answer["retry"], answer["acts"]) == (kind.data, kind.retry, kind.acts)
    assert answer["facts"] == {"offset": 3}


def test_an_error_for_people_is_on_stderr_only(runs: Runs, job: str, called: Called) -> None:
    runs.raises = errors.Unreachable("b1:9092 does not answer", why="refused", do="Try later")
    code, out, err = called("status", job)
    assert code == 75
    assert out == ""
    for answer in ("b1:9092 does not answer", "Refused.", "Try later", "yes, later"):
        assert answer in err


def test_an_unexpected_exception_is_a_bug_without_a_traceback(
    runs: Runs, job: str, called: Called
) -> None:
    runs.raises = ValueError("what now")
    code, out, err = called("run", job, "--json")
    answer = json.loads(out)
    assert (code, answer["error"], answer["exit"]) == (70, "Bug", 70)
    assert "ValueError: what now" in answer["message"]
    assert "Traceback" not in err
    _, _, err = called("run", job, "--debug")
    assert "Traceback" in err
    assert "what now" in err


def test_what_breaks_under_an_interruption_is_one(runs: Runs, job: str, called: Called) -> None:
    for broken in (ValueError("cancelled"), errors.EngineFailed("Spark lost its executors")):
        runs.raises = broken
        runs.raises.__context__ = KeyboardInterrupt()
        code, out, _ = called("run", job, "--json")
        assert (code, json.loads(out)["error"]) == (130, "Interrupted")


def test_an_error_that_is_its_own_cause_ends(runs: Runs, job: str, called: Called) -> None:
    runs.raises = ConnectionResetError("gone")
    runs.raises.__cause__ = OSError("first")
    runs.raises.__cause__.__context__ = runs.raises
    assert called("run", job, "--json")[0] == 70


def test_a_jvm_that_has_gone_is_worth_another_try(runs: Runs, job: str, called: Called) -> None:
    asked = compile("raise ConnectionRefusedError('refused')", "/lib/py4j/clientserver.py", "exec")
    with pytest.raises(ConnectionRefusedError) as gone:
        exec(asked)
    runs.raises = gone.value
    code, out, _ = called("run", job, "--json")
    answer = json.loads(out)
    assert (code, answer["error"]) == (75, "EngineFailed")
    assert answer["message"].startswith("The JVM that runs Spark has gone: ")
    assert answer["data"] == errors.ALL_OR_NOTHING


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan"],
        ["plan", "JOB", "--nope"],
        ["plan", "JOB", "--out"],
        ["plan", "JOB", "--from", "yesterday"],
        ["plan", "JOB", "--until", "checkpoint"],
        ["plan", "JOB", "--from", '{"orders": '],
        ["plan", "JOB", "--from", '{"payments": {"0": 1}}'],
        ["run", "JOB", "--set", "limits.max_records"],
        ["run", "JOB", "--set", "limits.max_records=[1"],
        ["plan", "JOB", "--out", "/nowhere/at/all/plan.json"],
        ["plan", "JOB", "one", "more"],
        ["backfill", "JOB"],
        ["backfill", "JOB", "--from", "checkpoint", "--until", "latest"],
        ["apply", "a", "b", "c"],
        ["apply", "/nowhere/plan.json"],
        ["run", ""],
        ["status", "JOB", ""],
        ["check", ""],
        ["submit", ""],
        ["apply", ""],
        ["apply", "JOB", ""],
        ["reached", "JOB", "--idle-after", "5m"],
        ["demo", "--records", "many"],
        ["demo", "--records", "1"],
        ["launch"],
        ["--nope"],
        [],
    ],
)
def test_a_mistyped_command_ends_with_64_and_starts_nothing(
    runs: Runs, job: str, called: Called, arguments: list[str]
) -> None:
    given = [job if a == "JOB" else a for a in arguments]
    code, out, err = called(*given, "--json")
    answer = json.loads(out)
    assert (code, answer["exit"], answer["error"]) == (64, 64, "UsageError")
    assert err == ""
    code, _, err = called(*given)
    assert code == 64
    assert runs.sparks == 0
    assert runs.asked == []


@pytest.mark.parametrize("seconds", ["inf", "-inf", "nan", "1e400", "1e308", "5m", "-1", ""])
def test_the_time_after_which_a_log_is_idle_is_a_number_of_seconds(
    job: str, called: Called, seconds: str
) -> None:
    code, out, _ = called("reached", job, f"--idle-after={seconds}", "--json")
    assert code == 64
    message = json.loads(out)["message"]
    assert f"--idle-after {seconds} is not a length of time" in message
    assert "ive a number of seconds, such as 300" in message


@pytest.mark.parametrize("content", [None, "job: [", "job: orders\n", "- a\n"])
def test_a_bad_job_file_ends_with_78_before_spark(
    runs: Runs, called: Called, tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "bad.yaml"
    if content is not None:
        path.write_text(content)
    code, out, _ = called("run", str(path), "--json")
    answer = json.loads(out)
    assert (code, answer["error"]) == (78, "JobFileError")
    assert "bad.yaml" in answer["message"]
    assert runs.sparks == 0


@pytest.mark.parametrize(
    "command", [["run"], ["plan"], ["redrive"], ["backfill", "--missing"]], ids=" ".join
)
def test_a_schema_that_cannot_be_used_ends_with_78_before_spark(
    runs: Runs, called: Called, tmp_path: Path, command: list[str]
) -> None:
    path = tmp_path / "typed.yaml"
    schema = tmp_path / "orders.ddl"
    path.write_text(
        "job: orders\nsource: {servers: [b:9092], topics: [orders]}\nsink: {table: lake/orders}\n"
        f"decode: {{value: {{format: json, schema: {schema}}}}}\n"
    )
    _, out, _ = called(command[0], str(path), *command[1:], "--json")
    assert f"the schema file {schema} cannot be read" in json.loads(out)["message"]
    schema.write_text("id BIGNT")
    code, out, _ = called(command[0], str(path), *command[1:], "--json")
    assert (code, json.loads(out)["error"]) == (78, "JobFileError")
    assert "BIGNT is not a type" in json.loads(out)["message"]
    assert runs.sparks == 0


def test_a_check_that_is_not_well_ends_with_the_code_of_what_it_found(
    runs: Runs, job: str, called: Called
) -> None:
    runs.well = False
    code, out, _ = called("check", job, "--json")
    assert code == 75
    assert json.loads(out)["ok"] is False


def test_plan_out_then_apply_does_exactly_that(
    runs: Runs, job: str, called: Called, tmp_path: Path
) -> None:
    file = str(tmp_path / "plan.json")
    code, out, err = called("plan", job, "--out", file, "--json")
    assert code == 0
    assert f"rangeland apply {file}" in err
    code, _, _ = called("apply", file, "--json")
    assert code == 0
    assert runs.plan is not None
    assert runs.plan.hash == json.loads(out)["hash"]
    assert runs.asked[-1] == ("apply", Job.load(job))


def test_apply_takes_the_same_job_for_other_servers_only(
    runs: Runs, job: str, called: Called, tmp_path: Path
) -> None:
    file = str(tmp_path / "plan.json")
    called("plan", job, "--out", file)
    Path(job).write_text(made.JOB_YAML.replace("127.0.0.1:9092", "b2:9092"))
    assert called("apply", job, file)[0] == 0
    assert runs.asked[-1][1].source.servers == ("b2:9092",)
    Path(job).write_text(made.JOB_YAML.replace("lake/orders", "lake/other"))
    code, out, _ = called("apply", job, file, "--json")
    assert code == 73
    assert json.loads(out)["facts"]["fields"] == ["sink"]


def test_apply_takes_settings_for_other_servers_only(
    runs: Runs, job: str, called: Called, tmp_path: Path
) -> None:
    file = str(tmp_path / "plan.json")
    called("plan", job, "--out", file)
    for files in ([file], [job, file]):
        assert called("apply", *files, "--set", "source.servers=[b2:9092]")[0] == 0
        assert runs.asked[-1][1].source.servers == ("b2:9092",)
        code, out, _ = called("apply", *files, "--set", "sink.table=lake/other", "--json")
        assert (code, json.loads(out)["facts"]["fields"]) == (73, ["sink"])
        assert "--set sink.table=lake/other" in json.loads(out)["message"]
        assert called("apply", *files, "--set", "sink")[0] == 64
        assert called("apply", *files, "--set", "sink.tables=x")[0] == 78


def test_apply_lands_in_the_table_that_was_reviewed_from_whatever_folder(
    runs: Runs, job: str, called: Called, tmp_path: Path
) -> None:
    runs.location = "file:/srv/lake/orders"
    file = str(tmp_path / "plan.json")
    called("plan", job, "--out", file)
    for files in ([file], [job, file]):
        assert called("apply", *files)[0] == 0
        assert runs.asked[-1][1].sink.table == "file:/srv/lake/orders"


def test_an_edited_plan_file_is_refused(
    runs: Runs, job: str, called: Called, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    called("plan", job, "--out", str(file))
    file.write_text(file.read_text().replace("26000", "36000"))
    assert called("apply", str(file))[0] == 73
    assert runs.plan is None


def test_a_secret_is_never_printed(
    runs: Runs, job: str, called: Called, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", "hunter2")
    file = tmp_path / "plan.json"
    said = [*called("plan", job, "--out", str(file), "--json"), *called("run", job, "--debug")]
    Path(job).write_text(made.JOB_YAML.replace("${env:ORDERS_PASSWORD}", "hunter2"))
    said += [*called("run", job, "--json"), *called("run", job, "--debug"), file.read_text()]
    assert not any("hunter2" in str(text) for text in said)


def test_an_interruption_says_what_was_written(runs: Runs, job: str, called: Called) -> None:
    runs.raises = KeyboardInterrupt()
    code, out, err = called("run", job)
    assert code == 130
    assert "nothing was landed" in err
    code, out, _ = called("plan", job, "--json")
    answer = json.loads(out)
    assert (code, answer["exit"], answer["error"]) == (130, 130, "Interrupted")
    assert "read-only" in answer["message"]


@pytest.mark.parametrize("command", ["run", "backfill", "redrive", "adopt", "mirror"])
@pytest.mark.parametrize(
    "module", ["rangeland.job.command_line_overrides", "rangeland.job.job_text"]
)
def test_an_interruption_before_the_job_is_read_is_not_called_read_only(
    job: str, called: Called, monkeypatch: pytest.MonkeyPatch, command: str, module: str
) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == module:
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    code, out, _ = called(command, job, "--set", "job=a", "--json")
    message = json.loads(out)["message"]
    assert code == 130
    assert "nothing was landed" in message
    assert "read-only" not in message


def test_an_interruption_while_reading_names_the_plan(
    runs: Runs, job: str, called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(job: Job, spark: object, progress: Any) -> None:
        progress.planned(made.a_preview().draft.plan, False)
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "run", begun)
    code, out, _ = called("run", job, "--json")
    answer = json.loads(out)
    assert code == 130
    assert "plan 12 of rangeland/orders" in answer["message"]
    assert "all of its records or none" in answer["message"]
    assert answer["data"] == errors.ALL_OR_NOTHING


@pytest.mark.parametrize(
    ("command", "data"),
    [
        ("run", "no rows from this run were landed"),
        ("plan", "the table and its ledger are as before"),
    ],
)
def test_an_interruption_answers_what_every_error_answers(
    runs: Runs, job: str, called: Called, command: str, data: str
) -> None:
    runs.raises = KeyboardInterrupt()
    interrupted = json.loads(called(command, job, "--json")[1])
    assert list(interrupted) == list(errors.error_json(errors.Bug("x")))
    assert (interrupted["data"], interrupted["facts"]) == (data, {})
    assert interrupted["retry"] == "yes, with the same command"
    assert interrupted["acts"]


# --- as a process -----------------------------------------------------------------------


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rangeland", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_help_names_every_command_and_loads_nothing_heavy() -> None:
    heavy = ["pyspark", "pyarrow", "pydantic", "rich", "yaml", "numpy", "confluent_kafka"]
    code = (
        "import sys; from rangeland.cli.command_line import main; code = main(['--help']); "
        f"print(code, [m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"
    for command in ("check", "plan", "run", "apply", "backfill", "status", "demo"):
        assert f"  {command} " in done.stdout


HELPED = ["check", "plan", "run", "apply", "backfill", "status", "report", "demo"]


@pytest.mark.parametrize("command", HELPED)
def test_every_command_has_help_with_an_example(called: Called, command: str) -> None:
    code, out, _ = called(command, "--help")
    assert code == 0
    assert f"  rangeland {command}" in out
    assert "--json" in out


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("run", "JOB.yaml..."),
        ("apply", "[JOB.yaml] PLAN.json"),
        ("find", "JOB.yaml TOPIC PARTITION OFFSET"),
    ],
)
def test_arguments_are_shown_as_they_are_typed(called: Called, command: str, typed: str) -> None:
    _, out, _ = called(command, "--help")
    assert f"Usage: rangeland {command} [OPTIONS] {typed}\n" in out
    assert "<" not in out.partition("Arguments:")[2].partition("Options:")[0]


@pytest.mark.parametrize("wrong", [["--from"], ["--nope"], []])
def test_a_mistyped_command_names_its_own_help(called: Called, wrong: list[str]) -> None:
    assert "See `rangeland run --help`" in called("run", *wrong)[2]


def test_the_version_is_one_line() -> None:
    done = process("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("rangeland ")


def test_a_process_ends_with_the_exit_code_and_one_line_of_json(tmp_path: Path) -> None:
    done = process("plan", str(tmp_path / "nowhere.yaml"), "--json")
    assert done.returncode == 78
    assert json.loads(done.stdout)["error"] == "JobFileError"
    assert done.stderr == ""


@pytest.mark.parametrize("in_destructor", [False, True])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_process_with_its_sentence(
    job: str, tmp_path: Path, number: int, code: int, in_destructor: bool
) -> None:
    """Python drops what is raised in a destructor."""
    waiting = "type('Held', (), {'__del__': wait})(); wait()" if in_destructor else "wait()"
    ready = tmp_path / "ready"
    program = (
        "import signal, sys, time, types, pathlib\n"
        "from rangeland import run as commands\n"
        "from rangeland.cli import command_line\n"
        # A shell that starts the tests in its background has children ignore this signal.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def wait(*_):\n"
        f"    pathlib.Path({str(ready)!r}).touch(); time.sleep(60)\n"
        "def run(job, spark, progress):\n"
        f"    {waiting}\n"
        "commands.run = run\n"
        "reachable = types.SimpleNamespace(check_brokers_answer=lambda job: None)\n"
        "sys.modules['rangeland.cluster_access.broker_check'] = reachable\n"
        "fake = types.SimpleNamespace(open_deferred=lambda name, **_: name)\n"
        "sys.modules['rangeland.spark.spark_session'] = fake\n"
        f"sys.exit(command_line.main(['run', {job!r}, '--json']))\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        deadline = time.monotonic() + PATIENCE_S
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        child.send_signal(number)
        out, err = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == code
    assert json.loads(out)["exit"] == code
    assert b"Traceback" not in err
