"""Lands what a job file asks for: ``spark-submit ... jobs/land.py orders.yaml``."""

import sys

import rangeland
from rangeland.results import RunResult
from rangeland.submit.entry_point import ScriptEntry, main


def land(entry: ScriptEntry) -> RunResult:
    return rangeland.land(entry.job, entry.spark(), entry.progress)


if __name__ == "__main__":
    sys.exit(main(land, __doc__))
