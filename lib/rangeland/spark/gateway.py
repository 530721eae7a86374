"""Starts the JVM in which Spark runs, and ends it.

PySpark can start the JVM too, but it loses track of it if it is interrupted during the start: the
JVM then keeps running for some seconds after the command has ended, and prints errors. Here the
process is known from the beginning. It is in our process group, so a signal to the group reaches
it, but it ignores Ctrl-C, which is handled in this process.

The JVM's output is read through a pipe and passed on to our stderr. So it can be dropped once the
JVM is being ended, and it becomes visible when all processes that Spark has started are gone: only
then does the pipe close.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from rangeland.jvm.class_archive import MAKING

POLL_S = 0.05
GRACE_S = 30.0
"""How long a JVM may take to stop Spark and remove its temporary files. Usually it takes a second,
but longer on a busy machine."""
ARCHIVING_GRACE_S = 5.0
"""How long to wait for a JVM that has nothing left to do except write an archive of its classes."""
_STARTUP_LINES = (
    b"WARNING: Using incubator modules: jdk.incubator.vector",
    b"Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties",
    b'Setting default log level to "WARN".',
    b"To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).",
)
SIGNALS = (signal.SIGINT, signal.SIGTERM)
logger = logging.getLogger(__name__)

_PY4J_LOGGERS = ("root", "py4j.java_gateway", "py4j.clientserver")
"""The loggers that py4j uses. A logger's filter does not apply to the records of its child
loggers."""


def add_py4j_filter(is_worth_showing: Callable[[logging.LogRecord], bool]) -> None:
    """Drops those records of py4j, and of the root logger, for which this returns False."""
    for name in _PY4J_LOGGERS:
        logging.getLogger(name).addFilter(is_worth_showing)


def remove_py4j_filter(is_worth_showing: Callable[[logging.LogRecord], bool]) -> None:
    """Undoes ``add_py4j_filter``."""
    for name in _PY4J_LOGGERS:
        logging.getLogger(name).removeFilter(is_worth_showing)


class JvmExited(Exception):
    """The JVM ended before a connection could be made. Its own output is on stderr."""


class DriverJvm:
    """A ``spark-submit`` process that waits for a Python driver; the constructor starts it."""

    def __init__(
        self, command: list[str], environment: Mapping[str, str], *, archives: bool = False
    ) -> None:
        self.grace_s = ARCHIVING_GRACE_S if archives else GRACE_S
        self._quiet = False
        # It gets none of our own streams, so that nobody who reads those to the end has to wait for
        # a JVM that is still cleaning up.
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # The JVM ends when this closes because our process died.
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
        self._relay = threading.Thread(target=self._pass_on, name="rangeland-jvm", daemon=True)
        self._relay.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def wait_for_output(self) -> None:
        """If the JVM has ended, waits, for a second at most, until its output has reached our
        stderr."""
        self._relay.join(1)

    def quiet(self) -> None:
        """Drops the output of the JVM from now on."""
        self._quiet = True

    def terminate(self) -> None:
        """Asks the JVM to end and returns at once. May be called from a signal handler."""
        self._quiet = True
        self._popen.terminate()

    def kill(self) -> None:
        self._quiet = True
        self._popen.kill()

    def end_by_itself(self, timeout_s: float) -> bool:
        """Asks the JVM to end as if this process had ended, and returns whether it ended in
        time."""
        assert self._popen.stdin is not None
        self._quiet = True
        self._popen.stdin.close()
        self._relay.join(timeout_s)
        return not self._relay.is_alive()

    def end(self) -> None:
        """Ends the JVM, and returns once it and all processes that it has started are gone."""
        self.terminate()
        self._relay.join(self.grace_s)
        self.kill()
        self._popen.wait()
        self._relay.join(1)
        if not self._relay.is_alive():  # Otherwise a process that it started is still running.
            for stream in (self._popen.stdin, self._popen.stdout):
                assert stream is not None
                stream.close()

    def _pass_on(self) -> None:
        stream = self._popen.stdout
        assert stream is not None
        incomplete = b""
        while output := os.read(stream.fileno(), 1 << 16):
            block, incomplete = without_startup_lines(incomplete + output)
            while block and not self._quiet:
                try:
                    block = block[os.write(2, block) :]
                except OSError:  # We have no stderr. Keep reading, so that the JVM does not block.
                    break


def without_startup_lines(output: bytes) -> tuple[bytes, bytes]:
    """The output without the lines that Spark prints at each start, and an incomplete last line
    that may turn out to be one of them."""
    lines = output.splitlines(keepends=True)
    incomplete = b""
    if lines and any(known.startswith(lines[-1]) for known in _STARTUP_LINES):
        incomplete = lines.pop()
    return b"".join(line for line in lines if line.strip() not in _STARTUP_LINES), incomplete


class JvmStart:
    """The start of Spark, or of a part of it. While this context is open, SIGINT and SIGTERM end
    the JVM, and with it any wait for it, and are delivered only once it is gone: if a handler
    raised an exception in the middle of a start, it would leave behind a JVM that nobody knows
    about."""

    def __init__(self) -> None:
        self._received: list[int] = []
        self._before: dict[int, Any] = {}
        self._handler_of_spark: Any = None
        self._jvm: DriverJvm | None = None
        """The JVM that was launched and is not connected yet."""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._launched_at = 0.0

    def __enter__(self) -> Self:
        add_py4j_filter(self._is_worth_showing)
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in SIGNALS}
            self._listen()
        return self

    def _is_worth_showing(self, record: logging.LogRecord) -> bool:
        """False for py4j's records about a JVM that is being ended: a call may be in progress."""
        return not (self._received and "py4j" in record.pathname)

    def _listen(self) -> None:
        for number, handler in self._before.items():
            if handler not in (signal.SIG_IGN, None):
                signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received.append(number)
        if _started and len(self._received) == 1:
            _started[-1].terminate()
            # The JVM may not react, and this is the thread that waits for it.
            timer = threading.Timer(_started[-1].grace_s, _started[-1].kill)
            timer.daemon = True
            timer.start()
        elif _started:
            _started[-1].kill()

    def launch(
        self,
        settings: Mapping[str, str],
        home: str,
        java_options: Sequence[str] = (),
        class_path: Sequence[str] = (),
    ) -> None:
        """Starts the JVM of the Spark installation in ``home`` without waiting for it, unless
        PySpark has one already. ``class_path`` comes after Spark's own jars."""
        if _has_gateway():
            return
        self._folder = tempfile.TemporaryDirectory(prefix="rangeland-jvm-")
        self._launched_at = time.monotonic()
        self._jvm = DriverJvm(
            _command(settings, home),
            self._environment(java_options, class_path),
            archives=any(MAKING in option for option in java_options),
        )
        _started.append(self._jvm)
        logger.info("Started the JVM of Spark", extra={"pid": self._jvm.pid})

    @property
    def _connection(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name, "connection")

    def _environment(
        self, java_options: Sequence[str], class_path: Sequence[str]
    ) -> dict[str, str]:
        options = [*java_options, os.environ.get("SPARK_SUBMIT_OPTS", "")]
        path = [os.environ.get("SPARK_DIST_CLASSPATH", ""), *class_path]
        return {
            **os.environ,
            "SPARK_CONNECT_MODE": "0",
            "SPARK_SUBMIT_OPTS": " ".join(filter(None, options)),
            "SPARK_DIST_CLASSPATH": os.pathsep.join(filter(None, path)),
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._connection),
        }

    def connect(self) -> Any:
        """Waits for the JVM, passes it to PySpark, and returns py4j's gateway to it. Raises
        ``JvmExited``."""
        from pyspark import SparkContext

        jvm = self._jvm
        if jvm is None:
            return SparkContext._gateway
        while jvm.running and not self._received and not self._connection.exists():
            time.sleep(POLL_S)
        if self._received or not self._connection.exists():
            jvm.wait_for_output()
            logger.info("The JVM of Spark ended at once", extra={"pid": jvm.pid})
            raise JvmExited  # closing this context ends the JVM
        seconds = round(time.monotonic() - self._launched_at, 3)
        logger.info("Connected to the JVM of Spark", extra={"pid": jvm.pid, "seconds": seconds})

        gateway = _connect(self._connection.read_bytes())
        self._jvm = None
        SparkContext._ensure_initialized(gateway=gateway)
        return gateway

    def context_made(self) -> None:
        """Must be called once SparkContext has installed its own SIGINT handler."""
        if self._before:
            self._handler_of_spark = signal.getsignal(signal.SIGINT)
            self._listen()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        interrupted = self._received or not (error is None or isinstance(error, Exception))
        if interrupted or self._jvm is not None:
            end_jvm()
        remove_py4j_filter(self._is_worth_showing)
        if self._folder is not None:  # The JVM may have been about to write there.
            self._folder.cleanup()
        for number, handler in self._before.items():
            # As in PySpark, Ctrl-C in a shell cancels Spark's jobs, unless another handler had been
            # set.
            if handler is signal.default_int_handler and self._handler_of_spark is not None:
                handler = self._handler_of_spark if not interrupted else handler
            if handler is not None:
                signal.signal(number, handler)
        if self._received:
            signal.raise_signal(self._received[0])
            raise KeyboardInterrupt  # The handler has returned, but Spark is gone.


_started: list[DriverJvm] = []
"""The JVM of this process: at most one."""


def quiet_jvm() -> None:
    """Drops the output of our JVM from now on, since it is about to be ended."""
    for jvm in _started:
        jvm.quiet()
    _quiet_accumulators()


def end_jvm() -> None:
    """Ends the JVM, if this process has started one. PySpark may then start another."""
    if _started:
        _quiet_accumulators()
    while _started:
        logger.info("Ending the JVM of Spark", extra={"pid": _started[-1].pid})
        _started[-1].end()
        _started.pop()
        _forget()


def await_jvm_end(timeout_s: float) -> None:
    """Lets the JVM end by itself, as it would after this process, and waits until it has done
    so."""
    if _started and not _started[-1].end_by_itself(timeout_s):
        logger.info("The JVM of Spark is still running", extra={"pid": _started[-1].pid})


def kill_jvm() -> None:
    """Kills the JVM without waiting. May be called from a signal handler while ``end_jvm``
    waits."""
    for jvm in _started:
        jvm.kill()


def _has_gateway() -> bool:
    """Whether PySpark already has a JVM. This does not import PySpark."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    return SparkContext._gateway is not None


def _quiet_accumulators() -> None:
    """Silences PySpark's accumulator server, which prints a traceback if the JVM ends during an
    update."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    server = getattr(getattr(context, "_active_spark_context", None), "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, address: None


def _forget() -> None:
    if "pyspark.sql" not in sys.modules:
        return
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = None
    SparkContext._active_spark_context = SparkSession._instantiatedSession = None


def _command(settings: Mapping[str, str], home: str) -> list[str]:
    command = [os.path.join(home, "bin", "spark-submit")]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    return [*command, *shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))]


def _connect(connection: bytes) -> Any:
    """Connects PySpark to a running JVM, as spark-submit does. ``connection``: the content of the
    file in which the JVM gives its port and secret."""
    from pyspark.java_gateway import launch_gateway

    port, length = struct.unpack_from(">ii", connection)
    secret = connection[8 : 8 + length].decode()
    variables = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(variables)
    try:
        return launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in variables:
            with suppress(KeyError):
                del os.environ[name]
