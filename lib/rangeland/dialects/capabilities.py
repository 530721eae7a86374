"""The capabilities in which the dialects differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the brokers and logs of one dialect can do. Callers ask for a capability, never for the
    name of a dialect."""

    numbered_per_broker: bool = False
    """Each broker numbers its own partitions, and no other broker serves them."""
    offsets_are_bytes: bool = False
    """An offset is the byte position of an entry in the log, so ranges begin and end at entries."""
    columns: tuple[Any, ...] = ()
    """Arrow fields that come after the columns common to all dialects."""
    leader_id: int | None = None
    """The replica id of every partition's leader, if that is always the same."""
    has_epochs: bool = False
    """Leaders have epochs, and record batches carry them."""
    has_metadata: bool = True
    """Brokers list the cluster's topics and brokers; without this, only a registry does."""
    is_in_zookeeper: bool = True
    """Brokers register in ZooKeeper, if the cluster has one."""
    has_transactions: bool = False
    """The last stable offset can lag behind the high watermark."""
    has_timestamps: bool = True
    """Records carry a timestamp."""
    source_keys: frozenset[str] = frozenset()
    """The keys of a job's ``source``, or of its ``security``, that do not exist in every
    dialect."""
    log_tool: str = ""
    """The command with which an operator can look at a damaged log."""
    lacks_timestamp: Callable[[memoryview], bool] | None = None
    """Says whether the first of some fetched records has no timestamp, in dialects whose old logs
    contain such records. ListOffsets v0 then returns the first offset of each segment
    (``LogState.borders``)."""
