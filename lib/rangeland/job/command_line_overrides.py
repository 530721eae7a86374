"""Applies ``--set``, ``--from`` and ``--until`` to a job file.

A malformed option is a UsageError that names the option. A mistake in the file, or a ``--set`` of a
field that does not exist, is a JobFileError that says where the mistake is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rangeland.dialects.dialect import load_dialect
from rangeland.errors import JobFileError, UsageError
from rangeland.job.extends import read_job_text
from rangeland.job.job_file import Job
from rangeland.job.job_mistakes import JobFileMistake, job_file_error
from rangeland.job.job_text import JobText, override, with_value
from rangeland.job.value_parsers import (
    EXPECTED_UNTIL,
    parse_bounds,
    parse_partition,
    parse_until,
)
from rangeland.model import Bounds, FromCheckpoint, Partition
from rangeland.untrusted import Unreadable, parse_json

SIDES = {"--from": "from", "--until": "until"}


def load_job(
    path: Path,
    settings: Sequence[str] = (),
    from_bound: str | None = None,
    until_bound: str | None = None,
) -> tuple[Job, JobText]:
    """The job with all overrides applied, and its text.

    Raises JobFileError for mistakes in the file and for unknown fields, UsageError for malformed
    options."""
    flags = {"--from": from_bound, "--until": until_bound}
    bounds = {flag: read_bound(flag, word) for flag, word in flags.items() if word is not None}
    text = override(read_job_text(path), settings)
    job = Job.of(text)
    for flag, bound in bounds.items():
        text = with_value(text, ("range", SIDES[flag]), bound, flag)
    result = Job.job_or_mistakes(text) if bounds else job
    if not isinstance(result, Job):
        raise _bounds_error(text, flags, result)
    return result, text


def _bounds_error(
    text: JobText, flags: Mapping[str, str | None], mistakes: Sequence[JobFileMistake]
) -> UsageError | JobFileError:
    """The error for bounds that the job refuses: a UsageError if only an option is wrong."""
    mistake = mistakes[0]
    flag = text.option_of(mistake.path)
    if mistake.other is None and flag in flags:
        return _flag_error(flag, flags[flag] or "", mistake.text())
    return job_file_error(text, mistakes)


def read_bound(flag: str, text: str) -> Any:
    """The plain value of a bound: a keyword, a time, or a mapping as JSON.

    Raises UsageError for anything else."""
    value: Any = text.strip()
    if value.startswith(("{", "[", '"')):
        try:
            value = parse_json(value, unique_keys=True)
        except Unreadable as error:
            raise _flag_error(flag, text, f"JSON ({error})") from error
    try:
        (parse_until if flag == "--until" else parse_bounds)(value)
    except ValueError as error:
        raise _flag_error(flag, text, str(error)) from error
    return value


def read_partition(job: Job, topic: str, text: str, broker: str = "") -> Partition:
    """The partition given by a number, or by ``1-0``, which also names the broker. The broker stays
    empty if only the table can tell which one is meant.

    Raises UsageError for anything else, and for a broker that must not be named.
    """
    try:
        partition = parse_partition(topic, text)
    except ValueError as error:
        raise _partition_error(text, str(error)) from error
    if broker and partition.broker not in ("", broker):
        raise _partition_error(text, f"a partition of broker {broker}, as --broker says")
    per_broker = load_dialect(job.source.dialect).capabilities.numbered_per_broker
    partition = Partition(topic, partition.number, partition.broker or broker)
    if partition.broker and not per_broker:
        raise _partition_error(text, "a number: brokers share partitions")
    return partition


def _partition_error(text: str, expected: str) -> UsageError:
    return UsageError(
        f"the partition {text} is not understood",
        why=f"expected {expected}",
        do="write its number, or broker-number, such as 1-0, if each broker numbers its own",
    )


def _flag_error(flag: str, text: str, expected: str) -> UsageError:
    return UsageError(
        f"{flag} {text} is not understood",
        why=f"expected {expected.removeprefix('expected ')}",
        do=f"write it as {flag} 2026-01-31T06:00:00Z or "
        f"""{flag} '{{"orders": {{"0": 23, "1": 40}}}}'""",
        flag=flag,
    )


def check_range_is_for_backfill(text: JobText, job: Job, *, missing: bool, replace: bool) -> None:
    """Raises UsageError unless the options of a backfill give a range with both ends. For a
    backfill of what is missing, raises it if they give any end, or ask for a replacement."""
    if not missing:
        check_range_is_closed(text, job)
        return
    given = dict.fromkeys(text.option_of(("range", side)) for side in SIDES.values())
    if wrong := [option for option in ("--replace" if replace else "", *given) if option]:
        raise UsageError("--missing finds its ranges itself", do=f"leave out {', '.join(wrong)}")


def check_range_is_closed(text: JobText, job: Job) -> None:
    """Raises UsageError, which names the missing options, unless both ends of a backfill's range
    are given and neither is the checkpoint."""
    written = text.values.get("range") or {}
    missing = [flag for flag, side in SIDES.items() if side not in written]
    begins: Bounds = job.range.from_
    if any(isinstance(b, FromCheckpoint) for b in begins.every):
        missing = ["--from", *(flag for flag in missing if flag != "--from")]
        if option := text.option_of(("range", "from")):
            value = f" {written['from']}" if isinstance(written["from"], str) else ""
            raise UsageError(
                f"{option}{value}: a backfill does not follow the checkpoint",
                do=f"give one of {EXPECTED_UNTIL}",
                missing=missing,
            )
    if missing:
        raise UsageError(
            f"a backfill needs {' and '.join(missing)}",
            why="the range of the job file does not give it, and a backfill does not follow "
            "the checkpoint",
            do=f"give each as one of {EXPECTED_UNTIL}",
            missing=missing,
        )
