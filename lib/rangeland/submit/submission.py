"""The spark-submit command for a job as a value, with the reason for each flag.

Pure: paths and choices in, a command out. ``shipped_files`` and ``packed_environment`` make the
files to ship. Anything that a cluster manager cannot do is refused here, before files are built.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rangeland.decode.payload.schema_ids.schema_catalogue import RecordField
from rangeland.delta.java_bridge.delta_kernel_loader import DELTA_KERNEL_JARS, JARS_SETTING
from rangeland.delta.stores.table_path import TablePath
from rangeland.errors import UsageError
from rangeland.job import Job
from rangeland.job.connection_settings import login_packages, tls_files
from rangeland.job.secret_references import secret_references
from rangeland.spark.supported_versions import CATALOG, EXTENSION
from rangeland.submit.packed_environment import ENVIRONMENT

NOT_AGAIN = ("org.apache.hadoop:hadoop-client-api", "org.apache.hadoop:hadoop-client-runtime")
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_DEPLOY = {
    "client": "the driver runs here, so it reads this machine's job file and environment",
    "cluster": "the driver runs on a host of the cluster, with only what is shipped",
}


@dataclass(frozen=True, slots=True)
class SubmitFlag:
    """Arguments of the command that belong together, and the reason for them."""

    words: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class SubmitChoices:
    """What the user has chosen."""

    master: str
    delta: str
    """Delta in the form in which Spark downloads it, for the Spark on this machine."""
    deploy_mode: str = "client"
    env: str = "zip"
    jars: tuple[Path, ...] = ()
    """Delta's jars as files, which are shipped instead."""
    delta_kernel: Path | None = None
    """The folder with the jars of Delta Kernel, if the driver is not to fetch them."""
    python: str = PYTHON
    """The command or path of Python on the executors' hosts."""
    speculation: bool = False
    dynamic_allocation: bool = False
    conf: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShippedFiles:
    """The files to ship."""

    package: Path
    """The zip or the environment."""
    entry: Path
    modules: tuple[Path, ...] = ()
    """The modules that a transform needs."""
    platforms: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    """The job's PEM files that exist on this machine."""
    schemas: Mapping[RecordField, Path] = field(default_factory=dict)
    """Copies of the job's schema files that exist on this machine, for a driver elsewhere."""
    delta_kernel: Path | None = None
    """An archive with the jars of Delta Kernel."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A spark-submit command, and the reason for each flag. ``notes`` lists further conditions
    under which the command works."""

    flags: tuple[SubmitFlag, ...]
    notes: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        return [word for flag in self.flags for word in flag.words]

    def to_json(self) -> dict[str, Any]:
        return {
            "command": self.command,
            "explained": [{"words": list(f.words), "why": f.why} for f in self.flags if f.why],
            "notes": list(self.notes),
        }

    def to_shell(self) -> str:
        """Comment lines, then the command with one flag per line, for a POSIX shell."""
        lines = [f"# {shlex.join(flag.words)}\n#     {flag.why}" for flag in self.flags if flag.why]
        notes = [f"# Note: {note}" for note in self.notes]
        command = " \\\n  ".join(shlex.join(flag.words) for flag in self.flags)
        return "\n".join([*lines, *notes, command])


def check_choices_can_work(choices: SubmitChoices) -> None:
    """Raises UsageError for choices that cannot work."""
    if choices.deploy_mode not in ("client", "cluster"):
        raise UsageError(
            f"--deploy-mode {choices.deploy_mode} is not understood", do="use client or cluster"
        )
    if choices.env not in ("zip", "packed"):
        raise UsageError(f"--env {choices.env} is not understood", do="use zip or packed")
    if choices.deploy_mode == "cluster" and not choices.master.startswith("yarn"):
        raise UsageError(
            f"--deploy-mode cluster does not work with --master {choices.master}",
            why="Spark runs a Python driver inside the cluster on YARN; a standalone cluster "
            "accepts none, and on Kubernetes it needs an image that already contains the job",
            do="omit it: the driver then runs where you run the command",
        )
    if choices.env == "packed" and choices.master.startswith("local"):
        raise UsageError(
            f"--env packed does not work with --master {choices.master}",
            why="tasks on this machine run this Python; nothing is unpacked for them",
            do="omit it, or name a cluster",
        )
    for setting in choices.conf:
        if "=" not in setting:
            raise UsageError(
                f"--conf {_name_in(setting)}", do="write it as --conf spark.name=value"
            )


def submission(
    job: Job,
    job_file: Path,
    choices: SubmitChoices,
    shipped: ShippedFiles,
    arguments: Sequence[str] = (),
) -> Submission:
    """The command that runs ``shipped.entry`` with the job file and ``arguments``."""
    check_choices_can_work(choices)
    flags = [
        SubmitFlag(("spark-submit",), ""),
        SubmitFlag(("--master", choices.master), "the cluster"),
        SubmitFlag(("--deploy-mode", choices.deploy_mode), _DEPLOY[choices.deploy_mode]),
        *_delta(choices),
        *_package(choices, shipped),
        *_archives(choices, shipped),
        _conf("spark.log.level=WARN", "Spark logs less, so that progress is easy to read"),
        *_schedule(choices),
        *(_conf(setting, "as you asked") for setting in choices.conf),
        *_files(job_file, choices, shipped),
    ]
    where = job_file.name if choices.deploy_mode == "cluster" else str(job_file)
    flags.append(
        SubmitFlag((str(shipped.entry), where, *arguments), "the script and its arguments")
    )
    return Submission(tuple(flags), tuple(_notes(job, choices, shipped)))


def _conf(setting: str, why: str) -> SubmitFlag:
    return SubmitFlag(("--conf", setting), why)


def _delta(choices: SubmitChoices) -> list[SubmitFlag]:
    flags = [
        SubmitFlag(
            ("--packages", choices.delta),
            "Delta for this Spark and Scala, downloaded where the driver starts; --delta jars "
            "ships the files instead, for hosts without access to a Maven repository",
        ),
        SubmitFlag(
            ("--exclude-packages", ",".join(NOT_AGAIN)),
            "Spark has its own Hadoop, and need not send another to every executor",
        ),
    ]
    if choices.jars:
        jars = ",".join(map(str, choices.jars))
        flags = [SubmitFlag(("--jars", jars), "Delta's jars, except those that Spark has itself")]
    return [
        *flags,
        _conf(f"spark.sql.extensions={EXTENSION}", "Delta's SQL"),
        _conf(f"spark.sql.catalog.spark_catalog={CATALOG}", "Delta's tables by name"),
    ]


def _package(choices: SubmitChoices, shipped: ShippedFiles) -> list[SubmitFlag]:
    modules = [str(path) for path in shipped.modules]
    is_packed = choices.env == "packed"
    files = modules if is_packed else [str(shipped.package), *modules]
    flags = []
    if files:
        reason = (
            "the transform's module" if is_packed else "this package, for the driver and each task"
        )
        flags.append(SubmitFlag(("--py-files", ",".join(files)), reason))
    python = f"./{ENVIRONMENT}/bin/python" if is_packed else choices.python
    flags.append(
        _conf(
            f"spark.pyspark.python={python}",
            "the Python of the tasks on each host; it must have the driver's minor version",
        )
    )
    if choices.deploy_mode == "client":
        flags.append(
            _conf(
                f"spark.pyspark.driver.python={sys.executable}",
                "the Python of the driver, on this machine",
            )
        )
    return flags


def _archives(choices: SubmitChoices, shipped: ShippedFiles) -> list[SubmitFlag]:
    """A single flag for all archives, because spark-submit uses only the last one."""
    archives: dict[str, str] = {}
    folder = choices.delta_kernel
    if choices.env == "packed":
        reason = "this package and its dependencies; executors unpack it where they work"
        archives[f"{shipped.package}#{ENVIRONMENT}"] = reason
    if shipped.delta_kernel is not None:
        folder = Path(DELTA_KERNEL_JARS.name)
        archives[f"{shipped.delta_kernel}#{folder}"] = "Delta Kernel, for the driver"
    flags = (
        [SubmitFlag(("--archives", ",".join(archives)), "; ".join(archives.values()))]
        if archives
        else []
    )
    if folder is not None:
        reason = "where the driver finds Delta Kernel, which is kept apart from Spark's own jars"
        flags.append(_conf(f"{JARS_SETTING}={folder}", reason))
    return flags


def _schedule(choices: SubmitChoices) -> list[SubmitFlag]:
    flags = []
    if choices.speculation:
        flags.append(
            _conf(
                "spark.speculation=true",
                "a slow task is also run on another host; only the files of the attempt that Spark "
                "accepts are committed, so nothing lands twice",
            )
        )
    if choices.dynamic_allocation:
        reason = (
            "Spark adds and removes executors; a lost task is run again, and nothing lands twice"
        )
        tracking = "needed without an external shuffle service"
        name = "spark.dynamicAllocation"
        flags.append(_conf(f"{name}.enabled=true", reason))
        flags.append(_conf(f"{name}.shuffleTracking.enabled=true", tracking))
    return flags


def _files(job_file: Path, choices: SubmitChoices, shipped: ShippedFiles) -> list[SubmitFlag]:
    """A single flag for all files, because spark-submit uses only the last one."""
    files: dict[Path, str] = {}
    if choices.deploy_mode == "cluster":
        reason = "the driver runs elsewhere, so the job file is shipped and read by its bare name"
        files[job_file] = reason
        reason = "the schema files of decode, which the driver reads by these names"
        files |= dict.fromkeys(shipped.schemas.values(), reason)
    if not choices.master.startswith("local"):
        reason = "each executor finds the PEM files of source.security.tls in its working directory"
        files |= dict.fromkeys(shipped.files, reason)
    _check_distinct_names(files)
    if not files:
        return []
    return [
        SubmitFlag(("--files", ",".join(map(str, files))), "; ".join(dict.fromkeys(files.values())))
    ]


def _check_distinct_names(files: Iterable[Path]) -> None:
    """Raises UsageError for files with the same bare name: all of them arrive in one folder, under
    their bare names."""
    by_name: dict[str, Path] = {}
    for file in files:
        if (namesake := by_name.setdefault(file.name, file)) != file:
            raise UsageError(
                f"{namesake} and {file} cannot both be shipped",
                why="executors find files by their bare names, and these have the same one",
                do="give one of them another name",
            )


def _tls_notes(job: Job, shipped: ShippedFiles) -> list[str]:
    pem = tls_files(job)
    notes = [
        f"{path} of {field} is not on this machine, so it is not shipped: it must be on every host"
        for field, path in pem.items()
        if path not in shipped.files
    ]
    # A key may be in the same file as its certificate.
    whole = {field.replace(".certificate", ".key"): path for field, path in pem.items()}
    keys = [path for field, path in (whole | pem).items() if field.endswith(".key")]
    if any(path in shipped.files for path in keys):
        notes.append("a private key is among the files that executors receive: trust their hosts")
    return notes


def _notes(job: Job, choices: SubmitChoices, shipped: ShippedFiles) -> list[str]:
    notes = []
    is_cluster = not choices.master.startswith("local")
    if is_cluster and not job.sink.is_catalog_name and TablePath.parse(job.sink.table).is_local:
        notes.append(
            f"sink.table is the path {job.sink.table}: it must be one folder, mounted at the same "
            "path on this machine and on every host of the cluster"
        )
    if choices.env == "zip":
        *names, last = "numpy", "pyarrow", "cramjam", "crc32c", *login_packages(job)
        notes.append(
            f"{choices.python} on every host must have {', '.join(names)} and {last}; "
            "--env packed ships them"
        )
    else:
        base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
        notes.append(f"every host must have the Python {base}, which the environment links to")
    if is_cluster:
        platforms = ", ".join(shipped.platforms)
        notes.append(
            f"the compiled kernel is shipped for {platforms} only: other workers cannot decode"
        )
        notes += _tls_notes(job, shipped)
    if choices.deploy_mode == "cluster":
        notes += [
            f"{path} of decode.{name}.schema is not on this machine, so it is not shipped: it must "
            "be on every host"
            for name, path in job.decode.schema_files.items()
            if name not in shipped.schemas
        ]
        if secrets := secret_references(job):
            notes.append(
                f"the driver looks up {', '.join(secrets)} on the host in the cluster where it "
                "starts: secrets are not shipped, so they must be there"
            )
        notes.append(
            "spark-submit then exits with 0 or 1 and prints no result: the driver's exit code and "
            "--json output are in its log (yarn logs -applicationId ID). For a scheduler that "
            "reads them, run the driver here"
        )
        if choices.env == "zip":
            notes.append("the driver's host must have all requirements of this package installed")
    if not choices.speculation:
        notes.append("--speculation is safe: a second attempt of a task lands nothing twice")
    if not choices.dynamic_allocation:
        notes.append("--dynamic-allocation is safe: a lost executor's tasks are run again")
    return notes


def _name_in(setting: str) -> str:
    """The name of a setting without its value, which may be a secret."""
    match = re.match(r"[\w.-]*", setting)
    return match[0] if match else ""
