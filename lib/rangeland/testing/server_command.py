"""The command that starts a server in a small JVM, and the files that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rangeland.jvm.jar_sets import JarSet
from rangeland.jvm.jars import class_path
from rangeland.jvm.java import SMALL_JVM, find_java

_LOG4J = """log4j.rootLogger={level}, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d %p %m (%c)%n
"""


def java_command(
    jars: JarSet,
    heap_mb: int,
    *arguments: str,
    properties: Mapping[str, object],
    options: Sequence[str] = (),
) -> list[str]:
    """The command that runs a class from a set of jars; the class is the first of the
    ``arguments``."""
    heap = [f"-Xms{heap_mb // 4}m", f"-Xmx{heap_mb}m"]
    definitions = [f"-D{name}={value}" for name, value in properties.items()]
    command = [find_java(), *heap, *SMALL_JVM, *definitions, *options]
    return [*command, "-cp", class_path(jars), *arguments]


def write_settings(path: Path, settings: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def log4j_settings(folder: Path, level: str = "INFO") -> str:
    """The address of a file in the folder that makes log4j 1 print everything."""
    path = folder / "log4j.properties"
    path.write_text(_LOG4J.format(level=level))
    return path.as_uri()
