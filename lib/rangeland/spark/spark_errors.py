"""Turns failures of Spark, its JVM and its workers into errors of this library.

py4j and PySpark are imported only if one of their errors has occurred, because any command may end
here.
"""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path

from rangeland import errors
from rangeland.errors import (
    Bug,
    EngineFailed,
    JobFileError,
    MissingRequirement,
    RangelandError,
    StorageFailed,
    TableRefused,
)

LOST = ("ExecutorLostFailure", "Python worker exited unexpectedly", "executor lost")
"""Texts by which Spark reports that an executor or worker failed, not the task."""
SHIPPING = "`rangeland submit JOB.yaml --env packed` packs one and writes the command"
MAX_LINE = 300

_WORKER = re.compile(r"\(TID \d+\) \((\S+) executor (\w+)\)")


def translate_spark_error(error: BaseException) -> BaseException:
    """The error of this library for an error of Spark. Our own errors are recognised by their
    names."""
    from py4j.protocol import Py4JError, Py4JNetworkError
    from pyspark.errors import PySparkException

    if not isinstance(error, Py4JError | PySparkException):
        return error
    text = str(error)
    own_errors = re.findall(r"^rangeland\.errors\.(\w+): (.+)$", text, re.MULTILINE)
    if own_errors:
        class_name, message = own_errors[-1]
        kind = getattr(errors, class_name, None)
        if isinstance(kind, type) and issubclass(kind, RangelandError):
            return kind(message.rstrip("."))
    if (failure := worker_error(text)) is not None:
        return failure
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    cause = next(
        (line for line in reversed(lines) if re.match(r"[\w.]+(Error|Exception):", line)), ""
    )
    if isinstance(error, Py4JNetworkError):
        return jvm_gone_error(error)
    if any(sign in text for sign in LOST):
        return EngineFailed(
            "Spark lost executors or Python workers of this run",
            why=cause or lines[0],
            do="give executors more memory if they were killed for it, then run again",
        )
    return Bug(
        "a Spark job of this run failed",
        why=cause or (lines[0] if lines else type(error).__name__),
        do="read the executors' logs",
    )


def worker_error(text: str) -> MissingRequirement | None:
    """The error for a Python worker that lacks something, made from Spark's report of its
    failure."""
    worker = _WORKER.search(text)
    where = f" on {worker[1]} (executor {worker[2]})" if worker else ""
    if absent := re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", text):
        return MissingRequirement(
            f"a Python worker{where} cannot import {absent[1]}",
            why=absent[0],
            do=f"install {absent[1].split('.')[0]} for the workers' Python on every host, ship it "
            f"with --py-files, or ship a Python: {SHIPPING}",
            module=absent[1],
        )
    if mismatch := re.search(r"\[PYTHON_VERSION_MISMATCH\] (.+)", text):
        return MissingRequirement(
            f"the Python of the workers{where} has a different version from the driver's",
            why=mismatch[1],
            do="set spark.pyspark.python to a Python of the driver's version, "
            f"or ship one: {SHIPPING}",
        )
    if program := re.search(r'Cannot run program "([^"]+)"', text):
        return MissingRequirement(
            f"the Python of the workers{where} cannot be started",
            why=f"there is no {program[1]} that can be run",
            do="set spark.pyspark.python to the Python that the executors' hosts have, "
            f"or ship one: {SHIPPING}",
            python=program[1],
        )
    return None


def jvm_gone_error(error: BaseException) -> EngineFailed:
    """The error for a py4j call to a JVM that has ended."""
    failure = EngineFailed(
        "the JVM that runs Spark has gone",
        why=f"{type(error).__name__}: {error}" if str(error) else type(error).__name__,
        do="find out what ended it (the system kills processes when memory runs out), then run "
        "the same command again",
    )
    failure.__cause__ = error
    return failure


def catalog_error(what: str, error: Exception) -> RangelandError:
    """The error for a question that a catalog did not answer. ``what`` describes the question.
    Unless access is denied or there is no such catalog, the metastore may just be down for a
    while."""
    from py4j.protocol import Py4JError, Py4JNetworkError
    from pyspark.errors import PySparkException

    from rangeland.delta.java_bridge.java_errors import innermost_message, java_chain, translate

    if isinstance(error, Py4JNetworkError):
        return jvm_gone_error(error)
    if not isinstance(error, Py4JError | PySparkException):
        return as_own_error(error)
    chain = java_chain(error)
    why = innermost_message(chain) if chain else first_line(error)
    failure: RangelandError = StorageFailed(
        what, why=why, do="check that the catalog's metastore is up, then run again"
    )
    if isinstance(error, PySparkException) and (error.getSqlState() or "").startswith("42"):
        # The class of SQL states for names that do not exist.
        do = "correct sink.table, or give this Spark the catalog that it names"
        failure = JobFileError(what, why=first_line(error), do=do)
    if isinstance(translate(what, chain), TableRefused):
        failure = TableRefused(what, why=why, do="give this user the right to it in the catalog")
    failure.__cause__ = error
    return failure


def as_own_error(error: Exception) -> RangelandError:
    """An error of this library as it is; any other exception as ``unexpected_error`` converts
    it."""
    return error if isinstance(error, RangelandError) else unexpected_error(error)


def unexpected_error(error: BaseException) -> RangelandError:
    """One of our errors for an unforeseen exception, with its message but without its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    is_of_jvm = any("py4j" in Path(frame.filename).parts for frame in frames)
    if is_of_jvm:
        from py4j.protocol import Py4JNetworkError

        if isinstance(error, ConnectionError | EOFError | Py4JNetworkError):
            return jvm_gone_error(error)
    last = frames[-1:]
    place = f" in {os.path.basename(last[0].filename)}:{last[0].lineno}" if last else ""
    bug = Bug(
        f"{type(error).__name__}: {error}" if str(error) else type(error).__name__,
        why=f"Rangeland did not expect this{place}",
        do="run it again with --debug and report what it prints",
    )
    bug.__cause__ = error
    return bug


def first_line(error: Exception) -> str:
    """The first line of an error's message, or of the Java message: a query or a stack trace may
    follow."""
    from py4j.protocol import Py4JJavaError

    text = str(error)
    if isinstance(error, Py4JJavaError):  # begins with the method that was called
        text = text.partition("\n: ")[2] or text
    return (text.strip().splitlines() or [type(error).__name__])[0][:MAX_LINE]
