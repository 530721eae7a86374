"""The JVM that Spark runs in: started here, so that it can also be ended here.

PySpark starts it too, and forgets it when it is interrupted meanwhile: the JVM then lives on for
some seconds after the command has ended, and prints what it thinks of that. Here it is known
from the first moment on. It shares our process group, so whoever kills the group of a command
reaches it, but it ignores Ctrl-C, which is ours to answer.

Its stderr comes through a pipe. That lets us keep silent about a JVM that we end ourselves, and
tells when everything has gone: the pipe closes with the last process that Spark has started.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

POLL_S = 0.05
GRACE_S = 30.0
"""How long a JVM may take to stop Spark and remove its temporary files. It takes one second, on
a busy machine more."""
_USUAL = (
    b"WARNING: Using incubator modules: jdk.incubator.vector",
    b"Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties",
    b'Setting default log level to "WARN".',
    b"To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).",
)
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_logger = logging.getLogger(__name__)


class JvmExited(Exception):
    """It ended before it could be spoken to. What it said of that is on stderr."""


class DriverJvm:
    """A ``spark-submit`` that waits for a Python to drive it; started by the constructor."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        self._quiet = False
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # When it closes, because we have died, the JVM ends.
            stderr=subprocess.PIPE,
            env=environment,
            preexec_fn=_ignore_ctrl_c,
        )
        self._relay = threading.Thread(target=self._pass_on, name="rangeland-jvm", daemon=True)
        self._relay.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def wait_for_last_words(self) -> None:
        """For a JVM that has ended: until what it has said is on our stderr."""
        self._relay.join(1)

    def quiet(self) -> None:
        """From now on nothing that it says is passed on."""
        self._quiet = True

    def terminate(self) -> None:
        """Tells it to end and returns at once; may be called by a signal handler."""
        self._quiet = True
        self._popen.terminate()

    def kill(self) -> None:
        self._quiet = True
        self._popen.kill()

    def end(self) -> None:
        """Ends it, and returns when it and all that it has started are gone."""
        self.terminate()
        self._relay.join(GRACE_S)
        self.kill()
        self._popen.wait()
        self._relay.join(1)
        if not self._relay.is_alive():  # Else something that was started has outlived it.
            for stream in (self._popen.stdin, self._popen.stderr):
                assert stream is not None
                stream.close()

    def _pass_on(self) -> None:
        stream = self._popen.stderr
        assert stream is not None
        begun = b""
        while read := os.read(stream.fileno(), 1 << 16):
            piece, begun = without_usual(begun + read)
            while piece and not self._quiet:
                try:
                    piece = piece[os.write(2, piece) :]
                except OSError:  # We have no stderr. The JVM shall not notice.
                    break


def without_usual(said: bytes) -> tuple[bytes, bytes]:
    """What a JVM says, less what it says at each start; and the beginning of a line of which it
    is not known yet which of the two it will be."""
    lines = said.splitlines(keepends=True)
    begun = b""
    if lines and any(usual.startswith(lines[-1]) for usual in _USUAL):
        begun = lines.pop()
    return b"".join(line for line in lines if line.strip() not in _USUAL), begun


class JvmStart:
    """While it is open, Spark is being started. SIGINT and SIGTERM then end the JVM, and with it
    whatever waits for it, and are delivered as soon as it is gone: a handler that raised in the
    middle of a start would leave a JVM that nobody knows of."""

    def __init__(self) -> None:
        self._received: list[int] = []
        self._before: dict[int, Any] = {}
        self._handler_of_spark: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in SIGNALS}
            self._listen()
        return self

    def _listen(self) -> None:
        for number, handler in self._before.items():
            if handler not in (signal.SIG_IGN, None):
                signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received.append(number)
        if _started and len(self._received) == 1:
            _started[-1].terminate()
            # It may be past listening, and the thread that waits for it is this one.
            timer = threading.Timer(GRACE_S, _started[-1].kill)
            timer.daemon = True
            timer.start()
        elif _started:
            _started[-1].kill()

    def launch(self, settings: Mapping[str, str]) -> None:
        """Starts the JVM and makes it PySpark's, unless it has one. Raises ``JvmExited``."""
        from pyspark import SparkContext

        if SparkContext._gateway is None:
            gateway = self._gateway(settings)
            SparkContext._ensure_initialized(gateway=gateway)

    def context_made(self) -> None:
        """A new SparkContext has taken SIGINT for itself."""
        if self._before:
            self._handler_of_spark = signal.getsignal(signal.SIGINT)
            self._listen()

    def _gateway(self, settings: Mapping[str, str]) -> Any:
        with tempfile.TemporaryDirectory(prefix="rangeland-jvm-") as folder:
            connection = Path(folder, "connection")
            start = time.monotonic()
            jvm = DriverJvm(_command(settings), _environment(connection))
            _logger.info("starting the JVM of Spark", extra={"pid": jvm.pid})
            _started.append(jvm)
            while jvm.running and not self._received and not connection.exists():
                time.sleep(POLL_S)
            if self._received:
                jvm.end()  # Before its folder goes: it may be about to write there.
            if not connection.exists():
                jvm.wait_for_last_words()
                _logger.info("the JVM of Spark ended at once", extra={"pid": jvm.pid})
                jvm.end()
                _started.remove(jvm)
                raise JvmExited
            seconds = round(time.monotonic() - start, 3)
            _logger.info("the JVM of Spark is up", extra={"pid": jvm.pid, "seconds": seconds})
            return _connect(*_port_and_secret(connection.read_bytes()))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        interrupted = self._received or not (error is None or isinstance(error, Exception))
        if interrupted:
            end_jvm()
        for number, handler in self._before.items():
            # As PySpark has it: Ctrl-C in a shell cancels Spark's jobs. Not if somebody asked
            # for something else before.
            if handler is signal.default_int_handler and self._handler_of_spark is not None:
                handler = self._handler_of_spark if not interrupted else handler
            if handler is not None:
                signal.signal(number, handler)
        if self._received:
            signal.raise_signal(self._received[0])
            raise KeyboardInterrupt  # Its handler has let us go on, but Spark is gone.


_started: list[DriverJvm] = []
"""At most one, the JVM of this process."""


def quiet_jvm() -> None:
    """Passes on no more of what a JVM of ours says: it is about to be ended."""
    for jvm in _started:
        jvm.quiet()


def end_jvm() -> None:
    """Ends the JVM, if this process has started one. PySpark may start another one then."""
    while _started:
        _logger.info("ending the JVM of Spark", extra={"pid": _started[-1].pid})
        _started[-1].end()
        _started.pop()
        _forget()


def kill_jvm() -> None:
    """For those who cannot wait. May be called by a signal handler, while ``end_jvm`` waits."""
    for jvm in _started:
        jvm.kill()


def _forget() -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = None
    SparkContext._active_spark_context = SparkSession._instantiatedSession = None


def _command(settings: Mapping[str, str]) -> list[str]:
    from pyspark.find_spark_home import _find_spark_home

    words = [os.path.join(_find_spark_home(), "bin", "spark-submit")]
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    return [*words, *shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))]


def _environment(connection: Path) -> dict[str, str]:
    return {
        **os.environ,
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection),
    }


def _port_and_secret(written: bytes) -> tuple[int, str]:
    port, length = struct.unpack_from(">ii", written)
    return port, written[8 : 8 + length].decode()


def _connect(port: int, secret: str) -> Any:
    """PySpark's own way into a JVM that is there already, as under spark-submit."""
    from pyspark.java_gateway import launch_gateway

    told = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(told)
    try:
        return launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in told:
            with suppress(KeyError):
                del os.environ[name]


def _ignore_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
