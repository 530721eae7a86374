"""The kinds of plans and their traits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final

from rangeland.errors import BadRecord, RangelandError, RangeLost, TableRefused, TransformFailed
from rangeland.planning.loss_errors import QuarantinedBytesGone


class PlanKind(StrEnum):
    """The kind of a plan: what it lands. Except for runs, every plan has its own application."""

    RUN = "run"
    BACKFILL = "backfill"
    HOLES = "missing"  # landed offsets whose rows are no longer in the table
    REDRIVE = "redrive"  # bytes in quarantine that can be decoded now
    REREAD = "reread"  # quarantined offsets, read from the log again
    REPLACE = "replace"  # landed offsets, landed again in place of the rows in the table

    @property
    def traits(self) -> PlanTraits:
        return TRAITS[self]

    def application(self, job: str, plan_hash: str) -> str:
        """The application of a plan of this kind."""
        of_job = f"rangeland/{job}"
        return of_job if self.traits.moves_checkpoint else f"{of_job}/{self.value}/{plan_hash[:12]}"

    @staticmethod
    def of_application(job: str, application: str) -> PlanKind:
        """The kind of plan that an application belongs to. This is for ledger entries that do not
        record the kind (plans of version 0.1.0, and losses), and for callers that need not read
        the plan. All others use ``Plan.kind``."""
        for kind in PlanKind:
            if application.startswith(f"rangeland/{job}/{kind.value}/"):
                return kind
        return PlanKind.RUN


def backfill_kind(*, missing: bool, replace: bool) -> PlanKind:
    """The kind of the plans that ``backfill`` makes with these options."""
    if missing:
        return PlanKind.HOLES
    return PlanKind.REPLACE if replace else PlanKind.BACKFILL


class WriteMode(Enum):
    """How the rows of a plan are added to the table."""

    ADD = auto()
    REPAIR = auto()
    """They are rows that the table has lost. If the lost rows are back, they are replaced."""
    REPLACE = auto()
    """They replace the table's rows of the same ranges."""


@dataclass(frozen=True, slots=True)
class PlanTraits:
    """The traits that all plans of one kind share."""

    planned_by: str = "run or backfill"
    """The commands that plan the same offsets again, in words."""
    title: str = ""
    """The title of a plan in a preview; empty for runs."""
    moves_checkpoint: bool = False
    """Whether a plan continues the sequence of the job's runs, which drivers of a group share."""
    resolves_bounds: bool = False
    """Whether the ranges come from the job's bounds, resolved with a survey, rather than from the
    table or the quarantine."""
    reads_log: bool = True
    """Whether a plan reads the log. Otherwise it decodes bytes in quarantine, which cannot
    change."""
    write_mode: WriteMode = WriteMode.ADD
    is_finished_first: bool = False
    """Whether every command of the job finishes such a plan before making another."""
    holds_all: bool = False
    """Whether records that a plan cannot land stay in quarantine, whatever the policy."""
    given_up_for: tuple[type[RangelandError], ...] = ()
    """Errors that every attempt would meet. They end the plan without landing anything, since it
    would block all later runs. Only for kinds whose failure leaves no rows missing."""
    stays: str = ""
    """What remains in place if the plan is given up, in words."""

    @property
    def may_remove_rows(self) -> bool:
        """Whether a plan may remove rows that the table has at its offsets."""
        return self.write_mode is not WriteMode.ADD

    @property
    def may_be_given_up(self) -> bool:
        """Whether there are errors that end a plan. Plans of such a kind hold no partitions, so if
        one has landed nothing, it was given up."""
        return bool(self.given_up_for)

    def is_given_up_for(self, error: RangelandError) -> bool:
        """Whether a plan is given up if its reading or its commit ends in this error."""
        return isinstance(error, self.given_up_for)


TRAITS: Final[Mapping[PlanKind, PlanTraits]] = {
    PlanKind.RUN: PlanTraits(moves_checkpoint=True, resolves_bounds=True),
    PlanKind.BACKFILL: PlanTraits(title="backfill", resolves_bounds=True),
    PlanKind.HOLES: PlanTraits(
        "`rangeland backfill --missing`",
        title="what is missing",
        write_mode=WriteMode.REPAIR,
        is_finished_first=True,
    ),
    PlanKind.REDRIVE: PlanTraits(
        "`rangeland redrive`",
        reads_log=False,
        is_finished_first=True,
        given_up_for=(BadRecord, TableRefused, TransformFailed, QuarantinedBytesGone),
        stays="records stay in quarantine",
    ),
    PlanKind.REREAD: PlanTraits("`rangeland redrive --from-log`", holds_all=True),
    PlanKind.REPLACE: PlanTraits(
        "`rangeland backfill --replace`",
        title="replacing",
        resolves_bounds=True,
        write_mode=WriteMode.REPLACE,
        given_up_for=(RangeLost, BadRecord, TableRefused, TransformFailed),
        stays="rows in the table stay",
    ),
}
