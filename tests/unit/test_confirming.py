"""What a plan does about logs that have changed while they were read."""

from __future__ import annotations

from typing import Any

import pytest

from rangeland.errors import RangeLost
from rangeland.job import Job
from rangeland.landing.log_confirmation import Confirmation
from rangeland.model import Partition
from rangeland.planning.policy import Loss, LossKind

P = Partition("orders", 0)


def job(policy: str) -> Job:
    return Job.parse(
        "job: j\nsource: {servers: [b1:9092], topics: [orders]}\n"
        f"policy: {{{policy}}}\nsink: {{table: lake/orders}}\n"
    )


def outcome(policy: str, kind: LossKind, found: list[list[Loss]]) -> tuple[list[bool], list[str]]:
    """Which readings were the second ones, and the warnings. ``found``: the losses after each."""
    reads: list[bool] = []
    warnings: list[str] = []

    def read(again: bool) -> Any:
        reads.append(again)
        return {}, []

    Confirmation(job(policy), lambda: []).confirmed(
        read, lambda: {}, lambda receipts, before: found.pop(0), warnings.append
    )
    return reads, warnings


def loss(kind: LossKind) -> Loss:
    return Loss(P, 2, 3, kind, "seen")


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        ("truncated: skip", LossKind.TRUNCATED),
        ("recreated: skip", LossKind.RECREATED),
        ("recreated: hold", LossKind.RECREATED),
    ],
)
def test_a_loss_that_the_policy_allows_is_read_once_more(policy: str, kind: LossKind) -> None:
    reads, (warning,) = outcome(policy, kind, [[loss(kind)], []])
    assert reads == [False, True]
    assert "it is read once more" in warning


@pytest.mark.parametrize("policy", ["truncated: fail", "truncated: hold", "recreated: skip"])
def test_a_truncation_that_the_policy_does_not_skip_ends_the_plan(policy: str) -> None:
    with pytest.raises(RangeLost):
        outcome(policy, LossKind.TRUNCATED, [[loss(LossKind.TRUNCATED)], []])


def test_a_log_that_changes_at_each_reading_ends_the_plan() -> None:
    found = [[loss(LossKind.TRUNCATED)], [loss(LossKind.TRUNCATED)]]
    with pytest.raises(RangeLost):
        outcome("truncated: skip", LossKind.TRUNCATED, found)
