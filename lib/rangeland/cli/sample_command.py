"""The command ``sample``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rangeland.cli.command_output import CommandOutput
from rangeland.cli.options import JobPath, Settings, command, write_out
from rangeland.errors import UsageError

if TYPE_CHECKING:
    from rangeland.queries.payload_sample import SampleResult


@command
def sample(
    output: CommandOutput,
    job_file: JobPath,
    records: Annotated[
        int,
        typer.Option("--records", min=1, max=100_000, help="How many records of each partition."),
    ] = 100,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the fields of values as Spark DDL."),
    ] = None,
    settings: Settings = None,
) -> None:
    """Look at the newest records: their formats, schemas and fields, decoded as the job says. Lands
    nothing.

    The file of --out can be named in the job file, as decode.value.schema. Needs no Spark.

    \b
    Examples:
      rangeland sample orders.yaml
      rangeland sample orders.yaml --records 1000 --out orders.ddl
    """
    from rangeland.job.overrides import load_job

    job, _ = load_job(job_file, settings or ())

    from rangeland.queries.payload_sample import sample as sample_job
    from rangeland.render.sample_view import sample_picture

    result = sample_job(job, output.progress(), records)
    if out is not None:
        write_schema(result, out)
    output.answer(result.to_json(), sample_picture(result, str(out or "")))


def write_schema(result: SampleResult, out: Path) -> None:
    """Raises UsageError if there is no schema, or the file cannot be written."""
    if not result.schema:
        raise UsageError(
            f"--out {out}: there is no schema to write",
            why="none of the records that were read is a JSON object with fields, and the job's "
            "values have none either",
            do="Read more of them with --records",
        )
    write_out(out, result.schema + "\n")
