"""The command that demonstrates the library."""

from __future__ import annotations

from typing import Annotated

import typer

from rangeland.cli.command_output import CommandOutput
from rangeland.cli.options import command


@command
def demo(
    output: CommandOutput,
    records: Annotated[
        int,
        typer.Option(
            "--records", metavar="N", min=1_000, help="How many records to write and land."
        ),
    ] = 100_000,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the table and the job file.")] = False,
) -> None:
    """See it work: a real Kafka broker on this machine, a topic, a table, and the proof.

    Needs a JDK or JRE 17 or later, and downloads the broker's jars the first time. Everything is
    in a temporary folder, which is removed at the end.

    \b
    Examples:
      rangeland demo
      rangeland demo --records 1000000 --keep
    """
    output.writes = True

    from rangeland.testing.demo import show

    show(output, records, keep)
