"""The command line: turns options into a job, a job into a ``run``, and a result into output on
stdout.

Nothing is decided here. The command modules declare what each command takes, ``run`` and
``queries`` do the work, ``command_output`` prints the result and ``render`` draws it. Commands
import slow modules themselves, and start Spark last, after everything that can be refused without
it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from rangeland.cli import landing_commands, query_commands, repair_commands, submit_commands
from rangeland.cli.command_output import INTERRUPTED, CommandOutput, command_output, usage_error
from rangeland.errors import UsageError

# Newer versions of Typer contain a copy of click; this finds the class in either.
_Mistyped: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

app = typer.Typer(
    name="rangeland",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def main(arguments: Sequence[str] | None = None) -> int:
    """The console entry point: runs one command and returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with command_output(words) as output:
        try:
            return output.end(_dispatch(words, output))
        except _Mistyped as error:
            return output.fail(usage_error(error, words))
        except (KeyboardInterrupt, typer.Abort):
            return output.report_interruption()
        except Exception as error:
            return output.fail(error)


def _dispatch(words: list[str], output: CommandOutput) -> int:
    broken: BaseException | None = None
    try:
        code = app(args=words, prog_name="rangeland", standalone_mode=False, obj=output)
    except SystemExit as end:
        # Typer assumes that every broken pipe belongs to stdout or stderr, but those never raise
        # one here.
        broken = end.__context__
        if not isinstance(broken, BrokenPipeError):
            raise
    if broken is not None:
        raise broken
    if code == INTERRUPTED:  # Typer caught the exception.
        return output.report_interruption()
    return code if isinstance(code, int) else 0


def _show_version(is_requested: bool) -> None:
    if not is_requested:
        return
    from rangeland import __version__

    print(f"rangeland {__version__}")
    raise typer.Exit


@app.callback(invoke_without_command=True)
def rangeland(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Land bounded ranges of a log in Delta tables, exactly once, with proof.

    \b
    New here? See it work on this machine, with its own broker:
      rangeland demo
    \b
    With your own job file:
      rangeland check orders.yaml     can everything be reached and written?
      rangeland plan orders.yaml      what would be landed? (writes nothing)
      rangeland run orders.yaml       land it
      rangeland status orders.yaml    how far has the job got?
    \b
    Exit codes: 0 done, or nothing to do. 64 usage, 75 try again later, 66 range lost,
    65 bad record, 73 conflict, 70 bug in Rangeland,
    78 job file, access denied, or missing requirement.
    130 interrupted, 143 terminated.
    A scheduler should retry only after 75, and after 130 or 143 if it did not
    stop the command itself.
    """
    if ctx.invoked_subcommand is None:
        if ctx.obj.json:
            raise UsageError("there is no command", do="see `rangeland --help`")
        print(ctx.get_help())
        raise typer.Exit(UsageError.exit_code)


class _Command(TyperCommand):
    """Shows arguments in the help as a user types them, without Python types."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *(argument.metavar for argument in self._arguments())]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        options = [p for p in self.get_params(ctx) if p.param_type_name == "option"]
        arguments = [(argument.metavar, argument.help) for argument in self._arguments()]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        with formatter.section("Options"):
            formatter.write_dl(filter(None, (option.get_help_record(ctx) for option in options)))

    def _arguments(self) -> list[Any]:
        return [param for param in self.params if param.param_type_name == "argument"]


_COMMANDS = {
    query_commands.check: "Check everything a run needs. Lands nothing.",
    query_commands.sample: "Look at the newest records: formats, fields.",
    landing_commands.plan: "Show what a run would land now. Writes nothing.",
    landing_commands.run: "Land what is new, and nothing twice.",
    landing_commands.apply: "Land exactly what is in a reviewed plan file.",
    landing_commands.backfill: "Land a range of your choice, alongside the runs.",
    repair_commands.redrive: "Land quarantined records that can now be decoded.",
    query_commands.status: "Show how far a job has got: checkpoint, end, lag.",
    query_commands.report: "Write a page about a job, to send or to print.",
    query_commands.verify: "Prove that each landed offset is in the table once.",
    query_commands.find: "Show which run landed an offset, and its file.",
    repair_commands.adopt: "Accept a table that disagrees with its ledger.",
    repair_commands.mirror: "Commit the checkpoint as the offsets of the job's group.",
    query_commands.reached: "Check whether the logs have reached the end of a range.",
    query_commands.schema: "Print the JSON schema of job files, for editors.",
    submit_commands.submit: "Build a spark-submit command and the files it ships.",
    landing_commands.demo: "See it work on this machine, with its own broker.",
}
"""The one-line description of each command, in the order of the help."""

for _work, _short_help in _COMMANDS.items():
    app.command(cls=_Command, short_help=_short_help)(_work)


if __name__ == "__main__":
    sys.exit(main())
