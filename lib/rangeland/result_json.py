"""The results of commands as JSON, derived from their fields.

Each result has the keys that its class lists in ``VIEW`` (see ``record_codec``); the keys of the
values in results are listed here. All keys are a public contract, which golden files guard.
"""

from __future__ import annotations

from typing import Any, ClassVar

from rangeland.delta.ledger.events import LossEvent
from rangeland.delta.quarantine.quarantine_table import QuarantinedBatch
from rangeland.dialects.cluster_values import GroupMember
from rangeland.loss import DecidedLoss
from rangeland.model import Partition, Range
from rangeland.planning.log_reach import PartitionReach
from rangeland.planning.plan import Plan
from rangeland.planning.slice_receipt import RangeResult
from rangeland.planning.table_audit import Audit, LandedRange
from rangeland.record_codec import AS_IT_IS, ColumnType, RecordCodec


def _written(write: Any) -> ColumnType:
    return ColumnType(object, write, lambda value: value)


_OR_NULL = _written(lambda text: text or None)
RESULT_JSON = RecordCodec(
    views={
        Partition: "topic number=partition broker",
        Range: "*partition from_offset until_offset",
        RangeResult: "*range *counts",
        LandedRange: "*range topic_id landed",
        Audit: "holes duplicates unknown_rows=strangers suspect unproved",
        LossEvent: "*loss sequence seen_at_ms",
        DecidedLoss: "*partition from_offset until_offset width=count kind=verdict action cause "
        "evidence",
        Plan: "application sequence hash job",
        PartitionReach: "*partition state end_offset=end offset=until_offset why?",
        QuarantinedBatch: "*range application sequence size_bytes=bytes leader reason",
        GroupMember: "member_id=member client_id=client host is_ours partitions",
    },
    columns={
        "leader": _OR_NULL,
        "why": _OR_NULL,
        "seconds": _written(lambda seconds: round(seconds, 3)),
        "open_transaction": AS_IT_IS,
        "unanswered_brokers": AS_IT_IS,
    },
    blanks=[""],
)


class JsonResult:
    """A result that is written as JSON."""

    __slots__ = ()
    VIEW: ClassVar[str]

    @property
    def exit_code(self) -> int:
        """The exit code of the command that returns this result."""
        return 0

    def to_json(self) -> dict[str, Any]:
        return RESULT_JSON.write(self)
