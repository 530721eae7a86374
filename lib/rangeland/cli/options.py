"""What several commands take, and how each begins: its ending, its Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rangeland.cli.exits import CommandEnding

if TYPE_CHECKING:
    from rangeland.job import Job

JobPath = Annotated[Path, typer.Argument(metavar="JOB.yaml", help="The job file.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="BOUND",
        help="Where to begin: checkpoint, earliest, latest, an ISO time, group:<id>, or JSON "
        'such as \'{"orders": {"0": 23}}\'.',
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="BOUND",
        help="Where to end, not included: the same words, but checkpoint.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=C", help="Override a field of the job file; repeatable."),
]
# These three are read from the raw command line by `Ending`, since they also hold for a
# command line that cannot be parsed. They are declared here to be known and explained.
Json = Annotated[
    bool, typer.Option("--json", help="One JSON object as the last line of stdout, nothing else.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only warnings.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def ending_of(ctx: typer.Context, writes: bool = False) -> CommandEnding:
    end = ctx.obj
    assert isinstance(end, CommandEnding)
    end.writes = writes
    return end


def spark_for(end: CommandEnding, job: Job) -> Any:
    from rangeland.spark.spark_session import open_spark

    end.progress().step("starting Spark")
    return open_spark(f"rangeland {job.job}", table=job.sink.table)
