"""An exception that nobody has foreseen, as one of our errors.

What is raised through py4j while the JVM goes down is not our bug. Little is imported here, since
any command may end with it.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path

from rangeland.errors import Bug, RangelandError


def unexpected_error(error: BaseException) -> RangelandError:
    """An unforeseen exception as one of our errors: its message is kept, its traceback is not
    shown."""
    frames = traceback.extract_tb(error.__traceback__)
    is_of_jvm = any("py4j" in Path(frame.filename).parts for frame in frames)
    if is_of_jvm:
        from py4j.protocol import Py4JNetworkError

        from rangeland.spark.spark_jobs import jvm_gone

        if isinstance(error, ConnectionError | EOFError | Py4JNetworkError):
            return jvm_gone(error)
    last = frames[-1:]
    place = f" in {os.path.basename(last[0].filename)}:{last[0].lineno}" if last else ""
    bug = Bug(
        f"{type(error).__name__}: {error}" if str(error) else type(error).__name__,
        why=f"Rangeland did not expect this{place}",
        do="Run it again with --debug and report what it prints",
    )
    bug.__cause__ = error
    return bug
