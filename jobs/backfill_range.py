"""Lands a range without moving the checkpoint of the scheduled runs:
``spark-submit ... jobs/backfill_range.py orders.yaml --from 2026-01-30 --until 2026-01-31``."""

import sys

import rangeland
from rangeland.job.command_line_overrides import check_range_is_for_backfill
from rangeland.results import RunResult
from rangeland.submit.entry_point import ScriptEntry, main

FLAGS = {
    "missing": "land again what is missing from the table; it finds its ranges itself",
    "replace": "land the range again, replacing the rows that are there",
}


def backfill(entry: ScriptEntry) -> RunResult:
    missing, replace = "missing" in entry.flags, "replace" in entry.flags
    check_range_is_for_backfill(entry.text, entry.job, missing=missing, replace=replace)
    return rangeland.backfill(
        entry.job, entry.spark(), entry.progress, missing=missing, replace=replace
    )


if __name__ == "__main__":
    sys.exit(main(backfill, __doc__, flags=FLAGS, command="backfill"))
