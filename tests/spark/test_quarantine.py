"""The quarantine as a table: what an attempt has kept, and what takes its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rangeland.delta.ledger.events import OutcomeEvent
from rangeland.delta.quarantine.quarantine_table import Quarantine
from rangeland.delta.quarantine.quarantine_writer import QuarantineWriter, QuarantineWriterSettings
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.landing.target.table_location import TableLocation
from rangeland.landing.target.target_quarantine import TargetQuarantine
from rangeland.loss import DamagedBytes
from rangeland.model import Counts, Partition, Range
from rangeland.planning.slice_receipt import Receipt

pytestmark = pytest.mark.spark

P = Partition("t", 0)
APP = "rangeland/j"


def kept_in(quarantine: Quarantine) -> list[bytes]:
    kept = [batch.quarantined_bytes for batch in quarantine.batches(lambda *_: True)]
    return [damaged.records for damaged in kept if isinstance(damaged, DamagedBytes)]


def outcome(quarantine: Quarantine, sequence: int, records: bytes) -> OutcomeEvent:
    plan = f"{sequence}" * 16
    writer = QuarantineWriter(
        QuarantineWriterSettings(quarantine.storage(), "j", APP, sequence, plan)
    )
    writer.add(0, Range(P, 0, 4), DamagedBytes(records, (), "why"), "")
    (receipt,) = writer.close([Receipt(0, P, 0, 4, Counts(quarantined=4))])
    return OutcomeEvent(APP, "j", sequence, plan, (), (), 1, 0, receipt.quarantine_files)


def test_a_whole_attempt_takes_back_what_an_earlier_one_had_kept(
    spark: Any, kernel: DeltaKernel, tmp_path: Path
) -> None:
    quarantine = Quarantine(kernel, str(tmp_path / "t"))
    one, two = (outcome(quarantine, n, b"%d" % n) for n in (1, 2))
    quarantine.commit(one)
    quarantine.commit(two)
    assert sorted(kept_in(quarantine)) == [b"1", b"2"]
    sink = SimpleNamespace(table=str(tmp_path / "t"), is_catalog_name=False, is_per_topic=False)
    location = TableLocation(spark, cast(Any, SimpleNamespace(sink=sink)))
    for _ in range(2):
        taken_back = replace(two, attempt=1, quarantine_files=())
        assert TargetQuarantine(location).commit(taken_back) is None
        assert kept_in(quarantine) == [b"1"]


def test_no_quarantine_is_made_for_nothing(kernel: DeltaKernel, tmp_path: Path) -> None:
    quarantine = Quarantine(kernel, str(tmp_path / "t"))
    none = OutcomeEvent(APP, "j", 1, "1" * 16, (), (), 1, attempt=1)
    quarantine.commit(none)
    assert kernel.load(quarantine.path) is None
