"""Converts actions of the Delta log to JSON and back. Pure.

Delta Kernel takes one text of lines for all files of a commit, and returns lines and rows that its
own handlers write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

from rangeland.delta.table_metadata import AddedFile, CommitMetadata
from rangeland.model import DataFile
from rangeland.untrusted import Unreadable, decimal

_REPEATED = ("deletionVector", "baseRowId", "defaultRowCommitVersion")
"""The fields that the removal of a file repeats from its addition."""
_URI_SAFE = "/=:-_.~!$&'()*+,;@"


def add_lines(files: Iterable[DataFile], *, is_change: bool = True) -> str:
    """One add action per line. Without ``is_change``, the rows were already in other files of the
    table."""
    return "\n".join(json.dumps({"add": _add_action(file, is_change)}) for file in files)


def remove_lines(files: Iterable[AddedFile], now_ms: int, *, is_change: bool = True) -> str:
    """One remove action per line, for files in some version of the table. ``is_change``: readers
    that follow the table's changes see the removal."""
    actions = (_remove_action(file, now_ms, is_change) for file in files)
    return "\n".join(json.dumps({"remove": action}) for action in actions)


def transaction_lines(transactions: Mapping[str, int], now_ms: int) -> str:
    """One transaction action per line."""
    actions = (
        {"appId": application, "version": sequence, "lastUpdated": now_ms}
        for application, sequence in transactions.items()
    )
    return "\n".join(json.dumps({"txn": action}) for action in actions)


def _remove_action(file: AddedFile, now_ms: int, is_change: bool) -> dict[str, Any]:
    action = {
        "path": file.action["path"],
        "deletionTimestamp": now_ms,
        "dataChange": is_change,
        "extendedFileMetadata": True,
        "partitionValues": dict(file.partition_values),
        "size": file.size_bytes,
    }
    repeated = {name: file.action.get(name) for name in _REPEATED}
    return action | {name: value for name, value in repeated.items() if value is not None}


def _add_action(file: DataFile, is_change: bool) -> dict[str, Any]:
    return {
        "path": quote(file.path, safe=_URI_SAFE),
        "partitionValues": dict(file.partition_values),
        "size": file.size_bytes,
        "modificationTime": file.modified_at_ms,
        "dataChange": is_change,
        "stats": file.stats,
    }


def added_file(add: Mapping[str, Any]) -> AddedFile:
    """The file described by an add action, as Delta Kernel lists it."""
    return AddedFile(
        path=unquote(add["path"]),
        size_bytes=add["size"],
        modified_at_ms=add["modificationTime"],
        stats=add["stats"],
        partition_values=dict(add["partitionValues"]),
        has_deletion_vector=add["deletionVector"] is not None,
        action={name: add.get(name) for name in ("path", *_REPEATED)},
    )


def commit_metadata(rows: Iterator[Mapping[str, Any]]) -> list[CommitMetadata]:
    """The entries of a log, oldest first. Delta Kernel writes one row for each of their actions."""
    infos: dict[int, tuple[int, Mapping[str, Any], dict[str, int]]] = {}
    for row in rows:
        version = int(row["version"])
        stamp, info, transactions = infos.get(version, (int(row["timestamp"]), {}, {}))
        info = row.get("commitInfo") or info
        if transaction := row.get("txn"):
            transactions[transaction["appId"]] = int(transaction["version"])
        infos[version] = (stamp, info, transactions)
    return [_metadata_of(version, *entry) for version, entry in sorted(infos.items())]


def _version(text: object) -> int | None:
    """The version in a text; None if the text is not a version, which is possible because any
    writer may have written it."""
    try:
        return decimal(str(text), "version", 0)
    except Unreadable:
        return None


def _metadata_of(
    version: int, stamp: int, info: Mapping[str, Any], transactions: dict[str, int]
) -> CommitMetadata:
    operation = str(info.get("operation") or "")
    parameters = dict(info.get("operationParameters") or {})
    target = parameters.get("version")
    restored = _version(target) if operation == "RESTORE" else None
    return CommitMetadata(
        version=version,
        committed_at_ms=stamp,
        operation=operation,
        transactions=transactions,
        restored_to=restored,
        parameters=parameters,
    )
