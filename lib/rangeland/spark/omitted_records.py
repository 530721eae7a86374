"""Records that a plan leaves out because its transform fails on them.

They are treated like records that cannot be decoded, by the same policy, provided that the
transform has failed on each of them alone. The tasks get their offsets and withhold them from the
transform, which processes all other records in one query. If a transform fails on every record, the
transform itself is at fault.
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
from rangeland.planning.plan_kind import PlanKind, WriteMode
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

MAX_OMITTED_RECORDS = 100
"""The most records that one plan may omit. More are a sign that the transform is wrong, not the
records."""
SEARCH_S = 60
"""How long each failed task is searched."""
OMITTING = (Action.SKIP, Action.QUARANTINE)
logger = logging.getLogger(__name__)


class OmittedRecords:
    """The records that one plan omits while it is being read; ``settings`` tells its tasks about
    them. ``trial`` has the settings for trial reads, which have no receipts and which no other
    record must end."""

    def __init__(self, name: str, settings: ReadSettings, kind: PlanKind) -> None:
        can_cut = not load_dialect(settings.dialect).capabilities.offsets_are_bytes
        self._name = name
        self._policy = settings.policy
        self._can_omit = can_cut and kind.traits.write_mode is not WriteMode.REPLACE
        # Records that are already in quarantine must not be put there again and again.
        self._most_alone = 1 if kind.traits.reads_log else 0
        self._records: list[FailingRecord] = []
        self.settings = settings

    @property
    def trial(self) -> ReadSettings:
        return replace(self.settings, policy=Policy.all(Action.SKIP))

    def omit_or_error(
        self, slices: Sequence[Slice], trials: Trials, error: TransformFailed
    ) -> TransformFailed | None:
        """Searches the slices of a failed task for records on which the transform fails, and omits
        them from now on. Returns the error if the policy does not allow this, or if no single
        records are to blame."""
        actions = {self._policy.of(LossKind.UNDECODABLE, s.partition.topic) for s in slices}
        if not self._can_omit or not actions or not actions.issubset(OMITTING):
            return error
        logger.info("Searching for the records that the transform fails on: %s", error)
        try:
            most = MAX_OMITTED_RECORDS - len(self._records)
            records = RecordSearch(trials.try_slices, most=most, seconds=SEARCH_S).search(slices)
        except NotAttributable as reason:
            return _not_omitted_error(error, str(reason))
        except RangelandError as failure:
            return _not_omitted_error(error, f"they could not be read again: {failure}")
        if not records:
            return _not_omitted_error(error, "it did not fail when they were read again")
        self._records += records
        reasons = {index: dict(of_slice) for index, of_slice in self.settings.omitted.items()}
        for record in records:
            slice_ = record.slice
            reasons.setdefault(slice_.index, {})[slice_.from_offset] = str(record.raised)
            where = partition_fields(slice_.partition, slice_.from_offset)
            logger.warning("The transform fails on a record: %s", record.raised, extra=where)
        self.settings = replace(self.settings, omitted=reasons)
        return None

    def check_some_pass(self, receipts: Iterable[Receipt]) -> None:
        """Raises TransformFailed if the transform has failed on all records, and there are several
        of them or they are already in quarantine."""
        if len(self._records) <= self._most_alone:
            return
        if any(receipt.counts.landed or receipt.counts.filtered for receipt in receipts):
            return
        error = transform_error(self._name, self._records[0].raised)
        raise error.with_words(
            what=f"the transform {self._name} failed on each of the "
            f"{count_noun(len(self._records), 'record')} that it got",
            do=f"correct it, {RUN_AGAIN}; a policy only leaves records out where others land",
        )


def _not_omitted_error(error: TransformFailed, why: str) -> TransformFailed:
    policy = "`policy.undecodable` only leaves out single records on which it fails"
    return error.with_words(why=f"{error.why}; {policy}, and {why}")
