"""The Python workers of a session: they are started early, and checked before anything is written.

A cluster's workers run their own Python, with whatever is installed or shipped there. The probe is
a small Spark job whose function needs only the standard library: on each worker it imports what a
task will import, and reports what is missing. The driver checks the reports. Workers that join
later are not probed; ``spark_errors`` explains the failures that Spark reports for them.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING, Any

from pyspark import InheritableThread

from rangeland.decode import kernel_error
from rangeland.dialects.dialect import dialect_names
from rangeland.errors import CLUSTER_OPERATOR, MissingRequirement
from rangeland.spark.spark_errors import SHIPPING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What a task imports, in the order in which problems should be fixed. Each import may fail by
# itself.
PACKAGES = ("numpy", "pyarrow", "cramjam", "crc32c")
MODULES = (
    "rangeland.spark.executor_tasks",
    "rangeland.decode",
    *(f"rangeland.dialects.{name}" for name in dialect_names()),
)

WorkerReport = dict[str, Any]


@dataclass
class PythonWorkers:
    """A running probe of the workers. ``wait`` checks its result."""

    is_local: bool
    needs_recheck: bool = False
    """Whether the probe failed and the failure has been reported: then the next caller probes
    again."""
    _thread: Thread | None = None
    _reports: list[WorkerReport] = field(default_factory=list)
    _errors: list[Exception] = field(default_factory=list)

    def start(self, probe: Callable[[], list[WorkerReport]]) -> None:
        def act() -> None:
            try:
                self._reports += probe()
            except Exception as error:  # raised by ``wait``
                self._errors.append(error)

        self._thread = InheritableThread(target=act, name="rangeland-workers", daemon=True)
        self._thread.start()

    @property
    def is_ready(self) -> bool:
        """Whether ``wait`` would return at once."""
        return self.is_local or self._thread is None or not self._thread.is_alive()

    def wait(self, translate: Callable[[BaseException], BaseException]) -> None:
        """Waits until workers have been checked. Local workers need no wait: they run the driver's
        own Python, which is checked here. Raises MissingRequirement if the workers cannot do the
        work, and Spark's errors, passed through ``translate``, if they could not be asked."""
        if self.is_local and (lacking := kernel_error()):
            raise _cannot_decode_error(lacking, [platform.node()])
        if self.is_local or self._thread is None:
            return
        self._thread.join()
        self.needs_recheck = True
        for error in self._errors:
            translated = translate(error)
            raise translated from (None if translated is error else error)
        check_workers_are_usable(self._reports)
        self.needs_recheck = False


_probes: dict[tuple[str, ...], PythonWorkers] = {}


def start_workers(spark: SparkSession, more: Sequence[str] = ()) -> PythonWorkers:
    """Makes the executors start their Python workers and import what a task needs, including this
    job's additional packages (``more``). Does this once per Spark application, and does not wait
    for it."""
    context = spark.sparkContext
    names = [*PACKAGES, *more, *MODULES]
    key = (context.applicationId, *names)
    workers = _probes.get(key)
    if workers is None or workers.needs_recheck:
        workers = PythonWorkers(str(context.master).startswith("local"))
        _probes[key] = workers
        count = int(context.defaultParallelism)
        probe = import_probe(names)
        workers.start(
            lambda: list(context.parallelize(range(count), count).mapPartitions(probe).collect())
        )
    return workers


def import_probe(names: Sequence[str]) -> Callable[[Iterable[int]], Iterator[WorkerReport]]:
    """A function for Spark that imports ``names`` and reports the result. It is pickled by value,
    since a worker may lack this library, so it must not refer to anything outside itself."""
    modules = list(names)

    def probe(_: Iterable[int]) -> Iterator[dict[str, Any]]:
        import importlib
        import platform
        import sys

        failed = {}
        for name in modules:
            try:
                importlib.import_module(name)
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}"
        kernel = None
        if "rangeland.decode" in modules and not failed:
            kernel = importlib.import_module("rangeland.decode").kernel_error()
        yield {
            "host": platform.node(),
            "python": sys.executable,
            "failed": failed,
            "kernel": kernel,
            "rangeland": getattr(sys.modules.get("rangeland"), "__version__", ""),
            "pyspark": getattr(sys.modules.get("pyspark"), "__version__", ""),
        }

    return probe


def check_workers_are_usable(reports: Sequence[WorkerReport]) -> None:
    """Raises MissingRequirement if a worker cannot do the work."""
    import pyspark

    from rangeland import __version__

    for worker in reports:
        if worker["failed"]:
            raise _cannot_import_error(worker, [w["host"] for w in reports if w["failed"]])
        for name, version in (("rangeland", __version__), ("pyspark", pyspark.__version__)):
            if worker[name] != version:
                raise MissingRequirement(
                    f"the worker on {worker['host']} has {name} {worker[name]}, but the driver "
                    f"has {version}",
                    why="plans and receipts pass between them and must mean the same",
                    do="ship the driver's own package, and use a cluster of the driver's Spark",
                    host=worker["host"],
                )
        if worker["kernel"]:
            hosts = [w["host"] for w in reports if w["kernel"]]
            raise _cannot_decode_error(worker["kernel"], hosts)


def _cannot_decode_error(error: MissingRequirement, hosts: Sequence[str]) -> MissingRequirement:
    return MissingRequirement(
        f"the Python workers on {', '.join(sorted(set(hosts)))} have no compiled kernel, so they "
        "cannot decode records",
        why=error.why,
        do="install rangeland with pip on a machine of their platform, which compiles it, and ship "
        "that: `rangeland submit JOB.yaml --env packed`",
        hosts=sorted(set(hosts)),
    ).with_answers(acts=CLUSTER_OPERATOR)


def _cannot_import_error(worker: WorkerReport, hosts: Sequence[str]) -> MissingRequirement:
    failed: dict[str, str] = worker["failed"]
    packages = [name for name in failed if not name.startswith("rangeland")]
    # This library cannot be imported without its packages either, so they are the cause.
    names = packages or ["rangeland"]
    do = "ship it with --py-files; `rangeland submit JOB.yaml` makes the zip and writes the command"
    if packages:
        install = f"install {' '.join(packages)} for that Python on every host"
        do = f"{install}, or ship a Python: {SHIPPING}"
    first = next(iter(packages or failed))
    return MissingRequirement(
        f"the Python workers on {', '.join(sorted(set(hosts)))} cannot import {', '.join(names)}",
        why=f"{worker['python']} says {failed[first]}",
        do=do,
        hosts=sorted(set(hosts)),
        missing=names,
        python=worker["python"],
    )
