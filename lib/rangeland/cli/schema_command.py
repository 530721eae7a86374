"""The command that prints the schema of job files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rangeland.cli.command_output import CommandOutput
from rangeland.cli.options import command, write_out


@command
def schema(
    output: CommandOutput,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write it to a file instead.")
    ] = None,
) -> None:
    """Print the JSON schema of job files, which editors use to complete and check them.

    \b
    Examples:
      rangeland schema --out job.schema.json
    and as the first line of a job file in the same folder:
      # yaml-language-server: $schema=job.schema.json
    """
    from rangeland.job.job_schema import job_schema, schema_text

    if out is not None:
        write_out(out, schema_text())
        output.print_result({"file": str(out)}, f"Written to {out}")
    elif output.json:
        output.print_result(job_schema(), "")
    else:
        # Not through `print_result`, which wraps lines at the width of the terminal.
        print(schema_text(), end="", file=output.stdout)
        output.has_printed = True
