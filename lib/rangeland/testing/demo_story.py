"""The parts of a demo: steps that are announced and timed, promises that are checked, and the
environment in which commands run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.text import Text

from rangeland.cli.command_output import CommandOutput
from rangeland.errors import Bug
from rangeland.job.command_line_overrides import load_job
from rangeland.render.text_drawing import safe_text
from rangeland.spark.spark_session import open_spark
from rangeland.wording import duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Promise:
    """A claim of the demo, and what was observed."""

    claim: str
    held: bool
    seen: str


@dataclass(slots=True)
class Story:
    """A demo in progress: its promises, and how long each step took."""

    console: Console
    promises: list[Promise] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Prints the title of the next step, and afterwards how long it took."""
        self.console.print(Text(f"\n{len(self.seconds) + 1}. {title}", "bold cyan"))
        began = time.monotonic()
        yield
        self.seconds[title] = round(time.monotonic() - began, 3)
        self.console.print(Text(f"   {duration(self.seconds[title])}", "dim"))

    def tell(self, content: str | RenderableType) -> None:
        self.console.print(safe_text(content) if isinstance(content, str) else content)

    def promise(self, claim: str, expected: object, seen: object) -> None:
        """Records whether a promise was kept; ``check`` ends the demo."""
        held = expected == seen
        text = str(seen) if held else f"{seen}, expected {expected}"
        self.promises.append(Promise(claim, held, text))
        mark = Text("   ok ", "green") if held else Text("   FAILED ", "bold red")
        self.console.print(
            mark.append_text(safe_text(claim if held else f"{claim}: {text}", "default"))
        )

    def check(self) -> None:
        broken = [promise for promise in self.promises if not promise.held]
        if broken:
            raise Bug(
                f"the demo broke a promise: {broken[0].claim}",
                why=f"{broken[0].seen}" + f"; {len(broken) - 1} more" * (len(broken) > 1),
                do="run it again with --keep --debug and report what it prints",
                promises=[asdict(promise) for promise in broken],
            )


def open_local_spark(app_name: str, folder: Path) -> SparkSession:
    """The active session if there is one, otherwise a small local one with all of its files in
    ``folder``. Raises the errors of ``open_spark``."""
    return open_spark(
        app_name,
        {
            "spark.local.dir": str(folder / "spark"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            # A demo's table is small; two hundred empty partitions would take a while.
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
        },
        makes_archive=True,
    )


class Stage:
    """The setting of the demo: broker, files, Spark, and how to run a command."""

    def __init__(
        self, servers: list[str], folder: Path, spark: SparkSession, output: CommandOutput
    ) -> None:
        self.servers = servers
        self.job_file = folder / "orders.yaml"
        self.table = folder / "lake" / "orders"
        self.schema_file = folder / "orders.ddl"
        self.typed_file = folder / "typed.yaml"
        self.typed_table = folder / "lake" / "orders_typed"
        self._spark = spark
        self._output = output

    def run(self, command: Callable[..., Any], *bounds: str, job_file: Path | None = None) -> Any:
        """Runs a command on a job file, as the command line does."""
        job, _ = load_job(job_file or self.job_file, (), *bounds)
        with self._output.progress() as progress:
            return command(job, self._spark, progress)

    def sql(self, query: str) -> list[Any]:
        """The rows of a query in which {table}, {ledger} and {typed} are placeholders."""
        tables = {"table": self.table, "typed": self.typed_table}
        tables["ledger"] = self.table / "_rangeland" / "ledger"
        names = {name: f"delta.`{path}`" for name, path in tables.items()}
        rows: list[Any] = self._spark.sql(query.format(**names)).collect()
        return rows
