"""When a schema id that a registry does not have counts as unknown for good.

A copy of a registry (a follower in another region, a node behind a load balancer) may lack what was
registered last, and records with such an id are sound: one response proves nothing. But ids ascend,
and copies follow in their order. So an id is unknown if the registry still does not have it
``CONFIRM_S`` after the records were known to be written, and something shows that it is not late:

- the registry has a schema with a higher id;
- or the id is more than ``FAR_IDS`` above the highest that it is known to have: bytes that are not
  an id look like this, and so do forged ids;
- or the records had been in their log for ``LATE_MS`` when they were read.

Otherwise nothing is decided: that is ``Unreachable``, once ``no_progress_ms`` have passed. So a
forged id just above the newest one delays a job by ``LATE_MS``, once.

Behind a load balancer each request may reach another copy: one may show the higher id, and another,
which is late, lack this one. So the id must then be missing ``CONFIRMATIONS`` more times in a row,
each time on a new connection.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from rangeland.decode.payload.schema_ids.schema_catalogue import UnusableSchema
from rangeland.errors import Unreachable
from rangeland.schema_registry.registry_client import RegistryClient
from rangeland.schema_registry.registry_responses import SchemaResponse
from rangeland.schema_registry.registry_settings import WrittenBefore
from rangeland.untrusted import MAX_INT32

logger = logging.getLogger(__name__)

CONFIRM_S: Final = 5.0
FAR_IDS: Final = 1_000_000
LATE_MS: Final = 3_600_000
CONFIRMATIONS: Final = 4
"""How many more times an id must be missing once something shows that it is not late."""
NEXT_IDS: Final = (1, 2, 3, 4, 8, 16, 32)
"""How far above an id others are looked for. Some may be gone: they were deleted."""
LONGEST_PAUSE_S: Final = 8.0


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


class UnknownIds:
    """The ids of one process and run. ``known``: ids that the registry has, as the driver saw."""

    def __init__(
        self,
        registry: RegistryClient,
        known: Iterable[int],
        no_progress_ms: int,
        *,
        now: Callable[[], float] | None = None,
        pause: Callable[[float], None] | None = None,
    ) -> None:
        self._registry = registry
        self._highest = max(known, default=0)
        self._no_progress_s = no_progress_ms / 1000
        self._now, self._pause = now or time.monotonic, pause or time.sleep
        self._first_asked: dict[int, float] = {}

    def schema(
        self, schema_id: int, written: WrittenBefore | None
    ) -> SchemaResponse | UnusableSchema:
        """The schema, or that it is unknown for good. Raises Unreachable where that may change,
        and what ``RegistryClient`` raises."""
        # What was written before the same moment has been late for equally long.
        key = -1 if written is None else written.at_ms
        reason: str | None = None
        pause_s = 0.5
        while True:
            response = self._ask_copies(schema_id, 1 if reason is None else 1 + CONFIRMATIONS)
            if response is not None:
                self._highest = max(self._highest, schema_id)
                return response
            asked_for_s = self._now() - self._first_asked.setdefault(key, self._now())
            if reason is not None and asked_for_s >= CONFIRM_S:
                what = f"the schema registry has no schema with id {schema_id}"
                return UnusableSchema(f"{what}, {reason}")
            # The reason comes before the response that counts: copies may catch up in between.
            reason = why_not_late(schema_id, written, self._highest)
            if reason is None and self._highest < schema_id:
                self._highest = self._find_later_id(schema_id) or self._highest
                reason = why_not_late(schema_id, written, self._highest)
            left_s = (self._no_progress_s if reason is None else CONFIRM_S) - asked_for_s
            if left_s > 0:
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                logger.info("Asking for schema id %d again, which may be late", schema_id)
                self._pause(max(0.1, min(pause_s, left_s)))
            elif reason is None:
                raise self._late_id_error(schema_id, asked_for_s)

    def _ask_copies(self, schema_id: int, times: int) -> SchemaResponse | None:
        responses = (self._registry.schema(schema_id) for _ in range(times))
        return next((response for response in responses if response is not None), None)

    def _find_later_id(self, schema_id: int) -> int | None:
        later_ids = (schema_id + step for step in NEXT_IDS if schema_id + step <= MAX_INT32)
        return next((later for later in later_ids if self._registry.schema(later)), None)

    def _late_id_error(self, schema_id: int, asked_for_s: float) -> Unreachable:
        highest = self._highest or "none"
        return Unreachable(
            f"the schema registry does not have schema id {schema_id} yet",
            why=f"a record names it, and it is higher than all ids that the registry is known to "
            f"have ({highest}): ids ascend, so it may be registered but not yet replicated; "
            f"asked for {asked_for_s:.0f} s",
            do="run again once the registry has it; if it still does not an hour after the plan "
            "was made, the record is undecodable, and policy.undecodable decides",
            id=schema_id,
        )
