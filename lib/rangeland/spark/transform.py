"""The transform of a job: the user's function from DataFrame to DataFrame.

It is loaded and called here. Whatever the function raises, either when it is called or later in
Spark's tasks, becomes an error that names the function, the exception and the line, so that its
author can correct it. Two kinds of error are not the author's: an error of this library that passes
through the function, and the loss of the engine.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from rangeland.errors import Bug, JobFileError, RangelandError, TransformFailed
from rangeland.spark.arrow_frames import arrow_schema
from rangeland.spark.spark_errors import translate_spark_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_MESSAGE = 500
OURS = "rangeland.errors."
RUN_AGAIN = "then run again: the same offsets are read"
# Classes of SQLSTATE for errors in a query or its data, as opposed to the engine: feature not
# supported, cardinality, data exception, exceptions in functions, syntax, raise_error.
_QUERY_STATES = ("0A", "21", "22", "38", "39", "42", "P0")
_FRAME = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+)', re.MULTILINE)
_LIBRARIES = ("site-packages", "dist-packages", "pyspark", "py4j", "pyspark.zip", "<frozen")


@dataclass(frozen=True, slots=True)
class RaisedByTransform:
    """An exception raised by a transform: its class, its message, and the line of the author's
    code."""

    exception: str
    message: str
    place: str = ""

    def __str__(self) -> str:
        text = f"{self.exception}: {self.message}" if self.message else self.exception
        return f"{text} ({self.place})" if self.place else text


@dataclass(frozen=True, slots=True)
class Transform:
    """A job's transform. ``name`` is ``module:function``, as in the job file."""

    name: str
    function: Callable[[DataFrame], DataFrame]

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Raises JobFileError if the function fails or does not return a query."""
        try:
            result: Any = self.function(frame)
        except (Exception, SystemExit) as error:
            raise self._call_error(error) from error
        if not isinstance(result, DataFrame):
            raise JobFileError(
                f"the transform {self.name} does not return a DataFrame",
                why=f"it returned {type(result).__name__}",
                do="return the DataFrame to land",
            )
        return result

    def _call_error(self, error: BaseException) -> RangelandError:
        translated = translate_spark_error(error)
        if isinstance(translated, RangelandError) and not isinstance(translated, Bug):
            return translated
        return JobFileError(
            f"the transform {self.name} failed when it was called",
            why=str(raised_of(error) or raised_here(error)),
            do=f"correct {self.name}",
        )


def load_transform(name: str) -> Transform:
    """The function that ``module:function`` names, from the Python path or the working folder.
    Raises JobFileError if there is no such function, or if its module cannot be imported."""
    module_name, _, function_name = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        function: Any = importlib.import_module(module_name)
        for part in function_name.split("."):
            function = getattr(function, part)
    except (Exception, SystemExit) as error:
        is_absent = isinstance(error, ImportError | AttributeError)
        raise JobFileError(
            f"the transform {name} cannot be loaded",
            why=str(error) if is_absent else str(raised_here(error)),
            do="name it module:function, and put the module on the Python path"
            if is_absent
            else f"correct {module_name}",
        ) from error
    if not callable(function):
        raise JobFileError(
            f"the transform {name} cannot be loaded",
            why=f"its {function_name} is not a function but {type(function).__name__}",
            do="name it module:function",
        )
    return Transform(name, function)


def transformed_schema(spark: SparkSession, transform: Transform, rows: pa.Schema) -> pa.Schema:
    """The columns that a transform returns for such rows, found without reading anything."""
    empty = spark.createDataFrame([], from_arrow_schema(rows))
    spark_schema = transform(empty).schema
    if not spark_schema.fields:
        raise JobFileError(
            f"the transform {transform.name} returns rows without columns",
            do="keep at least one column",
        )
    try:
        schema = arrow_schema(spark_schema)
    except PySparkException as error:
        raise JobFileError(
            f"the transform {transform.name} returns a column that cannot be written",
            why=_one_line(str(error)),
            do="cast it to another type in the transform",
        ) from error
    return schema


def raised_error(transform: Transform, error: BaseException) -> TransformFailed | None:
    """The error for an exception of a transform in Spark's tasks; None if the exception is not the
    transform's. Our own tasks in the same stage raise only errors of this library, so any other
    exception comes from the query."""
    raised = raised_of(error)
    if raised is None:
        return None
    return transform_error(transform.name, raised)


def transform_error(name: str, raised: RaisedByTransform) -> TransformFailed:
    return TransformFailed(
        f"the transform {name} failed",
        why=str(raised),
        do=f"correct it, or have it leave such records out, {RUN_AGAIN}",
        exception=raised.exception,
        message=raised.message,
        place=raised.place,
    )


# --- exceptions of a transform ----------------------------------------------------------------


def raised_of(error: BaseException) -> RaisedByTransform | None:
    """The exception that Spark reports, if it comes from the query or its data."""
    if not isinstance(error, PySparkException):
        return None
    text = str(error)
    if type(error).__name__ == "PythonException":
        raised = raised_in(text)
        return None if raised.exception.startswith(OURS) else raised
    state = None
    with suppress(Exception):  # this calls the JVM, which may have ended
        state = error.getSqlState()
    if state is None or not state.startswith(_QUERY_STATES):
        return None
    return RaisedByTransform(type(error).__name__, _one_line(text))


def raised_in(text: str) -> RaisedByTransform:
    """The exception in a Python traceback that is part of some text."""
    frames = list(_FRAME.finditer(text))
    if not frames:
        return RaisedByTransform("PythonException", _one_line(text))
    lines = text[frames[-1].end() :].splitlines()[1:]
    while lines and (lines[0].startswith("    ") or not lines[0].strip()):
        lines.pop(0)  # the source line, and the marks below it
    name, _, message = _one_line("\n".join(lines)).partition(": ")
    return RaisedByTransform(
        name.rstrip(":"), message, _place([(f["file"], int(f["line"])) for f in frames])
    )


def raised_here(error: BaseException) -> RaisedByTransform:
    """An exception in this process."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError):
        return RaisedByTransform(type(error).__name__, str(error))
    own = [(f.filename, f.lineno or 0) for f in frames if f.filename != __file__]
    return RaisedByTransform(type(error).__name__, _one_line(str(error)), _place(own))


def _place(frames: list[tuple[str, int]]) -> str:
    """``file.py:12`` for the last frame outside libraries, or for the last frame if all are
    inside."""
    own = [f for f in frames if not any(part in f[0] for part in _LIBRARIES)]
    file, line = (own or frames or [("", 0)])[-1]
    return f"{os.path.basename(file)}:{line}" if file else ""


def _one_line(text: str) -> str:
    """The message on one line, without the query that Spark appends."""
    message = text.partition("\n== SQL")[0]
    message = re.sub(r"\s*SQLSTATE: \w{5}.*", "", message, flags=re.DOTALL)
    line = " ".join(message.split())
    return line if len(line) <= MAX_MESSAGE else f"{line[:MAX_MESSAGE]}..."
