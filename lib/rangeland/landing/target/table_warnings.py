"""Warnings about where a table is, and about its properties."""

from __future__ import annotations

from rangeland.delta.stores.store_kinds import StoreKind
from rangeland.delta.transaction_log.table_snapshot import Snapshot
from rangeland.landing.target.table_location import TableLocation

RETENTION_PROPERTY = "delta.setTransactionRetentionDuration"


def property_warnings(snapshot: Snapshot | None) -> tuple[str, ...]:
    """Warnings about table properties that will cause problems later."""
    retention = snapshot.property(RETENTION_PROPERTY) if snapshot else None
    if retention is None:
        return ()
    return (
        f"the table's property {RETENTION_PROPERTY} is {retention}: Delta then forgets what "
        "has landed, and runs have to search for it; unset it with ALTER TABLE ... UNSET "
        f"TBLPROPERTIES ('{RETENTION_PROPERTY}')",
    )


def store_warning(location: TableLocation, *, replaces: bool) -> str:
    """The warning about a store that is safe for only one driver until a log store is configured.
    If rows are replaced, the warning about any store that is not local, since Spark's own writer
    then commits."""
    store = location.store()
    if store is None or store.kind is StoreKind.LOCAL:
        return ""
    undecided = store.kind is StoreKind.SINGLE_DRIVER and not store.log_store
    return store.note if undecided or replaces else ""
