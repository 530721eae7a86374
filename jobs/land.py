"""Lands what a job file asks for: ``spark-submit ... jobs/land.py orders.yaml``."""

import sys

import rangeland
from rangeland.entry import Entry, main
from rangeland.results import RunResult


def land(entry: Entry) -> RunResult:
    return rangeland.land(entry.job, entry.spark(), entry.progress)


if __name__ == "__main__":
    sys.exit(main(land, __doc__))
