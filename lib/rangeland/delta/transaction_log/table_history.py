"""The entries of a table's log, as Delta Kernel reads them. Part of ``delta_kernel``."""

from __future__ import annotations

import json
import os
from typing import Any

from rangeland.delta.java_bridge.java_errors import NoTable
from rangeland.delta.java_bridge.java_folder import folder_for_java
from rangeland.delta.table_metadata import CommitMetadata
from rangeland.delta.transaction_log.log_actions import commit_metadata


def read_commits(facade: Any, engine: Any, path: str, since: int) -> list[CommitMetadata]:
    """See ``DeltaKernel.commits``. ``facade``: the ``DeltaKernelFacade``."""
    earliest = _earliest(facade, engine, path, since)
    if earliest is None:
        return []
    with folder_for_java("rangeland-log-") as folder:
        target = os.path.join(folder, "log.json")
        facade.writeCommits(engine, path, earliest, f"file://{target}")
        with open(target, encoding="utf-8") as lines:
            return commit_metadata(json.loads(line) for line in lines)


def _earliest(facade: Any, engine: Any, path: str, since: int) -> int | None:
    """The first version at or after ``since`` whose log entry still exists."""
    java = facade.snapshot(engine, path, False)
    if java is None:
        raise NoTable
    if since > java.getVersion():
        return None
    folder = f"{java.getPath()}/_delta_log"
    entries = engine.getFileSystemClient().listFrom(f"{folder}/{since:020d}.json")
    try:
        while entries.hasNext():
            name = str(entries.next().getPath()).rsplit("/", 1)[-1]
            stem, _, ending = name.partition(".")
            if ending == "json" and stem.isdigit():
                return int(stem)
    finally:
        entries.close()
    return None
