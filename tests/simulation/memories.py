"""What a history computes again and again from equal values is remembered.

Only functions without effects are, whose results nobody changes, so a run does what it would do
without this. Responses that were refused are not remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rangeland.delta.ledger import ledger_files, ledger_table
from rangeland.delta.ledger.event_codec import from_row
from rangeland.delta.quarantine import quarantine_table
from rangeland.delta.stores.table_path import TablePath
from rangeland.delta.table_schema.arrow_schema import schema_json
from rangeland.delta.table_schema.schema_compatibility import new_table
from rangeland.dialects.kafka import session
from rangeland.job import Job
from rangeland.landing.target import table_location, target_schema
from rangeland.planning.plan import Plan
from rangeland.wire.encoding import decode, encode_buffers

MOST = 20_000


def remembering(
    act: Callable[..., Any], key_of: Callable[..., Any] = lambda *arguments: arguments
) -> Callable[..., Any]:
    """``key_of`` makes a key of the arguments, which live as long as their result."""
    known: dict[Any, tuple[Any, Any]] = {}

    def wrapped(*arguments: Any) -> Any:
        key = key_of(*arguments)
        found = known.get(key)
        if found is None:
            if len(known) >= MOST:
                known.clear()
            found = known[key] = act(*arguments), arguments
        return found[0]

    return wrapped


def _bytes_from(
    cls: type[Any], version: int, buffer: memoryview, offset: int = 0
) -> tuple[type[Any], int, bytes]:
    return cls, version, bytes(buffer[offset:])


def _parts() -> Callable[..., Any]:
    """Callers add to the list that they get."""
    known = remembering(encode_buffers)
    return lambda *arguments: list(known(*arguments))


def changes() -> Iterator[tuple[Any, str, Any]]:
    """What to set in the product's modules and classes."""
    yield session, "decode", remembering(decode, _bytes_from)
    yield session, "encode_buffers", _parts()
    yield ledger_files, "from_row", remembering(from_row, id)
    yield Plan, "parse", staticmethod(remembering(Plan.parse))
    yield Job, "policies", property(remembering(vars(Job)["policies"].fget, id))
    yield TablePath, "parse", staticmethod(remembering(TablePath.parse))
    for module in (target_schema, table_location):
        yield module, "new_table", remembering(new_table)
    for module in (ledger_table, quarantine_table):
        yield module, "schema_json", remembering(schema_json, id)
