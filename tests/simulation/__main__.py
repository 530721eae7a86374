"""``python -m tests.simulation --seeds N --from S``: plays histories, and explains what fails."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping

from tests.simulation.history import play
from tests.simulation.replaced import simulated
from tests.simulation.scenario import long_scenario, scenario
from tests.simulation.shrinking import explain, failure_of
from tests.simulation.tally import Counts


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--long", action="store_true", help="long histories only")
    parser.add_argument("--age", help="of Kafka's brokers, or another dialect; drawn by the seed")
    parser.add_argument("--trace", action="store_true", help="print every step of each history")
    parser.add_argument("--brief", action="store_true", help="one line for each failure")
    parser.add_argument("--most", type=int, default=3, help="failures after which to stop")
    asked = parser.parse_args(arguments)
    drawn = long_scenario if asked.long else scenario
    counts, failed = Counts(), 0
    started, began = time.process_time(), time.monotonic()
    with simulated() as stage:
        for seed in range(asked.first, asked.first + asked.seeds):
            history = drawn(seed, asked.age)
            found = failure_of(history, stage, counts)
            if asked.trace:
                print("\n".join(play(history, stage, Counts(), is_traced=True).world.trace))
            if found is not None:
                failed += 1
                brief = f"seed {seed}: {type(found).__name__}: {found}"
                print(brief if asked.brief else explain(history, found, stage), flush=True)
                if failed >= asked.most:
                    break
    print(summary(counts, time.process_time() - started, time.monotonic() - began))
    return 1 if failed else 0


def summary(counts: Counts, seconds: float, waited: float) -> str:
    """``seconds`` of one core, ``waited`` on the clock."""
    lines = [
        f"{counts.histories} histories, {counts.runs} runs, {counts.steps} steps in "
        f"{seconds:.1f} s of one core ({waited:.1f} s): {counts.runs / seconds:.0f} runs/s, "
        f"{counts.histories / seconds:.0f} histories/s"
    ]
    for name, found in (
        ("operations", counts.operations),
        ("ends", counts.ends),
        ("faults", counts.fault_kinds),
        ("places of faults", counts.fault_places),
        ("changes", counts.changes),
        ("checks", counts.checks),
    ):
        lines.append(f"{name}: {_listed(found)}")
    return "\n".join(lines)


def _listed(found: Mapping[str, int]) -> str:
    ordered = sorted(found.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{name} {number}" for name, number in ordered)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
