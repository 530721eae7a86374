"""``python -m tests.simulation --seeds N --from S``: plays histories, and explains what fails."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.history import Counts, play
from tests.simulation.replaced import simulated
from tests.simulation.scenario import scenario
from tests.simulation.shrinking import explain, failure_of


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--age", help="of Kafka's brokers, or another dialect; drawn by the seed")
    parser.add_argument("--trace", action="store_true", help="print every step of each history")
    parser.add_argument("--brief", action="store_true", help="one line for each failure")
    parser.add_argument("--most", type=int, default=3, help="failures after which to stop")
    asked = parser.parse_args(arguments)
    counts, failed = Counts(), 0
    started, began = time.process_time(), time.monotonic()
    with simulated() as stage:
        for seed in range(asked.first, asked.first + asked.seeds):
            found = failure_of(scenario(seed, asked.age), stage, counts)
            if asked.trace:
                print(
                    "\n".join(
                        play(scenario(seed, asked.age), stage, Counts(), is_traced=True).world.trace
                    )
                )
            if found is not None:
                failed += 1
                brief = f"seed {seed}: {type(found).__name__}: {found}"
                print(
                    brief if asked.brief else explain(scenario(seed, asked.age), found, stage),
                    flush=True,
                )
                if failed >= asked.most:
                    break
    seconds, waited = time.process_time() - started, time.monotonic() - began
    print(
        f"{counts.histories} histories, {counts.runs} runs, {counts.steps} steps in "
        f"{seconds:.1f} s of one core ({waited:.1f} s): {counts.runs / seconds:.0f} runs/s, "
        f"{counts.histories / seconds:.0f} histories/s"
    )
    print("faults:", dict(counts.faults.most_common()))
    print("ends:", dict(counts.ends.most_common()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
