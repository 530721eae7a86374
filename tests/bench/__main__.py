"""``python -m tests.bench``: measures, prints tables, writes the JSON and the chart."""

from __future__ import annotations

import argparse
import json
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import remove_directory
from tests.bench import parts
from tests.bench.chart import draw
from tests.bench.measuring import load_average
from tests.bench.parts import Bench, by_codec
from tests.bench.peers import BareProcesses
from tests.bench.pulling import pull
from tests.bench.report import show
from tests.bench.session import open_session, prepare_environment
from tests.bench.shapes import shapes
from tests.bench.typed_part import FORMATS, typed

PARTS = ("survey", "fixed", "warm", "shapes", "typed", "cold", "cores", "memory", "pull")
QUICK_RECORDS, QUICK_ROUNDS = 200_000, 2
RECORDS, ROUNDS = 4_000_000, 5
PARTITIONS = 4
CORES = 2
RESULTS = Path("bench-results")


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    # Ended from outside, it still removes what it has written.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    console = Console(stderr=True)
    chosen.out.mkdir(parents=True, exist_ok=True)
    # All that sides write is below the folder of the results: one disk for all.
    folder = Path(tempfile.mkdtemp(prefix="scratch-", dir=chosen.out.absolute()))
    found: dict[str, Any] = {"machine": _machine()}
    bench = Bench(
        "",
        folder,
        chosen.records or (QUICK_RECORDS if chosen.quick else RECORDS),
        chosen.rounds or (QUICK_ROUNDS if chosen.quick else ROUNDS),
        PARTITIONS,
        lambda text: console.print(f"[dim]{load_average():5.2f}  {text}[/dim]"),
    )
    found["options"] = _options(bench, chosen)
    try:
        if "pull" in chosen.parts:  # brokers of its own, and no others beside them
            found["pull"] = pull(bench.records, bench.rounds, bench.partitions, folder, bench.say)
        if set(chosen.parts) - {"pull"}:
            with KafkaCluster("4.1.0", brokers=1, heap_mb=1024) as cluster:
                bench = replace(bench, bootstrap=cluster.bootstrap[0])
                _measure(bench, chosen, found)
    finally:
        remove_directory(folder)
        if set(PARTS) & set(found):  # also what was measured before a failure
            console.print(f"written: {', '.join(_written(found, chosen.out))}")
            # Piped, a terminal of 80 columns would be assumed, and names broken.
            show(found, Console() if sys.stdout.isatty() else Console(width=110))
    return 0


def _written(found: dict[str, Any], folder: Path) -> list[str]:
    """The numbers, and a chart of them if there is anything to draw it with."""
    place = folder / time.strftime("%Y%m%d-%H%M%S")
    numbers, chart = place.with_suffix(".json"), place.with_suffix(".svg")
    numbers.write_text(json.dumps(found, indent=1) + "\n")
    if find_spec("matplotlib") is None:
        return [str(numbers), "no chart: matplotlib is not installed, which the extra bench has"]
    draw(found, chart)
    return [str(numbers), str(chart)]


def _measure(bench: Bench, chosen: argparse.Namespace, found: dict[str, Any]) -> None:
    """What starts processes of its own comes first: no other JVM than the broker's is up."""
    wanted, codecs = chosen.parts, chosen.codecs
    prepare_environment()
    if "survey" in wanted:
        found["survey"] = parts.survey(bench)
    if "cold" in wanted:
        found["cold"] = by_codec(parts.cold, bench, codecs)
    if "cores" in wanted:
        found["cores"] = parts.cores(bench, bench.ground("lz4", 1))
    if "memory" in wanted:
        found["memory"] = parts.memory(bench, bench.ground("none", 1))
    if {"warm", "shapes", "fixed", "typed"} & set(wanted):
        spark = open_session(f"local[{CORES}]", bench.folder)
        bare = BareProcesses(CORES)
        try:
            if "fixed" in wanted:
                found["fixed"] = parts.fixed(bench, spark)
            if "warm" in wanted:
                found["warm"] = by_codec(parts.warm, bench, codecs, spark=spark, bare=bare)
            if "shapes" in wanted:
                shapes(bench, spark, found.setdefault("shapes", {}))
            if "typed" in wanted:
                found["typed"] = typed(bench, spark, chosen.formats)
        finally:
            bare.close()
            spark.stop()


def _machine() -> dict[str, Any]:
    packages = ("pyspark", "delta-spark", "pyarrow", "confluent-kafka")
    return {
        "cpus": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
        "load_average_at_start": load_average(),
    }


def _options(bench: Bench, chosen: argparse.Namespace) -> dict[str, Any]:
    return {
        "records": bench.records,
        "rounds": bench.rounds,
        "partitions": bench.partitions,
        "cores": CORES,
        "codecs": chosen.codecs,
        "parts": chosen.parts,
        "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few records and rounds, for a look")
    parser.add_argument("--records", type=int, metavar="N", help=f"default {RECORDS:,}")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"default {ROUNDS}")
    parser.add_argument("--codecs", type=_words, default=["lz4", "none"], metavar="A,B")
    parser.add_argument("--parts", type=_among(PARTS), default=list(PARTS), metavar="A,B")
    parser.add_argument(
        "--formats", type=_among(FORMATS), default=list(FORMATS), metavar="A,B", help="of `typed`"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR")
    return parser


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _among(known: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        words = _words(text)
        unknown = [word for word in words if word not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown: {unknown}; there are {', '.join(known)}")
        return words

    return parse


if __name__ == "__main__":
    sys.exit(main())
