"""Lands a range beside the scheduled runs, and leaves their checkpoint where it is:
``spark-submit ... jobs/backfill_range.py orders.yaml --from 2026-01-30 --until 2026-01-31``."""

import sys

import rangeland
from rangeland.entry import Entry, main
from rangeland.flags import require_closed_range
from rangeland.results import RunResult


def backfill(entry: Entry) -> RunResult:
    require_closed_range(entry.text, entry.job)
    return rangeland.backfill(entry.job, entry.spark(), entry.progress)


if __name__ == "__main__":
    sys.exit(main(backfill, __doc__))
