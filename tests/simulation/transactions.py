"""What producers and their coordinator do to the transactions of one log."""

from __future__ import annotations

import random

from tests.simulation.logs import Log

TRANSACTION_ACTS = ("begin", "extend", "commit", "abort", "trim")
PRODUCERS = (1, 2)
"""Each has one transaction after another."""
TIMEOUTS_MS = (2_000, 60_000, 900_000)


def change_transactions(
    log: Log, kind: str, rng: random.Random, now_ms: int, *, is_old: bool
) -> None:
    """Begins a transaction, adds to one, or ends one; or somebody deletes records. Old brokers
    have forgotten a producer all of whose records are gone, and take no more from it."""
    if kind == "trim":
        _trim(log, rng, now_ms)
    elif kind == "begin":
        _begin(log, rng, now_ms)
    elif not log.opened:
        return
    elif kind == "extend":
        one = rng.choice(log.opened)
        if one.until > log.start or not is_old:
            log.extend_transaction(one, rng.randint(1, 3), now_ms)
    else:
        one = rng.choice(log.opened)
        abort = kind == "abort" if one.aborts is None else one.aborts
        log.end_transaction(one, now_ms, abort)


def _begin(log: Log, rng: random.Random, now_ms: int) -> None:
    busy = {one.producer for one in log.opened}
    free = [producer for producer in PRODUCERS if producer not in busy]
    if free:
        deadline_ms = now_ms + rng.choice(TIMEOUTS_MS)
        log.begin_transaction(rng.randint(1, 4), now_ms, rng.choice(free), deadline_ms)


def _trim(log: Log, rng: random.Random, now_ms: int) -> None:
    """DeleteRecords, which may end inside an entry."""
    end = log.high_watermark(now_ms)
    if log.start < end:
        log.expire_before(rng.randint(log.start + 1, end))


def end_transactions(log: Log, now_ms: int) -> None:
    """By their coordinator, or by a person where it knows of none."""
    log.time_out(now_ms)
    for one in list(log.opened):
        log.end_transaction(one, now_ms, one.aborts is not False)
