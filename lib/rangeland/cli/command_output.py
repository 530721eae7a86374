"""The output of a command, and its end: one result on stdout, an exit code, and errors that say
what to do.

With ``--json``, stdout carries the result and nothing else, down to the file descriptor: anything
that a JVM or a transform prints goes to stderr. Progress, logs, and errors for people always go to
stderr. Every command ends through ``CommandOutput``, be it with a result, one of our errors, a
mistyped option, an interruption or a bug.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

from rangeland.cli.interruption import NAME, Interruption, interruption_of
from rangeland.cli.standard_streams import (
    dropping_streams,
    has_dropped,
    stream_for_results,
)
from rangeland.cli.stop_signals import StopSignals
from rangeland.errors import (
    RangelandError,
    UsageError,
    error_json,
    is_caused_by_interrupt,
    public_name,
)
from rangeland.logging_setup import LogFormat, LogSettings, configure, reset
from rangeland.spark.gateway import await_jvm_end, end_jvm
from rangeland.spark.spark_errors import unexpected_error

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from rangeland.monitoring.metrics_file import MetricsFile
    from rangeland.render.progress_view import LiveProgress

INTERRUPTED = 130
ARCHIVE_S = 120.0
"""How long to wait for a JVM that is writing an archive of its classes: usually this takes seconds,
but much longer on a busy machine with a slow disk."""
TERMINATED = 128 + signal.SIGTERM
UNREAD = 128 + signal.SIGPIPE

logger = logging.getLogger("rangeland.command")


class CommandOutput:
    """The streams and the exit code of one command. ``writes``: whether the command may land
    something; ``when_interrupted``: what to report after an interruption, if that is known in
    advance; ``on_end``: called with the exit code, and the error if there is one, once the end of
    the command is reported."""

    def __init__(self, arguments: Sequence[str], stdout: IO[str]) -> None:
        flags = arguments[: arguments.index("--")] if "--" in arguments else arguments
        self.json = "--json" in flags
        self.quiet = "--quiet" in flags or "-q" in flags
        self.debug = "--debug" in flags
        self.stdout = stdout
        self.writes = False
        self.when_interrupted: Interruption | None = None
        self.on_end: Callable[[int, RangelandError | None], None] = lambda code, error: None
        self.signals = StopSignals()
        self._logs_json = False
        self._progress: LiveProgress | None = None

    def configure_logging(self, settings: LogSettings) -> None:
        """Makes this process, and later its tasks, log to stderr. With JSON, progress and errors
        are log records too, so that each line that we write to stderr is a JSON object."""
        configure(settings)
        self._logs_json = settings.format is LogFormat.JSON

    def progress(self) -> LiveProgress:
        """The progress display of this command; always the same one."""
        if self._progress is None:
            from rangeland.render.progress_view import LiveProgress
            from rangeland.render.text_drawing import console_for

            console = None if self._logs_json else console_for(sys.stderr)
            self._progress = LiveProgress(console, self.quiet)
        return self._progress

    def open_metrics_file(
        self, path: Path | None, command: str, job_files: Sequence[Path]
    ) -> MetricsFile | None:
        """The metrics file at this path, if there is one, which is written when the command ends.
        Until it knows more, it has the names of the job files. Raises UsageError if the file cannot
        be written."""
        if path is None:
            return None
        from rangeland.monitoring.metrics_file import (
            MetricsFile,
            TableName,
            check_metrics_can_be_written,
        )

        check_metrics_can_be_written(path)
        file = MetricsFile(path, command, lambda text: self.progress().warn(text))
        file.expect(TableName(str(job_file), None) for job_file in job_files)
        self.on_end = file.write
        return file

    def print_result(self, document: dict[str, Any], renderable: RenderableType) -> None:
        """Prints the JSON with ``--json``, otherwise the text; both on stdout."""
        self._stop_progress()
        if self.json:
            self._print_json(document)
        else:
            from rangeland.render.text_drawing import console_for

            console_for(self.stdout).print(renderable, crop=False)

    def end(self, code: int) -> int:
        """The exit code for a command that has finished with ``code``: 141 instead of 0 if the
        reader of stdout, such as ``head``, went away before it had read everything."""
        self.stdout.flush()
        code = UNREAD if code == 0 and has_dropped(self.stdout) else code
        self.on_end(code, None)
        return code

    def fail(self, error: BaseException) -> int:
        """Reports the error and returns its exit code. An error that was caused by an interruption
        is reported as that interruption: when one occurs, Spark's jobs are cancelled, or its JVM
        ends first."""
        if self.signals.terminated or is_caused_by_interrupt(error):
            return self.report_interruption()
        if not isinstance(error, RangelandError):
            error = unexpected_error(error)
        self._stop_progress()
        if self.debug and not self._logs_json:
            traceback.print_exception(error, file=sys.stderr)
        if self._logs_json and (self.debug or not self.json):
            fields = {"error": public_name(error), "exit": error.exit_code}
            logger.error(error.message, extra=fields, exc_info=error if self.debug else None)
        if self.json:
            self._print_json(error_json(error))
        elif not self._logs_json:
            from rangeland.render.error_view import render_error
            from rangeland.render.text_drawing import console_for

            console_for(sys.stderr).print(render_error(error))
        self.on_end(error.exit_code, error)
        return error.exit_code

    def report_interruption(self) -> int:
        """Reports what was written and what was not, stops Spark's JVM, and returns 130, or 143
        after SIGTERM. A second signal kills the JVM without waiting for it to clean up."""
        self.signals.kill_from_now_on()
        self._stop_progress()
        code = TERMINATED if self.signals.terminated else INTERRUPTED
        plans = self._progress.plans if self._progress else []
        interruption = self.when_interrupted or interruption_of(self.writes, plans)
        if self.json:
            self._print_json(interruption.json(code))
        elif self._logs_json:
            logger.error(interruption.message, extra={"error": NAME, "exit": code})
        else:
            print(interruption.message, file=sys.stderr, flush=True)
        self.on_end(code, None)
        end_jvm()
        return code

    def _stop_progress(self) -> None:
        if self._progress is not None:
            self._progress.done()

    def _print_json(self, document: dict[str, Any]) -> None:
        # Plain ASCII, so that no locale can break the line that machines read.
        print(json.dumps(document, default=str), file=self.stdout, flush=True)


def usage_error(mistyped: Any, arguments: Sequence[str]) -> UsageError:
    """Typer's error about a mistyped command line (a ``ClickException``) as a ``UsageError``. If
    the error has no context, the command is assumed to be the first argument."""
    context = getattr(mistyped, "ctx", None)
    commands = [word for word in arguments[:1] if word.isalpha()]
    command = getattr(context, "command_path", None) or " ".join(["rangeland", *commands])
    message = str(mistyped.format_message()).rstrip(".").replace(": Value error, ", ": ")
    if "unexpected extra argument" in message:
        # The message lists the arguments: with `--set source.security.sasl.password hunter2`, one
        # of them is the password.
        message = message.partition(" (")[0] + ", not repeated here"
    option = str(getattr(mistyped, "option_name", ""))
    if (name := re.match(r"-*[\w-]*", option)) and name[0] != option:
        message = f"No such option: {name[0]}..., not repeated here"
    return UsageError(message, do=f"see `{command} --help`")


@contextmanager
def command_output(arguments: Sequence[str]) -> Iterator[CommandOutput]:
    """The output of one command. While it is open, only the result reaches stdout if ``--json`` is
    given, and SIGTERM ends the command just as Ctrl-C does."""
    for stream in (sys.stdout, sys.stderr):
        # A path that the locale cannot encode must not make a command fail whose work is done.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    with dropping_streams():
        output = CommandOutput(arguments, sys.stdout)
        try:
            with output.signals:
                if output.json:
                    with _private_stdout() as stdout:
                        output.stdout = stdout
                        yield output
                else:
                    yield output
            _finish_archive()
        finally:
            reset()


def _finish_archive() -> None:
    """Waits for the archive that the JVM writes when it ends, if the environment asks for this."""
    if "RANGELAND_CLASS_ARCHIVE" not in os.environ:
        return
    from rangeland.jvm.class_archive import (
        ArchiveUse,
        archive_use,
        cached_archives,
        take_complete,
    )

    if archive_use() is ArchiveUse.WAIT:
        await_jvm_end(ARCHIVE_S)
        take_complete(cached_archives())


@contextmanager
def _private_stdout() -> Iterator[IO[str]]:
    """Yields the real stdout; meanwhile everything else that is written to stdout, including by the
    JVM, goes to stderr."""
    public = sys.stdout
    public.flush()
    try:
        descriptor = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # Closed, as under some daemons: nothing else can write to it either.
        yield public
        return
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as private:
        sys.stdout = sys.stderr
        stream = stream_for_results(private)
        try:
            yield stream
        finally:
            sys.stdout = public
            with suppress(OSError):
                stream.flush()
            os.dup2(descriptor, 1)
