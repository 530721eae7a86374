"""When a schema id that a registry does not have counts as unknown for good.

A copy of a registry (a follower in another region, a node behind a load balancer) may lack what was
registered last, and records with such an id are sound: one response proves nothing. But ids ascend,
and copies follow in their order. So an id is unknown if the registry still does not have it
``CONFIRM_S`` after the records were known to be written, and something shows that it is not late:

- the registry has a schema with a higher id;
- or the id is more than ``FAR_IDS`` above the highest that it is known to have: bytes that are no
  id look like this, and forged ids;
- or the records had been in their log for ``LATE_MS`` when they were read.

Otherwise nothing is decided: that is ``Unreachable``, once ``no_progress_ms`` have passed. So a
forged id just above the newest one delays a job by ``LATE_MS``, once.

Behind a load balancer each request may reach another copy: one may show the higher id, and another,
which is late, lack this one. So the id must then be missing ``CONFIRMATIONS`` more times in a row,
each time on a connection of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from rangeland.decode.payload.schema_ids.schema_catalogue import UnusableSchema, WrittenBefore
from rangeland.errors import Unreachable
from rangeland.schema_registry.registry_client import RegistryClient
from rangeland.schema_registry.registry_responses import SchemaResponse
from rangeland.untrusted import MAX_INT32

logger = logging.getLogger(__name__)

CONFIRM_S: Final = 5.0
FAR_IDS: Final = 1_000_000
LATE_MS: Final = 3_600_000
CONFIRMATIONS: Final = 4
"""How often more an id must be missing once something shows that it is not late."""
NEXT_IDS: Final = (1, 2, 3, 4, 8, 16, 32)
"""How far above an id others are looked for. Some may be gone: they were deleted."""
LONGEST_PAUSE_S: Final = 8.0


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
        proof: str | None = None
        pause_s = 0.5
        while True:
            found = self._of_any_copy(schema_id, 1 + (0 if proof is None else CONFIRMATIONS))
            if found is not None:
                self._highest = max(self._highest, schema_id)
                return found
            asked_for = self._now() - self._first_asked.setdefault(key, self._now())
            if proof is not None and asked_for >= CONFIRM_S:
                what = f"the schema registry has no schema with id {schema_id}"
                return UnusableSchema(f"{what}, {proof}")
            # The proof comes before the response that counts: copies may catch up in between.
            proof = self._proof(schema_id, written)
            if proof is None and asked_for >= self._no_progress_s:
                raise self._late_id_error(schema_id, asked_for)
            if proof is None or asked_for < CONFIRM_S:
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                left_s = (self._no_progress_s if proof is None else CONFIRM_S) - asked_for
                logger.info("Asking for schema id %d again, which may be late", schema_id)
                self._pause(max(0.1, min(pause_s, left_s)))

    def _of_any_copy(self, schema_id: int, times: int) -> SchemaResponse | None:
        responses = (self._registry.schema(schema_id) for _ in range(times))
        return next((found for found in responses if found is not None), None)

    def _proof(self, schema_id: int, written: WrittenBefore | None) -> str | None:
        """Why the id cannot merely be late; None if it can."""
        if written is not None and written.age_ms >= LATE_MS:
            return "even an hour after a record that names it was planned"
        if 0 < self._highest < schema_id - FAR_IDS:
            return f"and its ids are far lower, such as {self._highest}"
        if self._highest < schema_id:
            following = (schema_id + step for step in NEXT_IDS if schema_id + step <= MAX_INT32)
            has = self._registry.schema
            self._highest = next((one for one in following if has(one)), self._highest)
        if self._highest > schema_id:
            return f"and it has later ones, such as {self._highest}"
        return None

    def _late_id_error(self, schema_id: int, asked_for: float) -> Unreachable:
        highest = f"{self._highest}" if self._highest else "none"
        return Unreachable(
            f"the schema registry does not have schema id {schema_id} yet",
            why=f"a record names it, and it is higher than all ids that the registry is known to "
            f"have ({highest}): ids ascend, so it may be registered and not have arrived in a copy "
            f"of the registry; asked for {asked_for:.0f} s",
            do="run again once the registry has it; if it still does not an hour after the plan "
            "was made, the record is undecodable, and policy.undecodable decides",
            id=schema_id,
        )
