"""Lines of text, written by the console producer that comes with a broker.

So records are made by the Java code of that version: the framing of a codec, the content of a
wrapper, the format. It takes a second or two to start the JVM.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from rangeland.errors import Unreachable
from rangeland.testing.broker_jars import BROKER_JARS
from rangeland.testing.client_library import TIMEOUT_S, join_servers
from rangeland.testing.server_command import java_command
from tests.jar_sets import TEST_JARS

SEPARATOR = "|"
TOOLS = TEST_JARS["kafka-tools-4.1.0"]
"""For all brokers of version 4: the dependencies of 4.4's own tool are not available."""


def write_lines(
    version: str,
    bootstrap: str | Sequence[str],
    topic: str,
    lines: Sequence[tuple[str, str]],
    codec: str = "none",
) -> None:
    """Writes keys and values to a topic of a broker of ``version``, in order. Raises
    `Unreachable` with the tool's own output on failure."""
    is_new = version.startswith("4.")
    main = "org.apache.kafka.tools.ConsoleProducer" if is_new else "kafka.tools.ConsoleProducer"
    server = "--broker-list" if version.startswith("0.") else "--bootstrap-server"
    command = java_command(
        TOOLS if is_new else BROKER_JARS[f"kafka-{version}"], 64, main, properties={}
    )
    command += [server, join_servers(bootstrap), "--topic", topic]
    command += ["--property", "parse.key=true", "--property", f"key.separator={SEPARATOR}"]
    command += ["--compression-codec", codec] if codec != "none" else []
    # The oldest do not wait for responses by default, and may exit before everything is sent.
    command += ["--request-required-acks", "1"] if version.startswith(("0.8.", "0.9.")) else []
    text = "".join(f"{key}{SEPARATOR}{value}\n" for key, value in lines)
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    output = done.stdout + done.stderr
    if done.returncode != 0 or "ERROR" in output:
        raise Unreachable(f"Not all lines were written to {topic}", why=output[-2000:])
