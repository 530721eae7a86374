"""What is shipped to a cluster, the command that ships it, and what is refused before."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rangeland.cli import command_line
from rangeland.decode.native import native_library
from rangeland.errors import (
    EngineFailed,
    JobFileError,
    MissingRequirement,
    RangelandError,
    StorageFailed,
    Unreachable,
    UsageError,
)
from rangeland.job import Job
from rangeland.job.command_line_overrides import load_job
from rangeland.job.payload_formats import make_row_format
from rangeland.jvm.java import find_java
from rangeland.spark import python_workers, spark_errors, spark_session
from rangeland.spark.supported_versions import NEWEST, RuntimeVersions, check_versions_are_supported
from rangeland.submit import packed_environment, shipped_files
from rangeland.submit.submission import (
    ShippedFiles,
    Submission,
    SubmitChoices,
    check_choices_can_work,
    submission,
)
from rangeland.testing.processes import PATIENCE_S

JOB = """
job: orders
source: {servers: ["127.0.0.1:9092"], topics: [orders]}
sink: {table: lake/orders}
"""


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "orders.yaml"
    path.write_text(JOB)
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "dist"


# --- the zip ----------------------------------------------------------------------------


def test_the_zip_holds_the_package_and_its_kernel(out: Path) -> None:
    names = zipfile.ZipFile(shipped_files.make_zip(out)).namelist()
    assert f"rangeland/decode/native/{native_library.library_name()}" in names
    assert {"rangeland/spark/executor_tasks.py", "pyspark_rangeland.py"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.endswith(".c")]
    assert not [name for name in names if name.startswith("rangeland/testing/")]


def test_the_zip_of_the_same_files_has_the_same_bytes(out: Path) -> None:
    first = shipped_files.make_zip(out).read_bytes()
    assert shipped_files.make_zip(out).read_bytes() == first
    assert [path.name for path in out.iterdir()] == ["rangeland-0.1.0.zip"]


def test_a_package_without_kernel_is_not_shipped(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped_files, "library_name", lambda: "_kernel-plan9-sparc.so")
    with pytest.raises(UsageError, match="no compiled kernel"):
        shipped_files.make_zip(out)
    assert not out.exists()


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "dist").write_text("a file")
    with pytest.raises(StorageFailed, match="--out"):
        shipped_files.make_zip(tmp_path / "dist")


def test_the_kernel_loads_from_a_zip_where_an_executor_has_it(out: Path, tmp_path: Path) -> None:
    """Spark puts the archive on the path as ``FOLDER/./rangeland.zip``."""
    archive = shipped_files.make_zip(out)
    code = (
        f"import sys; sys.path.insert(0, {str(archive.parent)!r} + '/./' + {archive.name!r})\n"
        "from rangeland.decode.native import native_library\n"
        "from rangeland.dialects import dialect\n"
        "assert '/./' in native_library.__file__, native_library.__file__\n"
        "assert native_library.load_library()\n"
        "assert dialect.load_dialect('kafka')\n"
    )
    cache = tmp_path / "cache"
    cache.mkdir()
    subprocess.run(
        [sys.executable, "-c", code],
        env={"TMPDIR": str(cache), "PYTHONPATH": ""},
        check=True,
        timeout=PATIENCE_S,
    )
    assert len(list(cache.glob("rangeland-*/_kernel-*"))) == 1


def test_a_worker_without_a_folder_to_write_in_says_what_to_set(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = Path(native_library.__file__).with_name(native_library.library_name()).read_bytes()
    monkeypatch.setattr(
        native_library, "__file__", "/no.zip/rangeland/decode/native/native_library.py"
    )
    monkeypatch.setattr(native_library, "_read_from_archive", lambda path: content)
    monkeypatch.setattr(tempfile, "tempdir", str(out / "not-there"))
    with pytest.raises(StorageFailed, match=r"spark\.executorEnv\.TMPDIR"):
        native_library.load_library()


def test_jars_that_spark_has_in_any_version_are_not_shipped(tmp_path: Path) -> None:
    for name in ("hadoop-client-api-3.5.0.jar", "jackson-core-2.21.2.jar"):
        (tmp_path / name).touch()
    jars = [
        Path("/cache", name)
        for name in (
            "delta-spark_4.2_2.13-4.4.0.jar",
            "hadoop-client-api-3.4.2.jar",
            "jackson-core-2.13.5.jar",
            "jackson-datatype-jdk8-2.13.5.jar",
        )
    ]
    assert shipped_files.jars_beyond(tmp_path, jars) == [jars[0], jars[3]]


# --- a transform's module ---------------------------------------------------------------


def test_a_transforms_module_is_found_beside_the_job(tmp_path: Path, out: Path) -> None:
    (tmp_path / "my_shape.py").write_text("raise SystemExit('it is not to be imported')")
    files = shipped_files.transform_files("my_shape:of", [tmp_path], out)
    assert files == [tmp_path / "my_shape.py"]


def test_a_transforms_package_is_zipped_whole(tmp_path: Path, out: Path) -> None:
    for name in ("__init__.py", "inner/__init__.py"):
        path = tmp_path / "shapes" / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (found,) = shipped_files.transform_files("shapes.inner:of", [tmp_path], out)
    assert zipfile.ZipFile(found).namelist() == ["shapes/__init__.py", "shapes/inner/__init__.py"]


def test_an_installed_transform_is_not_shipped(out: Path) -> None:
    assert shipped_files.transform_files("pytest:main", [], out) == []


def test_a_transform_that_is_nowhere_is_reported(tmp_path: Path, out: Path) -> None:
    with pytest.raises(JobFileError, match="my_shape"):
        shipped_files.transform_files("my_shape:of", [tmp_path], out)


# --- an environment ---------------------------------------------------------------------


def test_a_packed_environment_runs_where_it_is_unpacked(out: Path, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    with tarfile.open(packed_environment.pack_environment(out, ["crc32c"])) as archive:
        archive.extractall(place, filter="tar")
    code = "import crc32c, rangeland.errors as e, sys; print(crc32c.__file__, e.__file__, sys.path)"
    shown = subprocess.run(
        [place / "bin" / "python", "-c", code],
        env={},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
    ).stdout
    site = f"{place}/{packed_environment.SITE}"
    assert shown.startswith(f"{site}/crc32c/__init__.py {site}/rangeland/errors.py")
    assert sys.prefix not in shown


def test_a_distribution_that_is_not_installed_is_not_packed(out: Path) -> None:
    with pytest.raises(UsageError, match="pip install no-such-thing"):
        packed_environment.pack_environment(out, ["no_such_thing"])


# --- the command ------------------------------------------------------------------------


DELTA = NEWEST.builds["2.13"].package


def made(job_file: Path, **choices: Any) -> Submission:
    chosen = replace(SubmitChoices("spark://one:7077", DELTA), **choices)
    shipped = ShippedFiles(Path("dist/a.zip"), Path("jobs/land.py"), (), ("linux-x86_64",))
    return submission(Job.load(job_file), job_file, chosen, shipped)


def settings_of(command: list[str]) -> dict[str, str]:
    values = [value for flag, value in pairwise(command) if flag == "--conf"]
    return dict(value.split("=", 1) for value in values)


def test_a_zip_goes_to_driver_and_tasks(job_file: Path) -> None:
    command = made(job_file).command
    assert command[command.index("--py-files") + 1] == "dist/a.zip"
    assert command[command.index("--packages") + 1] == DELTA
    assert command[-2:] == ["jobs/land.py", str(job_file)]
    assert "--files" not in command  # the driver is here


def test_a_packed_environment_is_the_tasks_python_and_not_the_drivers(job_file: Path) -> None:
    command = made(job_file, env="packed").command
    assert command[command.index("--archives") + 1] == "dist/a.zip#environment"
    assert "--py-files" not in command
    settings = settings_of(command)
    assert settings["spark.pyspark.python"] == "./environment/bin/python"
    assert settings["spark.pyspark.driver.python"] == sys.executable


def test_delta_kernel_is_shipped_beside_an_environment(job_file: Path) -> None:
    chosen = SubmitChoices(
        "yarn", DELTA, deploy_mode="cluster", env="packed", delta_kernel=Path("/k")
    )
    shipped = ShippedFiles(
        Path("a.tar.gz"), Path("land.py"), delta_kernel=Path("d/delta-kernel-4.4.0.zip")
    )
    command = submission(Job.load(job_file), job_file, chosen, shipped).command
    archives = "a.tar.gz#environment,d/delta-kernel-4.4.0.zip#delta-kernel-4.4.0"
    assert command[command.index("--archives") + 1] == archives
    assert settings_of(command)["spark.rangeland.kernelJars"] == "delta-kernel-4.4.0"


def test_a_driver_here_finds_delta_kernel_in_a_folder(job_file: Path) -> None:
    command = made(job_file, delta_kernel=Path("/cache/delta-kernel-4.4.0")).command
    assert settings_of(command)["spark.rangeland.kernelJars"] == "/cache/delta-kernel-4.4.0"
    assert "--archives" not in command


def test_a_driver_in_the_cluster_gets_its_job_file_by_name(job_file: Path) -> None:
    command = made(job_file, master="yarn", deploy_mode="cluster", env="packed").command
    assert command[command.index("--files") + 1] == str(job_file)
    assert command[-1] == job_file.name
    assert "spark.pyspark.driver.python" not in settings_of(command)


def test_a_driver_in_the_cluster_is_said_to_keep_its_exit_code(job_file: Path) -> None:
    def says_so(**choices: str) -> bool:
        return any("exit code" in note for note in made(job_file, master="yarn", **choices).notes)

    assert says_so(deploy_mode="cluster")
    assert not says_so()


SECURED = JOB.replace(
    "topics: [orders]",
    "topics: [orders], security: {tls: {ca: pem/ca.pem, certificate: /c/me.pem, key: /k/me.key},"
    " sasl: {mechanism: SCRAM-SHA-256, username: u, password: '${env:P}'}}",
)


def test_a_driver_in_the_cluster_is_said_to_need_its_secrets_there(job_file: Path) -> None:
    def says_so(**choices: str) -> bool:
        notes = made(job_file, master="yarn", **choices).notes
        return any("${env:P}" in note and "not shipped" in note for note in notes)

    assert not says_so(deploy_mode="cluster")
    job_file.write_text(SECURED)
    assert says_so(deploy_mode="cluster")
    assert not says_so()


def test_pem_files_go_to_executors_in_one_flag_with_the_job_file(job_file: Path) -> None:
    job_file.write_text(SECURED)
    here = (Path("/here/ca.pem"), Path("/k/me.key"))
    shipped = ShippedFiles(Path("a.zip"), Path("land.py"), files=here)

    def sent(choices: SubmitChoices) -> list[str]:
        command = submission(Job.load(job_file), job_file, choices, shipped).command
        return [value for flag, value in pairwise(command) if flag == "--files"]

    assert sent(SubmitChoices("spark://one:7077", DELTA)) == ["/here/ca.pem,/k/me.key"]
    both = sent(SubmitChoices("yarn", DELTA, deploy_mode="cluster", env="packed"))
    assert both == [f"{job_file},/here/ca.pem,/k/me.key"]
    assert sent(SubmitChoices("local[2]", DELTA)) == []


def test_pem_files_that_are_not_here_and_keys_that_travel_are_noted(job_file: Path) -> None:
    job_file.write_text(SECURED)
    shipped = ShippedFiles(Path("a.zip"), Path("land.py"), files=(Path("/k/me.key"),))
    made = submission(
        Job.load(job_file), job_file, SubmitChoices("spark://one:7077", DELTA), shipped
    )
    (absent,) = (note for note in made.notes if "/c/me.pem" in note)
    assert "source.security.tls.certificate is not on this machine" in absent
    assert any("private key" in note for note in made.notes)


def test_two_files_of_one_name_are_refused(job_file: Path) -> None:
    shipped = ShippedFiles(
        Path("a.zip"), Path("land.py"), files=(Path("/a/x.pem"), Path("/b/x.pem"))
    )
    with pytest.raises(UsageError, match="cannot both be shipped"):
        submission(Job.load(job_file), job_file, SubmitChoices("spark://one:7077", DELTA), shipped)


def test_submit_ships_the_pem_files_that_are_here(
    job_file: Path, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job_file.write_text(SECURED.replace("pem/ca.pem", str(job_file)))
    words = ["submit", str(job_file), "--master", "spark://one:7077", "--out", str(out), "--json"]
    assert command_line.main(words) == 0
    command = json.loads(capfd.readouterr().out.splitlines()[-1])["command"]
    assert command[command.index("--files") + 1] == str(job_file)


def test_the_packages_of_a_login_are_named_where_hosts_bring_their_own(job_file: Path) -> None:
    def says_so() -> bool:
        return any("crc32c and scramp" in note for note in made(job_file).notes)

    assert not says_so()
    job_file.write_text(SECURED)
    assert says_so()


def test_jars_take_the_place_of_packages(job_file: Path) -> None:
    command = made(job_file, jars=(Path("/a.jar"), Path("/b.jar"))).command
    assert command[command.index("--jars") + 1] == "/a.jar,/b.jar"
    assert "--packages" not in command


def test_dynamic_allocation_tracks_shuffles_and_speculation_is_one_flag(job_file: Path) -> None:
    settings = settings_of(made(job_file, speculation=True, dynamic_allocation=True).command)
    assert settings["spark.speculation"] == "true"
    assert settings["spark.dynamicAllocation.enabled"] == "true"
    assert settings["spark.dynamicAllocation.shuffleTracking.enabled"] == "true"


def words_of(text: str, folder: Path) -> list[str]:
    """The command as a shell gives it to spark-submit."""
    program = folder / "spark-submit"
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    program.chmod(0o755)
    path = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    shell = ["/bin/sh", "-e", "-c", text]
    done = subprocess.run(shell, env=path, check=True, stdout=subprocess.PIPE, text=True)
    return ["spark-submit", *done.stdout.splitlines()]


def test_a_shell_reads_the_printed_command_as_it_was_made(job_file: Path, tmp_path: Path) -> None:
    found = made(job_file, conf=("spark.x=a b'c",))
    text = found.to_shell()
    assert words_of(text, tmp_path) == found.command
    for flag in found.flags[1:]:
        assert flag.why in text


def test_a_local_path_on_a_cluster_is_noted(job_file: Path) -> None:
    assert any("lake/orders" in note for note in made(job_file).notes)
    assert not any("lake/orders" in note for note in made(job_file, master="local[2]").notes)


@pytest.mark.parametrize(
    "choices",
    [
        SubmitChoices("spark://one:7077", DELTA, deploy_mode="cluster"),
        SubmitChoices("k8s://https://one:6443", DELTA, deploy_mode="cluster"),
        SubmitChoices("local[2]", DELTA, deploy_mode="cluster"),
        SubmitChoices("yarn", DELTA, deploy_mode="both"),
        SubmitChoices("yarn", DELTA, env="conda"),
        SubmitChoices("local[2]", DELTA, env="packed"),
        SubmitChoices("yarn", DELTA, conf=("spark.x",)),
    ],
)
def test_what_no_cluster_can_do_is_refused(choices: SubmitChoices) -> None:
    with pytest.raises(UsageError):
        check_choices_can_work(choices)


# --- the command line -------------------------------------------------------------------


def test_submit_prints_its_command_and_makes_what_it_names(
    job_file: Path, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["submit", str(job_file), "--master", "spark://one:7077", "--out", str(out)]
    assert command_line.main([*words, "--until", "2026-01-31", "--json"]) == 0
    answer = json.loads(capfd.readouterr().out.splitlines()[-1])
    command = answer["command"]
    assert command[0] == "spark-submit"
    assert command[-3:] == [str(out / "land.py"), str(job_file), "--until=2026-01-31"]
    assert all(entry["why"] for entry in answer["explained"])
    assert Path(answer["package"]).is_file()
    assert command_line.main(words) == 0
    shown = capfd.readouterr().out
    assert words_of(shown, out.parent)[-1] == str(job_file)


def test_a_driver_in_the_cluster_gets_its_job_as_one_file(
    tmp_path: Path, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "base.yaml").write_text(JOB)
    job = tmp_path / "child.yaml"
    job.write_text("extends: base.yaml\njob: child\n")
    words = ["submit", str(job), "--master", "yarn", "--deploy-mode", "cluster"]
    assert command_line.main([*words, "--until", "2026-01-31", "--out", str(out), "--json"]) == 0
    command = json.loads(capfd.readouterr().out.splitlines()[-1])["command"]
    sent = Path(command[command.index("--files") + 1])
    assert sent.name in command
    alone = sent.rename(tmp_path / "alone.yaml")
    (tmp_path / "base.yaml").unlink()
    found = Job.load(alone)
    assert (found.name, found.source.topics) == ("child", ("orders",))


def shipped_job(
    words: list[str],
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Job, list[str]]:
    """The job that a driver in a cluster loads from the shipped files alone, in its working
    directory ``folder``, and the notes of its submission."""
    out = folder.with_name("dist")
    cluster = ["--master", "yarn", "--deploy-mode", "cluster", "--out", str(out), "--json"]
    assert command_line.main(["submit", *words, *cluster]) == 0
    answer = json.loads(capfd.readouterr().out.splitlines()[-1])
    command = answer["command"]
    folder.mkdir()
    for sent in command[command.index("--files") + 1].split(","):
        (folder / Path(sent).name).write_bytes(Path(sent).read_bytes())
    monkeypatch.chdir(folder)
    settings = [word.removeprefix("--set=") for word in command if word.startswith("--set=")]
    name = command[command.index(str(out / "land.py")) + 1]
    return load_job(Path(name), settings)[0], answer["notes"]


TYPED = (
    JOB + "decode: {key: {format: json, schema: keys/order.ddl}, "
    "value: {format: json, schema: values/order.ddl}}"
)
SCHEMA_FILES = {
    "keys/order.ddl": "id BIGINT",
    "values/order.ddl": "name STRING",
    "order.proto": 'syntax = "proto3"; package shop;\nimport "parts/line.proto";\n'
    "message Order {Line line = 1;}",
    "parts/line.proto": 'syntax = "proto3"; package shop; message Line {int64 sku = 1;}',
}


@pytest.mark.parametrize(
    "settings",
    [[], ["decode.value={format: protobuf, schema: order.proto, message: shop.Order}"]],
    ids=["json", "protobuf"],
)
def test_a_driver_in_the_cluster_gets_its_schema_files(
    job_file: Path,
    settings: list[str],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(job_file.parent)
    job_file.write_text(TYPED)
    for name, text in SCHEMA_FILES.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    here = make_row_format(load_job(job_file, settings)[0])
    words = [str(job_file), *(f"--set={setting}" for setting in settings)]
    job, _ = shipped_job(words, job_file.with_name("driver"), capfd, monkeypatch)
    assert here is not None
    assert make_row_format(job) == here


def test_a_schema_file_that_is_not_here_is_noted(
    job_file: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job_file.write_text(TYPED.replace("values/", "/not/here/").replace("keys/", "/nor/here/"))
    job, notes = shipped_job([str(job_file)], job_file.with_name("driver"), capfd, monkeypatch)
    assert job.decode.value.schema_ == "/not/here/order.ddl"
    (absent,) = (note for note in notes if "/not/here/order.ddl" in note)
    assert "decode.value.schema is not on this machine" in absent


def test_submit_finds_mistakes_in_the_job_before_anything_is_made(
    job_file: Path, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job_file.write_text(JOB.replace("topics", "topcis"))
    assert command_line.main(["submit", str(job_file), "--out", str(out), "--json"]) == 78
    assert not out.exists()


@pytest.fixture
def old_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    return java


def test_submit_runs_nothing_with_a_java_that_is_too_old(
    old_java: Path, job_file: Path, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["submit", str(job_file), "--out", str(out), "--run", "--json"]) == 64
    answer = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert "version 11" in answer["message"]
    assert "JAVA_HOME" in answer["message"]


class SubmitRun:
    """A process of ``rangeland submit --run`` whose spark-submit is a shell script."""

    def __init__(self, job_file: Path, script: str) -> None:
        self.folder = job_file.parent
        for name, text in {
            "jdk/bin/java": "echo 'openjdk version \"17.0.2\" 2022-01-18' >&2\n",
            "bin/spark-submit": script,
        }.items():
            program = self.folder / name
            program.parent.mkdir(parents=True)
            program.write_text(f"#!/bin/sh\ncd {self.folder}\n{text}")
            program.chmod(0o755)
        words = ["submit", str(job_file), "--run", "--json", "--out", str(self.folder / "dist")]
        program_text = (
            "import signal, sys\n"
            "from rangeland.cli import command_line\n"
            # A shell that starts the tests in its background has children ignore this signal.
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            f"sys.exit(command_line.main({words!r}))\n"
        )
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self._process = subprocess.Popen(
            [sys.executable, "-c", program_text],
            env={**os.environ, "PATH": path, "JAVA_HOME": str(self.folder / "jdk")},
            stdout=subprocess.PIPE,
        )

    def wait_for(self, name: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not (self.folder / name).exists() and time.monotonic() < deadline:
            time.sleep(0.02)

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> tuple[int, dict[str, Any]]:
        """Waits for its end; returns its exit code, and what it printed."""
        out, _ = self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode, json.loads(out)


UNTIL_STOPPED = "touch started; while :; do sleep 0.05; done\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_submission_stops_spark_submit_and_waits_for_its_end(
    job_file: Path, number: int, code: int
) -> None:
    name = signal.Signals(number).name.removeprefix("SIG")
    run = SubmitRun(
        job_file, f"trap 'sleep 0.5; echo {name} > received; exit {code}' {name}\n{UNTIL_STOPPED}"
    )
    run.wait_for("started")
    run.send(number)
    ended, answer = run.end()
    assert (run.folder / "received").read_text() == f"{name}\n"
    assert (ended, answer["exit"], answer["error"]) == (code, code, "Interrupted")
    for claim in (answer["message"], answer["data"]):
        assert "nothing was landed" not in claim
        assert "no rows" not in claim
        assert "or none" in claim
        assert "`rangeland status`" in claim


def test_a_second_signal_kills_spark_submit(job_file: Path) -> None:
    run = SubmitRun(job_file, f"trap 'touch received' TERM\necho $$ > pid\n{UNTIL_STOPPED}")
    run.wait_for("started")
    run.send(signal.SIGTERM)
    run.wait_for("received")
    run.send(signal.SIGTERM)
    ended, answer = run.end()
    assert (ended, answer["error"]) == (143, "Interrupted")
    with pytest.raises(ProcessLookupError):
        os.kill(int((run.folder / "pid").read_text()), 0)


def test_a_submission_that_succeeds_although_it_was_to_stop_has_succeeded(job_file: Path) -> None:
    run = SubmitRun(job_file, f"trap 'exit 0' TERM\n{UNTIL_STOPPED}")
    run.wait_for("started")
    run.send(signal.SIGTERM)
    ended, answer = run.end()
    assert (ended, answer["exit"]) == (0, 0)


def test_the_exit_code_of_spark_submit_is_that_of_the_command(job_file: Path) -> None:
    ended, answer = SubmitRun(job_file, "exit 75\n").end()
    assert (ended, answer["exit"]) == (75, 75)


def test_without_a_java_there_is_word_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(UsageError, match="JAVA_HOME=/nowhere"):
        find_java()


# --- versions ---------------------------------------------------------------------------

OURS = RuntimeVersions("4.2.0", "4.2.0", "2.13.17", "17.0.15", "4.4.0")
OLDEST = {
    "pyspark": "3.5.8",
    "spark": "3.5.8",
    "scala": "2.12.18",
    "java": "11.0.13",
    "delta": "3.3.2",
}


def test_other_patch_releases_are_taken() -> None:
    check_versions_are_supported(OURS)
    check_versions_are_supported(
        replace(OURS, pyspark="4.2.1", spark="4.2.1", java="21", delta="4.4.1")
    )


@pytest.mark.parametrize(
    "other",
    [
        {"pyspark": "4.1.4", "spark": "4.1.4"},
        {"pyspark": "4.0.5", "spark": "4.0.5", "delta": "4.0.0"},
        OLDEST,
        {**OLDEST, "scala": "2.13.8", "java": "17.0.15"},
    ],
)
def test_other_sparks_are_taken_with_the_delta_that_is_made_for_them(other: dict[str, str]) -> None:
    check_versions_are_supported(replace(OURS, **other))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"spark": "4.1.0"}, "PySpark is 4.2.0 and the Spark it uses is 4.1.0"),
        (
            {"spark": "3.4.4", "pyspark": "3.4.4"},
            "Spark is 3.4.4; 3.5, 4.0, 4.1 or 4.2 is required",
        ),
        (
            {"home": "/opt/spark", "spark": "4.3.0", "pyspark": "4.3.0"},
            "Spark in /opt/spark is 4.3.0",
        ),
        ({"scala": "2.12.18"}, "Scala is 2.12.18; 2.13 is required"),
        ({"java": "1.8.0_412"}, "Java is 1.8.0_412; 17 or later is required"),
        ({**OLDEST, "java": "1.8.0_412"}, "Java is 1.8.0_412; 11 or later is required"),
        ({**OLDEST, "delta": "4.0.0"}, "Delta is 4.0.0; 3.2 or 3.3 is required"),
        ({**OLDEST, "delta": ""}, "--packages io.delta:delta-spark_2.12:3.3.2"),
        ({"delta": ""}, "--packages io.delta:delta-spark_4.2_2.13:4.4.0"),
        ({"delta": "4.3.0"}, "Delta is 4.3.0; 4.4 is required"),
    ],
)
def test_another_version_is_refused_with_what_to_do(other: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_versions_are_supported(replace(OURS, **other))
    assert words in str(caught.value)
    assert caught.value.do


def test_a_master_that_does_not_answer_is_out_of_reach() -> None:
    said = RuntimeError("IllegalStateException: Cannot call methods on a stopped SparkContext.")
    error = spark_session._start_error(said)
    assert isinstance(error, Unreachable)
    assert "--master" in error.do
    assert "a Spark other than 4.2" in error.do


def test_a_spark_that_does_not_start_is_not_the_stores_fault() -> None:
    error = spark_session._start_error(RuntimeError("BindException: Address already in use"))
    assert isinstance(error, EngineFailed)
    assert (error.exit_code, error.data) == (75, RangelandError.data)
    assert "store" not in error.acts + error.retry


# --- workers ----------------------------------------------------------------------------


def a_worker(**other: Any) -> dict[str, Any]:
    import pyspark

    from rangeland import __version__

    return {
        "host": "one",
        "python": "/usr/bin/python3",
        "failed": {},
        "kernel": None,
        "rangeland": __version__,
        "pyspark": pyspark.__version__,
        **other,
    }


def test_workers_that_have_everything_are_accepted() -> None:
    python_workers.check_workers_are_usable([a_worker(), a_worker(host="two")])


def test_a_look_tells_of_what_cannot_be_imported_and_of_what_can() -> None:
    (found,) = python_workers.import_probe(["rangeland.decode", "no_such_thing"])(iter([0]))
    assert found["failed"] == {
        "no_such_thing": "ModuleNotFoundError: No module named 'no_such_thing'"
    }
    assert found["rangeland"]


def test_all_hosts_that_lack_something_are_named() -> None:
    failed = {"pyarrow": "ModuleNotFoundError: No module named 'pyarrow'", "rangeland.decode": "x"}
    found = [a_worker(), *(a_worker(host=host, failed=failed) for host in ("two", "three", "two"))]
    with pytest.raises(MissingRequirement) as caught:
        python_workers.check_workers_are_usable(found)
    assert caught.value.facts["hosts"] == ["three", "two"]
    assert caught.value.facts["missing"] == ["pyarrow"]


class _Context:
    master, defaultParallelism = "spark://one:7077", 1

    def __init__(self, name: str) -> None:
        self.applicationId = name
        self.looked: list[set[str]] = []

    def parallelize(self, *_: int) -> _Context:
        return self

    def mapPartitions(self, look: Any) -> _Context:
        (found,) = look(iter([0]))
        self.looked.append(set(found["failed"]))
        return self

    def collect(self) -> list[dict[str, Any]]:
        return []


def test_workers_are_looked_at_for_the_packages_of_a_login_too() -> None:
    context = _Context("of-a-test")
    spark = SimpleNamespace(sparkContext=context)
    for more in ((), ("no_such_login",), ("no_such_login",)):
        python_workers.start_workers(spark, more).wait(as_unreachable)
    assert context.looked == [set(), {"no_such_login"}]


def test_a_package_of_a_login_that_workers_lack_is_named() -> None:
    failed = {"scramp": "ModuleNotFoundError: No module named 'scramp'"}
    with pytest.raises(MissingRequirement) as caught:
        python_workers.check_workers_are_usable([a_worker(failed=failed)])
    assert caught.value.facts["missing"] == ["scramp"]


@pytest.mark.parametrize("name", ["rangeland", "pyspark"])
def test_a_worker_with_another_version_is_refused(name: str) -> None:
    with pytest.raises(MissingRequirement, match=f"{name} 0.0.9"):
        python_workers.check_workers_are_usable([a_worker(**{name: "0.0.9"})])


NO_KERNEL = MissingRequirement("the kernel cannot be loaded", why="there is none", do="install it")


def test_all_hosts_without_the_kernel_are_named() -> None:
    found = [a_worker(host=host, kernel=NO_KERNEL) for host in ("two", "three", "two")]
    with pytest.raises(MissingRequirement, match=r"three, two .*there is none") as caught:
        python_workers.check_workers_are_usable([a_worker(), *found])
    assert caught.value.facts["hosts"] == ["three", "two"]


def fail() -> list[dict[str, Any]]:
    raise RuntimeError("no executor")


def as_unreachable(error: BaseException) -> BaseException:
    return Unreachable(str(error))


def test_what_a_look_raises_is_told_to_whoever_waits_and_looked_at_again() -> None:
    on_a_cluster = python_workers.PythonWorkers(is_local=False)
    on_a_cluster.start(fail)
    with pytest.raises(Unreachable, match="no executor"):
        on_a_cluster.wait(as_unreachable)
    assert on_a_cluster.needs_recheck


def test_on_this_machine_nobody_waits_for_workers() -> None:
    here = python_workers.PythonWorkers(is_local=True)
    here.start(fail)
    here.wait(as_unreachable)
    assert here.is_ready


def test_without_a_kernel_on_this_machine_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_workers, "kernel_error", lambda: NO_KERNEL)
    with pytest.raises(MissingRequirement, match=r"no compiled kernel.*there is none"):
        python_workers.PythonWorkers(is_local=True).wait(as_unreachable)


LOST = "Lost task 0.3 in stage 1.0 (TID 3) (10.0.0.7 executor 2): "


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f"{LOST}PythonException: Traceback\nModuleNotFoundError: No module named 'pyarrow.fs'",
            ("10.0.0.7", "executor 2", "pyarrow.fs", "Install pyarrow"),
        ),
        (
            f"{LOST}PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
            "version: 3.10 than that in driver: 3.11, PySpark cannot run",
            ("10.0.0.7", "3.10", "spark.pyspark.python"),
        ),
        (
            f'{LOST}java.io.IOException: Cannot run program "python3.14": error=2, No such file',
            ("10.0.0.7", "python3.14", "spark.pyspark.python"),
        ),
    ],
)
def test_what_spark_says_of_an_unfit_worker_is_put_into_words(
    text: str, words: tuple[str, ...]
) -> None:
    error = spark_errors.worker_error(text)
    assert isinstance(error, MissingRequirement)
    for word in words:
        assert word in str(error)


def test_other_failures_are_not_the_workers() -> None:
    assert spark_errors.worker_error(f"{LOST}java.lang.OutOfMemoryError: Java heap space") is None
