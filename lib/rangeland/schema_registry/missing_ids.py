"""Decides when a schema id that a registry does not have is unknown for good. Pure.

A copy of a registry (a follower in another region, a node behind a load balancer) may lack the
newest schemas, and records with their ids are valid: a single response proves nothing. But ids
ascend, and copies receive them in that order. So an id is unknown if the registry still does not
have it ``CONFIRM_S`` after the records are known to have been written, and if one of these facts
shows that it is not merely late:

- the registry has a schema with a higher id;
- or the id is more than ``FAR_IDS`` above the highest that the registry is known to have, as forged
  ids may be, and bytes that are not an id at all;
- or the records had been in their log for ``LATE_MS`` when they were read.

Otherwise nothing is decided, and the id counts as late once ``no_progress_s`` have passed. So a
forged id just above the newest one delays a job by ``LATE_MS``, once.

Behind a load balancer, each request may reach another copy: one may show the higher id, while
another, which is late, lacks this one. So the id must then be missing ``CONFIRMATIONS`` more times
in a row, each time on a new connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rangeland.schema_registry.registry_settings import WrittenBefore

CONFIRM_S: Final = 5.0
FAR_IDS: Final = 1_000_000
LATE_MS: Final = 3_600_000
CONFIRMATIONS: Final = 4
"""How many more times an id must be missing once something shows that it is not late."""
LEAST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 8.0
"""The longest pause between requests, so that a run notices within seconds that the registry has
the id."""


@dataclass(frozen=True, slots=True)
class MissingId:
    """An id that the registry has not returned. ``highest`` is the highest id that the registry is
    known to have, or 0. ``asked_for_s`` is for how long it has been asked for ids in records of the
    same age."""

    schema_id: int
    written: WrittenBefore | None
    no_progress_s: float
    highest: int
    asked_for_s: float
    reason: str | None = None
    """Why the id cannot be late, if that was known before the registry was last asked: its copies
    may have caught up since then."""
    pauses: int = 0
    has_looked_higher: bool = False
    """Whether the registry has been searched for higher ids since it was last asked for this
    one."""


@dataclass(frozen=True, slots=True)
class UnknownForGood:
    """The id will never be registered."""

    reason: str


@dataclass(frozen=True, slots=True)
class MayBeLate:
    """The id may still appear, but time is up."""


@dataclass(frozen=True, slots=True)
class LookHigher:
    """Find out whether the registry has a higher id."""


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Ask for the id again, ``times`` times in a row, after a pause of ``after_s``, which may be
    0."""

    after_s: float
    times: int
    reason: str | None


def judge_missing(missing: MissingId) -> UnknownForGood | MayBeLate | LookHigher | AskAgain:
    """Decides what follows from the last response, which did not contain the id."""
    if missing.reason is not None and missing.asked_for_s >= CONFIRM_S:
        return UnknownForGood(missing.reason)
    reason = why_not_late(missing.schema_id, missing.written, missing.highest)
    if reason is not None:
        left_s = CONFIRM_S - missing.asked_for_s
        return AskAgain(_pause_s(missing, left_s), 1 + CONFIRMATIONS, reason)
    if missing.highest < missing.schema_id and not missing.has_looked_higher:
        return LookHigher()
    left_s = missing.no_progress_s - missing.asked_for_s
    return AskAgain(_pause_s(missing, left_s), 1, None) if left_s > 0 else MayBeLate()


def why_not_late(schema_id: int, written: WrittenBefore | None, highest: int) -> str | None:
    """Why an id that the registry does not have cannot merely be late; None if it can. ``highest``:
    the highest id that the registry is known to have, or 0."""
    if written is not None and written.age_ms >= LATE_MS:
        return "even an hour after a record that names it was written"
    if 0 < highest < schema_id - FAR_IDS:
        return f"and its ids are far lower, such as {highest}"
    if highest > schema_id:
        return f"and it has later ones, such as {highest}"
    return None


def left_to_confirm_s(missing_for_s: float) -> float:
    """How much longer something must be missing before it is confirmed not to exist."""
    return CONFIRM_S - missing_for_s


def _pause_s(missing: MissingId, left_s: float) -> float:
    """The next pause, twice as long as the one before; no pause if no time is left."""
    if left_s <= 0:
        return 0.0
    return max(LEAST_PAUSE_S, min(1 << missing.pauses, LONGEST_PAUSE_S, left_s))
