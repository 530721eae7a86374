"""A later attempt replaces an earlier one in quarantine, even if it quarantines nothing."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rangeland.delta.ledger.events import OutcomeEvent
from rangeland.delta.table_metadata import CommitMetadata
from rangeland.landing.execution.committer import PlanCommitter
from rangeland.model import DataFile, Isolation, Partition, Range, Slice
from rangeland.planning.plan import Plan, PlanId
from tests.fakes.landing import landing_context

P = Partition("t", 0)
FILE = DataFile("part-1.parquet", 10, 1, "{}", 1)


class Target:
    """The order of what is asked of a table."""

    def __init__(self, landed: int) -> None:
        self.landed = landed
        self.uri = "lake/orders"
        self.asked: list[str] = []
        self.table = self.location = self.delta = self.identity = self.schema = self.quarantine = (
            self.writer
        ) = self

    def constraints(self) -> tuple[object, ...]:
        return ()

    def commits(self, uri: str, since: int) -> list[CommitMetadata]:
        return []

    def has_landed(self, plan_id: PlanId) -> bool:
        return self.landed >= plan_id.sequence

    def commit(self, outcome: OutcomeEvent) -> None:
        self.asked.append("keep")

    def commit_outcome(self, outcome: OutcomeEvent) -> None:
        self.asked.append("land")


@pytest.mark.parametrize(
    ("attempt", "kept", "landed", "asked"),
    [
        (0, (FILE,), 0, ["keep", "land"]),
        (1, (), 0, ["keep", "land"]),
        (0, (), 0, ["land"]),
        (1, (), 1, []),
    ],
    ids=["kept", "an attempt that keeps nothing", "nothing ever kept", "landed before"],
)
def test_the_quarantine_is_told_of_every_later_attempt(
    attempt: int, kept: tuple[DataFile, ...], landed: int, asked: list[str]
) -> None:
    whole = Range(P, 0, 4)
    committed = Isolation.READ_COMMITTED
    slices = (Slice(0, P, 0, 4),)
    plan = Plan("j", "rangeland/j", 1, "kafka", committed, (whole,), slices, checkpoint={})
    outcome = OutcomeEvent("rangeland/j", "j", 1, plan.hash, (), (), 1, attempt, kept)
    target = Target(landed)
    finisher = PlanCommitter(landing_context(target), cast(Any, None))
    finisher._attempt(plan, outcome)
    assert target.asked == asked
