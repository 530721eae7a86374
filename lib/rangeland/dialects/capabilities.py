"""What sets the logs of one dialect apart from those of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Callers ask for a capability, never for the name of a dialect.

    ``numbered_per_broker``: each broker numbers its own partitions, and no other broker serves
    them. ``offsets_are_bytes``: an offset is the byte position of an entry in the log, so ranges
    begin and end at entries. ``columns``: Arrow fields that follow the columns of all dialects.
    ``leader_id``: the replica id of every partition's leader, where it is fixed.
    ``has_epochs``: leaders have epochs, and record batches carry them. ``has_metadata``: brokers
    list the cluster's topics and brokers; otherwise only a registry does. ``has_transactions``:
    the last stable offset can lag behind the high watermark. ``has_timestamps``: records carry
    one. ``source_keys``: those keys of a job's ``source``, or of its ``security``, that not every
    dialect has. ``log_tool``: the command that shows an operator a damaged log.
    ``lacks_timestamp``: whether the first of some fetched records has no timestamp,
    in dialects whose old logs have such records. ListOffsets v0 then returns the first offset of
    each segment (``LogState.borders``)."""

    numbered_per_broker: bool = False
    offsets_are_bytes: bool = False
    columns: tuple[Any, ...] = ()
    leader_id: int | None = None
    has_epochs: bool = False
    has_metadata: bool = True
    has_transactions: bool = False
    has_timestamps: bool = True
    source_keys: frozenset[str] = frozenset()
    log_tool: str = ""
    lacks_timestamp: Callable[[memoryview], bool] | None = None
