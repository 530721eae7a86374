"""Asks a registry for schema ids that it may not have yet, until ``missing_ids`` has decided."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from rangeland.decode.payload.schema_ids.schema_catalogue import UnusableSchema
from rangeland.errors import Unreachable
from rangeland.schema_registry.missing_ids import (
    AskAgain,
    LookHigher,
    MayBeLate,
    MissingId,
    UnknownForGood,
    judge_missing,
)
from rangeland.schema_registry.registry_client import RegistryClient
from rangeland.schema_registry.registry_responses import SchemaResponse
from rangeland.schema_registry.registry_settings import WrittenBefore
from rangeland.untrusted import MAX_INT32

logger = logging.getLogger(__name__)

NEXT_IDS: Final = (1, 2, 3, 4, 8, 16, 32)
"""The distances above an id at which to look for higher ids: several, because some may have been
deleted."""


class UnknownIds:
    """The ids that one process asks for in one run. ``known``: ids that the driver found in the
    registry."""

    def __init__(
        self,
        registry: RegistryClient,
        known: Iterable[int],
        no_progress_ms: int,
        *,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._registry = registry
        self._highest = max(known, default=0)
        self._no_progress_s = no_progress_ms / 1000
        self._now = now
        self._pause = pause
        self._first_asked: dict[int, float] = {}

    def schema(
        self, schema_id: int, written: WrittenBefore | None
    ) -> SchemaResponse | UnusableSchema:
        """The schema; an ``UnusableSchema`` if the id is unknown for good. Raises Unreachable if
        the registry may still receive it, and what ``RegistryClient`` raises."""
        if (response := self._ask_copies(schema_id, 1)) is not None:
            return response
        asked_for_s = self._asked_for_s(written)
        missing = MissingId(schema_id, written, self._no_progress_s, self._highest, asked_for_s)
        while True:
            match judge_missing(missing):
                case UnknownForGood(reason):
                    what = f"the schema registry has no schema with id {schema_id}"
                    return UnusableSchema(f"{what}, {reason}")
                case MayBeLate():
                    raise _late_id_error(missing)
                case LookHigher():
                    self._highest = self._find_later_id(schema_id) or self._highest
                    missing = replace(missing, highest=self._highest, has_looked_higher=True)
                case AskAgain(after_s, times, reason):
                    if after_s:
                        logger.info("Asking for schema id %d again, which may be late", schema_id)
                        self._pause(after_s)
                    if (response := self._ask_copies(schema_id, times)) is not None:
                        return response
                    missing = replace(
                        missing,
                        asked_for_s=self._asked_for_s(written),
                        reason=reason,
                        pauses=missing.pauses + 1,
                        has_looked_higher=False,
                    )

    def _asked_for_s(self, written: WrittenBefore | None) -> float:
        """How long ago the registry was first asked for an id in records of this age. By then, it
        should have had all other ids in them as well, even those that are first seen later."""
        now = self._now()
        return now - self._first_asked.setdefault(-1 if written is None else written.at_ms, now)

    def _ask_copies(self, schema_id: int, times: int) -> SchemaResponse | None:
        responses = (self._registry.schema(schema_id) for _ in range(times))
        response = next((response for response in responses if response is not None), None)
        if response is not None:
            self._highest = max(self._highest, schema_id)
        return response

    def _find_later_id(self, schema_id: int) -> int | None:
        later_ids = (schema_id + step for step in NEXT_IDS if schema_id + step <= MAX_INT32)
        return next((later for later in later_ids if self._registry.schema(later)), None)


def _late_id_error(missing: MissingId) -> Unreachable:
    return Unreachable(
        f"the schema registry does not have schema id {missing.schema_id} yet",
        why="a record names it, and it is higher than all ids that the registry is known to "
        f"have ({missing.highest or 'none'}): ids ascend, so it may be registered but not yet "
        f"replicated; asked for {missing.asked_for_s:.0f} s",
        do="run again once the registry has it; if it still does not an hour after the plan "
        "was made, the record is undecodable, and policy.undecodable decides",
        id=missing.schema_id,
    )
