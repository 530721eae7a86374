"""Command lines for the ``rangeland`` command, and what its results mean to a scheduler.

Pure, and only the standard library. It relies on the command's contract: exit codes, and one
JSON object as the last line of stdout.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

TRY_AGAIN_LATER = 75
KILLED = (130, 137, 143)
"""The exit codes of a command that SIGINT, SIGKILL or SIGTERM ended: its own, or those that a shell
or spark-submit reports for its child."""
MAX_ROWS = 20
COUNTS = ("landed", "control", "aborted", "compacted", "filtered", "quarantined", "lost")
RANGE_KEYS = ("topic", "partition", "broker", "from_offset", "until_offset")

Answer = dict[str, Any]
Params = Mapping[str, Any]


class BadRequest(ValueError):
    """The request makes no sense; the text says what to change."""


# --- command lines ----------------------------------------------------------------------


def backfill_command(
    program: str,
    job_file: str,
    from_bound: str,
    until_bound: str,
    dry_run: bool = False,
    metrics: str = "",
) -> list[str]:
    """``program`` is everything before the job file, split as a shell would split it:
    ``rangeland backfill``, or ``spark-submit ... jobs/backfill_range.py``. ``metrics`` is the file
    for metrics, if there is one; a dry run has none."""
    _require_bounds(from_bound, until_bound)
    bounds = ["--from", from_bound, "--until", until_bound]
    to_file = ["--metrics", metrics] if metrics else []
    return [
        *_program(program),
        job_file,
        *bounds,
        *(["--dry-run"] if dry_run else to_file),
        "--json",
    ]


def reached_command(
    program: str, job_file: str, until_bound: str, idle_after_s: float | None = None
) -> list[str]:
    _require_bounds(until_bound)
    idle = [] if idle_after_s is None else ["--idle-after", f"{idle_after_s:g}"]
    return [*_program(program), "reached", job_file, "--until", until_bound, *idle, "--json"]


def _program(program: str) -> list[str]:
    words = shlex.split(program)
    if not words:
        raise BadRequest("An Airflow variable that names a command of Rangeland is empty.")
    return words


def _require_bounds(*bounds: str) -> None:
    if not all(bound.strip() for bound in bounds):
        raise BadRequest(
            "This run has no data interval, so there is no range to land: "
            "give it a logical date when you trigger it."
        )


# --- the form of a backfill -------------------------------------------------------------


def asked_range(params: Params) -> tuple[str, str]:
    """``--from`` and ``--until`` of a completed form. Raises BadRequest for a value that is
    missing or given twice, and for an empty range."""
    offsets, times = _pair(params, "offset"), _pair(params, "time")
    if offsets and times:
        raise BadRequest("Give offsets or times, not both: clear one of the two pairs.")
    partition = _partition_of(params)
    if times:
        begins, ends = (_as_time(text) for text in times)
        if begins >= ends:
            raise BadRequest(f"From time {times[0]} is not before until time {times[1]}.")
        return _bound(partition, times[0]), _bound(partition, times[1])
    if not offsets:
        raise BadRequest("Give a range: from offset and until offset, or from time and until time.")
    if partition is None:
        raise BadRequest("Offsets need a topic and a partition: an offset means one log.")
    if offsets[0] >= offsets[1]:
        raise BadRequest(f"From offset {offsets[0]} is not below until offset {offsets[1]}.")
    return _bound(partition, offsets[0]), _bound(partition, offsets[1])


def _pair(params: Params, kind: str) -> tuple[Any, Any] | None:
    begin, end = (_given(params, f"{side}_{kind}") for side in ("from", "until"))
    if (begin is None) != (end is None):
        missing = "from" if begin is None else "until"
        raise BadRequest(f"The {missing} {kind} is missing: a range has two ends.")
    return None if begin is None else (begin, end)


def _partition_of(params: Params) -> tuple[str, int] | None:
    topic, partition = _given(params, "topic"), _given(params, "partition")
    if (topic is None) != (partition is None):
        missing = "topic" if topic is None else "partition"
        raise BadRequest(
            f"The {missing} is missing: give topic and partition, or neither with times."
        )
    return None if topic is None else (str(topic), int(str(partition)))


def _given(params: Params, name: str) -> Any:
    value = params.get(name)
    return None if isinstance(value, str) and not value.strip() else value


def _as_time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadRequest(f"{text!r} is not a time such as 2026-01-31T06:00:00Z.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _bound(partition: tuple[str, int] | None, value: str | int) -> str:
    if partition is None:
        return str(value)
    topic, number = partition
    return json.dumps({topic: {str(number): value}})


# --- results ----------------------------------------------------------------------------


def read_answer(stdout: str) -> Answer:
    """The JSON object on the last line of stdout; empty if there is none."""
    lines = stdout.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def answers_in(answer: Answer) -> list[Answer]:
    """The answer of each table: a command about many has them under ``jobs``."""
    return list(answer["jobs"]) if "jobs" in answer else [answer]


def failure_text(code: int, answer: Answer) -> str:
    """A paragraph for the task's log: what happened, and the three answers of the error. One for
    each table that failed, of a command about many."""
    if "jobs" in answer:
        failed = [one for one in answer["jobs"] if one["exit"] != 0]
        named = [
            f"{one['table'] or one['job']}: {failure_text(one['exit'], one)}" for one in failed
        ]
        hidden = len(named) - MAX_ROWS
        more = [f"and {hidden:,} more"] if hidden > 0 else []
        head = f"{len(failed)} of {len(answer['jobs'])} tables failed (exit {code})"
        return "\n".join([head, *named[:MAX_ROWS], *more])
    if "message" not in answer:
        ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"The command {ended} and printed no result; its output is above."
    details = [f"{key}: {answer[key]}" for key in ("data", "retry", "acts") if answer.get(key)]
    return " | ".join([f"{answer.get('error')} (exit {code}): {answer['message']}", *details])


def is_worth_retry(code: int) -> bool:
    """Whether the same command may succeed later: it says so, or something has killed it, such as
    a host that shuts down or is out of memory. ``code`` is below 0 after a signal."""
    return code < 0 or code == TRY_AGAIN_LATER or code in KILLED


def judge_reached(code: int, answer: Answer) -> dict[str, str]:
    """What one check of the logs means: ``state`` is reached, waiting or failed.

    A broker that is down is waited for, as is everything else that is worth a retry."""
    if code == 0 and answer:
        return {"state": "reached", "text": reached_text(answer)}
    if not is_worth_retry(code):
        return {"state": "failed", "text": failure_text(code, answer)}
    text = reached_text(answer) if "reached" in answer else failure_text(code, answer)
    return {"state": "waiting", "text": text}


def reached_text(answer: Answer) -> str:
    """One line: which partitions are waited for, or that all have been reached."""
    partitions: list[Answer] = answer.get("partitions", [])
    waiting = [p for p in partitions if p["state"] == "waiting"]
    if waiting:
        named = ", ".join(map(_waiting_text, waiting[:5]))
        more = f" and {len(waiting) - 5} more" if len(waiting) > 5 else ""
        return f"{len(waiting)} of {len(partitions)} partitions not there yet: {named}{more}"
    if silent := answer.get("unanswered_brokers"):
        named = ", ".join(f"broker {name} did not: {why}" for name, why in silent.items())
        return f"not all brokers answered: {named}"
    idle = sum(1 for p in partitions if p["state"] == "idle")
    return f"reached in {len(partitions)} partitions" + (f", {idle} of them idle" if idle else "")


def _waiting_text(row: Answer) -> str:
    if why := row.get("why"):
        return f"{_name(row)} cannot be asked: {why}"
    return f"{_name(row)} ends at {row['end']}"


def result_text(answer: Answer) -> str:
    """The result of a backfill or dry run, as a headline and a table of ranges and counts; of many
    tables, one after the other."""
    if "jobs" in answer:
        return "\n".join(map(result_text, answer["jobs"]))
    counts: tuple[str, ...] = ()
    if "hash" in answer:
        lines = [
            f"{answer['job']}: a dry run, nothing is landed. Table {answer['table']}: "
            f"{answer['records']:,} offsets would be landed."
        ]
        rows = answer["ranges"]
    else:
        lines = [
            f"{answer['job']}: {answer['state']}, {answer['landed']:,} records. Table "
            f"{answer['table']}, version {answer['table_version']}; {answer['application']} "
            f"{answer['sequence']}; {answer['seconds']:.1f} s"
        ]
        rows = answer["partitions"]
        counts = tuple(c for c in COUNTS if c == "landed" or any(row[c] for row in rows))
    lines += _table(rows, counts)
    lines += [f"already landed: {_range(r)}" for r in answer.get("already_landed", [])[:MAX_ROWS]]
    lines += [f"held where it is: {held}" for held in answer.get("held", [])[:MAX_ROWS]]
    lines += [f"warning: {warning}" for warning in answer.get("warnings", [])]
    return "\n".join(lines)


def event_extra(answer: Answer) -> dict[str, Any]:
    """The content of an asset's event: which offsets, in which version of the table.

    Events are delivered at least once: an attempt that landed and died before it could report
    is followed by one with ``already-landed``, whose ranges are under ``already_landed``. For many
    tables there are several of these under ``tables``."""
    if "jobs" in answer:
        return {"tables": [event_extra(one) for one in answer["jobs"]]}
    return {
        "job": answer["job"],
        "state": answer["state"],
        "table": answer["table"],
        "application": answer["application"],
        "sequence": answer["sequence"],
        "version": answer["table_version"],
        "landed": answer["landed"],
        "ranges": [
            {key: row[key] for key in (*RANGE_KEYS, "landed")} for row in answer["partitions"]
        ],
        "already_landed": [
            {key: row[key] for key in RANGE_KEYS} for row in answer["already_landed"]
        ],
    }


def _table(rows: Sequence[Answer], counts: Sequence[str]) -> list[str]:
    if not rows:
        return []
    cells = [["partition", "from", "until", *counts]]
    cells += [
        [_name(r), *(f"{r[key]:,}" for key in ("from_offset", "until_offset", *counts))]
        for r in rows[:MAX_ROWS]
    ]
    first, *rest = (max(len(row[i]) for row in cells) for i in range(len(cells[0])))
    lines = [
        "  ".join([row[0].ljust(first), *(c.rjust(w) for c, w in zip(row[1:], rest, strict=True))])
        for row in cells
    ]
    hidden = len(rows) - MAX_ROWS
    return [*lines, f"and {hidden:,} more"] if hidden > 0 else lines


def _name(row: Answer) -> str:
    broker = f"{row['broker']}-" if row.get("broker") else ""
    return f"{row['topic']}/{broker}{row['partition']}"


def _range(row: Answer) -> str:
    return f"{_name(row)} [{row['from_offset']}, {row['until_offset']})"
