"""Checks, at the end of each task of a data frame, that its logs are still the planned ones.

Nobody sees the receipts of a frame, and Spark does not say when an action on it is over. So each
task answers for what it has read itself: if its logs are unchanged once it has read them, all of
its records are those of the plan, whatever happens afterwards. A topic without an id is compared by
leader epochs and ends only, since no fingerprint was taken when the plan was made.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import assert_never

from rangeland.connection.pool import ConnectionPool
from rangeland.deadline import Deadline
from rangeland.errors import RangelandError, Unreachable
from rangeland.fetch.read_settings import ReadSettings
from rangeland.model import Partition
from rangeland.planning.incarnation import LogMark
from rangeland.planning.lagging_ends import RESURVEY_POLL_S
from rangeland.planning.log_identity import (
    Changed,
    Deleted,
    FinalJudgement,
    LogEvidence,
    OtherBytes,
    Unchanged,
    Unconfirmed,
    known_epochs_of,
    marks_of,
)
from rangeland.planning.loss_errors import range_lost_error
from rangeland.planning.plan import Plan
from rangeland.planning.policy import Policy
from rangeland.planning.slice_receipt import Receipt
from rangeland.survey.log_comparison import attempt_for_marks, judge_finally
from rangeland.survey.wanted_partitions import UnknownTopic

logger = logging.getLogger(__name__)

NEW_PLAN = "load the frame again, or make a new plan"


def check_logs_are_planned(plan: Plan, settings: ReadSettings, receipts: Iterable[Receipt]) -> None:
    """Asks brokers about the logs of these receipts. Raises RangeLost if a log was recreated or has
    lost what was read from it. A broker that has just restarted may not answer, or not know its
    topics yet, so they are asked again for as long as reading would wait; then Unreachable is
    raised."""
    receipts = list(receipts)
    marks, known_epochs = marks_of(plan, receipts), known_epochs_of(receipts)
    if not marks:
        return
    confirmed_by = Deadline(settings.cluster.no_progress_ms / 1000)
    with ConnectionPool(settings.cluster) as brokers:
        while (error := _change_error(brokers, marks, known_epochs, settings.policy)) is not None:
            if not isinstance(error, Unreachable) or confirmed_by.has_passed:
                raise error
            logger.info("Checking the logs again after %g s: %s", RESURVEY_POLL_S, error.what)
            time.sleep(RESURVEY_POLL_S)


def _change_error(
    brokers: ConnectionPool,
    marks: Mapping[Partition, LogMark],
    known_epochs: Mapping[Partition, int],
    policy: Policy,
) -> RangelandError | None:
    """The error unless the logs with these marks are unchanged: Unreachable if asking again may
    show that they are."""
    numbered_per_broker = brokers.dialect.capabilities.numbered_per_broker
    tolerates_missing = numbered_per_broker or policy.tolerates_missing_leaders
    attempt = attempt_for_marks(brokers, marks, tolerates_missing, known_epochs)
    try:
        attempt.find_leaders()
        leaders, absent = attempt.partitions.reachable, attempt.partitions.absent
        evidence = LogEvidence(leaders, absent, fingerprints_before=None, known_epochs=known_epochs)
        return _judgement_error(judge_finally(brokers, marks, evidence, tolerates_missing))
    except UnknownTopic as unknown:
        return _deleted_error(unknown.what)
    except Unreachable as error:
        return error


def _judgement_error(judgement: FinalJudgement) -> RangelandError | None:
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
