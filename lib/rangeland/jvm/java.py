"""Finds the Java that runs Spark and the test servers, and checks its version.

``JAVA_HOME`` takes precedence over ``PATH``, as usual. Spark 4 and every server of ``testing`` run
on Java 17 and later without extra flags; Spark 3.5 also runs on Java 11.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from rangeland.errors import UsageError

MINIMUM_JAVA = 17
OLDEST_JAVA = 11
"""The oldest Java on which Spark 3.5 and Delta Kernel run."""
OTHER_JAVA = "install it again, or point JAVA_HOME at another JDK or JRE"

# For test servers and Ivy: one collector thread and a quick start. Without UsePerfData, a JVM that
# is killed leaves no file in the shared temp directory. Verifying the bytecode of released jars
# would take a sixth of a broker's start.
SMALL_JVM = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)


def find_java(minimum: int = MINIMUM_JAVA) -> str:
    """The path of a ``java`` of at least this version. Raises UsageError if there is none."""
    home = os.environ.get("JAVA_HOME", "")
    java = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    return _require_java(home, java, minimum)


@functools.cache
def _require_java(home: str, java: str | None, minimum: int) -> str:
    do = f"install a JDK or JRE {minimum} or later, or point JAVA_HOME at one"
    if java is None:
        reason = f"JAVA_HOME={home} has no bin/java" if home else "there is no java on the PATH"
        raise UsageError("Java was not found", why=reason, do=do, java_home=home)
    version = java_version(java)
    if version < minimum:
        reason = f"{java} is version {version}; {minimum} is required"
        raise UsageError("Java is too old", why=reason, do=do, java=java, version=version)
    return java


def java_version(java: str) -> int:
    """The feature release of a ``java``: 8, 17, 21. It is read from the file that comes with it,
    because starting Java takes a while."""
    release = Path(java).resolve().parent.parent / "release"
    with suppress(OSError, UnicodeDecodeError):
        if match := re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release.read_text(), re.MULTILINE):
            return int(match[1])
    try:
        process = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(
            f"{java} does not run", why=str(error), do=OTHER_JAVA, java=java
        ) from error
    return parse_java_version(process.stderr + process.stdout)


def parse_java_version(output: str) -> int:
    """Parses the output of ``java -version``. Before Java 9, the release was the second number."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    if match is None:
        raise UsageError(
            "The version of Java is not known",
            why=f"its output is {output.strip()!r}",
            do=OTHER_JAVA,
        )
    return int(match.group(1))
