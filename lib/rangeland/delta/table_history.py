"""The entries of a table's log, as Delta Kernel reads them. Part of ``delta_kernel``."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

from rangeland.delta.log_actions import commit_metadata
from rangeland.delta.table_metadata import CommitMetadata


class TableHistory:
    """Reads logs with the classes of one JVM."""

    def __init__(self, jvm: Any) -> None:
        api = jvm.io.delta.kernel
        self._tables = api.TableManager
        self._utils = api.internal.util.Utils
        self._batch = api.data.FilteredColumnarBatch
        self._boundary = getattr(api, "CommitRangeBuilder$CommitBoundary")
        actions = getattr(api.internal, "DeltaLogActionUtils$DeltaAction")
        self._new_list = jvm.java.util.ArrayList
        self._wanted = jvm.java.util.HashSet()
        self._wanted.add(actions.COMMITINFO)
        self._wanted.add(actions.TXN)
        self._empty = jvm.java.util.Optional.empty()

    def commits(self, engine: Any, path: str, since: int) -> list[CommitMetadata]:
        """See ``DeltaKernel.commits``."""
        earliest = self._earliest(engine, path, since)
        if earliest is None:
            return []
        builder = self._tables.loadCommitRange(path, self._boundary.atVersion(earliest))
        batches = builder.build(engine).getActions(engine, self._wanted)
        kept = self._new_list()
        try:
            while batches.hasNext():
                kept.add(self._batch(batches.next(), self._empty))
        finally:
            batches.close()
        with tempfile.TemporaryDirectory(prefix="rangeland-log-") as folder:
            target = os.path.join(folder, "log.json")
            rows = self._utils.intoRows(self._utils.toCloseableIterator(kept.iterator()))
            engine.getJsonHandler().writeJsonFileAtomically(target, rows, True)
            with open(target, encoding="utf-8") as lines:
                return commit_metadata(json.loads(line) for line in lines)

    def _earliest(self, engine: Any, path: str, since: int) -> int | None:
        """The first version at or after ``since`` whose log entry still exists."""
        java = self._tables.loadSnapshot(path).build(engine)
        if since > java.getVersion():
            return None
        folder = f"{java.getPath()}/_delta_log"
        listed = engine.getFileSystemClient().listFrom(f"{folder}/{since:020d}.json")
        try:
            while listed.hasNext():
                name = str(listed.next().getPath()).rsplit("/", 1)[-1]
                stem, _, ending = name.partition(".")
                if ending == "json" and stem.isdigit():
                    return int(stem)
        finally:
            listed.close()
        return None
