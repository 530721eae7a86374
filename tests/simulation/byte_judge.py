"""The invariants for logs whose offsets are bytes: all rows of an entry have its offset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rangeland.query_results import VerifyResult
from tests.simulation.invariants import Judge, Landed
from tests.simulation.jafka import ByteLog
from tests.simulation.logs import Log
from tests.simulation.sql import Row
from tests.simulation.world import Violation


class ByteJudge(Judge):
    """Counts are of records, and ranges of bytes, which entries must tile."""

    def _check_landed(
        self, rows: Sequence[Row], landed: Sequence[Landed], losses: Sequence[dict[str, Any]]
    ) -> None:
        promised: Counter[tuple[str, int]] = Counter()
        self.checks.update({"counts": len(landed), "rows": len(landed)})
        for one in landed:
            promised[one.key] += one.counts["landed"]
            mine = {row[2] for row in rows if row[:2] == one.key and row[2] in one.offsets}
            logs = self._logs(one)
            self._check_range(one, logs, _inside(mine, logs), set(), losses)
        there = Counter(row[:2] for row in rows)
        if there != +promised:
            raise Violation("rows", f"there are {there}, and {promised} were landed")

    def check_verify(self, found: VerifyResult, *, is_alone: bool) -> None:
        self.checks["verify"] += 1
        audit = found.audit
        if audit.holes or audit.duplicates or (audit.unknown_rows and is_alone):
            raise Violation("verify", f"it finds {audit}")


def _inside(offsets: set[int], logs: Sequence[Log]) -> set[int]:
    """The bytes of the entries at these offsets."""
    spans = [log.spans for log in logs if isinstance(log, ByteLog)]
    return {
        inner
        for offset in offsets
        for inner in range(offset, max(span.get(offset, offset) for span in spans))
    }
