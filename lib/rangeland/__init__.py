"""Lands bounded offset ranges of a log in Delta tables, exactly once, and proves it.

The names that a job may import. Each is loaded on first use, because executors import this package
too, but do not need most of it.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rangeland.api import FrozenPlan, backfill, land, plan, run_jobs, verify, write_metrics
    from rangeland.dataframe.datasource import RangelandSource
    from rangeland.errors import RangelandError
    from rangeland.job import Job
    from rangeland.results import RunResult
    from rangeland.spark.spark_session import open_spark

__version__ = "0.1.0"

if sys.platform == "win32":
    raise ImportError(
        "Rangeland does not run on Windows: it needs file locks and signals that Windows lacks. "
        "Use WSL 2, a container or a Linux host"
    )

logging.getLogger(__name__).addHandler(logging.NullHandler())

_HOMES = {
    "FrozenPlan": "rangeland.api",
    "Job": "rangeland.job",
    "RangelandError": "rangeland.errors",
    "RangelandSource": "rangeland.dataframe.datasource",
    "RunResult": "rangeland.results",
    "backfill": "rangeland.api",
    "land": "rangeland.api",
    "open_spark": "rangeland.spark.spark_session",
    "plan": "rangeland.api",
    "run_jobs": "rangeland.api",
    "verify": "rangeland.api",
    "write_metrics": "rangeland.api",
}

__all__ = [
    "FrozenPlan",
    "Job",
    "RangelandError",
    "RangelandSource",
    "RunResult",
    "backfill",
    "land",
    "open_spark",
    "plan",
    "run_jobs",
    "verify",
    "write_metrics",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rangeland' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
