"""Records that a plan leaves out because its transform fails on them.

They are treated as records that cannot be decoded, by the same policy, where each of them is seen
to fail by itself. The tasks get their offsets and keep them from the transform, which runs over all
others in one query. A transform that fails on every record is to blame itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rangeland.dialects.dialect import load_dialect
from rangeland.errors import RangelandError, TransformFailed
from rangeland.fetch.read_settings import ReadSettings
from rangeland.logging_setup import partition_fields
from rangeland.loss import Action, LossKind
from rangeland.model import Slice
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.policy import Policy
from rangeland.planning.slice_receipt import Receipt
from rangeland.spark.failing_records import (
    FailingRecord,
    NotAttributable,
    RecordSearch,
    Trials,
)
from rangeland.spark.transform import RUN_AGAIN, transform_error
from rangeland.wording import count_noun

MOST = 100
"""The most records that one plan leaves out. More show a wrong transform rather than bad
records."""
SEARCH_S = 60
"""How long each failed task is searched."""
LEFT_OUT = (Action.SKIP, Action.QUARANTINE)
logger = logging.getLogger(__name__)


class OmittedRecords:
    """The records that one plan leaves out while it is read: ``settings`` say so to its tasks.
    ``trial`` has those for reading without receipts, which no other record ends."""

    def __init__(self, name: str, settings: ReadSettings, kind: PlanKind) -> None:
        can_cut = not load_dialect(settings.dialect).capabilities.offsets_are_bytes
        self._name = name
        self._policy = settings.policy
        self._can_leave_out = can_cut and not kind.traits.replaces
        # What is in quarantine already must not be put there again and again.
        self._most_alone = 1 if kind.traits.reads_log else 0
        self._found: list[FailingRecord] = []
        self.settings = settings

    @property
    def trial(self) -> ReadSettings:
        return replace(self.settings, policy=Policy.all(Action.SKIP))

    def add(
        self, slices: Sequence[Slice], trials: Trials, error: TransformFailed
    ) -> TransformFailed | None:
        """Searches the slices of a failed task, and leaves out from now on all records on which the
        transform fails there. Returns the error where the policy does not leave them out, or they
        are not to blame."""
        actions = {self._policy.of(LossKind.UNDECODABLE, s.partition.topic) for s in slices}
        if not self._can_leave_out or not actions or not actions.issubset(LEFT_OUT):
            return error
        logger.info("Searching the records that the transform fails on: %s", error)
        try:
            most = MOST - len(self._found)
            found = RecordSearch(trials.try_slices, most=most, seconds=SEARCH_S).search(slices)
        except NotAttributable as why:
            return _not_left_out_error(error, str(why))
        except RangelandError as why:
            return _not_left_out_error(error, f"they could not be read again: {why}")
        if not found:
            return _not_left_out_error(error, "it did not fail when they were read again")
        self._found += found
        left_out = {index: dict(reasons) for index, reasons in self.settings.left_out.items()}
        for one in found:
            slice_ = one.slice
            left_out.setdefault(slice_.index, {})[slice_.from_offset] = str(one.raised)
            where = partition_fields(slice_.partition, slice_.from_offset)
            logger.warning("The transform fails on a record: %s", one.raised, extra=where)
        self.settings = replace(self.settings, left_out=left_out)
        return None

    def check_some_pass(self, receipts: Iterable[Receipt]) -> None:
        """Raises TransformFailed if it has failed on all the records that there are, and there are
        several, or they are in quarantine already."""
        if len(self._found) <= self._most_alone:
            return
        if any(receipt.counts.landed or receipt.counts.filtered for receipt in receipts):
            return
        error = transform_error(self._name, self._found[0].raised)
        raise error.with_words(
            what=f"the transform {self._name} failed on each of the "
            f"{count_noun(len(self._found), 'record')} that it got",
            do=f"correct it, {RUN_AGAIN}; a policy only leaves records out where others land",
        )


def _not_left_out_error(error: TransformFailed, why: str) -> TransformFailed:
    policy = "`policy.undecodable` only leaves out single records on which it fails"
    return error.with_words(why=f"{error.why}; {policy}, and {why}")
