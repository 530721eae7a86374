"""How a command ends: one answer on stdout, an exit code, and an error said so that
somebody can act on it.

Under ``--json`` stdout belongs to the answer alone, down to the file descriptor: whatever
a JVM or a transform prints goes to stderr instead. Progress and errors for people always go
to stderr. Every way out of a command passes through ``CommandEnding``: a result, an error
of ours, a mistyped option, an interruption, a bug.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

from rangeland.errors import Bug, RangelandError, UsageError
from rangeland.spark.gateway import end_jvm, kill_jvm, quiet_jvm
from rangeland.wording import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rangeland.planning.plan import Plan
    from rangeland.render.progress_view import LiveProgress

INTERRUPTED = 130
TERMINATED = 128 + signal.SIGTERM


class CommandEnding:
    """Where the answer of one command goes. ``writes`` is False for commands that only look;
    ``when_interrupted`` is for commands that have something of their own to say."""

    def __init__(self, arguments: Sequence[str], stdout: IO[str]) -> None:
        flags = arguments[: arguments.index("--")] if "--" in arguments else arguments
        self.json = "--json" in flags
        self.quiet = "--quiet" in flags or "-q" in flags
        self.debug = "--debug" in flags
        self.stdout = stdout
        self.writes = False
        self.when_interrupted = ""
        self.terminated = False
        self.answered = False
        self._progress: LiveProgress | None = None

    def progress(self) -> LiveProgress:
        """Where this command tells what it does; the same one each time."""
        if self._progress is None:
            from rangeland.render.progress_view import LiveProgress
            from rangeland.render.text_drawing import console_for

            self._progress = LiveProgress(console_for(sys.stderr), self.quiet)
        return self._progress

    def answer(self, document: dict[str, Any], picture: RenderableType) -> None:
        """The JSON under ``--json``, the picture otherwise; both on stdout."""
        self._stop_progress()
        if self.json:
            self._say_json(document)
        else:
            from rangeland.render.text_drawing import console_for

            console_for(self.stdout).print(picture)
        self.answered = True

    def fail(self, error: BaseException) -> int:
        """Says the error and returns its exit code. What breaks when a command is interrupted
        is no error of its own: Spark's jobs are cancelled then, or its JVM ends first."""
        if self.terminated or _comes_of_an_interruption(error):
            return self.interrupted()
        if not isinstance(error, RangelandError):
            error = as_ours(error)
        self._stop_progress()
        if self.debug:
            traceback.print_exception(error, file=sys.stderr)
        if self.json:
            self._say_json(error_json(error))
        else:
            from rangeland.render.error_view import error_picture
            from rangeland.render.text_drawing import console_for

            console_for(sys.stderr).print(error_picture(error))
        return error.exit_code

    def interrupted(self) -> int:
        """Says how things stand and returns 130, or 143 after SIGTERM. Spark's JVM is gone
        then; a second signal does not wait until it has cleaned up."""
        _on_signals(lambda number, frame: kill_jvm())
        self._stop_progress()
        code = TERMINATED if self.terminated else INTERRUPTED
        plans = self._progress.plans if self._progress else []
        message = self.when_interrupted or how_things_stand(self.writes, plans)
        if self.json:
            self._say_json({"error": "Interrupted", "message": message, "exit": code})
        else:
            print(message, file=sys.stderr, flush=True)
        end_jvm()
        return code

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Ends a command. SIGTERM, as schedulers send it, does so as Ctrl-C does."""
        quiet_jvm()
        self.terminated = number == signal.SIGTERM
        raise KeyboardInterrupt

    def _stop_progress(self) -> None:
        if self._progress is not None:
            self._progress.done()

    def _say_json(self, document: dict[str, Any]) -> None:
        # ASCII, so that no locale can break the one line that machines read.
        print(json.dumps(document, default=str), file=self.stdout, flush=True)
        self.answered = True


def how_things_stand(writes: bool, plans: Sequence[Plan]) -> str:
    """After an interruption: what is in the table now, and what to do."""
    if not writes:
        return "Interrupted. This command only looks: nothing was written."
    if not plans:
        return (
            "Interrupted before any record was read: nothing was landed. "
            "Run the same command again."
        )
    plan = plans[-1]
    return (
        f"Interrupted during plan {plan.sequence} of {plan.application} "
        f"({counted(plan.width, 'offset')}). The plan is in the ledger; the table holds all of its "
        "records or none, never a part. Run the same command again: it finishes that plan, "
        "and no offset is landed twice."
    )


def error_json(error: RangelandError) -> dict[str, Any]:
    """The error as the contract has it, with the three answers and the facts."""
    return {
        "error": type(error).__name__,
        "message": str(error),
        "exit": error.exit_code,
        "data": error.data,
        "retry": error.retry,
        "acts": error.acts,
        "facts": error.facts,
    }


def _comes_of_an_interruption(error: BaseException | None) -> bool:
    seen: list[BaseException] = []
    while error is not None and not any(error is other for other in seen):
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False


def as_ours(error: BaseException) -> RangelandError:
    """An exception that nobody foresaw. Its own words are kept, its traceback is not shown."""
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


def as_usage_error(mistyped: Any) -> UsageError:
    """What typer (its ``ClickException``) says about a mistyped command line, as ours."""
    context = getattr(mistyped, "ctx", None)
    command = getattr(context, "command_path", None) or "rangeland"
    message = str(mistyped.format_message()).rstrip(".")
    return UsageError(message, do=f"See `{command} --help`")


@contextmanager
def ending(arguments: Sequence[str]) -> Iterator[CommandEnding]:
    """The ending of one command. While it is open, under ``--json``, nothing but the answer
    reaches stdout; SIGTERM ends the command as Ctrl-C does."""
    for stream in (sys.stdout, sys.stderr):
        # A path that the locale cannot show is no reason to fail after the work is done.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    end = CommandEnding(arguments, sys.stdout)
    before = _on_signals(end.interrupt)
    try:
        if end.json:
            with _own_stdout() as stdout:
                end.stdout = stdout
                yield end
        else:
            yield end
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _on_signals(handler: Callable[[int, FrameType | None], None]) -> dict[signal.Signals, Any]:
    """Has SIGINT and SIGTERM handled, and returns who did before. What this process was started
    to ignore it goes on to ignore."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {n: old for n, old in found.items() if old not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, handler)
    return before


@contextmanager
def _own_stdout() -> Iterator[IO[str]]:
    """A private way to stdout; everyone else's, JVM included, leads to stderr meanwhile."""
    public = sys.stdout
    public.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # Closed, as under some daemons: there is nobody to mix with.
        yield public
        return
    with os.fdopen(kept, "w", encoding="utf-8", errors="backslashreplace") as private:
        sys.stdout = sys.stderr
        try:
            yield private
        finally:
            sys.stdout = public
            with suppress(OSError):
                private.flush()
            os.dup2(kept, 1)
