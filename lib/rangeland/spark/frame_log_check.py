"""Checks, at the end of each task of a data frame, that its logs are still the planned ones.

Nobody sees the receipts of a frame, and Spark does not say when an action on it is over. So each
task answers for what it has read itself: if its logs are unchanged once it has read them, all of
its records are those of the plan, whatever happens afterwards. A topic without an id is compared by
leader epochs and ends only, since no fingerprint was taken when the plan was made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from rangeland.connection.pool import ConnectionPool
from rangeland.errors import RangelandError, Unreachable
from rangeland.fetch.read_settings import ReadSettings
from rangeland.planning.log_identity import (
    Changed,
    Deleted,
    FinalJudgement,
    LogEvidence,
    OtherBytes,
    Unchanged,
    Unconfirmed,
    marks_of,
)
from rangeland.planning.loss_errors import range_lost_error
from rangeland.planning.plan import Plan
from rangeland.planning.slice_receipt import Receipt
from rangeland.survey.log_comparison import attempt_for_marks, judge_finally
from rangeland.survey.wanted_partitions import UnknownTopic

NEW_PLAN = "load the frame again, or make a new plan"


def check_logs_are_planned(plan: Plan, settings: ReadSettings, receipts: Iterable[Receipt]) -> None:
    """Asks brokers about the logs of these receipts. Raises RangeLost if a log was recreated or has
    lost what was read from it, and Unreachable if no broker can say so for now."""
    marks = marks_of(plan, receipts)
    if not marks:
        return
    with ConnectionPool(settings.cluster) as brokers:
        numbered_per_broker = brokers.dialect.capabilities.numbered_per_broker
        tolerates_missing = numbered_per_broker or settings.policy.tolerates_missing_leaders
        attempt = attempt_for_marks(brokers, marks, tolerates_missing)
        try:
            attempt.find_leaders()
            leaders, absent = attempt.partitions.reachable, attempt.partitions.absent
            evidence = LogEvidence(leaders, absent, fingerprints_before=None)
            judgement = judge_finally(brokers, marks, evidence, tolerates_missing)
        except UnknownTopic as unknown:
            raise _deleted_error(unknown.what) from unknown
    if (error := _change_error(judgement)) is not None:
        raise error


def _change_error(judgement: FinalJudgement) -> RangelandError | None:
    match judgement:
        case Unchanged():
            return None
        case Changed():
            error = range_lost_error(list(judgement.losses))
            why = f"{error.why}; a task of this frame has read from this log since it changed"
            return error.with_words(why=why, do=NEW_PLAN)
        case OtherBytes(partition):
            return Unreachable(
                f"the log of {partition} changed while it was being read", do=NEW_PLAN
            )
        case Unconfirmed(partition, why):
            what = f"it is unknown whether {partition} changed while it was being read"
            return Unreachable(what, why=why, do="read the frame again")
        case Deleted(partition):
            return _deleted_error(f"{partition} was read but no longer exists")
        case _:
            assert_never(judgement)


def _deleted_error(what: str) -> Unreachable:
    return Unreachable(
        what, why="it is unknown whether all of it was read from one log", do=NEW_PLAN
    )
